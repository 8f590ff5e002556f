//! Pipelines whose element type is known at run time.

use slotline::BoxError;
use slotline::dataset::decoding;
use slotline::dtype::DType;
use slotline::sample::{Fields, Row, Sample};
use slotline::tensor::AnyTensorView;

use crate::boxes::{Coordinate, follow};
use crate::draw::Seed;
use crate::error::ImageError;
use crate::mask::{ClassId, Mask};
use crate::mix::Mix;
use crate::pipeline::{Choice, Job, Pipeline, PipelineBuilder};
use crate::pixel::elements;
use crate::sample::Image;

/// A [`Pipeline`] whose element type is known only at run time, for programs that are configured
/// with text.
///
/// ```
/// use slotline::dtype::DType;
/// use slotline_image::{AnyPipeline, PipelineBuilder};
///
/// let builder: PipelineBuilder = "random_resized_crop(224), hflip".parse()?;
/// let pipeline = AnyPipeline::new(builder, DType::U8)?.channels_last(true);
/// assert_eq!(pipeline.shape(), [224, 224, 3]);
/// # Ok::<(), slotline_image::ImageError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyPipeline {
    /// A pipeline for bytes.
    U8(Pipeline<u8>),
    /// A pipeline for 32-bit floating-point numbers.
    F32(Pipeline<f32>),
    /// A pipeline for 16-bit floating-point numbers.
    #[cfg(feature = "half")]
    F16(Pipeline<half::f16>),
    /// A pipeline for bfloat16 numbers.
    #[cfg(feature = "half")]
    BF16(Pipeline<half::bf16>),
}

/// Evaluates an expression for the pipeline of any variant.
macro_rules! each {
    ($any:expr, $pipeline:ident => $result:expr) => {
        match $any {
            AnyPipeline::U8($pipeline) => $result,
            AnyPipeline::F32($pipeline) => $result,
            #[cfg(feature = "half")]
            AnyPipeline::F16($pipeline) => $result,
            #[cfg(feature = "half")]
            AnyPipeline::BF16($pipeline) => $result,
        }
    };
}

macro_rules! from {
    ($($variant:ident $type:ty),*) => { $(
        impl From<Pipeline<$type>> for AnyPipeline {
            fn from(pipeline: Pipeline<$type>) -> Self {
                Self::$variant(pipeline)
            }
        }
    )* };
}

from!(U8 u8, F32 f32);
#[cfg(feature = "half")]
from!(F16 half::f16, BF16 half::bf16);

impl AnyPipeline {
    /// Builds the pipeline with this element type.
    ///
    /// # Errors
    ///
    /// The errors of [`PipelineBuilder::build`]. Also fails if pictures cannot have this element
    /// type.
    pub fn new(builder: PipelineBuilder, dtype: DType) -> Result<Self, ImageError> {
        match dtype {
            DType::U8 => builder.build().map(Self::U8),
            DType::F32 => builder.build().map(Self::F32),
            #[cfg(feature = "half")]
            DType::F16 => builder.build().map(Self::F16),
            #[cfg(feature = "half")]
            DType::BF16 => builder.build().map(Self::BF16),
            _ => Err(no_pixels("Pipeline", dtype)),
        }
    }

    /// See [`Pipeline::channels_last`].
    pub fn channels_last(self, channels_last: bool) -> Self {
        each!(self, pipeline => pipeline.channels_last(channels_last).into())
    }

    /// See [`Pipeline::exif`].
    pub fn exif(self, exif: bool) -> Self {
        each!(self, pipeline => pipeline.exif(exif).into())
    }

    /// See [`Pipeline::reduced`].
    pub fn reduced(self, reduced: bool) -> Self {
        each!(self, pipeline => pipeline.reduced(reduced).into())
    }

    /// See [`Pipeline::strict`].
    pub fn strict(self, strict: bool) -> Self {
        each!(self, pipeline => pipeline.strict(strict).into())
    }

    /// See [`Pipeline::check`].
    pub fn check(self, check: bool) -> Self {
        each!(self, pipeline => pipeline.check(check).into())
    }

    /// See [`Pipeline::warnings`].
    pub fn warnings(&self) -> u64 {
        each!(self, pipeline => pipeline.warnings())
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        fn of<T: crate::Pixel>(_: &Pipeline<T>) -> DType {
            T::DTYPE
        }
        each!(self, pipeline => of(pipeline))
    }

    /// See [`Pipeline::shape`].
    pub fn shape(&self) -> [usize; 3] {
        each!(self, pipeline => pipeline.shape())
    }

    /// Decodes the picture in `bytes` and writes its elements to `out` as bytes. Otherwise like
    /// [`Pipeline::decode_seeded`].
    ///
    /// # Errors
    ///
    /// The errors of [`Pipeline::decode_seeded`].
    ///
    /// # Panics
    ///
    /// Panics if `out` does not have the length of a picture, or is not aligned for the elements.
    pub fn decode_seeded(&self, bytes: &[u8], seed: Seed, out: &mut [u8]) -> Result<(), ImageError> {
        AnyImage::new(bytes, self).random(seed).decode(out)
    }

    /// See [`Pipeline::is_random`].
    pub fn is_random(&self) -> bool {
        each!(self, pipeline => pipeline.is_random())
    }

    /// See [`Pipeline::size_of`].
    ///
    /// # Errors
    ///
    /// The errors of [`Pipeline::size_of`].
    pub fn size_of(&self, bytes: &[u8]) -> Result<[usize; 2], ImageError> {
        each!(self, pipeline => pipeline.size_of(bytes))
    }

    /// See [`Pipeline::size`].
    pub fn size(&self) -> [usize; 2] {
        each!(self, pipeline => pipeline.size())
    }

    /// See [`Pipeline::check_followed`].
    ///
    /// # Errors
    ///
    /// The errors of [`Pipeline::check_followed`].
    pub fn check_followed(&self) -> Result<(), ImageError> {
        each!(self, pipeline => pipeline.check_followed())
    }
}

/// A picture as a sample of a dataset, decoded by an [`AnyPipeline`]: like [`Image`], with the
/// element type chosen at run time.
#[derive(Clone, Copy, Debug)]
pub struct AnyImage<'a> {
    bytes: &'a [u8],
    pipeline: &'a AnyPipeline,
    seed: Option<Seed>,
    check: bool,
}

impl<'a> AnyImage<'a> {
    /// Creates a sample from `bytes`, the contents of a file, which `pipeline` decodes.
    pub fn new(bytes: &'a [u8], pipeline: &'a AnyPipeline) -> Self {
        Self { bytes, pipeline, seed: None, check: true }
    }

    /// Sets where the random numbers of the pipeline come from; see [`Image::random`].
    pub fn random(self, seed: impl Into<Seed>) -> Self {
        Self { seed: Some(seed.into()), ..self }
    }

    /// Sets whether the whole file is checked; see [`Image::check`].
    pub fn check(self, check: bool) -> Self {
        Self { check, ..self }
    }

    /// Decodes the picture and writes its elements to `out` as bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`Pipeline::decode_seeded`], or of [`Pipeline::decode`] if no [random
    /// numbers](Self::random) were set.
    ///
    /// # Panics
    ///
    /// Panics if `out` does not have the length of a picture, or is not aligned for the elements.
    pub fn decode(self, out: &mut [u8]) -> Result<(), ImageError> {
        let job = Job { bytes: self.bytes, choice: self.choice(), check: self.check };
        // SAFETY: any bits are values of the types of pixels.
        decoding(|| each!(self.pipeline, pipeline => pipeline.run(job, unsafe { elements(out) })))
    }

    /// Creates the mask of this picture from `bytes`, the contents of its file. Call it after
    /// [`random`](Self::random); see [`Image::mask`].
    pub fn mask<M: ClassId>(&self, bytes: &'a [u8]) -> Mask<'a, M> {
        each!(self.pipeline, pipeline => Mask::new(bytes, self.bytes, pipeline, self.choice()))
    }

    /// Transforms boxes of this picture as the picture is transformed; see [`Image::boxes`].
    ///
    /// # Errors
    ///
    /// The errors of [`Pipeline::boxes`]. Also fails if the header of the picture cannot be read.
    pub fn boxes<F: Coordinate>(&self, boxes: &mut [[F; 4]]) -> Result<(), ImageError> {
        let plan = each!(self.pipeline, pipeline => pipeline.plan_for(self.bytes, self.choice()));
        plan.and_then(|(_, plan)| follow(&plan, boxes))
    }

    fn choice(&self) -> Choice<'static> {
        self.seed.map_or(Choice::None, Choice::Seed)
    }
}

impl Mix {
    /// Mixes the pictures of a batch like [`pictures`](Self::pictures), with an element type that is
    /// known only at run time. `pictures` are the bytes of the elements.
    ///
    /// # Errors
    ///
    /// The errors of [`pictures`](Self::pictures). Also fails if pictures cannot have this element
    /// type.
    ///
    /// # Panics
    ///
    /// Panics if `pictures` is not aligned for the elements.
    pub fn any_pictures(
        &self,
        dtype: DType,
        pictures: &mut [u8],
        shape: [usize; 4],
        channels_last: bool,
    ) -> Result<(), ImageError> {
        // SAFETY: any bits are values of the types of pixels.
        unsafe {
            match dtype {
                DType::U8 => self.pictures::<u8>(pictures, shape, channels_last),
                DType::F32 => self.pictures::<f32>(elements(pictures), shape, channels_last),
                #[cfg(feature = "half")]
                DType::F16 => self.pictures::<half::f16>(elements(pictures), shape, channels_last),
                #[cfg(feature = "half")]
                DType::BF16 => self.pictures::<half::bf16>(elements(pictures), shape, channels_last),
                _ => Err(no_pixels("Mix", dtype)),
            }
        }
    }
}

#[cold]
fn no_pixels(transform: &'static str, dtype: DType) -> ImageError {
    let (half, types) = match cfg!(feature = "half") {
        true => ("", "u8, f32, f16 and bf16"),
        false => (" (and f16 and bf16 with the cargo feature `half` of slotline-image)", "u8 and f32"),
    };
    ImageError::parameter(transform, "elements", format!("are {dtype}; pictures can be {types}{half}"))
}

impl Sample for AnyImage<'_> {
    type Schema = AnyTensorView<'static>;

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(self.pipeline.dtype(), &self.pipeline.shape());
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        each!(self.pipeline, pipeline => {
            let image = Image::new(self.bytes, pipeline).check(self.check);
            match self.seed {
                Some(seed) => image.random(seed),
                None => image,
            }
            .write(row)
        })
    }
}
