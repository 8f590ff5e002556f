//! Checks that crops, resizes, flips and padding give torchvision's pixels for the same draws.
//! `torchvision/make.py` wrote the expected results.

use slotline_image::transform::{
    CenterCrop, RandAugment, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, RandomVerticalFlip, Resize, Transform,
};
use slotline_image::{Affine, Draw, Erasing, Interpolation, Operation, PaddingMode, Pipeline, Step};

fn file(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/torchvision/{name}.png"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the largest and the mean difference from torchvision's picture, in levels of 255.
fn difference(name: &str, transforms: Vec<Transform>, steps: Vec<Step>) -> (u8, f64) {
    let mut builder = Pipeline::builder();
    for transform in transforms {
        builder = builder.then(transform);
    }
    let pipeline: Pipeline<u8> = builder.build().unwrap();
    let wanted = file(name);
    let [_, height, width] = pipeline.shape();
    let (mut ours, mut theirs) = (vec![0; 3 * height * width], vec![0; 3 * height * width]);
    pipeline.decode_with(&file("picture"), &Draw::new(90, 120, steps), &mut ours).unwrap();
    // Decoded at its own size, the expected picture is not resized.
    Pipeline::bytes(height, width).unwrap().decode(&wanted, &mut theirs).unwrap();
    let differences = || ours.iter().zip(&theirs).map(|(ours, theirs)| ours.abs_diff(*theirs));
    let sum: u64 = differences().map(u64::from).sum();
    (differences().max().unwrap(), sum as f64 / ours.len() as f64)
}

const CROP: Step = Step::Crop { top: 13, left: 22, height: 51, width: 70 };

#[test]
fn crops_that_are_resized_and_flipped_are_within_two_levels() {
    let crop = || Transform::from(RandomResizedCrop::new([48, 40]));
    let flip = || Transform::from(RandomHorizontalFlip::new(0.5));
    let enlarged = Step::Crop { top: 60, left: 5, height: 20, width: 24 };
    for (name, transforms, steps) in [
        ("resized_crop", vec![crop()], vec![CROP]),
        ("resized_crop", vec![crop(), flip()], vec![CROP, Step::Apply(false)]),
        ("resized_crop_flipped", vec![crop(), flip()], vec![CROP, Step::Apply(true)]),
        ("enlarged_crop", vec![crop()], vec![enlarged]),
        (
            "resize_center_crop",
            vec![Resize::new(56).into(), CenterCrop::new([48, 40]).into()],
            vec![Step::Fixed, Step::Fixed],
        ),
    ] {
        let (most, mean) = difference(name, transforms, steps);
        assert!(most <= 2 && mean < 0.5, "{name}: {most} at most, {mean} on average");
    }
}

#[test]
fn what_is_not_resized_is_the_same() {
    let flip = vec![RandomVerticalFlip::new(0.5).into(), Resize::new([90, 120]).into()];
    assert_eq!(difference("vertical_flip", flip, vec![Step::Apply(true), Step::Fixed]), (0, 0.0));
    let crop = Step::Crop { top: 2, left: 80, height: 48, width: 40 };
    for (name, padding_mode) in [
        ("padded_constant", PaddingMode::Constant),
        ("padded_edge", PaddingMode::Edge),
        ("padded_reflect", PaddingMode::Reflect),
        ("padded_symmetric", PaddingMode::Symmetric),
    ] {
        let padded = RandomCrop { padding_mode, ..RandomCrop::new([48, 40]).padding(6) };
        assert_eq!(difference(name, vec![padded.into()], vec![crop.clone()]), (0, 0.0), "{name}");
    }
}

#[test]
fn operations_on_colours_and_places_give_the_same_pixels() {
    use Interpolation::{Bilinear, Nearest};
    use Operation::{
        AdjustBrightness, AdjustContrast, AdjustHue, AdjustSaturation, AdjustSharpness, AutoContrast, Equalize, Erase,
        GaussianBlur, Grayscale, Invert, Posterize, Solarize,
    };

    let moved = |by, interpolation, fill| Operation::Affine { by, interpolation, fill };
    let black = [0; 3];
    let blur = |kernel_size, sigma| GaussianBlur { kernel_size, sigma };
    let value = Erasing::Value([9.0, 99.0, 200.0]);
    // The operations, each with the fraction of the values that may differ at all. Values may
    // differ by one level, except where pixels are moved to the nearest place.
    let operations: Vec<(Vec<Operation>, f64)> = vec![
        (vec![AdjustBrightness(0.6)], 0.0),
        (vec![AdjustBrightness(1.7)], 0.0),
        (vec![AdjustContrast(0.3)], 0.001),
        (vec![AdjustContrast(1.9)], 0.001),
        (vec![AdjustSaturation(0.0)], 0.001),
        (vec![AdjustSaturation(1.8)], 0.001),
        (vec![AdjustHue(-0.4)], 0.001),
        (vec![AdjustHue(0.07)], 0.001),
        (vec![AdjustSharpness(0.1)], 0.001),
        (vec![AdjustSharpness(1.9)], 0.001),
        (vec![Grayscale], 0.001),
        (vec![Posterize(3)], 0.0),
        (vec![Solarize(100.5)], 0.0),
        (vec![Invert], 0.0),
        (vec![AdjustContrast(0.5), AutoContrast], 0.001),
        (vec![Equalize], 0.0),
        (vec![blur([9, 5], [1.2, 0.7])], 0.001),
        (vec![blur([23, 23], [2.0, 2.0])], 0.001),
        (vec![moved(Affine::ShearX(0.27), Nearest, black)], 0.001),
        (vec![moved(Affine::ShearY(-0.37), Bilinear, [10, 20, 30])], 0.002),
        (vec![moved(Affine::TranslateX(-13), Nearest, black)], 0.0),
        (vec![moved(Affine::TranslateY(7), Bilinear, [200, 100, 0])], 0.0),
        (vec![moved(Affine::Rotate(25.0), Nearest, black)], 0.001),
        (vec![moved(Affine::Rotate(-100.0), Bilinear, [1, 2, 3])], 0.002),
        (vec![Erase { top: 5, left: 7, height: 20, width: 30, value }], 0.0),
        (vec![AdjustBrightness(0.8), AutoContrast, Solarize(128.0), AdjustHue(0.3), Equalize], 0.001),
    ];
    let [height, width] = [48, 64];
    let sheet = file("operations");
    let pipeline: Pipeline<u8> =
        Pipeline::builder().then(RandomCrop::new([height, width])).then(RandAugment::default()).build().unwrap();
    let all = operations.len() * height;
    let mut theirs = vec![0; 3 * all * width];
    Pipeline::bytes(all, width).unwrap().decode(&sheet, &mut theirs).unwrap();
    for (i, (operations, most)) in operations.into_iter().enumerate() {
        let what = format!("{operations:?}");
        let steps = [Step::Crop { top: 0, left: 0, height, width }, Step::Operations(operations.into_iter().collect())];
        let mut ours = vec![0; 3 * height * width];
        pipeline.decode_with(&file("picture"), &Draw::new(90, 120, steps), &mut ours).unwrap();
        let theirs = theirs.chunks(all * width).flat_map(|plane| &plane[i * height * width..][..height * width]);
        let differences: Vec<u8> =
            ours.iter().zip(theirs).map(|(ours, theirs)| ours.abs_diff(*theirs)).filter(|&by| by > 0).collect();
        let part = differences.len() as f64 / ours.len() as f64;
        let nearest = what.contains("Nearest");
        assert!(
            part <= most && (nearest || differences.iter().all(|&by| by == 1)),
            "{what}: {part} differ, by {:?} at most",
            differences.iter().max()
        );
    }
}
