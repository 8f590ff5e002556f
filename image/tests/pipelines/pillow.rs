//! Checks that files on which readers disagree are decoded as by Pillow, with `exif_transpose` and
//! `convert("RGB")`. `pillow/make.py` wrote the files and Pillow's results.
#![cfg(all(feature = "png", feature = "webp", feature = "gif"))]

use std::path::PathBuf;

#[cfg(feature = "jpeg")]
use crate::jpegs;
use slotline_image::{Draw, ImageError, Pipeline, Step};

/// Returns the files, each with its name and Pillow's result.
fn files() -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pillow"));
    let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let inputs = names.filter(|name| name.contains('.') && !name.ends_with(".expected.png") && !name.ends_with(".py"));
    let readable = inputs.filter(|name| cfg!(feature = "jpeg") || !name.ends_with(".jpg"));
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    readable.map(|name| (name.clone(), read(&name), read(&format!("{name}.expected.png")))).collect()
}

/// Returns the largest allowed difference of a value from Pillow's, or `None` if the JPEG decoder
/// rejects the file. zune-jpeg rounds differently, and at the last rows and columns it interpolates
/// colours with samples beyond the picture.
fn tolerance(name: &str) -> Option<u8> {
    match name {
        _ if cfg!(feature = "turbo") => Some(if name.contains('.') { 0 } else { 1 }),
        "lost_restart.jpg" | "arithmetic" | "arithmetic_progressive" | "third" => None,
        "scan_for_each_channel" | "changed_quantisation" | "four_and_mixed" => None,
        "narrow.jpg" => Some(19),
        _ if name.ends_with(".jpg") => Some(1),
        _ if name.contains('.') => Some(0),
        _ => Some(3),
    }
}

fn most(found: &[u8], expected: &[u8]) -> u8 {
    found.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
}

/// Returns the height and width, the pixels, and the number of warnings.
fn decoded(bytes: &[u8], options: &str) -> Result<([usize; 2], Vec<u8>, u64), ImageError> {
    let size @ [height, width] = format!("{options}, center_crop(1)").parse::<Pipeline>()?.size_of(bytes)?;
    let whole: Pipeline<u8> = format!("{options}, center_crop([{height}, {width}])").parse()?;
    let mut pixels = vec![0; 3 * height * width];
    whole.decode(bytes, &mut pixels)?;
    Ok((size, pixels, whole.warnings()))
}

#[test]
fn pictures_are_what_pillow_makes_of_them() {
    let files = files();
    assert!(files.len() >= 12, "{} files", files.len());
    for (name, bytes, expected) in files {
        let Some(tolerance) = tolerance(&name) else {
            decoded(&bytes, "exif").unwrap_err();
            continue;
        };
        let (size, found, _) = decoded(&bytes, "exif").unwrap_or_else(|error| panic!("{name}: {error}"));
        let (wanted_size, wanted, _) = decoded(&expected, "exif(false)").unwrap();
        assert_eq!(size, wanted_size, "{name}");
        assert!(most(&found, &wanted) <= tolerance, "{name} has other pixels");
    }
}

#[test]
#[cfg(feature = "jpeg")]
fn warnings_of_libjpeg_are_counted_or_errors_if_strict() {
    let warned = ["adobe_transform", "exif_behind_junk", "jfif_0.00", "jfif_2.01"];
    for (name, bytes, _) in files().into_iter().filter(|(name, ..)| tolerance(name).is_some()) {
        // zune-jpeg does not report how far it read, so it accepts these files.
        let of_turbo = ["lost_restart.jpg", "zeros_before_the_end.jpg"].contains(&&name[..]) && cfg!(feature = "turbo");
        let warns = of_turbo || warned.iter().any(|start| name.starts_with(start));
        assert_eq!(decoded(&bytes, "exif").unwrap().2, u64::from(warns), "{name}");
        assert_eq!(decoded(&bytes, "strict").is_err(), warns, "{name}");
    }
}

/// Decodes one row of a picture, with or without a check of the whole file. Returns whether that
/// succeeded, and the number of warnings.
fn row(bytes: &[u8], top: usize, check: bool) -> (bool, u64) {
    let crop = Step::Crop { top, left: 40, height: 1, width: 64 };
    let [height, width] = Pipeline::new(1, 1).unwrap().size_of(bytes).unwrap();
    let pipeline: Pipeline<u8> = format!("check({check}), random_crop([1, 64])").parse().unwrap();
    let outcome = pipeline.decode_with(bytes, &Draw::new(height, width, [crop]), &mut [0; 192]);
    (outcome.is_err(), pipeline.warnings())
}

#[test]
fn damage_is_found_whatever_the_crop_is() {
    let rows: Vec<u8> = (0..160 * 120 * 3_u32).map(|i| ((i * i) >> 7) as u8).collect();
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, 160, 120);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&rows).unwrap();
    png.truncate(png.len() * 3 / 4);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pillow/damaged");
    let damaged = ["chunk", "rows"].map(|name| std::fs::read(format!("{folder}/{name}.png")).unwrap());
    for top in (0..120).step_by(7) {
        assert!(row(&png, top, true).0, "{top}");
        assert!(damaged.iter().all(|png| row(png, top, true).0), "{top}");
    }
    assert!(!row(&png, 0, false).0 && row(&png, 119, false).0);
}

#[test]
fn webps_that_are_cut_short_are_errors() {
    for (name, bytes, _) in files().into_iter().filter(|(name, ..)| name.ends_with(".webp")) {
        for len in 12..bytes.len() {
            assert!(decoded(&bytes[..len], "exif").is_err(), "{len} bytes of {name}");
        }
    }
}

#[test]
fn a_palette_of_a_wrong_length_is_an_error() {
    for len in [3, 4, 5, 91, 768, 769, 900] {
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, 1, 1);
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_palette(vec![7; len]);
        encoder.write_header().unwrap().write_image_data(&[0]).unwrap();
        assert_eq!(decoded(&png, "exif").is_err(), len % 3 != 0 || len > 768, "{len}");
    }
}

#[test]
#[cfg(feature = "jpeg")]
fn warnings_are_found_whatever_the_crop_is() {
    let pixels: Vec<u8> = (0..160 * 120 * 3_u32).map(|i| ((i * i) >> 7) as u8).collect();
    let jpeg = jpegs::compressed(&pixels, 160, jpegs::ColorType::Rgb, |_| ());
    let (rest, end) = jpeg.split_at(jpeg.len() - 2);
    // zune-jpeg does not report how far it read, so for it the extra bytes are inserted before a
    // segment.
    let longer = if cfg!(feature = "turbo") {
        [rest, &[0; 99], end].concat()
    } else {
        [&jpeg[..2], &[0; 99], &jpeg[2..]].concat()
    };
    for top in (0..120).step_by(7) {
        assert_eq!(row(&jpeg, top, true), (false, 0), "{top}");
        assert_eq!(row(&longer, top, true), (false, 1), "{top}");
        // The end of the file is missing, too.
        assert_eq!(row(rest, top, true), (true, 0), "{top}");
        assert_eq!(row(rest, top, false), (true, 0), "{top}");
    }
}

#[test]
#[cfg(feature = "jpeg")]
fn jpegs_of_unusual_kinds_and_their_crops_are_pillows() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pillow/foreign");
    let files = PathBuf::from(folder).read_dir().unwrap().map(|entry| entry.unwrap().path());
    for path in files.filter(|path| path.extension().unwrap() == "jpg") {
        let read = |extension: &str| std::fs::read(path.with_extension(extension)).unwrap();
        let (jpeg, (size, expected, _)) = (read("jpg"), decoded(&read("png"), "exif").unwrap());
        let Some(tolerance) = tolerance(path.file_stem().unwrap().to_str().unwrap()) else {
            let error = decoded(&jpeg, "exif").unwrap_err();
            assert!(matches!(error, ImageError::NeedsTurbo { .. }), "{path:?}: {error}");
            continue;
        };
        let (found_size, found, _) = decoded(&jpeg, "exif").unwrap();
        assert!(found_size == size && most(&found, &expected) <= tolerance, "{path:?}");
        // Crops a single row, and puts the colours of a pixel next to each other.
        let pipeline: Pipeline<u8> = "random_crop([1, 5])".parse::<Pipeline<u8>>().unwrap().channels_last(true);
        for (top, left) in (0..44).step_by(9).flat_map(|top| (0..=70).step_by(7).map(move |left| (top, left))) {
            let (crop, mut found) = (Step::Crop { top, left, height: 1, width: 5 }, [0; 15]);
            pipeline
                .decode_with(&jpeg, &Draw::new(44, 75, [crop]), &mut found)
                .unwrap_or_else(|error| panic!("{path:?} {left}: {error}"));
            let expected: Vec<u8> = (0..15).map(|i| expected[i % 3 * 44 * 75 + top * 75 + left + i / 3]).collect();
            assert!(most(&found, &expected) <= tolerance, "{path:?} {top} {left}");
        }
    }
}

/// Returns the error for a file whose frame header has another marker and another number of bits
/// per colour.
#[cfg(feature = "jpeg")]
fn of_another_kind(marker: u8, bits: u8) -> String {
    let mut jpeg = jpegs::compressed(&[9; 16 * 16], 16, jpegs::ColorType::Luma, |_| ());
    let frame = jpeg.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
    (jpeg[frame + 1], jpeg[frame + 4]) = (marker, bits);
    decoded(&jpeg, "exif").unwrap_err().to_string()
}

#[test]
#[cfg(feature = "jpeg")]
fn jpegs_that_cannot_be_read_are_errors_that_say_why() {
    #[cfg(not(feature = "turbo"))]
    for (marker, words) in [
        (0xc3, "a JPEG without loss, which needs the cargo feature `turbo` of slotline-image"),
        (0xc9, "a JPEG with arithmetic coding, which needs the cargo feature `turbo` of slotline-image"),
        (0xca, "a JPEG with arithmetic coding, which needs the cargo feature `turbo` of slotline-image"),
        (0xc5, "it is hierarchical"),
        (0xcb, "without loss and with arithmetic coding"),
    ] {
        let message = of_another_kind(marker, 8);
        assert!(message.contains(words), "{marker:x}: {message}");
    }
    // A build with `turbo` would return the same error.
    for marker in [0xc1, 0xc3] {
        let message = of_another_kind(marker, 12);
        assert!(message.contains("its colours have 12 bits, not 8"), "{message}");
    }
}

#[test]
#[cfg(feature = "turbo")]
fn lossless_jpegs_have_the_pixels_that_were_compressed() {
    use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};
    let pixels: Vec<u8> = (0..160 * 120 * 3_u32).map(|i| ((i * i) >> 7) as u8).collect();
    for (format, subsamp, channels) in [(PixelFormat::GRAY, Subsamp::Gray, 1), (PixelFormat::RGB, Subsamp::None, 3)] {
        let picture = Image { pixels: &pixels[..], width: 160, pitch: 160 * channels, height: 120, format };
        let mut compressor = Compressor::new().unwrap();
        compressor.set_lossless(true).unwrap();
        compressor.set_subsamp(subsamp).unwrap();
        let found = decoded(&compressor.compress_to_vec(picture).unwrap(), "exif").unwrap().1;
        let expected: Vec<u8> =
            (0..found.len()).map(|i| pixels[i % (160 * 120) * channels + i / (160 * 120) % channels]).collect();
        assert!(found == expected, "{channels} channels");
    }
}

/// Two differences from Pillow: the mean of a picture, and the largest of a value.
#[cfg(feature = "jpeg")]
type Difference = (f64, u8);

/// The differences from Pillow that the crate's documentation states for each kind of content: the
/// largest mean difference of a picture, and the largest difference of a value. There is a pair for
/// colours at full and at half resolution, each decoded at full size and at a reduced size (which
/// zune-jpeg does not have).
#[cfg(all(feature = "jpeg", not(feature = "turbo")))]
const DIFFERENCES: [(&str, [[Difference; 2]; 2]); 4] = [
    ("photograph", [[(0.2, 2); 2], [(0.5, 3); 2]]),
    ("text", [[(0.2, 2); 2], [(0.3, 2); 2]]),
    ("blocks", [[(0.2, 2); 2], [(0.4, 3); 2]]),
    ("gradient", [[(0.2, 2); 2], [(0.6, 3); 2]]),
];
#[cfg(feature = "turbo")]
const DIFFERENCES: [(&str, [[Difference; 2]; 2]); 4] = [
    ("photograph", [[(0.3, 13), (1.9, 31)], [(0.5, 24), (2.0, 48)]]),
    ("text", [[(1.4, 13), (8.5, 50)], [(2.4, 41), (8.5, 50)]]),
    ("blocks", [[(3.0, 20), (7.9, 46)], [(8.3, 82), (24.0, 166)]]),
    ("gradient", [[(0.3, 1), (0.4, 2)], [(0.3, 3), (0.5, 3)]]),
];

#[test]
#[cfg(feature = "jpeg")]
fn resized_jpegs_differ_from_pillow_as_documented() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pillow/resized"));
    for (content, by_colours) in DIFFERENCES {
        for (colours, by_mode) in ["444", "420"].into_iter().zip(by_colours) {
            let read = |kind: &str| std::fs::read(folder.join(format!("{content}_{colours}.{kind}"))).unwrap();
            let (jpeg, (_, expected, _)) = (read("jpg"), decoded(&read("png"), "exif").unwrap());
            for (reduced, (mean, largest)) in [false, true].into_iter().zip(by_mode) {
                let mut found = vec![0; 3 * 64 * 64];
                Pipeline::bytes(64, 64).unwrap().reduced(reduced).decode(&jpeg, &mut found).unwrap();
                let differences: Vec<u8> = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).collect();
                let average = differences.iter().map(|&it| f64::from(it)).sum::<f64>() / differences.len() as f64;
                let most = differences.into_iter().max().unwrap();
                assert!(average <= mean && most <= largest, "{content} {colours} {reduced}: {average} {most}");
            }
        }
    }
}
