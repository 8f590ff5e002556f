//! Segmentation masks that are transformed together with their picture.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use slotline::BoxError;
use slotline::dataset::decoding;
use slotline::dtype::Element;
use slotline::sample::{Fields, Row, Sample};

use crate::decode::Limits;
use crate::error::ImageError;
use crate::geometry::source;
use crate::pipeline::{Choice, Pipeline};
use crate::pixel::{Pixel, elements};
use crate::plan::Plan;
use crate::sample::named;

/// The element type of masks: `u8`, or `i64`, which torch's losses expect. Sealed.
#[allow(private_bounds)] // So that only this crate can implement this trait.
pub trait ClassId: Element + Number {}

/// The operations that a [`ClassId`] needs.
pub(crate) trait Number: Copy + TryFrom<u16> + Default {}

impl Number for u8 {}
impl Number for i64 {}
impl ClassId for u8 {}
impl ClassId for i64 {}

/// The part of a picture's [`Pipeline`] that applies to its mask, independent of the pipeline's
/// element type.
pub(crate) trait MaskGeometry: fmt::Debug + Sync {
    fn plan_for(&self, bytes: &[u8], choice: Choice<'_>) -> Result<([usize; 2], Plan), ImageError>;
    fn limits(&self) -> Limits;
    fn size(&self) -> [usize; 2];
}

impl<T: Pixel> MaskGeometry for Pipeline<T> {
    fn plan_for(&self, bytes: &[u8], choice: Choice<'_>) -> Result<([usize; 2], Plan), ImageError> {
        self.plan_for(bytes, choice)
    }

    fn limits(&self) -> Limits {
        self.limits()
    }

    fn size(&self) -> [usize; 2] {
        self.size()
    }
}

/// A segmentation mask as a sample: the class of each pixel of a picture.
/// [`Image::mask`](crate::Image::mask) creates it. It is decoded into its row of the batch, whose
/// shape is the `[height, width]` of the picture's pipeline.
///
/// A mask gets the same crops, resizes, flips and padding as its picture, by the picture's
/// [`Draw`](crate::Draw) or [`Seed`](crate::Seed). It is resized with nearest-neighbour
/// interpolation, like torchvision's `tv_tensors.Mask`, so that no new classes appear. Transforms
/// of colours and [`Normalize`](crate::transform::Normalize) do not change it.
///
/// The file is a PNG. If it has a palette, the indices are the classes; if it is grey, with up to
/// 16 bits, the values are the classes. Values of fewer than 8 bits are not scaled. A class above
/// 255 needs `i64`.
#[derive(Clone, Copy)]
pub struct Mask<'a, M = u8> {
    bytes: &'a [u8],
    picture: &'a [u8],
    pipeline: &'a dyn MaskGeometry,
    choice: Choice<'a>,
    fill: M,
    path: Option<&'a Path>,
    element: PhantomData<M>,
}

impl<M> fmt::Debug for Mask<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mask").field("bytes", &self.bytes.len()).field("path", &self.path).finish_non_exhaustive()
    }
}

thread_local! {
    /// Buffers of the thread: the rows of the file, and for each column of the result the column of
    /// the mask.
    static SCRATCH: RefCell<(Vec<u8>, Vec<Option<usize>>)> = RefCell::default();
}

impl<'a, M: ClassId> Mask<'a, M> {
    pub(crate) fn new(bytes: &'a [u8], picture: &'a [u8], pipeline: &'a dyn MaskGeometry, choice: Choice<'a>) -> Self {
        Self { bytes, picture, pipeline, choice, fill: M::default(), path: None, element: PhantomData }
    }

    /// Sets the class of padding that is a constant (default: 0). Losses often ignore 255.
    pub fn fill(self, fill: M) -> Self {
        Self { fill, ..self }
    }

    /// Sets the path of the mask's file. If the mask cannot be decoded, the error is a
    /// [`FileError`](crate::FileError) with this path instead of an [`ImageError`].
    pub fn path(self, path: &'a (impl AsRef<Path> + ?Sized)) -> Self {
        Self { path: Some(path.as_ref()), ..self }
    }

    /// Decodes the mask and writes its elements to `out` as bytes.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a PNG of class numbers that `M` can hold, or if the mask has
    /// another size than its picture. Also fails if the picture's header cannot be read, or if a
    /// mask cannot have its [transforms](Pipeline::check_followed).
    ///
    /// # Panics
    ///
    /// Panics if `out` does not have the length of a mask, or is not aligned for the elements.
    pub fn decode(self, out: &mut [u8]) -> Result<(), ImageError> {
        // SAFETY: any bits are values of `u8` and `i64`.
        let out = unsafe { elements(out) };
        let [height, width] = self.pipeline.size();
        assert_eq!(out.len(), height * width, "a mask has {height} × {width} elements");
        decoding(|| self.run(out))
    }

    #[cfg(not(feature = "png"))]
    fn run(&self, _: &mut [M]) -> Result<(), ImageError> {
        Err(ImageError::Disabled { format: crate::Format::Png })
    }

    #[cfg(feature = "png")]
    fn run(&self, out: &mut [M]) -> Result<(), ImageError> {
        let (size, plan) = self.pipeline.plan_for(self.picture, self.choice)?;
        let numbers = crate::decode::numbers::Numbers::open(self.bytes, self.pipeline.limits())?;
        if numbers.size != size {
            return Err(ImageError::MaskSize { mask: numbers.size, picture: size });
        }
        let width = self.pipeline.size()[1];
        let row_of = |y| source(&plan.geometry, 0, y);
        SCRATCH.with_borrow_mut(|(memory, columns)| {
            let rows = numbers.read(memory)?;
            columns.clear();
            columns.extend((0..width).map(|x| source(&plan.geometry, 1, x)));
            for (y, out) in out.chunks_exact_mut(width).enumerate() {
                let Some(row) = row_of(y) else {
                    out.fill(self.fill);
                    continue;
                };
                for (out, column) in out.iter_mut().zip(&*columns) {
                    *out = match *column {
                        Some(column) => {
                            let number = rows.at(row, column);
                            M::try_from(number).map_err(|_| ImageError::MaskKind {
                                message: format!(
                                    "class {number} is above 255; choose i64: `Mask<i64>`, or mask_dtype=\"int64\" in Python"
                                ),
                            })?
                        }
                        None => self.fill,
                    };
                }
            }
            Ok(())
        })
    }
}

impl<M: ClassId> Sample for Mask<'_, M> {
    type Schema = M;

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(M::DTYPE, &self.pipeline.size());
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let out = row.fill(&self.pipeline.size())?;
        decoding(|| self.run(out)).map_err(|error| named(error, self.path))
    }
}
