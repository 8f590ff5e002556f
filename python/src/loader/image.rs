//! The native part of `slotline.image`.

use pyo3::prelude::*;
use slotline::rng::SampleRng;
use slotline_image::transform::Transform;
use slotline_image::{CutMix, ImageError, Mix, MixUp, PipelineBuilder};
use slotline_python_shielded::shielded;

use super::failure;

/// Checks the text of transforms, and returns it in the form in which pipelines are written. Errors
/// do not say where in the text they are.
#[shielded]
#[pyfunction]
pub(crate) fn image_text(py: Python<'_>, text: &str) -> PyResult<String> {
    let builder: PipelineBuilder = text.parse().map_err(|error| invalid(py, error))?;
    builder.transforms().iter().try_for_each(Transform::check).map_err(|error| invalid(py, error))?;
    Ok(builder.to_string())
}

/// Draws how a batch of pictures of this height and width is mixed, with the generator of a seed, an
/// epoch and the index of a batch. Returns the weight of a picture's own label, and for CutMix the
/// rows and columns of the rectangle.
#[shielded]
#[pyfunction]
pub(crate) fn draw_mix(
    py: Python<'_>,
    cut: bool,
    alpha: f64,
    key: (u64, u32, u64),
    size: [usize; 2],
) -> PyResult<(f64, Option<[[usize; 2]; 2]>)> {
    let mut rng = SampleRng::new(key.0, key.1, key.2);
    let mix = match cut {
        true => CutMix { alpha }.draw(&mut rng, size[0], size[1]),
        false => MixUp { alpha }.draw(&mut rng),
    };
    let mix = mix.map_err(|error| invalid(py, error))?;
    let rectangle = if let Mix::CutMix { rows, columns } = mix { Some([rows, columns]) } else { None };
    Ok((mix.lambda(size), rectangle))
}

fn invalid(py: Python<'_>, error: ImageError) -> PyErr {
    let message = if let ImageError::Text { message, .. } = error { message } else { error.to_string() };
    failure::invalid(py, message)
}
