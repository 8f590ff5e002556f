//! Checks that masks and boxes have the same pixels and coordinates as torchvision's for the same
//! draws. `torchvision/make.py` wrote the expected results.

use slotline::dataset::{Context, Dataset};
use slotline::rng::SampleRng;
use slotline::{BoxError, Loader};
use slotline_image::transform::{
    CenterCrop, Normalize, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, RandomVerticalFlip, Resize, Transform,
};
use slotline_image::{ClassId, Draw, Image, Mask, PaddingMode, Pipeline, SanitizeBoundingBoxes, Seed, Step};

fn path(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torchvision").join(name)
}

fn file(name: &str) -> Vec<u8> {
    let path = path(&format!("{name}.png"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pipeline(transforms: Vec<Transform>) -> Pipeline {
    transforms.into_iter().fold(Pipeline::builder(), |builder, transform| builder.then(transform)).build().unwrap()
}

/// A dataset of pictures with a mask, each with a random draw for its sample.
struct Masked<M> {
    image: Vec<u8>,
    mask: Vec<u8>,
    draw: Option<Draw>,
    fill: M,
    pipeline: Pipeline,
}

impl<M: ClassId + Sync> Dataset for Masked<M> {
    type Sample<'a>
        = (Image<'a>, Mask<'a, M>)
    where
        M: 'a;

    fn len(&self) -> usize {
        12
    }

    fn get<'a>(&'a self, _: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let image = Image::new(&self.image, &self.pipeline);
        let image = match &self.draw {
            Some(draw) => image.draw(draw),
            None => image.random(Seed::from(cx.rng())),
        };
        Ok((image, image.mask(&self.mask).fill(self.fill)))
    }
}

impl<M: ClassId + Sync> Masked<M> {
    fn new(mask: &str, draw: Option<Draw>, fill: M, transforms: Vec<Transform>) -> Self {
        Self { image: file("picture"), mask: file(mask), draw, fill, pipeline: pipeline(transforms) }
    }

    fn masks(self, workers: usize) -> Result<(Vec<M>, Vec<usize>), BoxError> {
        let mut loader = Loader::builder(self).batch_size(4).shuffle(true).seed(3).num_workers(workers).build()?;
        let (mut all, mut shape) = (Vec::new(), Vec::new());
        for batch in loader.epoch()? {
            let batch = batch?;
            let (_, masks) = batch.tensors();
            all.extend_from_slice(masks.as_slice());
            shape = masks.shape().to_vec();
        }
        Ok((all, shape))
    }
}

/// Returns the classes in a mask file at its original size.
fn classes(name: &str) -> Vec<i64> {
    let image = file(name);
    let size = Pipeline::new(1, 1).unwrap().size_of(&image).unwrap();
    let pipeline = pipeline(vec![Resize::new(size).into()]);
    let masked =
        Masked { image, mask: file(name), draw: Some(Draw::new(size[0], size[1], [Step::Fixed])), fill: 0, pipeline };
    let mut all = masked.masks(0).unwrap().0;
    all.truncate(size[0] * size[1]);
    all
}

const CROP: Step = Step::Crop { top: 13, left: 22, height: 51, width: 70 };

fn cases() -> Vec<(&'static str, Vec<Transform>, Vec<Step>)> {
    let crop = || Transform::from(RandomResizedCrop::new([48, 40]));
    let flip = || Transform::from(RandomHorizontalFlip::new(0.5));
    let enlarged = Step::Crop { top: 60, left: 5, height: 20, width: 24 };
    let padded = |name, padding_mode| {
        let padded = RandomCrop { padding_mode, ..RandomCrop::new([48, 40]).padding(6) };
        (name, vec![padded.into()], vec![Step::Crop { top: 2, left: 80, height: 48, width: 40 }])
    };
    vec![
        ("resized_crop", vec![crop(), flip()], vec![CROP, Step::Apply(false)]),
        (
            "resized_crop_flipped",
            vec![crop(), flip(), Normalize::imagenet().into()],
            vec![CROP, Step::Apply(true), Step::Fixed],
        ),
        ("enlarged_crop", vec![crop()], vec![enlarged]),
        ("resize_center_crop", vec![Resize::new(56).into(), CenterCrop::new([48, 40]).into()], vec![Step::Fixed; 2]),
        ("center_crop", vec![CenterCrop::new(100).into()], vec![Step::Fixed]),
        (
            "vertical_flip",
            vec![RandomVerticalFlip::new(0.5).into(), Resize::new([90, 120]).into()],
            vec![Step::Apply(true), Step::Fixed],
        ),
        ("flipped_resized", vec![flip(), Resize::new([37, 53]).into()], vec![Step::Apply(true), Step::Fixed]),
        ("resized_twice", vec![Resize::new([37, 53]).into(), Resize::new([64, 64]).into()], vec![Step::Fixed; 2]),
        padded("padded_constant", PaddingMode::Constant),
        padded("padded_edge", PaddingMode::Edge),
        padded("padded_reflect", PaddingMode::Reflect),
        padded("padded_symmetric", PaddingMode::Symmetric),
    ]
}

#[test]
fn masks_are_the_same_as_torchvisions() {
    for (name, transforms, steps) in cases() {
        let draw = Draw::new(90, 120, steps);
        let (ours, shape) = Masked::new("mask", Some(draw.clone()), 0_i64, transforms.clone()).masks(0).unwrap();
        let wanted = classes(&format!("mask_{name}"));
        assert_eq!(ours[..wanted.len()], wanted, "{name}");
        assert_eq!(shape[1..].iter().product::<usize>(), wanted.len());
        let (bytes, _) = Masked::new("mask", Some(draw), 0_u8, transforms).masks(1).unwrap();
        assert!(bytes.iter().zip(&ours).all(|(byte, class)| i64::from(*byte) == *class), "{name}");
    }
}

#[test]
fn boxes_are_where_torchvision_has_them() {
    let start = [
        [10.0, 20.0, 80.0, 70.0],
        [0.0, 0.0, 120.0, 90.0],
        [30.5, 14.25, 31.0, 60.75],
        [90.0, 60.0, 119.0, 89.0],
        [0.0, 0.0, 3.0, 3.0],
    ];
    let lines = std::fs::read_to_string(path("boxes.txt")).unwrap();
    for (name, transforms, steps) in cases() {
        let wanted: Vec<Vec<f64>> = lines
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect())
            .collect();
        let pipeline = pipeline(transforms);
        let draw = Draw::new(90, 120, steps);
        let mut boxes = start;
        if wanted.is_empty() {
            let error = pipeline.boxes(&draw, &mut boxes).unwrap_err().to_string();
            assert!(error.contains("boxes can only follow PaddingMode::Constant"), "{name}: {error}");
            continue;
        }
        assert_eq!(wanted.len(), start.len());
        pipeline.boxes(&draw, &mut boxes).unwrap();
        let mut narrow = start.map(|of_box| of_box.map(|side| side as f32));
        pipeline.boxes(&draw, &mut narrow).unwrap();
        for ((ours, narrow), theirs) in boxes.iter().zip(&narrow).zip(&wanted) {
            for i in 0..4 {
                assert!((ours[i] - theirs[i]).abs() < 1e-4, "{name}: {ours:?} {theirs:?}");
                assert!((f64::from(narrow[i]) - theirs[i]).abs() < 1e-4, "{name}: {narrow:?} {theirs:?}");
            }
            let kept = SanitizeBoundingBoxes::default().keeps(ours);
            assert_eq!(kept, theirs[4] == 1.0, "{name}: {ours:?}");
        }
    }
}

#[test]
fn numbers_of_1_and_16_bits_stay_as_they_are() {
    let all = classes("mask");
    let wide: Vec<_> = all.iter().map(|class| class * 300).collect();
    assert_eq!(classes("mask16"), wide);
    let narrow: Vec<_> = all.iter().map(|class| class % 2).collect();
    assert_eq!(classes("mask1"), narrow);
}

#[test]
fn masks_are_the_same_for_any_number_of_workers() {
    let transforms = || vec![RandomResizedCrop::new(32).into(), RandomHorizontalFlip::new(0.5).into()];
    let masks = |workers| Masked::new("mask", None, 255_u8, transforms()).masks(workers).unwrap().0;
    let alone = masks(0);
    assert_ne!(alone[..32 * 32], alone[32 * 32..][..32 * 32]);
    assert!(masks(1) == alone && masks(3) == alone);
}

#[test]
fn padding_gets_the_fill_class() {
    let crop = Step::Crop { top: 0, left: 0, height: 48, width: 40 };
    let padded = vec![RandomCrop::new([48, 40]).padding(6).into()];
    let (masks, _) = Masked::new("mask", Some(Draw::new(90, 120, [crop])), 255_u8, padded).masks(0).unwrap();
    let all = classes("mask");
    for y in 0..48 {
        for x in 0..40 {
            let wanted = if y < 6 || x < 6 { 255 } else { all[(y - 6) * 120 + x - 6] };
            assert_eq!(i64::from(masks[y * 40 + x]), wanted, "{y} {x}");
        }
    }
}

#[test]
fn a_mask_that_does_not_fit_is_an_error_that_says_so() {
    let error = |mask: &str, fill: u8| {
        let transforms = vec![Resize::new([8, 8]).into()];
        let masked = Masked::new(mask, Some(Draw::new(90, 120, [Step::Fixed])), fill, transforms);
        let error = masked.masks(0).unwrap_err();
        let mut all = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            all += &format!(": {error}");
            source = error.source();
        }
        all
    };
    let size = error("mask_resized_crop", 0);
    assert!(size.contains("a mask of 40 × 48 pixels for a picture of 120 × 90"), "{size}");
    let colours = error("picture", 0);
    assert!(colours.contains("colours of the type Rgb"), "{colours}");
    let wide = error("mask16", 0);
    assert!(wide.contains("is above 255; choose i64: `Mask<i64>`"), "{wide}");
}

/// Checks that a pixel of the mask comes from the same place as the picture's pixel, and that boxes
/// stay within the result.
#[test]
fn random_draws_keep_boxes_within_the_canvas() {
    let pipeline = pipeline(vec![
        RandomCrop { pad_if_needed: true, ..RandomCrop::new([70, 110]).padding(9) }.into(),
        RandomResizedCrop::new([33, 47]).into(),
        RandomHorizontalFlip::new(0.5).into(),
        RandomVerticalFlip::new(0.5).into(),
    ]);
    let mut rng = slotline::rng::SampleRng::new(5, 0, 0);
    for i in 0..200 {
        let (height, width) = (20 + i, 220 - i);
        let draw = pipeline.draw(&mut rng, height, width).unwrap();
        let (h, w) = (height as f64, width as f64);
        let mut boxes = [[0.0, 0.0, w, h], [-5.0, -5.0, w + 5.0, h / 2.0], [w / 3.0, h / 3.0, w / 2.0, h / 2.0]];
        pipeline.boxes(&draw, &mut boxes).unwrap();
        for [left, top, right, bottom] in boxes {
            assert!(0.0 <= left && left <= right && right <= 47.0, "{left} {right}");
            assert!(0.0 <= top && top <= bottom && bottom <= 33.0, "{top} {bottom}");
        }
    }
}

#[test]
fn what_masks_and_boxes_cannot_follow_is_an_error_whatever_is_drawn() {
    use slotline_image::transform::{AutoAugment, RandomApply, TrivialAugmentWide};

    for transform in [
        Transform::from(TrivialAugmentWide::default()),
        AutoAugment::default().into(),
        RandomApply::new([TrivialAugmentWide::default()], 0.5).into(),
    ] {
        let pipeline: Pipeline = Pipeline::builder().then(Resize::new([8, 8])).then(transform).build().unwrap();
        for seed in 0..10 {
            let draw = pipeline.draw(&mut SampleRng::new(seed, 0, 0), 20, 20).unwrap();
            let error = pipeline.boxes(&draw, &mut [[0.0; 4]]).unwrap_err().to_string();
            assert!(error.contains("Augment") && error.contains("masks and boxes"), "{error}");
        }
    }
}
