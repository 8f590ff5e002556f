//! JPEG samples that are decoded directly into the batch: resized, normalised, and stored channel by channel.
//!
//! This crate needs the feature `jpeg`; without it the crate is empty. A [`Jpeg`] is a [sample](slotline::sample). It
//! consists of the file's bytes and the [`Pipeline`] that decodes them.
//!
#![cfg_attr(feature = "jpeg", doc = "```")]
#![cfg_attr(not(feature = "jpeg"), doc = "```ignore")]
//! use slotline::dataset::{Context, Dataset};
//! use slotline::{BoxError, Loader};
//! use slotline_image::{Jpeg, Pipeline};
//!
//! /// Photographs in memory, with their classes.
//! struct Photos {
//!     files: Vec<(Vec<u8>, i64)>,
//!     pipeline: Pipeline,
//! }
//!
//! impl Dataset for Photos {
//!     type Sample<'a> = (Jpeg<'a>, i64);
//!
//!     fn len(&self) -> usize {
//!         self.files.len()
//!     }
//!
//!     fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
//!         let (bytes, class) = &self.files[index];
//!         Ok((Jpeg::new(bytes, &self.pipeline), *class))
//!     }
//! }
//!
//! # fn photo(seed: usize) -> Vec<u8> {
//! #     let pixels: Vec<u8> = (0..60 * 80 * 3).map(|i| (i / 40 + seed * 9) as u8).collect();
//! #     let image =
//! #         turbojpeg::Image { pixels: &pixels[..], width: 80, pitch: 240, height: 60, format: turbojpeg::PixelFormat::RGB };
//! #     turbojpeg::compress(image, 90, turbojpeg::Subsamp::Sub2x2).unwrap().to_vec()
//! # }
//! # let files = (0..8).map(|i| (photo(i), i as i64)).collect();
//! let pipeline = Pipeline::new(224, 224)?.normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])?;
//! let mut loader = Loader::builder(Photos { files, pipeline }).batch_size(4).num_workers(2).build()?;
//! for batch in loader.epoch()? {
//!     let batch = batch?;
//!     let (images, classes) = batch.tensors(); // f32 [4, 3, 224, 224] and i64 [4]
//!     assert_eq!(images.shape(), [4, 3, 224, 224]);
//!     assert_eq!(classes.len(), 4);
//! }
//! # Ok::<(), BoxError>(())
//! ```
//!
//! Read the bytes of files in `get`, into a thread-local buffer
//! ([`Context::local`](slotline::dataset::Context::local)), as in the example `image_folder`.
//!
//! # Supported images
//!
//! Baseline and progressive JPEGs of 8 bits, with any subsampling. Grey images are expanded to three equal channels.
//! CMYK images are assumed to be inverted, as Adobe's programs write them. Everything that libjpeg-turbo warns about
//! (data that is cut short, damaged, or contains extraneous bytes) is an error here, since parts of the image would
//! be guessed. PIL rejects only data that is cut short, and ignores the other warnings. Neither the EXIF orientation
//! (as in PIL's `open` and torchvision's `decode_jpeg`) nor colour profiles are applied.
//!
//! # Speed and exactness
//!
//! Images are decoded to the planes of the file: brightness and two colour differences, which mostly have a lower
//! resolution. Each plane is resized separately, with vector instructions. Colours and normalisation are computed
//! only at the target size, and written directly into the batch. The result is not bit-identical to PIL's, which
//! rounds to bytes at every step, but it is the same for all threads and CPUs.
//!
//! The table shows the differences of generated images, decoded at full size, to torchvision 0.29 (`decode_jpeg`,
//! `resize` with antialiasing) and Pillow 13, in levels out of 255:
//!
//! | images | mean difference, up to | largest difference |
//! |---|---|---|
//! | colours at half the resolution | 0.7 | 4.1 |
//! | colours at full resolution | 0.35 | 3 |
//! | grey | 0.31 | 1 |
//!
//! Compared with decoding to red, green and blue and filtering with 64-bit numbers, the images of the tests differ as
//! follows. Grey images differ by less than 0.1 of 255 levels. Images with colours at full resolution differ by up to
//! 0.5, due to the rounding of that method. Images with colours at half the resolution differ by up to 4, at 50 dB or
//! more, since colours are interpolated once, not twice. Decoding at a [reduced](Pipeline::reduced) size differs from
//! decoding at full size by up to 12 levels at edges, 42 to 55 dB.
//!
//! # Memory
//!
//! Until it exits, each decoding thread keeps the planes of the largest image that it has decoded, and tables for
//! some sizes. For images that are no larger and have the same sizes, no further memory is allocated in Rust.
//! libjpeg-turbo itself is initialised again for each image, so that no image depends on another. It allocates its
//! working memory with `malloc` (for a progressive image, all coefficients) and frees it afterwards.
//!
//! # Building
//!
//! The feature needs CMake, NASM and a C compiler to build the libjpeg-turbo that its crate bundles, or libjpeg-turbo
//! 3 installed on the system and `TURBOJPEG_SOURCE=pkg-config`.

#![cfg(feature = "jpeg")]

mod colour;
mod decode;
mod error;
mod lanes;
mod pipeline;
mod resample;
mod taps;

use std::path::Path;

use slotline::BoxError;
use slotline::sample::{Fields, Row, Sample};

pub use self::colour::Pixel;
pub use self::error::{FileError, ImageError};
pub use self::pipeline::Pipeline;

/// A JPEG that is decoded into its row of the batch, with element type `T` (`f32` or `u8`) and shape
/// `[3, height, width]`.
#[derive(Clone, Copy, Debug)]
pub struct Jpeg<'a, T = f32> {
    bytes: &'a [u8],
    pipeline: &'a Pipeline<T>,
    path: Option<&'a Path>,
}

impl<'a, T: Pixel> Jpeg<'a, T> {
    /// Creates a sample from `bytes`, a whole JPEG file, which `pipeline` decodes. The bytes are not examined yet.
    pub fn new(bytes: &'a [u8], pipeline: &'a Pipeline<T>) -> Self {
        Self { bytes, pipeline, path: None }
    }

    /// Sets the path of the file that the bytes come from. If they cannot be decoded, the error is a [`FileError`]
    /// with this path instead of an [`ImageError`].
    pub fn path(self, path: &'a (impl AsRef<Path> + ?Sized)) -> Self {
        Self { path: Some(path.as_ref()), ..self }
    }
}

impl<T: Pixel> Sample for Jpeg<'_, T> {
    type Schema = T;

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(T::DTYPE, &self.pipeline.shape());
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let decoded = self.pipeline.decode(self.bytes, row.fill(&self.pipeline.shape())?);
        decoded.map_err(|error| match self.path {
            Some(path) => FileError { path: path.to_owned(), error }.into(),
            None => error.into(),
        })
    }
}
