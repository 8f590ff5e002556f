//! Crops, resizes, flips and padding give torchvision's pixels for the same draws: `torchvision/make.py` wrote them.

use slotline_image::transform::{
    CenterCrop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, RandomVerticalFlip, Resize, Transform,
};
use slotline_image::{Draw, PaddingMode, Pipeline, Step};

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
    // At its own size, nothing is resized.
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
