//! A replacement for the crate `half`: 16-bit floating-point types that can be moved and compared,
//! but not used in computations.

#![allow(non_camel_case_types)] // The names of the crate's types.

/// Defines a floating-point type: the lowest `$mantissa` bits are the mantissa, the highest bit is
/// the sign, and those between are the exponent.
macro_rules! half {
    ($($name:ident $mantissa:literal)*) => {$(
        #[derive(Debug, Clone, Copy)]
        #[repr(transparent)]
        pub(crate) struct $name(u16);

        impl $name {
            pub(crate) const fn from_le_bytes(bytes: [u8; 2]) -> Self {
                Self(u16::from_le_bytes(bytes))
            }

            pub(crate) const fn from_be_bytes(bytes: [u8; 2]) -> Self {
                Self(u16::from_be_bytes(bytes))
            }

            const fn is_nan(self) -> bool {
                const INFINITY: u16 = 0x7fff >> $mantissa << $mantissa;
                self.0 & 0x7fff > INFINITY
            }
        }

        impl PartialEq for $name {
            /// Compares as numbers: zeros of either sign are equal, and a NaN is equal to nothing.
            fn eq(&self, other: &Self) -> bool {
                let zeros = (self.0 | other.0) & 0x7fff == 0;
                zeros || (self.0 == other.0 && !self.is_nan())
            }
        }
    )*};
}

half! {
    f16 10
    bf16 7
}
