//! Checks that a thread keeps no more memory than the pipeline states, and not much less.

#[path = "support/jpegs.rs"]
mod jpegs;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering::SeqCst};

use jpegs::{ColorType, SamplingFactor, compressed};
use slotline::rng::SampleRng;
use slotline_image::Pipeline;

/// The number of bytes that are allocated at the moment.
static LIVE: AtomicIsize = AtomicIsize::new(0);

struct Summing;

// SAFETY: every call is passed on to the system's allocator, which upholds the contract.
unsafe impl GlobalAlloc for Summing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, SeqCst);
        // SAFETY: the caller upholds the contract of `alloc`: the layout's size is not zero.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, SeqCst);
        // SAFETY: the caller upholds the contract of `dealloc`: this allocator returned `place` for
        // `layout`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Summing = Summing;

fn jpeg(width: usize, height: usize, sampling: SamplingFactor) -> Vec<u8> {
    let pixels: Vec<u8> = (0..width * height * 3).map(|i| (i * i % 251) as u8).collect();
    compressed(&pixels, width, ColorType::Rgb, |encoder| encoder.set_sampling_factor(sampling))
}

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgba);
    let pixels: Vec<u8> = (0..width * height * 4).map(|i| (i % 239) as u8).collect();
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    bytes
}

#[test]
fn a_thread_keeps_no_more_than_is_stated() {
    let [height, width] = [480, 640];
    let files = [
        (height, width, jpeg(width, height, SamplingFactor::F_2_2)),
        (height, width, jpeg(width, height, SamplingFactor::F_1_1)),
        (480, 640, png(640, 480)),
        (1, 3_000, png(3_000, 1)),
        (2_000, 3, jpeg(3, 2_000, SamplingFactor::F_2_2)),
    ];
    let exact: &[&str] = if cfg!(feature = "turbo") {
        &[
            "exact, random_resized_crop(224), hflip, normalize(imagenet)",
            "exact, resize([100, 90], lanczos), color_jitter(0.4, 0.4, 0.4, 0.1), hflip, resize([70, 300], nearest)",
        ]
    } else {
        &[]
    };
    let texts = [
        "resize([224, 224]), normalize(imagenet)",
        "random_resized_crop(224), hflip, normalize(imagenet)",
        "resize(64), random_crop([64, 64], padding=8, padding_mode=edge), vflip",
        "random_resized_crop([100, 130]), rand_augment, color_jitter(0.4, 0.4, 0.4, 0.1), gaussian_blur(23), hflip, \
         random_crop([80, 120], 4), trivial_augment_wide, random_erasing",
        "resize([16, 16]), random_crop([200, 200], 92)",
    ];
    for text in texts.iter().chain(exact) {
        for exif in [false, true] {
            let pipeline: Pipeline = text.parse().unwrap();
            let pipeline = pipeline.exif(exif);
            for (height, width, bytes) in &files {
                let stated = pipeline.memory(*height, *width).unwrap() as isize;
                // Each case has its own thread, since a thread keeps the memory that earlier
                // pictures needed.
                let kept = std::thread::scope(|scope| {
                    let decode = || {
                        let mut out = vec![0.0; pipeline.shape().iter().product()];
                        let before = LIVE.load(SeqCst);
                        for seed in 0..6 {
                            let draw = pipeline.draw(&mut SampleRng::new(seed, 0, 0), *height, *width).unwrap();
                            pipeline.decode_with(bytes, &draw, &mut out).unwrap();
                        }
                        LIVE.load(SeqCst) - before
                    };
                    scope.spawn(decode).join().unwrap()
                });
                assert!(kept > 0 && kept <= stated, "{text}, {height} × {width}: {kept} kept, {stated} stated");
                // For thin pictures, most of the stated memory is for tables of other sizes.
                let thin = height.min(width) < &100;
                assert!(thin || stated < 5 * kept, "{text}, {height} × {width}: {kept} kept, {stated} stated");
            }
        }
    }
}
