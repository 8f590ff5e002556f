//! Checks that exact pipelines give, bit for bit, the results of torchvision's transforms of PIL
//! images, and that tensors are resized as by torch. `exact/make.py` wrote the digests of
//! torchvision's results to `exact/cases.txt`.

use slotline_image::{ImageError, Pipeline};

#[test]
fn what_cannot_be_exact_is_an_error_that_says_why() {
    let error = |text: &str| match text.parse::<Pipeline>() {
        Ok(pipeline) => panic!("{pipeline}"),
        Err(error) => error.to_string(),
    };
    assert!(error("resize([8, 8], bicubic)").contains("which needs the option exact"));
    assert!(error("random_resized_crop(8, interpolation=lanczos)").contains("which needs the option exact"));
    if cfg!(all(feature = "jpeg", not(feature = "turbo"))) {
        assert!(error("exact, resize([8, 8])").contains("needs the cargo feature `turbo`"));
        return;
    }
    assert!(error("exact, reduced, resize([8, 8])").contains("excludes reduced"));
    for transform in ["gaussian_blur(3)", "random_apply('color_jitter(0.3), gaussian_blur(3)')"] {
        let message = error(&format!("exact, center_crop(8), {transform}"));
        assert!(message.contains("has no exact results"), "{message}");
    }
    let pipeline: Pipeline = "exact, resize(9, interpolation=nearest_exact), center_crop(8)".parse().unwrap();
    assert_eq!(pipeline.to_string(), "exact, resize(9, interpolation=nearest), center_crop(8)");
    for policy in ["rand_augment(interpolation=bilinear)", "trivial_augment_wide", "auto_augment(policy=svhn)"] {
        let text = format!("exact, center_crop(8), random_apply('{policy}', p=0.9)");
        assert_eq!(text.parse::<Pipeline>().unwrap().to_string(), text);
    }
    assert!(matches!("exact, hflip".parse::<Pipeline>(), Err(ImageError::Parameter { .. })));
}

#[cfg(feature = "turbo")]
mod results {
    use std::collections::HashMap;
    use std::path::Path;

    use slotline::rng::SampleRng;
    use slotline_image::{
        Affine, Draw, ExactPlan, ExactSource, Interpolation, Operation, Operations, Pipeline, Pixel, Resampling,
        Resizer, Step,
    };

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

    /// Returns the bytes of the file with this name, or of a picture that is computed from the
    /// numbers in the name.
    fn file(name: &str) -> Vec<u8> {
        let mut numbers = name.split(':').map(|number| number.parse::<u32>());
        let [Some(Ok(seed)), Some(Ok(height)), Some(Ok(width))] = [(); 3].map(|()| numbers.next()) else {
            return std::fs::read(Path::new(FOLDER).join(name)).unwrap();
        };
        let pixel = |i: u32| (i.wrapping_mul(i).wrapping_mul(seed).wrapping_add(i.wrapping_mul(31)) >> 7) as u8;
        let pixels: Vec<u8> = (0..height * width * 3).map(pixel).collect();
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        png
    }

    /// Parses operations.
    fn operations(text: &str) -> Operations {
        let words: Vec<&str> = text.split(' ').collect();
        let operation = |words: &[&str]| {
            let [kind, magnitude, mode, fill @ ..] = words else { panic!("{words:?}") };
            let number: f64 = magnitude.parse().unwrap();
            let interpolation = if *mode == "nearest" { Interpolation::Nearest } else { Interpolation::Bilinear };
            let fill = [0, 1, 2].map(|c| fill[c].parse().unwrap());
            let affine = |by| Operation::Affine { by, interpolation, fill };
            Some(match *kind {
                "Identity" => return None,
                "ShearX" => affine(Affine::ShearX(number)),
                "ShearY" => affine(Affine::ShearY(number)),
                "TranslateX" => affine(Affine::TranslateX(number as i32)),
                "TranslateY" => affine(Affine::TranslateY(number as i32)),
                "Rotate" => affine(Affine::Rotate(number)),
                "Brightness" => Operation::AdjustBrightness(1.0 + number),
                "Color" => Operation::AdjustSaturation(1.0 + number),
                "Contrast" => Operation::AdjustContrast(1.0 + number),
                "Sharpness" => Operation::AdjustSharpness(1.0 + number),
                "Posterize" => Operation::Posterize(number as u8),
                "Solarize" => Operation::Solarize(number),
                "AutoContrast" => Operation::AutoContrast,
                "Equalize" => Operation::Equalize,
                "Invert" => Operation::Invert,
                _ => panic!("{kind}"),
            })
        };
        words.chunks(6).filter_map(operation).collect()
    }

    /// Decodes with the crop or the operations in `drawn`, in place of random ones.
    fn decoded<T: Pixel + Default>(bytes: &[u8], text: &str, drawn: &str) -> Vec<T> {
        let pipeline: Pipeline<T> = format!("exact, {text}").parse().unwrap();
        let [height, width] = pipeline.size_of(bytes).unwrap();
        let draw = pipeline.draw(&mut SampleRng::new(1, 0, 0), height, width).unwrap();
        let mut numbers = drawn.split(' ').map(|number| number.parse().unwrap());
        let steps = draw.steps().iter().map(|step| match step {
            Step::Crop { .. } => {
                let [top, left, height, width] = [(); 4].map(|()| numbers.next().unwrap());
                Step::Crop { top, left, height, width }
            }
            Step::Operations(_) if drawn != "-" => Step::Operations(operations(drawn)),
            other => other.clone(),
        });
        let mut out = vec![T::default(); pipeline.shape().iter().product()];
        pipeline.decode_with(bytes, &Draw::new(height, width, steps), &mut out).unwrap();
        out
    }

    /// Resizes as a tensor, with the filter, the height and the width in `text`.
    fn resized_tensor(bytes: &[u8], text: &str) -> Vec<u8> {
        let [filter, height, width] = text.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let resampling = match filter {
            "bilinear" => Resampling::Bilinear,
            "bicubic" => Resampling::Bicubic,
            _ => Resampling::Lanczos,
        };
        let source = ExactSource::File(bytes);
        let [rows, columns] = source.size().unwrap();
        let mut plan = ExactPlan::new(rows, columns).unwrap();
        plan.resize([height, width].map(|side| side.parse().unwrap()), resampling, Resizer::Torch).unwrap();
        plan.run(source, <[u8]>::to_vec).unwrap()
    }

    fn digest(bytes: impl IntoIterator<Item = u8>) -> String {
        let start = 0xcbf2_9ce4_8422_2325_u64;
        let end = bytes.into_iter().fold(start, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        format!("{end:016x}")
    }

    #[test]
    fn are_those_of_torchvision() {
        let cases = std::fs::read_to_string(format!("{FOLDER}/exact/cases.txt")).unwrap();
        let (mut wrong, mut files) = (Vec::new(), HashMap::new());
        for case in cases.lines() {
            let [name, text, drawn, kind, expected] = case.split('|').collect::<Vec<_>>().try_into().unwrap();
            let bytes = files.entry(name).or_insert_with(|| file(name));
            let found = match (text.strip_prefix("tensor "), kind) {
                (Some(text), _) => digest(resized_tensor(bytes, text)),
                (None, "u8") => digest(decoded::<u8>(bytes, text, drawn)),
                _ => digest(decoded::<f32>(bytes, text, drawn).into_iter().flat_map(f32::to_le_bytes)),
            };
            if found != expected {
                wrong.push(case);
            }
        }
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.lines().count(), wrong.join("\n"));
    }

    #[test]
    fn of_a_crop_are_those_of_the_whole_picture() {
        for name in ["exact/photograph.jpg", "pillow/resized/photograph_444.jpg", "pillow/foreign/restarts.jpg"] {
            let bytes = file(name);
            let [height, width] = "center_crop(1)".parse::<Pipeline>().unwrap().size_of(&bytes).unwrap();
            let whole = decoded::<u8>(&bytes, &format!("center_crop([{height}, {width}])"), "");
            for top in (0..height - 5).step_by(7) {
                let left = top * 13 % (width - 6);
                let found = decoded::<u8>(&bytes, "check(false), random_crop([5, 6])", &format!("{top} {left} 5 6"));
                let at = |i: usize| ((i / 30 * height) + top + i / 6 % 5) * width + left + i % 6;
                assert!(found.iter().enumerate().all(|(i, &value)| value == whole[at(i)]), "{name} {top} {left}");
            }
        }
    }
}
