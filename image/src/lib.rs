//! Picture samples that are decoded directly into the batch: cropped, resized, augmented and normalised.
//!
//! An [`Image`] is a [sample](slotline::sample): the bytes of a file, and the [`Pipeline`] that decodes them. A pipeline
//! is a list of [transforms](transform) with the names, parameters and defaults of torchvision's `transforms.v2`.
//!
//! ```
//! use slotline::dataset::{Context, Dataset};
//! use slotline::{BoxError, Loader};
//! use slotline_image::transform::{Normalize, RandomHorizontalFlip, RandomResizedCrop};
//! use slotline_image::{Image, Pipeline};
//!
//! /// Pictures in memory, with their classes.
//! struct Photos {
//!     files: Vec<(Vec<u8>, i64)>,
//!     pipeline: Pipeline,
//! }
//!
//! impl Dataset for Photos {
//!     type Sample<'a> = (Image<'a>, i64);
//!
//!     fn len(&self) -> usize {
//!         self.files.len()
//!     }
//!
//!     fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
//!         let (bytes, class) = &self.files[index];
//!         Ok((Image::new(bytes, &self.pipeline).random(cx.rng()), *class))
//!     }
//! }
//!
//! # let files = (0..8).map(|i| (include_bytes!("../tests/pictures/rgb.png").to_vec(), i)).collect();
//! let pipeline = Pipeline::builder()
//!     .then(RandomResizedCrop::new(224))
//!     .then(RandomHorizontalFlip::new(0.5))
//!     .then(Normalize::imagenet())
//!     .build()?;
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
//! Pipelines can be configured as text, too: `"random_resized_crop(224), hflip, normalize(imagenet)".parse()` reads the same
//! one; see [`PipelineBuilder`].
//!
//! What a transform draws comes from the sample's own generator, so that pictures are the same for any number of workers,
//! processes and ranks. It is [apart](Draw) from what is done with it. If the bytes are borrowed from the
//! [`Context`](slotline::dataset::Context) too, take a [`Seed`] from its generator first, as in the example
//! `image_folder`.
//!
//! The [mask](Image::mask) and the [boxes](Image::boxes) of a picture follow its draw. [`MixUp`] and [`CutMix`] mix the pictures
//! and the labels of a finished batch.
//!
//! # Formats
//!
//! A picture's format is recognised by its content. Each format is a cargo feature:
//!
//! | | feature | |
//! |---|---|---|
//! | JPEG | `jpeg` | baseline and progressive, 8 bits; grey, RGB, CMYK (assumed to be inverted, as PIL does) |
//! | PNG | `png` (default) | all kinds; of 16 bits the upper 8 are used |
//! | WebP | `webp` (default) | lossy and lossless; the first frame of animations |
//! | GIF | `gif` (default) | the first frame |
//! | BMP | `bmp` (default) | 1, 4, 8, 16, 24 and 32 bits, with palettes, masks and run lengths |
//!
//! All become red, green and blue, as with PIL's `convert("RGB")`: grey is expanded to three equal channels, and alpha is
//! dropped, not composited. (PIL clips grey of 16 bits to white, instead of taking the upper bits.) Colour profiles are
//! not applied. The EXIF orientation is applied on [request](Pipeline::exif).
//!
//! Everything that libjpeg-turbo warns about is an error by default, since parts of the picture would be guessed;
//! [`strict(false)`](Pipeline::strict) accepts what PIL accepts. Of a picture of which only a part is needed, only that part
//! may be read, and damage elsewhere goes unnoticed.
//!
//! # Speed and exactness
//!
//! Resizing, crops, flips and padding that follow each other are one pass over the pixels that are needed. Transforms of
//! colours work on bytes of that size, as torchvision's do on uint8 tensors; those of single values are one pass together. JPEGs are decoded
//! to the planes of the file: brightness and two colour differences, which mostly have a lower resolution. Each plane is
//! resized separately, with vector instructions that are chosen at run time. Colours and normalisation are computed only at
//! the target size, and written directly into the batch. Of JPEGs of which a small part is needed, only that part is
//! decoded.
//!
//! The results match those of torchvision's transforms of uint8 tensors for the same draws, and are not bit-identical, as
//! torchvision rounds to bytes at every step. They are the same for all threads and CPUs.
//!
//! The table shows the differences of generated JPEGs, decoded at full size, to torchvision 0.29 (`decode_jpeg`, `resize`
//! with antialiasing) and Pillow 13, in levels out of 255:
//!
//! | images | mean difference, up to | largest difference |
//! |---|---|---|
//! | colours at half the resolution | 0.7 | 4.1 |
//! | colours at full resolution | 0.35 | 3 |
//! | grey | 0.31 | 1 |
//!
//! In photographs with colours at half the resolution, single values at the edges of saturated colours differ by more,
//! up to 35 levels (up to 5 % of the values of a picture by more than 2), since colours are clamped to the range once, at
//! the end. PNGs and other pictures that hold red, green and blue differ by at most two levels.
//!
//! Compared with decoding to red, green and blue and filtering with 64-bit numbers, the images of the tests differ as
//! follows. Grey images differ by less than 0.1 of 255 levels. Images with colours at full resolution differ by up to
//! 0.5, due to the rounding of that method. Images with colours at half the resolution differ by up to 4, at 50 dB or
//! more, since colours are interpolated once, not twice. Decoding at a [reduced](Pipeline::reduced) size differs from
//! decoding at full size by up to 12 levels at edges, 42 to 55 dB.
//!
//! # Memory
//!
//! Until it exits, each decoding thread keeps the pixels of the largest picture that it has decoded, and tables for
//! some sizes: [`Pipeline::memory`] says how much. For JPEGs that are no larger, no further memory is allocated in Rust.
//! libjpeg-turbo itself is initialised again for each image, so that no image depends on another. It allocates its
//! working memory with `malloc` (for a progressive image, all coefficients) and frees it afterwards. The decoders of other
//! formats allocate their own working memory for each picture.
//!
//! # Building
//!
//! The feature `jpeg` needs CMake, NASM and a C compiler to build the libjpeg-turbo that its crate bundles, or libjpeg-turbo
//! 3 installed on the system and `TURBOJPEG_SOURCE=pkg-config`. The other formats need only Rust.

mod any;
mod boxes;
mod colour;
mod decode;
mod draw;
mod error;
mod format;
#[cfg_attr(not(feature = "png"), allow(dead_code, unused_imports))] // Only PNGs can be masks.
mod geometry;
mod lanes;
#[cfg_attr(not(feature = "png"), allow(dead_code, unused_imports))] // Only PNGs can be masks.
mod mask;
mod mix;
mod operation;
mod paint;
mod pipeline;
mod places;
mod plan;
mod resample;
mod sample;
mod scratch;
mod taps;
mod text;
pub mod transform;

pub use self::any::{AnyImage, AnyPipeline};
pub use self::boxes::{Coordinate, SanitizeBoundingBoxes};
pub use self::colour::Pixel;
pub use self::draw::{Draw, Operations, Seed, Step};
pub use self::error::{FileError, ImageError};
pub use self::format::Format;
pub use self::mask::{ClassId, Mask};
pub use self::mix::{CutMix, Mix, MixUp};
pub use self::operation::{Affine, Erasing, Interpolation, Operation};
pub use self::pipeline::{Pipeline, PipelineBuilder};
pub use self::places::PaddingMode;
pub use self::sample::Image;
