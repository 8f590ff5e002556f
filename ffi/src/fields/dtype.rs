//! Element types, as numbers.

use std::ffi::c_void;

use slotline::dtype::DType;
use slotline::shape::Shape;
use slotline::tensor::AnyTensorView;

use crate::abi::{Failure, check};

/// The type of an array's elements. Later versions may add values.
pub type slotline_dtype = u32;

/// `bool`: one byte, 0 or 1.
pub const SLOTLINE_BOOL: slotline_dtype = 1;
/// `uint8_t`.
pub const SLOTLINE_U8: slotline_dtype = 2;
/// `int8_t`.
pub const SLOTLINE_I8: slotline_dtype = 3;
/// `uint16_t`.
pub const SLOTLINE_U16: slotline_dtype = 4;
/// `int16_t`.
pub const SLOTLINE_I16: slotline_dtype = 5;
/// `uint32_t`.
pub const SLOTLINE_U32: slotline_dtype = 6;
/// `int32_t`.
pub const SLOTLINE_I32: slotline_dtype = 7;
/// `uint64_t`.
pub const SLOTLINE_U64: slotline_dtype = 8;
/// `int64_t`.
pub const SLOTLINE_I64: slotline_dtype = 9;
/// `float`.
pub const SLOTLINE_F32: slotline_dtype = 10;
/// `double`.
pub const SLOTLINE_F64: slotline_dtype = 11;
/// An IEEE 754 16-bit floating-point number: `_Float16` where C has it.
pub const SLOTLINE_F16: slotline_dtype = 12;
/// bfloat16: the upper 16 bits of a `float`.
pub const SLOTLINE_BF16: slotline_dtype = 13;
/// A complex number of two `float`s, the real part first: `float _Complex` in C, `std::complex<float>` in C++.
pub const SLOTLINE_COMPLEX64: slotline_dtype = 14;
/// A complex number of two `double`s, the real part first: `double _Complex` in C, `std::complex<double>` in C++.
pub const SLOTLINE_COMPLEX128: slotline_dtype = 15;

/// Maps all dtypes in both directions.
macro_rules! dtypes {
    ($($name:ident $dtype:ident),* $(,)?) => {
        /// Returns the number of a dtype.
        pub(crate) fn number(dtype: DType) -> slotline_dtype {
            match dtype {
                $(DType::$dtype => $name,)*
                // Unreachable: this crate lists all dtypes of `slotline`.
                _ => 0,
            }
        }

        /// Returns the dtype with this number.
        pub(crate) fn dtype(number: slotline_dtype, name: &str) -> Result<DType, Failure> {
            match number {
                $($name => Ok(DType::$dtype),)*
                _ => Err(Failure::invalid(format!("{name} is {number}, which is not a dtype"))),
            }
        }
    };
}

dtypes! {
    SLOTLINE_BOOL Bool,
    SLOTLINE_U8 U8,
    SLOTLINE_I8 I8,
    SLOTLINE_U16 U16,
    SLOTLINE_I16 I16,
    SLOTLINE_U32 U32,
    SLOTLINE_I32 I32,
    SLOTLINE_U64 U64,
    SLOTLINE_I64 I64,
    SLOTLINE_F32 F32,
    SLOTLINE_F64 F64,
    SLOTLINE_F16 F16,
    SLOTLINE_BF16 BF16,
    SLOTLINE_COMPLEX64 Complex64,
    SLOTLINE_COMPLEX128 Complex128,
}

/// One element of any type; zero by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct One([u64; 2]);

impl One {
    /// Copies an element from C.
    ///
    /// # Safety
    ///
    /// Unless it is null or misaligned, `pointer` must point to an element of this type.
    pub(crate) unsafe fn read(pointer: *const c_void, dtype: DType, name: &str) -> Result<Self, Failure> {
        let pointer = pointer.cast::<u8>();
        check::pointer(pointer, name)?;
        if pointer.align_offset(dtype.align()) != 0 {
            return Err(check::misaligned(name, dtype.align()));
        }
        let mut one = Self::default();
        // SAFETY: the pointer is not null, so the caller guarantees that it points to an element, which has
        // at most 16 bytes.
        unsafe { std::ptr::copy_nonoverlapping(pointer, one.0.as_mut_ptr().cast(), dtype.size()) };
        if !valid(dtype, one.bytes(dtype)) {
            return Err(Failure::invalid(format!("{name} is a bool that is neither 0 nor 1")));
        }
        Ok(one)
    }

    /// Returns the element, whose type must be the one that it was read as, or any if it is zero.
    pub(crate) fn view(&self, dtype: DType) -> AnyTensorView<'_> {
        // SAFETY: `u64`s are aligned for every type, and the bytes are a valid element of the type.
        unsafe { AnyTensorView::from_raw_parts(dtype, Shape::new(&[]).unwrap_or_default(), self.bytes(dtype)) }
    }

    fn bytes(&self, dtype: DType) -> &[u8] {
        // SAFETY: no type has more than 16 bytes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), dtype.size()) }
    }
}

/// Returns whether bytes are valid elements of a dtype. Only `bool` has invalid bytes.
pub(crate) fn valid(dtype: DType, bytes: &[u8]) -> bool {
    dtype != DType::Bool || bytes.iter().all(|&byte| byte <= 1)
}
