//! Target for pipelines as text: any text is an error, or a list of transforms that works for any
//! picture.

use slotline::rng::SampleRng;
use slotline::sample::{Fields, OwnedSample, Sample};
use slotline_image::{Image, ImageError, Pipeline, PipelineBuilder, Seed};

/// The most pixels in a result. Larger ones take long and reach no other code.
const LARGEST: usize = 1 << 14;

/// Parses a pipeline and draws its transforms. The first two bytes choose the size of the picture,
/// and the third the random numbers. The rest is the text.
pub fn pipelines(data: &[u8]) {
    let [height, width, seed, text @ ..] = data else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(builder) = text.parse::<PipelineBuilder>() else { return };
    let written = builder.to_string();
    let again: PipelineBuilder = written.parse().unwrap_or_else(|error| panic!("{written:?} was written: {error}"));
    assert_eq!(builder.transforms(), again.transforms(), "{written}");
    let Ok(pipeline) = builder.build::<f32>() else { return };
    if pipeline.size().iter().product::<usize>() > LARGEST {
        return;
    }
    let pipeline = pipeline.max_pixels(LARGEST);
    // Sides of up to the largest possible length.
    let [height, width] = [height, width].map(|&side| (1 + usize::from(side) * usize::from(side)).min(65_535));
    let mut rng = SampleRng::new((*seed).into(), 0, 0);
    if let Ok(draw) = pipeline.draw(&mut rng, height, width) {
        assert_eq!(draw.steps().len(), pipeline.transforms().len());
        let mut boxes = [[0.0, 0.0, 1.0, 1.0], [5.0, -3.0, 1e9, 40.0], [f64::MIN, f64::MIN, f64::MAX, f64::MAX]];
        if pipeline.boxes(&draw, &mut boxes).is_ok() {
            let [rows, columns] = pipeline.size().map(|side| side as f64);
            for [left, top, right, bottom] in boxes {
                assert!(0.0 <= left && left <= right && right <= columns, "{left} to {right} of {columns}");
                assert!(0.0 <= top && top <= bottom && bottom <= rows, "{top} to {bottom} of {rows}");
            }
        }
        let _ = pipeline.memory(height, width);
    }
    decode(&pipeline, Seed((*seed).into()));
}

/// Decodes a picture and its mask.
fn decode(pipeline: &Pipeline, seed: Seed) {
    static PICTURE: &[u8] = include_bytes!("../../image/tests/torchvision/picture.png");
    static MASK: &[u8] = include_bytes!("../../image/tests/torchvision/mask.png");
    let mut out = vec![f32::NAN; pipeline.shape().iter().product()];
    match pipeline.decode_seeded(PICTURE, seed, &mut out) {
        Ok(()) => {
            let normalized = pipeline.transforms().iter().any(|transform| transform.name() == "Normalize");
            for &number in &out {
                assert!(normalized && !number.is_nan() || (-1e-6..=1.000_001).contains(&number), "{number}");
            }
        }
        Err(error) => assert!(!matches!(error, ImageError::Data { .. } | ImageError::Draw { .. }), "{error}"),
    }
    let image = Image::new(PICTURE, pipeline).random(seed);
    let mut boxes = [[3.0_f32, 4.0, 60.0, 70.0]];
    let _ = image.boxes(&mut boxes);
    let mask = image.mask::<u8>(MASK).fill(255);
    let mut apart = OwnedSample::new(Fields::of(&mask)).expect("memory for a mask");
    let _ = apart.fill(|row| mask.write(row));
}
