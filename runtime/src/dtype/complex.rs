//! Complex numbers under the names that NumPy and PyTorch use, which count the bits of both parts
//! together. (The crate `num-complex` counts the bits of one part: its `Complex64` is `complex128`
//! here.)

#![allow(non_camel_case_types)] // The names of the dtypes.

#[cfg(feature = "num-complex")]
use num_complex::Complex;

pub(crate) type complex64 = Complex<f32>;
pub(crate) type complex128 = Complex<f64>;

/// A replacement for the type of the crate `num-complex`. It can be moved and compared, but not
/// used in computations.
#[cfg(not(feature = "num-complex"))]
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(crate) struct Complex<T> {
    pub(crate) re: T,
    pub(crate) im: T,
}
