//! Pictures of extreme sizes, files that claim such sizes, and truncated files.
#![cfg(feature = "png")]

use slotline::rng::SampleRng;
use slotline_image::transform::{CenterCrop, ColorJitter, GaussianBlur, RandomCrop, Resize};
use slotline_image::{Draw, ImageError, PaddingMode, Pipeline, Seed, Step};

fn png(width: u32, height: u32, color: png::ColorType, samples: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.write_header().unwrap().write_image_data(samples).unwrap();
    bytes
}

/// Returns a picture that is a row of 65,500 grey pixels.
fn line() -> Vec<u8> {
    let samples: Vec<u8> = (0..65_500_u32).map(|x| (x * 37 % 251) as u8).collect();
    png(65_500, 1, png::ColorType::Grayscale, &samples)
}

#[test]
fn a_longer_side_beyond_all_limits_keeps_its_proportion() {
    let pipeline: Pipeline<u8> = "resize(256), center_crop([3, 700])".parse().unwrap();
    let mut out = vec![0; 3 * 3 * 700];
    pipeline.decode(&line(), &mut out).unwrap();
    // Each pixel becomes 256 pixels of the result. The middle of the result is the border between
    // the pixels 32,749 and 32,750.
    let pixel = |x: u32| (x * 37 % 251) as f64;
    for (x, &found) in out[..700].iter().enumerate() {
        let at = 32_750.0 + (x as f64 - 350.0 + 0.5) / 256.0 - 0.5;
        let part = at.fract();
        let wanted = pixel(at as u32) * (1.0 - part) + pixel(at as u32 + 1) * part;
        assert!((f64::from(found) - wanted).abs() < 1.01, "{x}: {found} {wanted}");
    }
    // Boxes are scaled by the same factor.
    let draw = pipeline.draw(&mut SampleRng::new(0, 0, 0), 1, 65_500).unwrap();
    let mut boxes = [[32_750.0, 0.0, 32_751.0, 1.0]];
    pipeline.boxes(&draw, &mut boxes).unwrap();
    assert_eq!(boxes, [[350.0, 0.0, 606.0, 3.0]]);
}

#[test]
fn one_colour_stays_the_same_however_much_it_is_shrunk() {
    for (width, height, colour) in [(3_000, 3_000, 0), (65_000, 1, 0), (65_000, 1, 100), (5, 65_000, 255)] {
        let file = png(width, height, png::ColorType::Grayscale, &vec![colour; (width * height) as usize]);
        let mut out = [7; 12];
        Pipeline::bytes(2, 2).unwrap().decode(&file, &mut out).unwrap();
        assert_eq!(out, [colour; 12], "{width} × {height}");
    }
}

#[test]
fn a_picture_that_is_too_large_between_two_transforms_is_an_error() {
    let builder = || Pipeline::builder().then(Resize::new(256)).then(ColorJitter::new(0.5, 0.0, 0.0, 0.0));
    let pipeline: Pipeline = builder().then(CenterCrop::new(8)).build().unwrap();
    let error = pipeline.decode_seeded(&line(), Seed(1), &mut [0.0; 192]).unwrap_err();
    assert_eq!(
        error,
        ImageError::TooLargeBetween { picture: [1, 65_500], between: [256, 16_768_000], limit: 178_956_970 }
    );
    assert!(error.to_string().contains("65500 × 1 pixels has 16768000 × 256"), "{error}");
    assert_eq!(pipeline.memory(1, 65_500).unwrap_err(), error);
    // The number of pixels is limited, too; results may have more pixels than the limit.
    let pipeline = pipeline.max_pixels(1000);
    let small = png(10, 10, png::ColorType::Grayscale, &[7; 100]);
    let error = pipeline.decode_seeded(&small, Seed(1), &mut [0.0; 192]).unwrap_err();
    assert!(matches!(error, ImageError::TooLargeBetween { limit: 1000, .. }), "{error}");
    let pipeline: Pipeline =
        Pipeline::builder().then(Resize::new([40, 40])).then(GaussianBlur::new(3)).build().unwrap();
    pipeline.max_pixels(1000).decode_seeded(&small, Seed(1), &mut [0.0; 4800]).unwrap();
}

#[test]
fn results_of_too_many_pixels_are_an_error_of_the_pipeline() {
    let builder = Pipeline::builder().then(CenterCrop::new([1, 60_000])).then(Resize::new(60_000));
    let error = builder.build::<u8>().unwrap_err();
    assert!(error.to_string().contains("results have 60000 × 3600000000 pixels"), "{error}");
}

#[test]
fn small_pictures_and_large_padding() {
    let dot = png(1, 1, png::ColorType::Rgb, &[255, 0, 9]);
    for mode in [PaddingMode::Constant, PaddingMode::Edge, PaddingMode::Reflect, PaddingMode::Symmetric] {
        let crop = RandomCrop { padding_mode: mode, pad_if_needed: true, ..RandomCrop::new([5, 3]).padding(65_535) };
        let pipeline: Pipeline<u8> = Pipeline::builder().then(crop).build().unwrap();
        let outcome = pipeline.decode_seeded(&dot, Seed(5), &mut [7; 45]);
        let mirrored = matches!(mode, PaddingMode::Reflect | PaddingMode::Symmetric);
        assert_eq!(outcome.is_err(), mirrored, "{mode:?}: {outcome:?}");
    }
    let pipeline: Pipeline<u8> = "resize(65535), center_crop(3)".parse().unwrap();
    let mut out = [0; 27];
    pipeline.decode(&dot, &mut out).unwrap();
    assert_eq!(out, std::array::from_fn(|i| [255, 0, 9][i / 9]));
}

/// Returns a file of each format, with the position and the bytes of a change that makes it claim a
/// huge size.
fn files() -> Vec<(&'static str, Vec<u8>, usize, Vec<u8>)> {
    let mut files = vec![(
        "PNG",
        png(5, 4, png::ColorType::Rgb, &[100; 60]),
        16,
        [65_000_u32.to_be_bytes(), 65_000_u32.to_be_bytes()].concat(),
    )];
    // The checksum of a PNG's header must be updated, since it is checked.
    let start = files[0].1[12..16].to_vec();
    let rest = files[0].1[24..29].to_vec();
    let sum = crc([&start[..], &files[0].3, &rest].concat());
    files[0].3 = [&files[0].3[..], &rest, &sum.to_be_bytes()].concat();
    if cfg!(feature = "gif") {
        let gif =
            b"GIF89a\x02\0\x01\0\x80\0\0\x0a\x14\x1e\xff\xff\xff,\0\0\0\0\x02\0\x01\0\0\x02\x02\x44\x0a\0;".to_vec();
        files.push(("GIF", gif, 6, [65_000_u16.to_le_bytes(), 65_000_u16.to_le_bytes()].concat()));
    }
    if cfg!(feature = "bmp") {
        let head = [62_u32, 0, 54, 40, 2, 1, 24 << 16 | 1, 0, 8, 0, 0, 0, 0];
        let bmp = [&b"BM"[..], &head.map(u32::to_le_bytes).concat(), &[1, 2, 3, 4, 5, 6, 0, 0]].concat();
        files.push(("BMP", bmp, 18, [65_000_u32.to_le_bytes(), 65_000_u32.to_le_bytes()].concat()));
    }
    files
}

fn crc(bytes: Vec<u8>) -> u32 {
    !bytes.into_iter().fold(!0, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
    })
}

#[test]
fn files_that_claim_to_be_huge_are_rejected_before_they_are_read() {
    let pipeline = Pipeline::new(2, 2).unwrap();
    for (format, file, at, claim) in files() {
        pipeline.decode(&file, &mut [0.0; 12]).unwrap_or_else(|error| panic!("{format}: {error}"));
        let bomb = [&file[..at], &claim, &file[at + claim.len()..]].concat();
        let error = pipeline.decode(&bomb, &mut [0.0; 12]).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { width: 65_000, height: 65_000, .. }), "{format}: {error}");
    }
}

#[test]
fn files_that_are_cut_short_are_errors() {
    let pipeline = Pipeline::new(2, 2).unwrap();
    for (format, file, ..) in files() {
        for len in 0..file.len() {
            match pipeline.decode(&file[..len], &mut [0.0; 12]) {
                Err(ImageError::Unknown { .. } | ImageError::Data { .. }) => {}
                // Only bytes after the last row may be missing.
                Ok(()) => assert!(len + 20 >= file.len(), "{format}, {len} of {} bytes", file.len()),
                Err(other) => panic!("{format}, {len} bytes: {other}"),
            }
        }
    }
}

#[test]
#[cfg(feature = "webp")]
fn a_webp_cannot_hide_a_frame_or_a_chunk_of_another_size() {
    // A picture of 7 × 6 pixels with an orientation. Its frame starts at byte 30, and its
    // orientation at byte 74.
    let file = include_bytes!("../pictures/exif.webp");
    let pipeline = Pipeline::bytes(2, 2).unwrap();
    let decode = |file: &[u8]| pipeline.clone().exif(true).decode(file, &mut [0; 12]);
    decode(file).unwrap();
    let mut frame = file.to_vec();
    frame[44..48].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    let error = decode(&frame).unwrap_err().to_string();
    assert!(error.contains("16383 × 16383 pixels where 7 × 6"), "{error}");
    // The chunk with the orientation claims 4 GB, which must not be allocated.
    let mut chunk = file.to_vec();
    chunk[78..82].copy_from_slice(&[0xf0, 0xff, 0xff, 0xff]);
    let _ = decode(&chunk);
    // Frames are nested in frames without an end.
    let deep = [&file[..30], &b"ANMF\xff\xff\xff\x7f0123456789abcdef".repeat(100_000)].concat();
    decode(&deep).unwrap_err();
}

#[test]
fn draws_for_impossible_sizes_are_errors() {
    let pipeline: Pipeline = "resize(5, max_size=7), random_crop(5, padding=3, padding_mode=reflect)".parse().unwrap();
    for (height, width) in [(0, 5), (5, 0), (65_536, 5), (usize::MAX, usize::MAX)] {
        let crop = Step::Crop { top: 0, left: 0, height: 5, width: 5 };
        let draw = Draw::new(height, width, [Step::Fixed, crop]);
        let error = pipeline.boxes(&draw, &mut [[0.0; 4]]).unwrap_err();
        assert!(error.to_string().contains("each side is between 1 and 65535"), "{error}");
        assert_eq!(pipeline.draw(&mut SampleRng::new(0, 0, 0), height, width).unwrap_err(), error);
    }
}

/// Returns a grey progressive JPEG with this many scans, whose coefficients are all zero. Each scan
/// takes a few bytes.
#[cfg(feature = "jpeg")]
fn of_scans(side: u16, scans: usize) -> Vec<u8> {
    fn segment(jpeg: &mut Vec<u8>, marker: u8, data: &[u8]) {
        jpeg.extend([0xff, marker]);
        jpeg.extend((data.len() as u16 + 2).to_be_bytes());
        jpeg.extend(data);
    }
    fn codes(bits: impl Iterator<Item = bool>) -> Vec<u8> {
        let mut bits: Vec<bool> = bits.collect();
        bits.resize(bits.len().next_multiple_of(8), true);
        let byte = |bits: &[bool]| bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
        // A byte of ones must be followed by a zero byte.
        bits.chunks(8).map(byte).flat_map(|byte| [Some(byte), (byte == 0xff).then_some(0)]).flatten().collect()
    }
    let mut jpeg = vec![0xff, 0xd8];
    segment(&mut jpeg, 0xdb, &[&[0][..], &[1; 64]].concat());
    let [high, low] = side.to_be_bytes();
    segment(&mut jpeg, 0xc2, &[8, high, low, high, low, 1, 1, 0x11, 0]);
    // Define one code for DC coefficients. For AC coefficients, define a code for a run of 2^14 or
    // more empty blocks, and one for the end of a block.
    segment(&mut jpeg, 0xc4, &[&[0, 1][..], &[0; 15], &[0]].concat());
    segment(&mut jpeg, 0xc4, &[&[0x10, 1, 1][..], &[0; 14], &[0xe0, 0]].concat());
    let blocks = usize::from(side).div_ceil(8).pow(2);
    segment(&mut jpeg, 0xda, &[1, 1, 0, 0, 0, 0]);
    jpeg.extend(codes(std::iter::repeat_n(false, blocks)));
    let (mut runs, mut left) = (Vec::new(), blocks);
    while left > 0 {
        let run = left.min((1 << 15) - 1);
        if run < 1 << 14 {
            runs.extend([true, false]);
            left -= 1;
        } else {
            runs.push(false);
            runs.extend((0..14).rev().map(|bit| (run - (1 << 14)) >> bit & 1 == 1));
            left -= run;
        }
    }
    let coefficients = (1..64).flat_map(|at| (0..14).rev().map(move |bit| (at, bit)));
    for (at, bit) in coefficients.take(scans - 1) {
        let high = if bit == 13 { 0 } else { bit + 1 };
        segment(&mut jpeg, 0xda, &[1, 1, 0, at, at, high << 4 | bit]);
        jpeg.extend(codes(runs.iter().copied()));
    }
    jpeg.extend([0xff, 0xd9]);
    jpeg
}

#[test]
#[cfg(feature = "jpeg")]
fn the_scans_of_a_jpeg_have_a_limit_that_depends_on_its_size() {
    let pipeline = Pipeline::bytes(2, 2).unwrap();
    let decode = |side, scans| pipeline.decode(&of_scans(side, scans), &mut [7; 12]);
    for (side, scans) in [(64, 490), (1024, 250), (4096, 30)] {
        decode(side, scans).unwrap();
    }
    for (side, scans) in [(64, 510), (1024, 270), (4096, 40), (8192, 500)] {
        let begun = std::time::Instant::now();
        let error = decode(side, scans).unwrap_err().to_string();
        assert!(error.contains("scans"), "{error}");
        assert!(begun.elapsed().as_secs() < 30, "{side}: {:?}", begun.elapsed());
    }
}

/// Like [`of_scans`], with a channel whose name is 255.
#[cfg(feature = "jpeg")]
fn of_scans_of_255(side: u16, scans: usize) -> Vec<u8> {
    let mut jpeg = of_scans(side, scans);
    let frame = jpeg.windows(2).position(|bytes| bytes == [0xff, 0xc2]).unwrap();
    jpeg[frame + 10] = 255;
    for at in frame..jpeg.len() {
        if jpeg[at..].starts_with(&[0xff, 0xda, 0, 8, 1]) {
            jpeg[at + 5] = 255;
        }
    }
    jpeg
}

#[test]
#[cfg(feature = "jpeg")]
fn scans_cannot_hide_in_a_jpeg() {
    let pipeline = Pipeline::bytes(2, 2).unwrap();
    let decode = |jpeg: &[u8]| pipeline.decode(jpeg, &mut [7; 12]);
    let jpeg = of_scans_of_255(4096, 3);
    decode(&jpeg).unwrap();
    // The name 255 and the table numbers 0xc0 look like the marker of a frame header, and the
    // coefficients look like the header's length.
    let scans = [0xff, 0xda, 0, 8, 1, 0xff, 0, 1, 63, 0].repeat(1_600);
    let mut hidden = [&[0xff, 0xda, 0, 8, 1, 0xff, 0xc0, 0x3f, 0x3f, 0][..], &scans].concat();
    hidden.resize(6 + 0x3f3f, 0);
    let begun = std::time::Instant::now();
    let error = decode(&[&jpeg[..jpeg.len() - 2], &hidden, &[0xff, 0xd9]].concat()).unwrap_err().to_string();
    assert!(error.contains("scans") || cfg!(feature = "turbo"), "{error}");
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
}
