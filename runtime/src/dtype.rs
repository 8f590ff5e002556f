//! The type of an array's elements: at run time [`DType`], at compile time an [`Element`] type.
//!
//! The 16-bit floating-point types are those of the crate `half`, and complex numbers those of the
//! crate `num-complex`. Both need the cargo feature of that name; without it, arrays and batches
//! can still have such elements, as bytes.

mod complex;
#[cfg(not(feature = "half"))]
mod half;
mod number;

#[cfg(feature = "half")]
pub(crate) use ::half::{bf16, f16};

#[cfg(not(feature = "half"))]
pub(crate) use self::half::{bf16, f16};

pub(crate) use self::complex::{complex64, complex128};

use std::fmt;
use std::str::FromStr;

#[doc(hidden)]
pub use self::number::{element, element_bytes};

mod sealed {
    /// Restricts [`Element`](super::Element) to the types that [`DType`](super::DType) names.
    pub trait Sealed {}
}

/// A Rust type that tensors and arrays can hold.
///
/// Implemented for `bool`, the integers of 8 to 64 bits, `f32` and `f64`. With the cargo feature `half`, also for that
/// crate's `f16` and `bf16`, and with the cargo feature `num-complex`, also for that crate's `Complex<f32>` and
/// `Complex<f64>`. These are exactly the types that [`DType`] names.
///
/// Sealed: no other crate can implement it.
///
/// # Safety
///
/// `DTYPE` must name exactly this type, and the type must have no padding, so that a slice of it may be read as bytes.
/// For every type except `bool`, any bit pattern must be valid, so that bytes from a file may be read as the type.
#[diagnostic::on_unimplemented(note = "for a sample of another type see the table in `slotline::sample`")]
pub unsafe trait Element: Copy + Send + Sync + fmt::Debug + sealed::Sealed + 'static {
    /// The corresponding [`DType`].
    const DTYPE: DType;
}

/// The kind of number that a [`DType`] is; together with [the size](DType::size) it identifies the dtype.
///
/// As a `u8` it is DLPack's type code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A truth value.
    Bool = 6,
    /// An unsigned integer.
    Unsigned = 1,
    /// A signed integer, in two's complement.
    Signed = 0,
    /// An IEEE 754 floating-point number.
    Float = 2,
    /// The upper half of a 32-bit floating-point number.
    BFloat = 4,
    /// A complex number: the real and then the imaginary part, each an IEEE 754 floating-point number.
    Complex = 5,
}

/// The table that generates the enum, its methods, the `Element` implementations and `for_dtype!`.
/// `$d` is a dollar sign, which the definition of `for_dtype!` needs.
macro_rules! dtypes {
    ($d:tt $($variant:ident $kind:ident $type:ident $about:literal),* $(,)?) => {
        /// The type of an array's elements.
        ///
        /// Displayed and parsed as the name of the Rust type, such as `u8`, `f32` or `bool`.
        /// Complex numbers, for which Rust has no primitive type, have the names `complex64` and
        /// `complex128`, as in NumPy and PyTorch.
        ///
        /// ```
        /// use slotline::dtype::DType;
        ///
        /// let dtype: DType = "f32".parse()?;
        /// assert_eq!(dtype, DType::F32);
        /// assert_eq!(dtype.size(), 4);
        /// # Ok::<(), slotline::dtype::ParseDTypeError>(())
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum DType {
            $(#[doc = $about] $variant),*
        }

        impl DType {
            /// Every dtype, in the order of declaration.
            pub const ALL: &'static [DType] = &[$(DType::$variant),*];

            /// Returns the size of one element, in bytes.
            #[inline]
            pub const fn size(self) -> usize {
                match self { $(DType::$variant => size_of::<$type>()),* }
            }

            /// Returns the alignment of the Rust type on this machine, in bytes; a divisor of [`size`](DType::size).
            #[inline]
            pub const fn align(self) -> usize {
                match self { $(DType::$variant => align_of::<$type>()),* }
            }

            /// Returns the name of the dtype, such as `"u8"`.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => stringify!($type)),* }
            }

            /// Returns the kind of number.
            pub const fn kind(self) -> Kind {
                match self { $(DType::$variant => Kind::$kind),* }
            }
        }

        /// Evaluates an expression in which `T` is the element type of a dtype:
        /// `for_dtype!(dtype, T => size_of::<T>())`.
        macro_rules! for_dtype {
            ($d dtype:expr, $d T:ident => $d body:expr) => {
                match $d dtype {
                    $($crate::dtype::DType::$variant => {
                        #[allow(unused_imports)] // Primitive types need no import.
                        use $crate::dtype::{bf16, complex64, complex128, f16};
                        type $d T = $type;
                        $d body
                    })*
                }
            };
        }

        $(
            impl sealed::Sealed for $type {}

            // SAFETY: the table pairs each variant with its type: a primitive, a transparent wrapper of a u16, or two
            // floating-point numbers in the layout of C. None has padding, and all except `bool` are numbers, for which
            // any bits are a valid value.
            unsafe impl Element for $type {
                const DTYPE: DType = DType::$variant;
            }
        )*
    };
}

dtypes! {
    $
    Bool Bool bool "True or false; one byte, 0 or 1.",
    U8 Unsigned u8 "8-bit unsigned integer.",
    I8 Signed i8 "8-bit signed integer.",
    U16 Unsigned u16 "16-bit unsigned integer.",
    I16 Signed i16 "16-bit signed integer.",
    U32 Unsigned u32 "32-bit unsigned integer.",
    I32 Signed i32 "32-bit signed integer.",
    U64 Unsigned u64 "64-bit unsigned integer.",
    I64 Signed i64 "64-bit signed integer.",
    F16 Float f16 "16-bit floating-point number; with the feature `half`, the type `half::f16`.",
    BF16 BFloat bf16 "The upper half of a 32-bit floating-point number; with the feature `half`, the type `half::bf16`.",
    F32 Float f32 "32-bit floating-point number.",
    F64 Float f64 "64-bit floating-point number.",
    Complex64 Complex complex64 "Complex number of two `f32`; with the feature `num-complex`, the type `num_complex::Complex<f32>`.",
    Complex128 Complex complex128 "Complex number of two `f64`; with the feature `num-complex`, the type `num_complex::Complex<f64>`.",
}

pub(crate) use for_dtype;

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a string that is not the name of a [`DType`]; the message lists the valid names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected the name of a dtype ({}), found {found:?}", names())]
pub struct ParseDTypeError {
    found: String,
}

fn names() -> String {
    DType::ALL.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ")
}

impl FromStr for DType {
    type Err = ParseDTypeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = DType::ALL.iter().copied().find(|dtype| dtype.name() == text);
        known.ok_or_else(|| ParseDTypeError { found: text.to_owned() })
    }
}

/// Returns the bytes of the elements, in the machine's byte order.
#[inline]
pub fn bytes_of<T: Element>(data: &[T]) -> &[u8] {
    // SAFETY: an `Element` has no padding, so all of the slice's bytes are initialized; u8 needs no alignment, and
    // the result borrows from `data`.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}

/// Copies bytes in the machine's byte order into elements. The bytes need not be aligned. Returns
/// `None` if the last element is incomplete, or a byte is not a valid `bool`.
///
/// ```
/// use slotline::dtype::{bytes_of, from_bytes};
///
/// assert_eq!(from_bytes::<i16>(bytes_of(&[3_i16, -4])), Some(vec![3, -4]));
/// assert_eq!(from_bytes::<i16>(&[1, 2, 3]), None);
/// assert_eq!(from_bytes::<bool>(&[1, 2]), None);
/// ```
pub fn from_bytes<T: Element>(bytes: &[u8]) -> Option<Vec<T>> {
    let is_valid = T::DTYPE != DType::Bool || bytes.iter().all(|&byte| byte <= 1);
    if !is_valid || !bytes.len().is_multiple_of(size_of::<T>()) {
        return None;
    }
    let len = bytes.len() / size_of::<T>();
    let mut elements = Vec::<T>::with_capacity(len);
    // SAFETY: there is room for `len` elements, and any bits are a value of every element type except bool, whose
    // values were checked.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), elements.as_mut_ptr().cast(), bytes.len());
        elements.set_len(len);
    }
    Some(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for &dtype in DType::ALL {
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
            assert_eq!(dtype.size() % dtype.align(), 0);
        }
        assert_eq!(DType::ALL.len(), 15);
    }

    #[test]
    fn complex_numbers_are_named_by_the_bits_of_both_parts() {
        for (name, dtype, size) in [("complex64", DType::Complex64, 8), ("complex128", DType::Complex128, 16)] {
            assert_eq!((name.parse(), dtype.size(), dtype.kind()), (Ok(dtype), size, Kind::Complex));
        }
        assert_eq!(DType::Complex64.align(), align_of::<f32>());
        assert_eq!(DType::Complex128.align(), align_of::<f64>());
        let number = complex128 { re: 1.0, im: -2.0 };
        assert_eq!(bytes_of(&[number]), bytes_of(&[1.0_f64, -2.0]));
        assert_eq!(from_bytes(bytes_of(&[1.0_f64, -2.0])), Some(vec![number]));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = "f8".parse::<DType>().unwrap_err().to_string();
        assert!(message.contains("\"f8\"") && message.contains("u8, i8, u16"), "{message}");
    }

    #[test]
    fn kind_and_size_identify_a_dtype() {
        for (i, dtype) in DType::ALL.iter().enumerate() {
            assert!(DType::ALL[..i].iter().all(|other| (other.kind(), other.size()) != (dtype.kind(), dtype.size())));
            assert_eq!(for_dtype!(*dtype, T => (T::DTYPE, size_of::<T>())), (*dtype, dtype.size()));
        }
        assert_eq!(DType::ALL.iter().filter(|dtype| dtype.kind() == Kind::Float).count(), 3);
    }

    #[test]
    fn bytes_are_in_machine_order() {
        assert_eq!(bytes_of(&[0x0102_u16, 3]), [0x0102_u16.to_ne_bytes(), 3_u16.to_ne_bytes()].concat());
        assert_eq!(bytes_of::<f64>(&[]), b"");
    }
}
