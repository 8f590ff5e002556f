//! JPEGs for the tests, from an encoder in Rust.

use jpeg_encoder::{ChromaSubsamplingMethod, Encoder};
pub(crate) use jpeg_encoder::{ColorType, SamplingFactor};

/// Compresses pixels to a JPEG. There is no subsampling unless `set` configures it.
pub(crate) fn compressed(
    pixels: &[u8],
    width: usize,
    colours: ColorType,
    set: impl FnOnce(&mut Encoder<&mut Vec<u8>>),
) -> Vec<u8> {
    let channels = match colours {
        ColorType::Luma => 1,
        ColorType::Cmyk | ColorType::CmykAsYcck => 4,
        _ => 3,
    };
    let mut jpeg = Vec::new();
    let mut encoder = Encoder::new(&mut jpeg, 92);
    encoder.set_sampling_factor(SamplingFactor::F_1_1);
    encoder.set_chroma_subsampling_method(ChromaSubsamplingMethod::Average);
    set(&mut encoder);
    let height = pixels.len() / (width * channels);
    encoder.encode(pixels, width as u16, height as u16, colours).unwrap();
    jpeg
}
