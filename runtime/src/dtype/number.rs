//! Integers as elements of any type.

use std::any::Any;

use super::{DType, Element, bf16, bytes_of, complex64, complex128, f16, for_dtype};

/// Converts an integer to an element of type `T`; `None` if `T` cannot represent it exactly.
pub fn element<T: Element>(number: i64) -> Option<T> {
    for_dtype!(T::DTYPE, U => (&<U as FromNumber>::from_number(number)? as &dyn Any).downcast_ref::<T>().copied())
}

/// Converts an integer to the bytes of an element of type `dtype`; `None` if the type cannot represent it
/// exactly.
pub fn element_bytes(dtype: DType, number: i64) -> Option<Vec<u8>> {
    for_dtype!(dtype, T => element::<T>(number).map(|element| bytes_of(&[element]).to_vec()))
}

trait FromNumber: Sized {
    fn from_number(number: i64) -> Option<Self>;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl FromNumber for $type {
            fn from_number(number: i64) -> Option<Self> {
                number.try_into().ok()
            }
        }
    )*};
}

integers! { u8 i8 u16 i16 u32 i32 u64 i64 }

macro_rules! floats {
    ($($type:ty, |$number:ident| $convert:expr, |$float:ident| $back:expr;)*) => {$(
        impl FromNumber for $type {
            fn from_number($number: i64) -> Option<Self> {
                let $float = $convert;
                ($back as i128 == i128::from($number)).then_some($float)
            }
        }
    )*};
}

floats! {
    f32, |number| number as f32, |float| float;
    f64, |number| number as f64, |float| float;
}

#[cfg(feature = "half")]
floats! {
    f16, |number| f16::from_f64(number as f64), |float| float.to_f64();
    bf16, |number| bf16::from_f64(number as f64), |float| float.to_f64();
}

/// Without the crate `half`, 16-bit floating-point types have no conversions, and only zero is
/// converted: all its bits are 0, as those of the integer 0.
#[cfg(not(feature = "half"))]
macro_rules! zeros {
    ($($type:ident)*) => {$(
        impl FromNumber for $type {
            fn from_number(number: i64) -> Option<Self> {
                (number == 0).then_some($type::from_le_bytes([0; 2]))
            }
        }
    )*};
}

#[cfg(not(feature = "half"))]
zeros! { f16 bf16 }

macro_rules! complex {
    ($($type:ident)*) => {$(
        impl FromNumber for $type {
            fn from_number(number: i64) -> Option<Self> {
                Some($type { re: FromNumber::from_number(number)?, im: 0.0 })
            }
        }
    )*};
}

complex! { complex64 complex128 }

impl FromNumber for bool {
    fn from_number(number: i64) -> Option<Self> {
        matches!(number, 0 | 1).then_some(number == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_the_type_has_are_converted() {
        assert_eq!((element::<i64>(-100), element::<i32>(-100), element::<i8>(-129)), (Some(-100), Some(-100), None));
        assert_eq!((element::<u16>(65_535), element::<u16>(65_536), element::<u16>(-1)), (Some(65_535), None, None));
        assert_eq!((element::<u64>(i64::MAX), element::<u64>(-1)), (Some(i64::MAX as u64), None));
        assert_eq!((element::<bool>(1), element::<bool>(2)), (Some(true), None));
        assert_eq!((element::<f32>(-100), element::<f32>(16_777_217)), (Some(-100.0), None));
        assert_eq!((element::<f64>(1 << 53), element::<f64>(i64::MAX)), (Some((1_u64 << 53) as f64), None));
        assert_eq!(element(-100), Some(complex64 { re: -100.0, im: 0.0 }));
        assert_eq!(element::<complex64>(16_777_217), None);
        assert_eq!(element(16_777_217), Some(complex128 { re: 16_777_217.0, im: 0.0 }));
        assert_eq!(element::<f16>(0), Some(f16::from_le_bytes([0; 2])));
    }
}
