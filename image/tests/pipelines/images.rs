//! JPEGs as samples: their pixels compared with those of a straightforward implementation, and the
//! errors for invalid files.
#![cfg(feature = "jpeg")]

use std::sync::Arc;

use crate::chain::chain;
use crate::jpegs::{ColorType, SamplingFactor, compressed};
use slotline::dataset::{Context, Dataset, from_fn};
use slotline::loader::{Budget, OnError};
use slotline::{BoxError, Error, Loader};
use slotline_image::{FileError, Format, Image, ImageError, Pipeline};

/// Returns an image of soft shapes with some noise, `channels` bytes for each pixel.
fn picture(width: usize, height: usize, channels: usize) -> Vec<u8> {
    let mut noise = 12_345_u32;
    let mut pixels = Vec::with_capacity(width * height * channels);
    for y in 0..height {
        for x in 0..width {
            let along = |at: usize, size: usize| at as f32 * (25.0 / size as f32).min(0.05);
            let (u, v) = (along(x, width), along(y, height));
            for channel in 0..channels {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let shape = (u + channel as f32).sin() * 50.0 + (v * 1.3 - u * 0.4 + channel as f32 * 2.0).cos() * 45.0;
                let edge =
                    if (x * 12 / width.max(240) + y * 12 / height.max(240)).is_multiple_of(2) { 15.0 } else { -15.0 };
                pixels.push((128.0 + shape + edge + (noise >> 28) as f32 - 8.0) as u8);
            }
        }
    }
    pixels
}

fn jpeg(width: usize, height: usize, sampling: SamplingFactor) -> Vec<u8> {
    let pixels = picture(width, height, 3);
    compressed(&pixels, width, ColorType::Rgb, |encoder| encoder.set_sampling_factor(sampling))
}

/// Returns a JPEG that stores red, green and blue, without a JFIF segment and with an Adobe
/// segment.
fn of_rgb(pixels: &[u8], width: usize) -> Vec<u8> {
    let mut jpeg = compressed(pixels, width, ColorType::Ycbcr, |encoder| {
        encoder.add_app_segment(14, b"Adobe\0\0\0\0\0\0\0".to_vec()).unwrap();
    });
    jpeg.drain(2..20);
    jpeg
}

fn grey(width: usize, height: usize) -> Vec<u8> {
    compressed(&picture(width, height, 1), width, ColorType::Luma, |_| ())
}

/// Returns the height and width, and the pixels at full size.
#[cfg(feature = "turbo")]
fn pixels(jpeg: &[u8]) -> ([usize; 2], Vec<u8>) {
    let image = turbojpeg::decompress(jpeg, turbojpeg::PixelFormat::RGB).unwrap();
    assert_eq!(image.pitch, 3 * image.width);
    ([image.height, image.width], image.pixels)
}

/// Returns the height and width, and the pixels at full size. They are those of slotline's decoder,
/// which `pillow.rs` compares with Pillow's.
#[cfg(not(feature = "turbo"))]
fn pixels(jpeg: &[u8]) -> ([usize; 2], Vec<u8>) {
    let size @ [height, width] = Pipeline::bytes(1, 1).unwrap().size_of(jpeg).unwrap();
    let whole = format!("center_crop([{height}, {width}])").parse::<Pipeline<u8>>().unwrap().channels_last(true);
    let mut pixels = vec![0; 3 * height * width];
    whole.decode(jpeg, &mut pixels).unwrap();
    (size, pixels)
}

/// Decodes to red, green and blue and resizes each channel, as PIL does, but without rounding
/// between the steps.
fn straightforward(jpeg: &[u8], height: usize, width: usize) -> Vec<f64> {
    let ([image_height, image_width], pixels) = pixels(jpeg);
    let (down, across) = (weights(image_height, height), weights(image_width, width));
    let mut out = Vec::new();
    for channel in 0..3 {
        let at = |y: usize, x: usize| f64::from(pixels[(y * image_width + x) * 3 + channel]);
        for (first_y, rows) in &down {
            let row: Vec<f64> = (0..image_width)
                .map(|x| rows.iter().enumerate().map(|(k, weight)| weight * at(first_y + k, x)).sum())
                .collect();
            for (first, columns) in &across {
                out.push(columns.iter().zip(&row[*first..]).map(|(weight, value)| weight * value).sum());
            }
        }
    }
    out
}

/// Returns the filter of one direction: for each pixel of the result the first sample, and the
/// weights from that sample on.
fn weights(samples: usize, out: usize) -> Vec<(usize, Vec<f64>)> {
    let scale = samples as f64 / out as f64;
    let width = scale.max(1.0);
    (0..out)
        .map(|i| {
            let centre = (i as f64 + 0.5) * scale;
            let first = (centre - width + 0.5).max(0.0) as usize;
            let last = ((centre + width + 0.5) as usize).min(samples);
            let weights: Vec<f64> =
                (first..last).map(|k| (1.0 - ((k as f64 + 0.5 - centre) / width).abs()).max(0.0)).collect();
            let sum: f64 = weights.iter().sum();
            (first, weights.into_iter().map(|weight| weight / sum).collect())
        })
        .collect()
}

/// Decodes the same picture with slotline, and scales the values to 0 to 255.
fn decoded(pipeline: &Pipeline, jpeg: &[u8]) -> Vec<f64> {
    let mut out = vec![f32::NAN; pipeline.shape().iter().product()];
    pipeline.decode(jpeg, &mut out).unwrap();
    out.into_iter().map(|value| f64::from(value) * 255.0).collect()
}

/// Returns the largest difference, and the signal-to-noise ratio of the whole picture in dB.
fn difference(found: &[f64], expected: &[f64]) -> (f64, f64) {
    assert_eq!(found.len(), expected.len());
    let differences = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs());
    let square: f64 = differences.clone().map(|it| it * it).sum::<f64>() / found.len() as f64;
    (differences.fold(0.0, f64::max), 10.0 * (255.0 * 255.0 / square).log10())
}

/// The sizes of pictures (`[width, height]`) and of results (`[height, width]`).
const SIZES: [([usize; 2], [usize; 2]); 9] = [
    ([500, 375], [224, 224]),
    ([375, 500], [224, 224]),
    ([333, 251], [97, 130]),
    ([224, 224], [224, 224]),
    ([61, 47], [100, 224]),
    ([1, 1], [5, 3]),
    ([2, 3], [17, 1]),
    ([17, 300], [16, 16]),
    ([900, 3], [10, 31]),
];

#[test]
fn grey_images_match_the_filter_within_a_tenth_of_a_level() {
    for ([width, height], [rows, columns]) in SIZES {
        let jpeg = grey(width, height);
        let pipeline = Pipeline::new(rows, columns).unwrap();
        let (most, _) = difference(&decoded(&pipeline, &jpeg), &straightforward(&jpeg, rows, columns));
        assert!(most < 0.1, "{width} × {height} to {columns} × {rows}: {most}");
    }
}

#[test]
fn all_subsamplings_are_close_to_the_straightforward_way() {
    use SamplingFactor::{F_1_1, F_1_2, F_1_4, F_2_1, F_2_2, F_4_1};
    for (subsamp, levels, ratio) in [
        (F_1_1, 1.5, 52.0),
        (F_2_1, 12.0, 40.0),
        (F_1_2, 12.0, 40.0),
        (F_2_2, 12.0, 40.0),
        (F_4_1, 12.0, 38.0),
        (F_1_4, 12.0, 38.0),
    ] {
        // With these factors, the encoder writes a separate scan for each channel, which only
        // `turbo` can read.
        if matches!(subsamp, F_4_1 | F_1_4) && cfg!(not(feature = "turbo")) {
            let error = refused(&jpeg(75, 44, subsamp), &["`turbo`"]);
            assert!(matches!(error, ImageError::NeedsTurbo { .. }));
            continue;
        }
        for ([width, height], [rows, columns]) in SIZES {
            let jpeg = jpeg(width, height, subsamp);
            let pipeline = Pipeline::new(rows, columns).unwrap();
            let (most, found) = difference(&decoded(&pipeline, &jpeg), &straightforward(&jpeg, rows, columns));
            println!("{subsamp:?} {width} × {height} to {columns} × {rows}: {most:.2} levels, {found:.1} dB");
            assert!(most < levels && found > ratio, "{subsamp:?} {width} × {height}: {most} levels, {found} dB");
        }
    }
}

#[test]
#[cfg(feature = "turbo")]
fn decoding_at_a_reduced_size_is_close_to_full_size() {
    use SamplingFactor::{F_1_1, F_2_1, F_2_2, F_4_1};
    for subsamp in [None, Some(F_1_1), Some(F_2_1), Some(F_2_2), Some(F_4_1)] {
        for (width, height) in [(448, 448), (501, 499), (1_001, 947), (1_801, 1_799)] {
            let jpeg = subsamp.map_or_else(|| grey(width, height), |sampling| jpeg(width, height, sampling));
            let pipeline = Pipeline::new(224, 224).unwrap();
            let [full, fast] = [false, true].map(|reduced| decoded(&pipeline.clone().reduced(reduced), &jpeg));
            let (most, ratio) = difference(&fast, &full);
            println!("{subsamp:?} {width} × {height}: {most:.2} levels, {ratio:.1} dB");
            assert!(most > 0.0, "the image was not decoded at a reduced size");
            assert!(ratio > 40.0, "{subsamp:?} {width} × {height}: {ratio} dB");
        }
    }
}

#[test]
#[cfg(feature = "turbo")]
fn reduced_sizes_are_never_smaller_than_the_target() {
    let jpeg = jpeg(500, 375, SamplingFactor::F_2_2);
    for [rows, columns] in [[224, 224], [188, 251], [189, 250]] {
        let pipeline = Pipeline::new(rows, columns).unwrap();
        assert_eq!(decoded(&pipeline, &jpeg), decoded(&pipeline.clone().reduced(true), &jpeg));
    }
    let pipeline = Pipeline::new(188, 250).unwrap();
    assert_ne!(decoded(&pipeline, &jpeg), decoded(&pipeline.clone().reduced(true), &jpeg));
}

#[test]
fn progressive_and_baseline_jpegs_decode_equally() {
    let pixels = picture(250, 190, 3);
    let [baseline, progressive] = [false, true].map(|progressive| {
        compressed(&pixels, 250, ColorType::Rgb, |encoder| {
            encoder.set_sampling_factor(SamplingFactor::F_2_2);
            encoder.set_progressive(progressive);
        })
    });
    assert_ne!(baseline, progressive);
    let pipeline = Pipeline::new(64, 64).unwrap();
    assert_eq!(decoded(&pipeline, &baseline), decoded(&pipeline, &progressive));
}

#[test]
fn rgb_and_cmyk_jpegs_decode_to_rgb() {
    let (width, height) = (333, 251);
    let rgb = of_rgb(&picture(width, height, 3), width);
    let pipeline = Pipeline::new(97, 130).unwrap();
    let small = pipeline.clone().reduced(true);
    let expected = straightforward(&rgb, 97, 130);
    let (most, _) = difference(&decoded(&pipeline, &rgb), &expected);
    assert!(most < 0.1, "{most}");
    assert!(difference(&decoded(&small, &rgb), &expected).1 > 30.0);

    // With black at its maximum, the inverted inks are equal to red, green and blue.
    let mut inks = picture(width, height, 4);
    inks.chunks_exact_mut(4).for_each(|pixel| pixel[3] = 255);
    let rgb: Vec<u8> = inks.chunks_exact(4).flat_map(|pixel| pixel[..3].to_vec()).collect();
    let same = decoded(&pipeline, &compressed(&rgb, width, ColorType::Rgb, |_| ()));
    // The inks are inverted here, since the encoder inverts them again.
    inks.iter_mut().for_each(|ink| *ink = 255 - *ink);
    for (colours, sampling) in [
        (ColorType::Cmyk, SamplingFactor::F_1_1),
        (ColorType::CmykAsYcck, SamplingFactor::F_1_1),
        (ColorType::CmykAsYcck, SamplingFactor::F_2_1),
        (ColorType::CmykAsYcck, SamplingFactor::F_2_2),
    ] {
        let jpeg = compressed(&inks, width, colours, |encoder| encoder.set_sampling_factor(sampling));
        let (_, ratio) = difference(&decoded(&pipeline, &jpeg), &same);
        assert!(ratio > if sampling == SamplingFactor::F_1_1 { 38.0 } else { 30.0 }, "{colours:?}: {ratio} dB");
    }
}

#[test]
fn floats_are_normalised_and_bytes_are_rounded() {
    let jpeg = jpeg(120, 90, SamplingFactor::F_2_2);
    let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    let plain = Pipeline::new(50, 60).unwrap();
    let mut numbers = vec![0.0; 3 * 50 * 60];
    plain.decode(&jpeg, &mut numbers).unwrap();
    let mut normalised = numbers.clone();
    plain.clone().normalize(mean, std).unwrap().decode(&jpeg, &mut normalised).unwrap();
    let mut bytes = vec![0; 3 * 50 * 60];
    Pipeline::bytes(50, 60).unwrap().decode(&jpeg, &mut bytes).unwrap();
    for (i, number) in numbers.into_iter().enumerate() {
        let channel = i / (50 * 60);
        assert!((normalised[i] - (number - mean[channel]) / std[channel]).abs() < 1e-5);
        assert!((f32::from(bytes[i]) - number * 255.0).abs() < 0.501, "{} {}", bytes[i], number * 255.0);
    }
}

fn refused(jpeg: &[u8], words: &[&str]) -> ImageError {
    let mut out = vec![0.0; 3 * 8 * 8];
    let error = Pipeline::new(8, 8).unwrap().decode(jpeg, &mut out).unwrap_err();
    let message = error.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is missing in: {message}");
    }
    assert!(!message.contains('\n') && message.len() < 300, "{message}");
    error
}

#[test]
fn errors_name_the_format_of_other_files() {
    refused(b"", &["expected a JPEG", "no bytes", "again"]);
    refused(b"II*\0....", &["a TIFF image", "convert"]);
    refused(b"<html>", &["a web page"]);
    refused(b"\x01\x02\x03", &["01, 02, 03", "check"]);
}

#[test]
fn a_truncated_jpeg_is_refused() {
    for progressive in [false, true] {
        let jpeg = compressed(&picture(60, 50, 3), 60, ColorType::Rgb, |encoder| {
            encoder.set_sampling_factor(SamplingFactor::F_2_2);
            encoder.set_progressive(progressive);
        });
        // The last two bytes are the end marker.
        for len in 2..jpeg.len() - 1 {
            let error = refused(&jpeg[..len], &["a JPEG of", "cut short"]);
            assert!(matches!(error, ImageError::Data { len: found, .. } if found == len));
        }
        let whole = Pipeline::new(8, 8).unwrap();
        whole.decode(&jpeg, &mut [0.0; 192]).unwrap();
    }
}

#[test]
fn a_jpeg_of_an_invalid_structure_is_refused() {
    for progressive in [false, true] {
        let jpeg = compressed(&picture(60, 50, 3), 60, ColorType::Rgb, |encoder| {
            encoder.set_progressive(progressive);
        });
        let whole = |jpeg: &[u8]| Pipeline::new(8, 8).unwrap().strict(true).decode(jpeg, &mut [0.0; 192]);
        whole(&jpeg).unwrap();
        // libjpeg-turbo does not read the data after the last pixel.
        let refuse = |jpeg: &[u8]| assert!(whole(jpeg).is_err() || cfg!(feature = "turbo"), "{jpeg:x?}");
        let scan = jpeg.windows(2).position(|bytes| bytes == [0xff, 0xda]).unwrap();
        let end = jpeg.len() - 2;
        for at in [scan, end] {
            let with = |bytes: &[u8]| [&jpeg[..at], bytes, &jpeg[at..]].concat();
            whole(&with(&[0xff, 0xfe, 0, 3, 7])).unwrap();
            // Inserts a second start marker, an unknown marker, and segments that are too short and
            // too long.
            for bytes in [&[0xff, 0xd8][..], &[0xff, 0x30, 0, 2], &[0xff, 0xfe, 0, 1], &[0xff, 0xfe, 0xff, 0xff]] {
                refuse(&with(bytes));
            }
        }
        let other = |at: usize, byte: u8| [&jpeg[..scan + at], &[byte], &jpeg[scan + at + 1..]].concat();
        // A scan with no channels, and one with an unknown channel.
        refused(&other(4, 0), &[]);
        refused(&other(5, 77), &[]);
        if !progressive {
            // A scan with one channel twice, and two scans with all channels.
            refused(&other(7, jpeg[scan + 5]), &[]);
            refuse(&[&jpeg[..end], &jpeg[scan..]].concat());
        } else {
            // The first scan is missing, or is there twice.
            let next = ends(&jpeg)[0];
            refuse(&[&jpeg[..scan], &jpeg[next..]].concat());
            refuse(&[&jpeg[..next], &jpeg[scan..]].concat());
        }
    }
}

#[test]
fn stray_bytes_and_a_last_restart_marker_behind_scans_change_nothing() {
    let pixels = picture(90, 70, 3);
    for (progressive, interval) in [(false, 6), (true, 0), (true, 6)] {
        let jpeg = compressed(&pixels, 90, ColorType::Rgb, |encoder| {
            encoder.set_progressive(progressive);
            encoder.set_restart_interval(interval);
        });
        let pipeline: Pipeline<u8> = "center_crop([70, 90])".parse().unwrap();
        let decode = |jpeg: &[u8]| {
            let mut found = vec![0; pixels.len()];
            pipeline.decode(jpeg, &mut found).unwrap();
            found
        };
        let ends = ends(&jpeg);
        let restarts = ends.iter().take_while(|&&end| matches!(jpeg[end + 1], 0xd0..=0xd7)).count();
        let end = ends[restarts];
        let mut stray = vec![&[0; 9][..]];
        let marker = [0xff, 0xd0 + restarts as u8 % 8];
        if interval > 0 {
            stray.push(&marker);
        }
        for bytes in stray {
            assert!(decode(&[&jpeg[..end], bytes, &jpeg[end..]].concat()) == decode(&jpeg), "{progressive} {interval}");
        }
    }
}

/// Returns the positions at which the coefficients of each scan end: at markers after the first
/// scan.
fn ends(jpeg: &[u8]) -> Vec<usize> {
    let scan = |at: &usize| jpeg[*at..].starts_with(&[0xff, 0xda]);
    let first = (0..jpeg.len()).find(scan).unwrap();
    let (mut ends, mut at) = (Vec::new(), first + 2);
    while at < jpeg.len() - 1 {
        match jpeg[at..at + 2] {
            [0xff, marker] if marker != 0 => {
                // The segments before another scan contain no coefficients.
                ends.push(at);
                at = if matches!(marker, 0xd0..=0xd9) { at } else { (at..).find(scan).unwrap() };
                at += 2;
            }
            _ => at += 1,
        }
    }
    ends
}

#[test]
fn coefficients_that_are_missing_are_an_error_if_strict_and_counted_otherwise() {
    let (width, height) = (90, 70);
    let pixels = picture(width, height, 3);
    for (progressive, optimised, interval) in
        [(false, false, 0), (false, false, 5), (false, false, 6), (true, true, 0), (true, true, 7), (true, true, 6)]
    {
        let jpeg = compressed(&pixels, width, ColorType::Rgb, |encoder| {
            encoder.set_sampling_factor(SamplingFactor::F_2_2);
            encoder.set_progressive(progressive);
            encoder.set_optimized_huffman_tables(optimised);
            encoder.set_restart_interval(interval);
        });
        let pipeline: Pipeline<u8> = "center_crop([70, 90])".parse().unwrap();
        let strict = pipeline.clone().strict(true);
        let mut whole = vec![0; pixels.len()];
        strict.decode(&jpeg, &mut whole).unwrap();
        for end in ends(&jpeg) {
            for missing in [1, 2, 3, 5, 20, 50] {
                let cut = [&jpeg[..end - missing], &jpeg[end..]].concat();
                if jpeg[end - missing - 8..end].contains(&0xff) {
                    continue;
                }
                let mut found = vec![0; pixels.len()];
                if strict.decode(&cut, &mut found).is_ok() {
                    // The last bits are replaced by ones, which changes at most one block.
                    let others = found.iter().zip(&whole).filter(|(a, b)| a != b).count();
                    assert!(missing <= 2 && others <= 3 * 18 * 18, "{progressive} {interval}, {missing}: {others}");
                    continue;
                }
                let before = pipeline.warnings();
                let outcome = pipeline.decode(&cut, &mut found);
                assert!(outcome.is_err() || pipeline.warnings() == before + 1, "{progressive} {interval}");
            }
        }
    }
}

#[test]
fn damaged_bytes_do_not_affect_later_images() {
    let jpeg = jpeg(90, 70, SamplingFactor::F_2_2);
    let pipeline = Pipeline::new(16, 16).unwrap();
    let (mut state, mut errors) = (1_u32, 0);
    for _ in 0..2_000 {
        let mut damaged = jpeg.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (state >> 8) as usize % damaged.len();
            damaged[at] = state as u8;
        }
        let mut out = [f32::NAN; 768];
        match pipeline.decode(&damaged, &mut out) {
            Ok(()) => assert!(out.iter().all(|value| (0.0..=1.0).contains(value))),
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 100, "{errors}");
    // Checks that earlier pictures do not affect later ones on the same thread.
    let before = decoded(&pipeline, &jpeg);
    let other = std::thread::spawn(move || decoded(&Pipeline::new(16, 16).unwrap(), &jpeg)).join().unwrap();
    assert_eq!(before, other);
}

#[test]
fn a_file_with_only_tables_has_no_image() {
    let jpeg = jpeg(30, 20, SamplingFactor::F_1_1);
    let frame = jpeg.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
    refused(&[&jpeg[..frame], &[0xff, 0xd9]].concat(), &["it contains no image"]);
}

#[test]
fn black_is_zero_without_a_sign() {
    let pixels = [0; 30 * 20 * 3];
    for black in [compressed(&pixels, 30, ColorType::Rgb, |_| ()), of_rgb(&pixels, 30)] {
        let mut out = vec![f32::NAN; 3 * 8 * 8];
        Pipeline::new(8, 8).unwrap().decode(&black, &mut out).unwrap();
        assert!(out.iter().all(|value| (0.0..0.001).contains(value) && value.is_sign_positive()), "{out:?}");
    }
}

#[test]
fn an_image_above_the_limit_is_refused_before_decoding() {
    let mut jpeg = jpeg(64, 64, SamplingFactor::F_1_1);
    let pipeline = Pipeline::new(8, 8).unwrap().max_pixels(64 * 63);
    let error = pipeline.decode(&jpeg, &mut [0.0; 192]).unwrap_err();
    assert_eq!(error, ImageError::TooLarge { format: Format::Jpeg, width: 64, height: 64, limit: 64 * 63 });
    // Changes the header so that it claims the maximum size.
    let frame = jpeg.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    let error = refused(&jpeg, &["65500 × 65500", "178956970", "max_pixels"]);
    assert!(matches!(error, ImageError::TooLarge { .. }));
}

#[test]
fn invalid_pipelines_are_refused() {
    for (height, width) in [(0, 5), (5, 0), (65_536, 1), (1, usize::MAX)] {
        for error in [Pipeline::new(height, width).unwrap_err(), Pipeline::bytes(height, width).unwrap_err()] {
            let message = error.to_string();
            assert!(message.contains(&format!("Resize: size is {height} × {width};")), "{message}");
        }
    }
    for (mean, std) in [(f32::NAN, 1.0), (f32::INFINITY, 1.0), (0.5, 0.0), (0.5, -1.0), (0.5, f32::NAN), (0.5, 1e-45)] {
        let error = Pipeline::new(5, 5).unwrap().normalize([0.5, mean, 0.5], [1.0, std, 1.0]).unwrap_err();
        assert!(error.to_string().contains("channel 1 "), "{error}");
    }
}

#[test]
#[should_panic(expected = "[3, 8, 8]")]
fn an_output_of_the_wrong_length_panics() {
    let _ = Pipeline::new(8, 8).unwrap().decode(&[], &mut [0.0; 191]);
}

struct Photos {
    files: Vec<Vec<u8>>,
    pipeline: Pipeline,
}

impl Dataset for Photos {
    type Sample<'a> = (Image<'a>, i64);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        Ok((Image::new(&self.files[index], &self.pipeline), index as i64))
    }
}

#[test]
fn batches_are_the_same_for_any_number_of_workers() {
    let files: Vec<_> = (0..20).map(|i| jpeg(100 + i * 7, 160 - i * 3, SamplingFactor::F_2_2)).collect();
    let pipeline = Pipeline::new(33, 47).unwrap();
    let expected: Vec<Vec<f32>> = files
        .iter()
        .map(|file| {
            let mut out = vec![0.0; 3 * 33 * 47];
            pipeline.decode(file, &mut out).unwrap();
            out
        })
        .collect();
    for workers in 0..3 {
        let photos = Photos { files: files.clone(), pipeline: pipeline.clone() };
        let mut loader =
            Loader::builder(photos).batch_size(6).shuffle(true).seed(1).num_workers(workers).build().unwrap();
        let mut seen = 0;
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            let (images, labels) = batch.tensors();
            assert_eq!(images.shape()[1..], [3, 33, 47]);
            for (image, &label) in images.as_slice().chunks_exact(3 * 33 * 47).zip(labels.as_slice()) {
                assert_eq!(image, expected[label as usize]);
                seen += 1;
            }
        }
        assert_eq!(seen, 20);
    }
}

#[test]
fn a_bad_image_fails_its_batch_and_names_the_index() {
    let good = Arc::new(jpeg(50, 40, SamplingFactor::F_2_2));
    let mut files: Vec<_> = (0..8).map(|_| good.to_vec()).collect();
    files[5].truncate(300);
    let mut loader =
        Loader::builder(Photos { files, pipeline: Pipeline::new(8, 8).unwrap() }).batch_size(2).build().unwrap();
    let batches: Vec<_> = loader.epoch().unwrap().map(|batch| batch.map(drop)).collect();
    assert_eq!(batches.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, true]);
    let message = chain(batches[2].as_ref().unwrap_err());
    assert!(message.contains("5") && message.contains("a JPEG of 300 bytes"), "{message}");
}

#[test]
fn a_bad_image_from_a_file_names_the_file() {
    let bytes = jpeg(50, 40, SamplingFactor::F_2_2)[..300].to_vec();
    let folder = from_fn(1, move |_, _| {
        // The pipeline is leaked, so that it lives as long as the process.
        let pipeline = Box::leak(Box::new(Pipeline::new(8, 8)?));
        Ok(Image::new(bytes.clone().leak(), pipeline).path("cats/tabby 7.jpg"))
    });
    let mut loader = Loader::builder(folder).build().unwrap();
    let error = loader.epoch().unwrap().next().unwrap().unwrap_err();
    let message = chain(&error);
    assert!(message.contains("cats/tabby 7.jpg: a JPEG of 300 bytes"), "{message}");
    let Error::Sample { source, .. } = error else { panic!("{error}") };
    assert!(matches!(source.downcast_ref::<FileError>().unwrap().error, ImageError::Data { len: 300, .. }));
}

#[test]
fn damaged_images_can_be_skipped_or_replaced() {
    let mut files: Vec<_> = (0..40).map(|i| jpeg(50 + i, 40, SamplingFactor::F_2_2)).collect();
    for bad in [0, 17, 18, 39] {
        files[bad].truncate(300);
    }
    let whole = |label: usize| {
        let mut out = vec![0.0; 3 * 8 * 8];
        Pipeline::new(8, 8).unwrap().decode(&files[label], &mut out).unwrap();
        out
    };
    let skip = OnError::Skip(Budget::Samples(4));
    for on_error in [skip, OnError::Replace(Budget::Share(0.2))] {
        for workers in 0..3 {
            let photos = Photos { files: files.clone(), pipeline: Pipeline::new(8, 8).unwrap() };
            let builder = Loader::builder(photos).batch_size(4).seed(3).num_workers(workers).on_error(on_error);
            let mut loader = builder.build().unwrap();
            let mut sizes = Vec::new();
            for batch in loader.epoch().unwrap() {
                let batch = batch.unwrap();
                let (images, labels) = batch.tensors();
                assert_eq!(labels.as_slice(), batch.indices());
                for (image, &label) in images.as_slice().chunks_exact(3 * 8 * 8).zip(labels.as_slice()) {
                    assert_eq!(image, whole(label as usize), "{on_error:?}, {workers} workers");
                }
                sizes.push(batch.len());
            }
            let expected = if on_error == skip { [3, 4, 4, 4, 2, 4, 4, 4, 4, 3] } else { [4; 10] };
            assert_eq!(sizes, expected, "{on_error:?}, {workers} workers");
            assert_eq!(loader.stats().bad_indices, [0, 17, 18, 39]);
        }
    }
}
