//! Converts planes to numbers: colours, normalisation and the element type in one step.

use slotline::dtype::Element;

use crate::error::ImageError;
use crate::lanes::Lanes;
use crate::pipeline::{Job, Pipeline};

/// The element type of decoded pictures: `f32`, normalised, or `u8`; with the cargo feature `half` also `half::f16` and
/// `half::bf16`.
#[allow(private_bounds)] // So that only this crate can implement it.
pub trait Pixel: Element + Number {}

/// What a [`Pixel`] must be able to do.
pub(crate) trait Number: Copy {
    /// The value of the brightest colour, unless normalised. Black is 0.
    const BRIGHTEST: f32;

    /// Returns the values of this type that are nearest to `numbers`, which must be in the type's range.
    fn nearest<L: Lanes>(numbers: [f32; 8]) -> [Self; 8];

    /// Returns the value of this type that is nearest to a number, which must be in the type's range.
    fn of(number: f32) -> Self;

    /// Returns it as a number.
    fn wide(self) -> f32;

    /// Runs [`Pipeline::run_here`]. It is implemented for each type, so that it is compiled in this crate, and not in
    /// the crate that uses it, with that crate's profile.
    fn run(pipeline: &Pipeline<Self>, job: Job<'_>, out: &mut [Self]) -> Result<(), ImageError>
    where
        Self: Pixel;
}

macro_rules! pixel {
    ($type:ty, $brightest:literal, $of:expr, $lanes:ident, $numbers:ident => $nearest:expr) => {
        impl Pixel for $type {}

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

            fn run(pipeline: &Pipeline<Self>, job: Job<'_>, out: &mut [Self]) -> Result<(), ImageError> {
                pipeline.run_here(job, out)
            }
        }
    };
}

pixel!(f32, 1.0, std::convert::identity, L, numbers => numbers);
pixel!(u8, 255.0, |number: f32| (number + 0.5) as u8, L, numbers => L::bytes(numbers));
#[cfg(feature = "half")]
pixel!(half::f16, 1.0, half::f16::from_f32, L, numbers => L::halves(numbers).map(half::f16::from_bits));
#[cfg(feature = "half")]
pixel!(half::bf16, 1.0, half::bf16::from_f32, L, numbers => numbers.map(|number| {
    // Rounds to the nearest, and to even in the middle. No number here is NaN.
    let bits = number.to_bits();
    half::bf16::from_bits(((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16)
}));

/// The colours that the planes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planes {
    /// Brightness and two colour differences, as in most JPEGs; a grey image has no differences.
    YCbCr,
    /// Red, green and blue.
    Rgb,
}

/// How one channel is computed from three planes, whose numbers are fractions of 256.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    pub(crate) factors: [f32; 3],
    pub(crate) offset: f32,
    /// The values of black and of the brightest colour in this channel: colours out of range are clamped to them.
    pub(crate) range: [f32; 2],
}

impl Channel {
    /// Returns the three channels of `planes`, normalised: `(value / 255 - mean) / std`.
    pub(crate) fn all(planes: Planes, mean: [f32; 3], std: [f32; 3]) -> [Self; 3] {
        // The conversion of JFIF, which is BT.601 with the full range.
        let factors: [[f64; 3]; 3] = match planes {
            Planes::YCbCr => [[1.0, 0.0, 1.402], [1.0, -0.344_136_286, -0.714_136_286], [1.0, 1.772, 0.0]],
            Planes::Rgb => [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        };
        let grey = if planes == Planes::YCbCr { 128.0 } else { 0.0 };
        std::array::from_fn(|i| {
            let (mean, std) = (f64::from(mean[i]), f64::from(std[i]));
            let scale = 1.0 / (255.0 * std);
            Self {
                factors: factors[i].map(|factor| (factor * scale / 256.0) as f32),
                offset: (-(factors[i][1] + factors[i][2]) * grey * scale - mean / std) as f32,
                // Avoids -0: CPUs differ in whether `max` of -0 and 0 returns -0.
                range: [(0.0 - mean) / std, (1.0 - mean) / std].map(|end| end as f32),
            }
        })
    }

    /// Returns the number of a colour, which is a fraction of the brightest.
    pub(crate) fn of_colour(&self, colour: f32) -> f32 {
        let [black, brightest] = self.range;
        black + (brightest - black) * colour
    }
}
