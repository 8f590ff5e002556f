//! Decoding into batches allocates nothing once a thread has decoded the largest image.

#[path = "../../runtime/tests/support/counting.rs"]
mod counting;

use std::sync::atomic::Ordering::SeqCst;

use counting::ALLOCATIONS;
use slotline_image::Pipeline;
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
    let pipeline = Pipeline::new(64, 96).unwrap();
    let mut out = vec![0.0; 3 * 64 * 96];
    let mut round = || {
        let before = ALLOCATIONS.load(SeqCst);
        files.iter().for_each(|file| pipeline.decode(file, &mut out).unwrap());
        ALLOCATIONS.load(SeqCst) - before
    };
    assert!(round() > 0, "the counter must count allocations");
    assert_eq!([round(), round()], [0, 0]);
}
