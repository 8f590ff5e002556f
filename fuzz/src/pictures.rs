//! Target for pictures of any format: any bytes result in an error, or in a picture that depends
//! only on them.

use std::sync::LazyLock;

use slotline_image::{ImageError, Pipeline, Seed};

/// The most pixels to decode. Larger pictures take long and reach no other code.
const MAX_PIXELS: usize = 1 << 12;

/// The width and height of the pictures of [`fill_memory`], which need more memory than the
/// pictures of the inputs.
const SIDE: usize = 72;

/// The pipelines, except one that resizes to any size.
const PIPELINES: [&str; 7] = [
    "resize(9, max_size=40), center_crop([24, 12])",
    "random_resized_crop([17, 18]), hflip",
    "random_crop([20, 33], padding=[1, 2, 3, 4], pad_if_needed=true, padding_mode=edge), vflip",
    "hflip, center_crop(21), random_crop(19, padding=3, padding_mode=reflect), random_erasing",
    "rand_augment, resize([16, 16]), trivial_augment_wide, gaussian_blur(3), color_jitter(0.5, 0.5, 0.5, 0.2)",
    "resize([3, 90]), auto_augment, random_crop([3, 40]), random_equalize, random_autocontrast, random_posterize(3)",
    "center_crop([40, 1]), random_adjust_sharpness(2), random_grayscale, random_invert, random_solarize(99)",
];

/// Decodes a picture as floats twice, after other pictures, and as bytes. The first byte chooses
/// the pipeline, the second its options and the seed. The rest is the file; if the pipeline only
/// resizes, its last two bytes also choose the size.
pub fn pictures(data: &[u8]) {
    let [first, options, file @ ..] = data else { return };
    let side = |back: usize| 1 + file.iter().rev().nth(back).unwrap_or(&3) % 40;
    let text = match usize::from(*first) % (PIPELINES.len() + 1) {
        0 => &format!("resize([{}, {}])", side(0), side(1)),
        i => PIPELINES[i - 1],
    };
    let (last, exif) = (options & 1 != 0, options & 2 != 0);
    let (strict, reduced, seed) = (options & 4 != 0, options & 8 != 0, Seed(u64::from(options >> 4)));
    let floats: Pipeline = text.parse().expect("a valid pipeline");
    let bytes: Pipeline<u8> = text.parse().expect("a valid pipeline");
    let floats = floats.channels_last(last).exif(exif).strict(strict).reduced(reduced).max_pixels(MAX_PIXELS);
    let bytes = bytes.channels_last(last).exif(exif).strict(strict).reduced(reduced).max_pixels(MAX_PIXELS);
    let len = floats.shape().iter().product();
    let (mut once, mut again, mut rounded) = (vec![f32::NAN; len], vec![f32::NAN; len], vec![0; len]);
    fill_memory(0);
    let outcome = floats.decode_seeded(file, seed, &mut once);
    fill_memory(255);
    let outcome_again = floats.decode_seeded(file, seed, &mut again);
    let outcome_of_bytes = bytes.decode_seeded(file, seed, &mut rounded);
    assert_eq!(outcome, outcome_again, "the result depends on what was decoded before");
    assert_eq!(outcome, outcome_of_bytes);
    match outcome {
        Ok(()) => {
            assert!(once == again, "the result depends on what was decoded before");
            for (&float, &byte) in once.iter().zip(&rounded) {
                assert!((-1e-6..=1.000_001).contains(&float), "{float} is not in 0 to 1");
                assert!((float * 255.0 - f32::from(byte)).abs() <= 0.501, "{float} is not {byte}");
            }
            let [height, width] = floats.size_of(file).expect("a picture that was decoded");
            assert!(height * width <= MAX_PIXELS);
        }
        Err(ImageError::TooLarge { width, height, .. }) => {
            assert!(width * height > MAX_PIXELS || width.max(height) > 65_535)
        }
        Err(ImageError::Unknown { .. }) => assert!(!file.starts_with(b"\xff\xd8"), "a JPEG"),
        Err(_) => {}
    }
}

/// Fills the memory that a thread keeps between pictures: decodes a BMP and a GIF of [`SIDE`] by
/// `SIDE` pixels, in which every byte or palette index has this value. If the value is not 0, also
/// decodes a JPEG, which fills the decoder's tables.
fn fill_memory(value: u8) {
    static JPEG: &[u8] = include_bytes!("../corpus/pictures/jpeg-grey");
    static FILES: LazyLock<[[Vec<u8>; 2]; 2]> = LazyLock::new(|| [0, 255].map(|value| [bmp(value), gif(value)]));
    let pipeline = Pipeline::new(4, 4).expect("sides within limits");
    for file in &FILES[usize::from(value != 0)] {
        pipeline.decode(file, &mut [0.0; 48]).expect("a good picture");
    }
    if value != 0 {
        pipeline.decode(&JPEG[2..], &mut [0.0; 48]).expect("a good picture");
    }
}

fn bmp(value: u8) -> Vec<u8> {
    let head = [(54 + 3 * SIDE * SIDE) as u32, 0, 54, 40, SIDE as u32, SIDE as u32, 24 << 16 | 1, 0, 0, 0, 0, 0, 0];
    let mut bmp = [&b"BM"[..], head.map(u32::to_le_bytes).as_flattened()].concat();
    bmp.resize(54 + 3 * SIDE * SIDE, value);
    bmp
}

fn gif(value: u8) -> Vec<u8> {
    let mut gif = b"GIF89a".to_vec();
    gif.extend([SIDE as u16, SIDE as u16].iter().flat_map(|side| side.to_le_bytes()));
    // A palette of 128 colours. Each code of 8 bits is an index, and the table is reset before codes become longer.
    gif.extend([0xf6, 0, 0]);
    gif.resize(gif.len() + 3 * 128, value);
    gif.extend([0x2c, 0, 0, 0, 0, SIDE as u8, 0, SIDE as u8, 0, 0, 7]);
    let indices = vec![value / 2; SIDE * SIDE];
    let mut codes: Vec<u8> = indices.chunks(100).flat_map(|codes| [&[128], codes].concat()).collect();
    codes.push(129);
    for block in codes.chunks(255) {
        gif.push(block.len() as u8);
        gif.extend(block);
    }
    gif.extend([0, 0x3b]);
    gif
}
