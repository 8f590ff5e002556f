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
//! | JPEG | `jpeg` (default) | baseline and progressive, 8 bits; grey, RGB, CMYK (assumed to be inverted, as PIL does) |
//! | | `turbo` | with libjpeg-turbo: also arithmetic and lossless, any sampling, and channels in scans of their own |
//! | PNG | `png` (default) | all kinds; of 16 bits the upper 8 are used |
//! | WebP | `webp` (default) | lossy and lossless; the first frame of animations |
//! | GIF | `gif` (default) | the first frame |
//! | BMP | `bmp` (default) | 1, 4, 8, 16, 24 and 32 bits, with palettes, masks and run lengths |
//!
//! All become red, green and blue, as with PIL's `convert("RGB")`: grey is expanded to three equal channels, and alpha is
//! dropped, not composited. What the first frame of a GIF leaves free is transparent or has the palette's first colour; of a
//! WebP it is black. There is one exception: of grey of 16 bits the upper 8 are used, as of other PNGs of 16 bits, while PIL
//! clips what is above 255 to white. Colour profiles are not applied. The EXIF orientation, or else that of XMP, is applied on
//! [request](Pipeline::exif), as PIL's `exif_transpose` does.
//!
//! A file that is cut short is an error, and so is what a decoder rejects. What the decoder of JPEGs only warns about is decoded, and [counted](Pipeline::warnings), or an error with [`strict`](Pipeline::strict). Of a picture of which only a
//! part is needed, only that part may be decoded, but the file is [checked](Pipeline::check) to its end.
//!
//! # Speed and exactness
//!
//! Resizing, crops, flips and padding that follow each other are one pass over the pixels that are needed. Transforms of
//! colours work on bytes of that size, as torchvision's do on uint8 tensors; those of single values are one pass together. With `turbo`, JPEGs are decoded
//! to the planes of the file: brightness and two colour differences, which mostly have a lower resolution. Each plane is
//! resized separately, with vector instructions that are chosen at run time. Colours and normalisation are computed only at
//! the target size, and written directly into the batch. Of JPEGs of which a small part is needed, only that part is
//! decoded.
//!
//! The results match those of torchvision's transforms of uint8 tensors for the same draws, and are not bit-identical, as
//! torchvision rounds to bytes at every step. They are the same for all threads and CPUs.
//!
//! The table shows how much pictures resized to 224 × 224 and to 96 × 96 pixels differ from Pillow 13 (`convert("RGB")`,
//! then `resize` with `BILINEAR`), in levels out of 255: the mean of the picture with the largest mean, and the largest
//! difference of a value. They were photographs, text, blocks of saturated colours and smooth gradients, as JPEGs with
//! colours at full (4:4:4) or half (4:2:0) resolution, decoded with `turbo`. The [reduced](Pipeline::reduced) size is not the default.
//!
//! | | full size, 4:4:4 | full size, 4:2:0 | reduced, 4:4:4 | reduced, 4:2:0 |
//! |---|---|---|---|---|
//! | photographs | 0.3, 13 | 0.5, 24 | 1.9, 31 | 2.0, 48 |
//! | text | 1.4, 13 | 2.4, 41 | 8.5, 50 | 8.5, 50 |
//! | saturated blocks | 3.0, 20 | 8.3, 82 | 7.9, 46 | 24, 166 |
//! | smooth gradients | 0.3, 1 | 0.3, 3 | 0.4, 2 | 0.5, 3 |
//!
//! Grey JPEGs at full size, PNGs and other pictures that hold red, green and blue differ by at most one level, 0.2 on
//! average. JPEGs with colours differ by more where saturated colours meet, since colours are clamped to the range once, at
//! the end, and interpolated once, not twice. A reduced size is filtered by the decoder, which is sharper.
//!
//! [Exact](PipelineBuilder::exact) pipelines give the bits of torchvision's transforms of PIL images, with Pillow 13. That
//! needs `turbo`. Programs that draw random numbers themselves can choose the steps of each picture: [`ExactPlan`].
//!
//! # Memory
//!
//! Until it exits, each decoding thread keeps the pixels of the largest picture that it has decoded, and tables for
//! some sizes: [`Pipeline::memory`] says how much. With `turbo`, no further memory is allocated in Rust for JPEGs
//! that are no larger. libjpeg-turbo itself is initialised again for each image, so that no image depends on another. It allocates its
//! working memory with `malloc` (for a progressive image, all coefficients) and frees it afterwards. Without `turbo`,
//! a copy of the file is made, and a progressive JPEG needs up to 8 bytes for each pixel: 2 for each sample of its channels. The decoders of other
//! formats allocate their own working memory for each picture.
//!
//! # Panics of decoders
//!
//! Without `turbo`, a panic of the decoder of JPEGs, which would be a fault of it, is an error of the picture, after its message
//! on standard error. That needs unwinding: in a program with `panic = "abort"` it ends the process, and so does a
//! small allocation that fails.
//!
//! # Building
//!
//! The feature `turbo` needs CMake, NASM and a C compiler to build the libjpeg-turbo that its crate bundles, or libjpeg-turbo
//! 3 installed on the system and `TURBOJPEG_SOURCE=pkg-config`. All else needs only Rust.

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
pub use self::exact::Resampling;
pub use self::exact_plan::{ExactPlan, ExactSource};
pub use self::format::Format;
pub use self::mask::{ClassId, Mask};
pub use self::mix::{CutMix, Mix, MixUp};
pub use self::operation::{Affine, Erasing, Interpolation, Operation};
pub use self::pipeline::{Pipeline, PipelineBuilder};
pub use self::pixel::Pixel;
pub use self::sample::Image;
