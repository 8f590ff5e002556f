//! Pictures as samples, which are decoded, cropped, resized, augmented and normalised directly into
//! the batch.
//!
//! An [`Image`] is a [sample](slotline::sample): the bytes of a file, and the [`Pipeline`] that
//! decodes them. A pipeline is a list of [transforms](transform) with the names, parameters and
//! defaults of torchvision's `transforms.v2`.
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
//! Pipelines can be configured as text, too: `"random_resized_crop(224), hflip,
//! normalize(imagenet)".parse()` reads the same pipeline as above; see [`PipelineBuilder`].
//!
//! The random numbers of a transform come from the sample's own generator, so that pictures are the
//! same for any number of workers, processes and ranks. The choices for a picture are a value of
//! their own, a [`Draw`], which can be inspected or made by hand. If the bytes of a picture are
//! borrowed from the [`Context`](slotline::dataset::Context), draw a [`Seed`] from its generator
//! first, as in the example `image_folder`.
//!
//! The [mask](Image::mask) and the [boxes](Image::boxes) of a picture are transformed by the same
//! draw as the picture. [`MixUp`] and [`CutMix`] mix the pictures and the labels of a finished
//! batch.
//!
//! # Formats
//!
//! A picture's format is recognised by its content. Each format is a cargo feature:
//!
//! | | feature | |
//! |---|---|---|
//! | JPEG | `jpeg` (default) | baseline and progressive, 8 bits; grey, RGB, CMYK (assumed to be inverted, as PIL does) |
//! | | `turbo` | with libjpeg-turbo: also arithmetic and lossless, any sampling, and channels in separate scans |
//! | PNG | `png` (default) | all kinds; of 16 bits the upper 8 are used |
//! | WebP | `webp` (default) | lossy and lossless; the first frame of animations |
//! | GIF | `gif` (default) | the first frame |
//! | BMP | `bmp` (default) | 1, 4, 8, 16, 24 and 32 bits, with palettes, masks and run lengths |
//!
//! All pictures are converted to red, green and blue, as by PIL's `convert("RGB")`: grey is
//! expanded to three equal channels, and alpha is dropped, not composited. Pixels that the first
//! frame of an animation does not cover have the transparent or the first colour of the palette in
//! a GIF, and are black in a WebP. One case differs from PIL: of 16-bit grey values the upper 8
//! bits are used, as for other PNGs of 16 bits, while PIL clips values above 255 to white. Colour
//! profiles are not applied. The orientation in EXIF or else XMP data is applied on
//! [request](Pipeline::exif), as by PIL's `exif_transpose`.
//!
//! A truncated file is an error, and so is one that a decoder rejects. A JPEG that its decoder only
//! warns about is decoded and [counted](Pipeline::warnings); with [`strict`](Pipeline::strict) it
//! is an error. If only a part of a picture is needed, the rest may not be decoded, but the file is
//! [checked](Pipeline::check) to its end.
//!
//! # Speed and exactness
//!
//! Consecutive resizes, crops, flips and paddings are combined to one pass over the pixels that are
//! needed. Transforms of colours work on the resized bytes, as torchvision's do on uint8 tensors,
//! and those that change each value independently are combined to one pass. With `turbo`, JPEGs are
//! decoded to the planes of the file: brightness and two colour differences, which usually have a
//! lower resolution. Each plane is resized separately, with vector instructions that are chosen at
//! run time. Colours and normalisation are computed only at the target size, and written directly
//! into the batch. If a small part of a JPEG is needed, only that part is decoded.
//!
//! The results match those of torchvision's transforms of uint8 tensors for the same draws, and are
//! not bit-identical, as torchvision rounds to bytes at every step. They are the same for all
//! threads and CPUs.
//!
//! The table shows how much pictures resized to 224 × 224 and to 96 × 96 pixels differ from Pillow
//! 13 (`convert("RGB")`, then `resize` with `BILINEAR`), in levels out of 255. Each cell has the
//! mean difference of the picture with the largest mean, and the largest difference of a single
//! value. The pictures were photographs, text, blocks of saturated colours and smooth gradients, as
//! JPEGs with colours at full (4:4:4) or half (4:2:0) resolution, decoded with `turbo`. The columns
//! "reduced" are for the option [`reduced`](Pipeline::reduced), which is off by default.
//!
//! | | full size, 4:4:4 | full size, 4:2:0 | reduced, 4:4:4 | reduced, 4:2:0 |
//! |---|---|---|---|---|
//! | photographs | 0.3, 13 | 0.5, 24 | 1.9, 31 | 2.0, 48 |
//! | text | 1.4, 13 | 2.4, 41 | 8.5, 50 | 8.5, 50 |
//! | saturated blocks | 3.0, 20 | 8.3, 82 | 7.9, 46 | 24, 166 |
//! | smooth gradients | 0.3, 1 | 0.3, 3 | 0.4, 2 | 0.5, 3 |
//!
//! Grey JPEGs at full size, PNGs and other files that store red, green and blue differ by at most
//! one level, and by 0.2 on average. JPEGs with colours differ by more where saturated colours
//! meet, since here colours are clamped to their range only once, at the end, and interpolated once
//! instead of twice. Pictures at reduced size are filtered by the decoder, whose filter is sharper.
//!
//! The results of [exact](PipelineBuilder::exact) pipelines are bit for bit those of torchvision's
//! transforms of PIL images, with Pillow 13. For JPEGs this needs `turbo`. Programs that draw
//! random numbers themselves can use an [`ExactPlan`], with their own steps for each picture.
//!
//! # Memory
//!
//! Until it exits, each decoding thread keeps the pixels of the largest picture that it has
//! decoded, and tables for some sizes: [`Pipeline::memory`] says how much. With `turbo`, no further
//! memory is allocated in Rust for JPEGs that are no larger. libjpeg-turbo itself is initialised
//! again for each image, so that no image depends on another. It allocates its working memory with
//! `malloc` (for a progressive image, all coefficients) and frees it afterwards. Without `turbo`, a
//! copy of the file is made, and a progressive JPEG needs up to 8 bytes for each pixel: 2 for each
//! sample of its channels. The decoders of other formats allocate their own working memory for each
//! picture.
//!
//! # Panics of decoders
//!
//! Without `turbo`, a bug of the JPEG decoder may make it panic. The panic prints its message to
//! standard error and is then returned as an error of the picture. That needs unwinding: in a
//! program with `panic = "abort"` a panic ends the process, and so does a small allocation that
//! fails.
//!
//! # Building
//!
//! The feature `turbo` needs CMake, NASM and a C compiler to build the libjpeg-turbo that its crate
//! bundles, or libjpeg-turbo 3 installed on the system and `TURBOJPEG_SOURCE=pkg-config`. All other
//! features need only Rust.

mod any;
mod axis_map;
mod boxes;
mod channel;
mod decode;
mod draw;
mod error;
mod exact;
mod exact_plan;
mod format;
#[cfg_attr(not(feature = "png"), allow(dead_code, unused_imports))] // Only PNGs can be masks.
mod geometry;
mod lanes;
#[cfg_attr(not(feature = "png"), allow(dead_code, unused_imports))] // Only PNGs can be masks.
mod mask;
mod mix;
mod number;
mod operation;
mod paint;
mod pipeline;
mod pixel;
mod plan;
mod resample;
mod sample;
mod scratch;
mod taps;
mod text;
pub mod transform;

pub use self::any::{AnyImage, AnyPipeline};
pub use self::axis_map::PaddingMode;
pub use self::boxes::{Coordinate, SanitizeBoundingBoxes};
pub use self::draw::{Draw, Operations, Seed, Step};
pub use self::error::{FileError, ImageError};
pub use self::exact::{Resampling, Resizer};
pub use self::exact_plan::{ExactPlan, ExactSource};
pub use self::format::Format;
pub use self::mask::{ClassId, Mask};
pub use self::mix::{CutMix, Mix, MixUp};
pub use self::operation::{Affine, Erasing, Interpolation, Operation};
pub use self::pipeline::{Pipeline, PipelineBuilder};
pub use self::pixel::Pixel;
pub use self::sample::Image;
