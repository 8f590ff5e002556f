//! Pictures as samples of a dataset.

use std::path::Path;

use slotline::BoxError;
use slotline::sample::{Fields, Row, Sample};

use crate::colour::Pixel;
use crate::draw::{Draw, Seed};
use crate::error::{FileError, ImageError};
use crate::pipeline::{Choice, Job, Pipeline};

/// A picture that is decoded into its row of the batch, with element type `T` and the [shape](Pipeline::shape) of its
/// pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a, T = f32> {
    bytes: &'a [u8],
    pipeline: &'a Pipeline<T>,
    choice: Choice<'a>,
    path: Option<&'a Path>,
}

impl<'a, T: Pixel> Image<'a, T> {
    /// Creates a sample from `bytes`, a whole file, which `pipeline` decodes. The bytes are not examined yet.
    pub fn new(bytes: &'a [u8], pipeline: &'a Pipeline<T>) -> Self {
        Self { bytes, pipeline, choice: Choice::None, path: None }
    }

    /// Sets where the random numbers of the pipeline come from: the sample's own generator,
    /// [`cx.rng()`](slotline::dataset::Context::rng), or a [`Seed`] that was taken from it earlier. So the picture is
    /// the same for any number of workers, processes and ranks.
    pub fn random(self, seed: impl Into<Seed>) -> Self {
        Self { choice: Choice::Seed(seed.into()), ..self }
    }

    /// Sets what is done with the picture: a draw for its size.
    pub fn draw(self, draw: &'a Draw) -> Self {
        Self { choice: Choice::Draw(draw), ..self }
    }

    /// Sets the path of the file that the bytes come from. If they cannot be decoded, the error is a [`FileError`]
    /// with this path instead of an [`ImageError`].
    pub fn path(self, path: &'a (impl AsRef<Path> + ?Sized)) -> Self {
        Self { path: Some(path.as_ref()), ..self }
    }
}

/// Adds the path of the file to an error.
fn named(error: ImageError, path: Option<&Path>) -> BoxError {
    match path {
        Some(path) => FileError { path: path.to_owned(), error }.into(),
        None => error.into(),
    }
}

impl<T: Pixel> Sample for Image<'_, T> {
    type Schema = T;

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(T::DTYPE, &self.pipeline.shape());
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let out = row.fill(&self.pipeline.shape())?;
        let job = Job { bytes: self.bytes, choice: self.choice };
        self.pipeline.run(job, out).map_err(|error| named(error, self.path))
    }
}
