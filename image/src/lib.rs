//! Pictures that decode themselves into the batch: resized, normalised, channel after channel.
//!
//! With the feature `jpeg`; without it the crate is empty. A [`Jpeg`] is a [sample](slotline::sample): bytes, and the
//! [`Pipeline`] that says what becomes of them.
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
//! Bytes from files are read in `get`, into memory of the thread's own
//! ([`Context::local`](slotline::dataset::Context::local)), as in the example `image_folder`.
//!
//! # What is decoded
//!
//! Baseline and progressive JPEGs of 8 bits, of any subsampling; grey ones get three equal channels, and those in CMYK are
//! taken to be inverted, as Adobe's programs write them. Everything that libjpeg-turbo has a warning for (data that
//! is cut short, damaged, or has bytes that don't belong there) is an error here, since the picture would be partly
//! guessed. PIL refuses only data that is cut short, and lets the other warnings pass. The orientation that EXIF may
//! tell of is not applied, as in PIL's `open` and torchvision's `decode_jpeg`; nor are colour profiles.
//!
//! # Speed and exactness
//!
//! Pictures are decoded to planes as they are in the file, brightness and two (mostly smaller) colour differences. Each
//! plane is brought to the target's size by itself, with vector instructions, and colours and normalisation are
//! computed at that size only, right into the batch. That is not bit for bit what PIL gives, which rounds to bytes at
//! every step, but it is the same for all threads and CPUs.
//!
//! Beside torchvision 0.29 (`decode_jpeg`, `resize` with antialiasing) and Pillow 13, at full size, generated pictures
//! differed by so many of 255 levels: those with colours at half the resolution by up to 0.7 in the mean and 4.1 at most,
//! those with colours at full resolution by up to 0.35 and 3, grey ones by up to 0.31 and 1.
//!
//! Beside decoding to red, green and blue and filtering with 64-bit numbers, on the pictures of the tests: grey ones differ
//! by less than 0.1 of 255 levels; those with colours at full resolution by up to 0.5, which is the other way's rounding;
//! those with colours at half the resolution by up to 4, at 50 dB or more, since colours are interpolated once, not twice.
//! Decoding at a [reduced](Pipeline::reduced) size differs from decoding at full size by up to 12 levels at edges, 42 to
//! 55 dB.
//!
//! # Memory
//!
//! Each thread that decodes keeps, until it ends, the planes of the largest picture it met and tables for some sizes; with
//! pictures no larger than before and of the same sizes, nothing more is allocated in Rust. libjpeg-turbo itself is set up
//! anew for each picture, so that none depends on another: it takes working memory from `malloc` (for a progressive one,
//! all coefficients) and gives it back.
//!
//! # To build
//!
//! The feature needs CMake, NASM and a C compiler for libjpeg-turbo, which comes with its crate, or libjpeg-turbo 3 on the
//! system and `TURBOJPEG_SOURCE=pkg-config`.

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

/// A JPEG that is decoded into its row when its turn comes: `T` (`f32` or `u8`), shape `[3, height, width]`.
#[derive(Clone, Copy, Debug)]
pub struct Jpeg<'a, T = f32> {
    bytes: &'a [u8],
    pipeline: &'a Pipeline<T>,
    path: Option<&'a Path>,
}

impl<'a, T: Pixel> Jpeg<'a, T> {
    /// The picture in `bytes`, a whole JPEG file, to be decoded by `pipeline`. Nothing is looked at yet.
    pub fn new(bytes: &'a [u8], pipeline: &'a Pipeline<T>) -> Self {
        Self { bytes, pipeline, path: None }
    }

    /// Says which file the bytes are from: if they can't be decoded, the error is a [`FileError`] that names it, in place of
    /// an [`ImageError`].
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
