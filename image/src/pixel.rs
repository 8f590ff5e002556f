//! The element types of decoded pictures.

use slotline::dtype::Element;

use crate::error::ImageError;
use crate::number::Number;
use crate::pipeline::{Job, Pipeline};

/// The element type of decoded pictures: `f32` or `u8`; with the cargo feature `half` also
/// `half::f16` and `half::bf16`.
#[allow(private_bounds)] // So that only this crate can implement this trait.
pub trait Pixel: Element + Run {}

/// The operations that a [`Pixel`] needs.
pub(crate) trait Run: Number {
    /// Runs [`Pipeline::run_here`]. This method is implemented for each type, so that it is
    /// compiled in this crate, with this crate's profile, and not in the crate that uses it.
    fn run(pipeline: &Pipeline<Self>, job: Job<'_>, out: &mut [Self]) -> Result<(), ImageError>
    where
        Self: Pixel;
}

macro_rules! pixels {
    ($($(#[$feature:meta])* $type:ty;)*) => {$(
        $(#[$feature])*
        impl Pixel for $type {}

        $(#[$feature])*
        impl Run for $type {
            fn run(pipeline: &Pipeline<Self>, job: Job<'_>, out: &mut [Self]) -> Result<(), ImageError> {
                pipeline.run_here(job, out)
            }
        }
    )*};
}

pixels! {
    f32;
    u8;
    #[cfg(feature = "half")]
    half::f16;
    #[cfg(feature = "half")]
    half::bf16;
}

/// Returns elements whose memory is `out`.
///
/// # Safety
///
/// Any bits must be a value of `T`.
///
/// # Panics
///
/// Panics if `out` is not aligned for the elements, or ends in the middle of one.
pub(crate) unsafe fn elements<T>(out: &mut [u8]) -> &mut [T] {
    // SAFETY: the caller promises that any bits are a value.
    let (before, elements, behind) = unsafe { out.align_to_mut() };
    assert!(before.is_empty() && behind.is_empty(), "the memory of a picture must be aligned, and whole elements");
    elements
}
