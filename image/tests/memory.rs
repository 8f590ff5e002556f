//! Checks that decoding into batches allocates nothing once a thread has decoded the largest
//! picture.

#[path = "../../runtime/tests/support/counting.rs"]
mod counting;
#[path = "support/jpegs.rs"]
mod jpegs;

use std::sync::atomic::Ordering::SeqCst;

use counting::ALLOCATIONS;
use jpegs::{ColorType, SamplingFactor, compressed};
use slotline::rng::SampleRng;
use slotline_image::Pipeline;
use slotline_image::transform::{
    ColorJitter, GaussianBlur, RandAugment, RandomErasing, RandomHorizontalFlip, RandomResizedCrop, Resize,
};

/// The maximum number of allocations that zune-jpeg makes for a picture. It frees them afterwards.
const OF_THE_DECODER: u64 = if cfg!(feature = "turbo") { 0 } else { 20 };

/// The number of seeds. There are fewer without `turbo`, since zune-jpeg is slow without
/// optimisation.
const SEEDS: u64 = if cfg!(feature = "turbo") { 100 } else { 20 };

#[test]
fn images_no_larger_than_before_allocate_nothing() {
    let files = [
        (300, 200, ColorType::Rgb, SamplingFactor::F_2_2),
        (200, 300, ColorType::Rgb, SamplingFactor::F_1_1),
        (150, 90, ColorType::Luma, SamplingFactor::F_1_1),
    ]
    .map(|(width, height, colours, sampling)| {
        let len = width * height * if colours == ColorType::Luma { 1 } else { 3 };
        let pixels: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        compressed(&pixels, width, colours, |encoder| encoder.set_sampling_factor(sampling))
    });
    let pipelines = [
        Pipeline::builder().then(Resize::new([64, 96])).build().unwrap(),
        Pipeline::builder()
            .then(RandomResizedCrop::new([64, 96]))
            .then(RandomHorizontalFlip::new(0.5))
            .then(RandAugment::default())
            .then(ColorJitter::new(0.4, 0.4, 0.4, 0.1))
            .then(GaussianBlur::new(9))
            .then(RandomErasing::default())
            .build()
            .unwrap(),
    ];
    for pipeline in pipelines {
        let mut out = vec![0.0; 3 * 64 * 96];
        let mut once = |seeds: std::ops::Range<u64>| {
            let before = ALLOCATIONS.load(SeqCst);
            for (file, seed) in files.iter().flat_map(|file| seeds.clone().map(move |seed| (file, seed))) {
                let [height, width] = pipeline.size_of(file).unwrap();
                let draw = pipeline.draw(&mut SampleRng::new(seed, 0, 0), height, width).unwrap();
                pipeline.decode_with(file, &draw, &mut out).unwrap();
            }
            ALLOCATIONS.load(SeqCst) - before
        };
        assert!(once(0..SEEDS) > 0, "the counter must count allocations");
        // Takes the smaller count of two runs: after a minute, the test harness allocates in order
        // to report that the test takes long.
        let mut round = |seeds: std::ops::Range<u64>| once(seeds.clone()).min(once(seeds));
        let (of_a_file, of_another) = (round(0..1), round(1..2));
        assert_eq!(of_a_file, of_another, "{:?}", pipeline.transforms());
        assert!(of_a_file <= files.len() as u64 * OF_THE_DECODER, "{of_a_file}");
        assert_eq!(round(0..SEEDS), SEEDS * of_a_file, "{:?}", pipeline.transforms());
    }
}
