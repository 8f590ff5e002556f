//! The numbers of decoded pictures: conversion to the element type, combined with normalisation.

use slotline::dtype::Element;

use crate::lanes::Lanes;

/// The operations on the element type of decoded pictures.
pub(crate) trait Number: Element {
    /// The value of full brightness in pictures that are not normalised. Black is 0.
    const BRIGHTEST: f32;

    /// Returns the values of this type that are nearest to `numbers`, which must be in the type's
    /// range.
    fn nearest<L: Lanes>(numbers: [f32; 8]) -> [Self; 8];

    /// Returns the value of this type that is nearest to a number, which must be in the type's
    /// range.
    fn of(number: f32) -> Self;

    /// Returns this value as an `f32`.
    fn wide(self) -> f32;
}

macro_rules! number {
    ($type:ty, $brightest:literal, $of:expr, $lanes:ident, $numbers:ident => $nearest:expr) => {
        impl Number for $type {
            const BRIGHTEST: f32 = $brightest;

            #[inline(always)]
            fn nearest<$lanes: Lanes>($numbers: [f32; 8]) -> [Self; 8] {
                $nearest
            }

            #[inline(always)]
            fn of(number: f32) -> Self {
                $of(number)
            }

            #[inline(always)]
            fn wide(self) -> f32 {
                self.into()
            }
        }
    };
}

number!(f32, 1.0, std::convert::identity, L, numbers => numbers);
number!(u8, 255.0, |number: f32| (number + 0.5) as u8, L, numbers => L::bytes(numbers));
#[cfg(feature = "half")]
number!(half::f16, 1.0, half::f16::from_f32, L, numbers => L::halves(numbers).map(half::f16::from_bits));
#[cfg(feature = "half")]
number!(half::bf16, 1.0, half::bf16::from_f32, L, numbers => numbers.map(|number| {
    // Rounds to the nearest value, and ties to even. No number here is NaN.
    let bits = number.to_bits();
    half::bf16::from_bits(((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16)
}));
