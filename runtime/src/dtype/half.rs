//! In the place of the crate `half`: types for 16-bit floating-point numbers that are moved and compared, and not computed with.

#![allow(non_camel_case_types)] // The names that the crate's have.

/// A number's bits: the lowest `$mantissa` ones are its mantissa, the highest one its sign, and the others its exponent.
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
            /// As numbers: zeros of either sign are equal, and a NaN is equal to nothing.
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
