//! Decoding into batches allocates nothing once a thread has decoded the largest image.

#[path = "../../runtime/tests/support/counting.rs"]
mod counting;

use std::sync::atomic::Ordering::SeqCst;

use counting::ALLOCATIONS;
use slotline::rng::SampleRng;
use slotline_image::Pipeline;
use slotline_image::transform::{
    ColorJitter, GaussianBlur, RandAugment, RandomErasing, RandomHorizontalFlip, RandomResizedCrop, Resize,
};
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

#[test]
fn images_no_larger_than_before_allocate_nothing() {
    let files: Vec<_> = [(300, 200, Subsamp::Sub2x2), (200, 300, Subsamp::None), (150, 90, Subsamp::Gray)]
        .map(|(width, height, subsamp)| {
            let pixels: Vec<u8> = (0..width * height * 3).map(|i| (i % 251) as u8).collect();
            let mut compressor = Compressor::new().unwrap();
            compressor.set_subsamp(subsamp).unwrap();
            let image = Image { pixels: &pixels[..], width, pitch: width * 3, height, format: PixelFormat::RGB };
            compressor.compress_to_vec(image).unwrap()
        })
        .into();
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
        let mut round = |seeds: std::ops::Range<u64>| {
            let before = ALLOCATIONS.load(SeqCst);
            for (file, seed) in files.iter().flat_map(|file| seeds.clone().map(move |seed| (file, seed))) {
                let [height, width] = pipeline.size_of(file).unwrap();
                let draw = pipeline.draw(&mut SampleRng::new(seed, 0, 0), height, width).unwrap();
                pipeline.decode_with(file, &draw, &mut out).unwrap();
            }
            ALLOCATIONS.load(SeqCst) - before
        };
        assert!(round(0..200) > 0, "the counter must count allocations");
        assert_eq!(round(0..200), 0, "{:?}", pipeline.transforms());
    }
}
