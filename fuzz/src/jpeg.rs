//! JPEG files: any bytes result in an error or in a picture that depends only on them.

use slotline_image::{ImageError, Pipeline};

/// Larger images take long to decode and reach no other code.
const MAX_PIXELS: usize = 1 << 14;

/// Decodes `data` to a small picture twice, with another picture in between, as floats and as bytes. The last two bytes
/// choose the size of the picture.
pub fn jpeg(data: &[u8]) {
    let size = |back: usize| 1 + usize::from(data.iter().rev().nth(back).copied().unwrap_or(3)) % 40;
    let (height, width) = (size(0), size(1));
    let reduced = height % 2 == 0;
    let floats = Pipeline::new(height, width).expect("sides within limits").max_pixels(MAX_PIXELS).reduced(reduced);
    let bytes = Pipeline::bytes(height, width).expect("sides within limits").max_pixels(MAX_PIXELS).reduced(reduced);
    let (mut first, mut second) = (vec![f32::NAN; 3 * height * width], vec![f32::NAN; 3 * height * width]);
    let mut rounded = vec![0; 3 * height * width];
    let outcome = floats.decode(data, &mut first);
    other_picture();
    let again = floats.decode(data, &mut second);
    let as_bytes = bytes.decode(data, &mut rounded);
    assert_eq!(outcome, again, "the result depends on what was decoded before");
    assert_eq!(outcome.is_ok(), as_bytes.is_ok());
    match outcome {
        Ok(()) => {
            assert_eq!(first, second, "the result depends on what was decoded before");
            for (&float, &byte) in first.iter().zip(&rounded) {
                assert!((-1e-6..=1.000_001).contains(&float), "{float} is not in 0 to 1");
                assert!((float * 255.0 - f32::from(byte)).abs() <= 0.501, "{float} is not {byte}");
            }
        }
        Err(ImageError::TooLarge { width, height, .. }) => assert!(width * height > MAX_PIXELS),
        Err(ImageError::Unknown { .. }) => assert!(!data.starts_with(b"\xff\xd8")),
        Err(_) => {}
    }
}

/// Decodes a valid picture that has its own tables.
fn other_picture() {
    static GOOD: &[u8] = include_bytes!("../corpus/jpeg/grey");
    let pipeline = Pipeline::new(5, 4).expect("sides within limits");
    pipeline.decode(GOOD, &mut [0.0; 60]).expect("a good picture");
}
