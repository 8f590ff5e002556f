//! Random transforms: what they draw, and that pipelines with them give the same pictures for any
//! number of workers.

use slotline::dataset::{Context, Dataset};
use slotline::rng::SampleRng;
use slotline::{BoxError, Loader};
use slotline_image::transform::{
    AutoAugment, AutoAugmentPolicy, CenterCrop, ColorJitter, GaussianBlur, Normalize, RandAugment, RandomApply,
    RandomCrop, RandomErasing, RandomGrayscale, RandomHorizontalFlip, RandomInvert, RandomResizedCrop, RandomSolarize,
    Resize, Transform, TrivialAugmentWide,
};
use slotline_image::{Affine, Draw, Erasing, Image, Operation, Operations, Pipeline, PipelineBuilder, Step};

const PICTURE: &[u8] = include_bytes!("../torchvision/picture.png");

fn pipeline(transforms: impl IntoIterator<Item = Transform>) -> PipelineBuilder {
    transforms.into_iter().fold(Pipeline::builder(), PipelineBuilder::then)
}

/// Draws many times the operations of a pipeline that begins with a crop, and returns its last
/// steps.
fn steps(transform: impl Into<Transform>) -> Vec<Operations> {
    let pipeline: Pipeline = pipeline([CenterCrop::new([60, 80]).into(), transform.into()]).build().unwrap();
    let draw = |seed| match pipeline.draw(&mut SampleRng::new(seed, 0, 0), 90, 120).unwrap().steps() {
        [_, Step::Operations(operations)] => operations.clone(),
        steps => panic!("{steps:?}"),
    };
    (0..20_000).map(draw).collect()
}

/// Returns the fraction of the draws for which `holds` returns true.
fn part(draws: &[Operations], holds: impl Fn(&[Operation]) -> bool) -> f64 {
    draws.iter().filter(|operations| holds(operations)).count() as f64 / draws.len() as f64
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.012, "{found}, expected {expected}");
}

#[test]
fn jitter_draws_factors_evenly_in_any_order() {
    let draws = steps(ColorJitter { contrast: [0.5, 1.0], ..ColorJitter::new(0.4, 0.0, 1.5, 0.1) });
    assert!(draws.iter().all(|operations| operations.len() == 4));
    for i in 0..4 {
        close(part(&draws, |it| matches!(it[i], Operation::AdjustBrightness(_))), 0.25);
        close(part(&draws, |it| matches!(it[i], Operation::AdjustHue(_))), 0.25);
    }
    for (low, high, of) in [
        (0.6, 1.4, (|it| if let Operation::AdjustBrightness(by) = it { Some(*by) } else { None }) as fn(&_) -> _),
        (0.5, 1.0, |it| if let Operation::AdjustContrast(by) = it { Some(*by) } else { None }),
        (0.0, 2.5, |it| if let Operation::AdjustSaturation(by) = it { Some(*by) } else { None }),
        (-0.1, 0.1, |it| if let Operation::AdjustHue(by) = it { Some(*by) } else { None }),
    ] {
        let factors: Vec<f64> = draws.iter().map(|it| it.iter().find_map(of).unwrap()).collect();
        for quarter in 1..4 {
            let limit = low + (high - low) * f64::from(quarter) / 4.0;
            let below = factors.iter().filter(|&&by| by < limit).count() as f64 / factors.len() as f64;
            close(below, f64::from(quarter) / 4.0);
        }
        assert!(factors.iter().all(|by| (low..=high).contains(by)));
    }
    let draws = steps(ColorJitter::new(0.0, 0.0, 0.2, 0.0));
    assert!(draws.iter().all(|it| matches!(it[..], [Operation::AdjustSaturation(_)])), "what is not set is not done");
}

#[test]
fn policies_draw_every_operation_and_both_directions() {
    let draws = steps(RandAugment { num_ops: 1, magnitude: 15, ..RandAugment::default() });
    close(part(&draws, |it| it.is_empty()), 1.0 / 14.0);
    close(part(&draws, |it| matches!(it, [Operation::Equalize])), 1.0 / 14.0);
    close(part(&draws, |it| matches!(it, [Operation::Solarize(by)] if *by == 127.5)), 1.0 / 14.0);
    let turned = |degrees: f64| move |it: &[Operation]| matches!(it, [Operation::Affine { by: Affine::Rotate(by), .. }] if *by == degrees);
    close(part(&draws, turned(15.0)), 1.0 / 28.0);
    close(part(&draws, turned(-15.0)), 1.0 / 28.0);
    // The largest translation is 150 / 331 of 80 pixels, and half of that is 18.1 pixels.
    let by = |it: &[Operation]| matches!(it, [Operation::Affine { by: Affine::TranslateX(18 | -18), .. }]);
    close(part(&draws, by), 1.0 / 14.0);

    let draws = steps(RandAugment::default());
    close(part(&draws, |it| it.is_empty()), 1.0 / 196.0);
    assert!(draws.iter().all(|it| it.len() <= 2));

    let draws = steps(TrivialAugmentWide::default());
    close(part(&draws, |it| matches!(it, [Operation::Posterize(2)])), 3.0 / 31.0 / 14.0);
    let least = |it: &[Operation]| matches!(it, [Operation::AdjustBrightness(by)] if *by < 0.02);
    close(part(&draws, least), 0.5 / 31.0 / 14.0);

    let draws = steps(AutoAugment::new(AutoAugmentPolicy::Svhn));
    // Five of the policy's pairs have Equalize with a probability of 0.6, and one with 0.9.
    close(part(&draws, |it| it.contains(&Operation::Equalize)), (5.0 * 0.6 + 0.9) / 25.0);
}

#[test]
fn erasing_draws_rectangles_within_the_picture() {
    let erasing = RandomErasing { scale: [0.1, 0.2], value: Some([1.0, 2.0, 3.0]), ..RandomErasing::new(0.7) };
    let draws = steps(erasing);
    close(part(&draws, |it| it.is_empty()), 0.3);
    for operations in &draws {
        if let [Operation::Erase { top, left, height, width, value }] = operations[..] {
            let area = (height * width) as f64 / 4_800.0;
            assert!(top + height <= 60 && left + width <= 80 && (0.08..0.22).contains(&area), "{operations:?}");
            assert_eq!(value, Erasing::Value([1.0, 2.0, 3.0]));
        }
    }
    let whole = |it: &[Operation]| matches!(it, [Operation::Erase { top: 0, .. }]);
    assert!(part(&draws, whole) > 0.01, "the first row is reached");
}

#[test]
fn transforms_are_applied_together_or_not_at_all() {
    let both: [Transform; 2] = [ColorJitter::new(0.4, 0.0, 0.0, 0.0).into(), GaussianBlur::new(3).into()];
    let draws = steps(RandomApply::new(both, 0.8));
    close(part(&draws, |it| it.is_empty()), 0.2);
    assert!(draws.iter().all(|it| it.is_empty() || it.len() == 2));
    close(part(&steps(RandomGrayscale::new(0.1)), |it| *it == [Operation::Grayscale]), 0.1);
    close(part(&steps(RandomSolarize::new(128.0, 0.2)), |it| *it == [Operation::Solarize(128.0)]), 0.2);
}

fn augmented() -> PipelineBuilder {
    pipeline([
        RandomResizedCrop::new([36, 52]).into(),
        RandomHorizontalFlip::new(0.5).into(),
        RandAugment { num_ops: 3, magnitude: 20, ..RandAugment::default() }.into(),
        RandomApply::new([ColorJitter::new(0.4, 0.4, 0.4, 0.2)], 0.8).into(),
        RandomApply::new([GaussianBlur::new(5)], 0.5).into(),
        RandomInvert::new(0.1).into(),
        // Padding after other steps starts another pass over the pixels.
        RandomCrop::new([32, 40]).padding(4).into(),
        AutoAugment::default().into(),
        Normalize::imagenet().into(),
        RandomErasing { value: None, ..RandomErasing::default() }.into(),
    ])
}

struct Pictures(Pipeline);

impl Dataset for Pictures {
    type Sample<'a> = (Image<'a>, i64);

    fn len(&self) -> usize {
        23
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        Ok((Image::new(PICTURE, &self.0).random(cx.rng()), index as i64))
    }
}

#[test]
fn augmented_batches_are_the_same_for_any_number_of_workers() {
    let run = |workers: usize| {
        let dataset = Pictures(augmented().build().unwrap());
        let mut loader =
            Loader::builder(dataset).batch_size(4).shuffle(true).seed(7).num_workers(workers).build().unwrap();
        let mut bits = Vec::new();
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            let (images, _) = batch.tensors();
            bits.extend(images.as_slice().iter().map(|number| number.to_bits()));
        }
        assert_eq!(bits.len(), 23 * 3 * 32 * 40);
        bits
    };
    let expected = run(0);
    let (first, second) = (&expected[..3 * 32 * 40], &expected[3 * 32 * 40..][..3 * 32 * 40]);
    assert_ne!(first, second, "each picture has its own draw");
    assert!([1, 3].into_iter().all(|workers| run(workers) == expected));
}

#[test]
fn layouts_hold_the_same_numbers() {
    let rows: Pipeline = augmented().build().unwrap();
    let last = rows.clone().channels_last(true);
    for seed in 0..20 {
        let draw = rows.draw(&mut SampleRng::new(seed, 0, 0), 90, 120).unwrap();
        let (mut chw, mut hwc) = (vec![0.0; 3 * 32 * 40], vec![0.0; 3 * 32 * 40]);
        rows.decode_with(PICTURE, &draw, &mut chw).unwrap();
        last.decode_with(PICTURE, &draw, &mut hwc).unwrap();
        for (i, number) in chw.iter().enumerate() {
            let (c, at) = (i / (32 * 40), i % (32 * 40));
            assert_eq!(number.to_bits(), hwc[at * 3 + c].to_bits(), "{seed}");
        }
    }
}

#[test]
fn operations_and_flips_can_change_places() {
    let invert = || Step::Operations(Operations::from_iter([Operation::Invert, Operation::Posterize(4)]));
    let decode = |transforms: [Transform; 3], steps: [Step; 3]| {
        let pipeline: Pipeline<u8> = pipeline(transforms).build().unwrap();
        let mut out = vec![0; 3 * 90 * 120];
        pipeline.decode_with(PICTURE, &Draw::new(90, 120, steps), &mut out).unwrap();
        out
    };
    let resize = || Transform::from(Resize::new([90, 120]));
    let flip = || Transform::from(RandomHorizontalFlip::new(0.5));
    let colours = || Transform::from(RandAugment::default());
    let first = decode([resize(), flip(), colours()], [Step::Fixed, Step::Apply(true), invert()]);
    let last = decode([resize(), colours(), flip()], [Step::Fixed, invert(), Step::Apply(true)]);
    assert_eq!(first, last);
}

#[test]
fn erasing_after_normalisation_writes_its_units() {
    let pipeline: Pipeline =
        pipeline([Resize::new([90, 120]).into(), Normalize::imagenet().into(), RandomErasing::new(1.0).into()])
            .build()
            .unwrap();
    let value = Erasing::Value([1.5, -2.0, 0.25]);
    let erase = Operation::Erase { top: 88, left: 100, height: 2, width: 20, value };
    let steps = [Step::Fixed, Step::Fixed, Step::Operations(Operations::from_iter([erase]))];
    let mut out = vec![0.0; 3 * 90 * 120];
    pipeline.decode_with(PICTURE, &Draw::new(90, 120, steps), &mut out).unwrap();
    for (plane, value) in out.chunks(90 * 120).zip([1.5, -2.0, 0.25]) {
        let erased = |y: usize, x: usize| plane[y * 120 + x] == value;
        assert!(erased(88, 100) && erased(89, 119) && !erased(87, 110) && !erased(88, 99));
    }
}

#[test]
fn pictures_of_one_pixel_can_be_augmented() {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 1, 1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&[10, 200, 30]).unwrap();
    let pipeline: Pipeline = pipeline([
        Resize::new([1, 1]).into(),
        RandAugment { num_ops: 6, ..RandAugment::default() }.into(),
        ColorJitter::new(0.5, 0.5, 0.5, 0.5).into(),
        GaussianBlur::new(1).into(),
        RandomErasing::new(1.0).into(),
    ])
    .build()
    .unwrap();
    let mut out = [f32::NAN; 3];
    for seed in 0..500 {
        let draw = pipeline.draw(&mut SampleRng::new(seed, 0, 0), 1, 1).unwrap();
        pipeline.decode_with(&bytes, &draw, &mut out).unwrap();
        assert!(out.iter().all(|number| (0.0..=1.0).contains(number)), "{out:?}");
    }
}

#[test]
fn wrong_parameters_are_named() {
    let message = |transforms: Vec<Transform>| pipeline(transforms).build::<f32>().unwrap_err().to_string();
    let fails = |transform: Transform, words: &[&str]| {
        let message = message(vec![Resize::new([8, 8]).into(), transform]);
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    };
    fails(ColorJitter { hue: [-0.6, 0.5], ..ColorJitter::default() }.into(), &["ColorJitter", "hue", "-0.6", "0.5"]);
    fails(ColorJitter::new(-0.1, 0.0, 0.0, 0.0).into(), &["ColorJitter", "brightness"]);
    fails(GaussianBlur::new(4).into(), &["GaussianBlur", "kernel_size", "4", "odd"]);
    fails(GaussianBlur { sigma: [0.0, 1.0], ..GaussianBlur::new(3) }.into(), &["GaussianBlur", "sigma"]);
    fails(RandAugment { magnitude: 31, ..RandAugment::default() }.into(), &["RandAugment", "magnitude", "31"]);
    fails(TrivialAugmentWide { num_magnitude_bins: 1, ..Default::default() }.into(), &["num_magnitude_bins", "1"]);
    fails(RandomErasing { value: None, ..RandomErasing::default() }.into(), &["RandomErasing", "value", "Normalize"]);
    fails(RandomErasing { value: Some([0.0, 256.0, 0.0]), ..Default::default() }.into(), &["value", "256"]);
    fails(RandomSolarize::new(f64::NAN, 0.5).into(), &["RandomSolarize", "threshold"]);
    fails(RandomApply::new([RandomHorizontalFlip::new(0.5)], 0.5).into(), &["RandomApply", "RandomHorizontalFlip"]);
    fails(RandomApply::new([GaussianBlur::new(2)], 0.5).into(), &["GaussianBlur", "kernel_size"]);
    let late = message(vec![Resize::new([8, 8]).into(), Normalize::imagenet().into(), RandomInvert::new(0.5).into()]);
    assert!(late.contains("RandomInvert") && late.contains("Normalize"), "{late}");

    let small: Pipeline = pipeline([Resize::new([8, 8]).into(), GaussianBlur::new(17).into()]).build().unwrap();
    let error = small.draw(&mut SampleRng::new(0, 0, 0), 90, 120).unwrap_err().to_string();
    assert!(error.contains("GaussianBlur") && error.contains("kernel_size"), "{error}");

    let jitter: Pipeline =
        pipeline([Resize::new([8, 8]).into(), ColorJitter::new(0.4, 0.0, 0.0, 0.0).into()]).build().unwrap();
    for wrong in [
        Operation::AdjustBrightness(f64::NAN),
        Operation::AdjustHue(0.51),
        Operation::Posterize(9),
        Operation::Affine { by: Affine::Rotate(f64::INFINITY), interpolation: Default::default(), fill: [0; 3] },
        Operation::Erase { top: usize::MAX, left: 0, height: 2, width: 1, value: Erasing::Noise(1) },
        Operation::GaussianBlur { kernel_size: [3, 2], sigma: [1.0; 2] },
    ] {
        let steps = [Step::Fixed, Step::Operations(Operations::from_iter([wrong]))];
        let error = jitter.decode_with(PICTURE, &Draw::new(90, 120, steps), &mut [0.0; 192]).unwrap_err();
        assert!(error.to_string().contains("cannot be done"), "{error}");
    }
}
