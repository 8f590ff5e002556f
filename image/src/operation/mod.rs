//! Operations on the colours and pixels of a picture of bytes, after torchvision's functions for
//! uint8 tensors, or for PIL images if the results are to be exact.
//!
//! Each operation computes what torchvision's function computes, and rounds to bytes in the same
//! way. Consecutive operations that depend on one channel of one pixel only are combined to a
//! [table](table) for each channel, which is applied in one pass.

mod affine;
mod blend;
mod erase;
mod exact;
mod filter;
mod table;
mod vector;

pub use self::affine::{Affine, Interpolation};
pub use self::erase::Erasing;
pub(crate) use self::erase::erase;
use self::table::Tables;
use crate::error::ImageError;

/// One operation on the pixels of a picture, whose values are from 0 for black to 255.
///
/// The results are those of torchvision's functions for uint8 tensors, except for the rounding of
/// 32-bit numbers. Single values may differ by one level. Where [`Affine`] takes the nearest pixel
/// and places are halfway between two pixels, up to a few percent of the pixels may be the
/// neighbour instead. In [exact](crate::PipelineBuilder::exact) pipelines, the results are bit for
/// bit those of torchvision's functions for PIL images.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Multiplies all values by a factor (torchvision's `adjust_brightness`; the names below are
    /// torchvision's, too).
    AdjustBrightness(f64),
    /// Multiplies the difference from the mean brightness of the picture by a factor
    /// (`adjust_contrast`).
    AdjustContrast(f64),
    /// Multiplies the difference from the pixel's brightness by a factor (`adjust_saturation`).
    AdjustSaturation(f64),
    /// Rotates the hue by a fraction of the colour circle, from -0.5 to 0.5 (`adjust_hue`).
    AdjustHue(f64),
    /// Multiplies the difference from the smoothed picture by a factor (`adjust_sharpness`).
    AdjustSharpness(f64),
    /// Replaces all channels by the brightness (`rgb_to_grayscale`).
    Grayscale,
    /// Keeps this number of the highest bits (`posterize`).
    Posterize(u8),
    /// Inverts values that are at least this threshold (`solarize`).
    Solarize(f64),
    /// Inverts all values (`invert`).
    Invert,
    /// Stretches each channel to the full range (`autocontrast`).
    AutoContrast,
    /// Makes all values of a channel equally frequent (`equalize`).
    Equalize,
    /// Blurs with a Gaussian kernel (`gaussian_blur`).
    GaussianBlur {
        /// The width and the height of the kernel, in pixels. Both are odd.
        kernel_size: [usize; 2],
        /// The standard deviations, in pixels.
        sigma: [f64; 2],
    },
    /// Moves pixels (`affine`, `rotate`).
    Affine {
        /// How the pixels move.
        by: Affine,
        /// How values between pixels are computed.
        interpolation: Interpolation,
        /// The colour of pixels that come from outside the picture.
        fill: [u8; 3],
    },
    /// Replaces a rectangle (`erase`).
    Erase {
        /// The first row of the rectangle.
        top: usize,
        /// The first column of the rectangle.
        left: usize,
        /// The number of rows of the rectangle.
        height: usize,
        /// The number of columns of the rectangle.
        width: usize,
        /// What the rectangle is replaced by.
        value: Erasing,
    },
}

impl Operation {
    /// Checks that this operation can be applied to a picture of `height × width` pixels.
    pub(crate) fn check(&self, [rows, columns]: [usize; 2]) -> Result<(), ImageError> {
        let valid = match *self {
            Self::AdjustBrightness(factor)
            | Self::AdjustContrast(factor)
            | Self::AdjustSaturation(factor)
            | Self::AdjustSharpness(factor) => factor.is_finite() && factor >= 0.0,
            Self::AdjustHue(hue) => (-0.5..=0.5).contains(&hue),
            Self::Posterize(bits) => bits <= 8,
            Self::Solarize(threshold) => (0.0..=255.0).contains(&threshold),
            Self::GaussianBlur { kernel_size: [across, down], sigma } => {
                if across / 2 >= columns || down / 2 >= rows {
                    return Err(ImageError::TooSmall {
                        transform: "GaussianBlur",
                        width: columns,
                        height: rows,
                        advice: "its sides must be more than half of the kernel's: set a smaller `kernel_size`, or \
                                 resize first",
                    });
                }
                across % 2 == 1 && down % 2 == 1 && sigma.iter().all(|sigma| sigma.is_normal() && *sigma > 0.0)
            }
            Self::Affine { by, .. } => by.is_finite(),
            Self::Erase { top, left, height, width, value } => {
                let finite = !matches!(value, Erasing::Value(values) if !values.iter().all(|value| value.is_finite()));
                finite && top.saturating_add(height) <= rows && left.saturating_add(width) <= columns
            }
            Self::Grayscale | Self::Invert | Self::AutoContrast | Self::Equalize => true,
        };
        if valid {
            return Ok(());
        }
        Err(ImageError::draw(format!("{self:?} cannot be done with {rows} × {columns} pixels")))
    }
}

/// A picture of bytes: planes of red, green and blue, and buffers for operations that need them.
#[derive(Debug)]
pub(crate) struct Pixels<'a> {
    /// The planes, possibly followed by more bytes.
    pub(crate) planes: &'a mut Vec<u8>,
    /// A buffer of the same length, for operations that do not work in place.
    pub(crate) other: &'a mut Vec<u8>,
    /// A buffer of numbers for one plane, for filters.
    pub(crate) numbers: &'a mut Vec<f32>,
    /// The height and width of the picture, in pixels.
    pub(crate) size: [usize; 2],
}

impl Pixels<'_> {
    fn area(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// Returns the planes of red, green and blue.
    fn channels(&mut self) -> [&mut [u8]; 3] {
        let area = self.area();
        let (red, rest) = self.planes.split_at_mut(area);
        let (green, rest) = rest.split_at_mut(area);
        [red, green, &mut rest[..area]]
    }

    /// Runs the operations one after the other, with the results for uint8 tensors or, if `exact`,
    /// for PIL images.
    pub(crate) fn run(&mut self, operations: &[Operation], exact: bool) {
        let mut tables = Tables::default();
        for operation in operations {
            // An operation that cannot be added to the tables needs the actual pixels, so the
            // tables are applied first.
            let of_values = matches!(
                operation,
                Operation::AdjustBrightness(_)
                    | Operation::Posterize(_)
                    | Operation::Solarize(_)
                    | Operation::Invert
                    | Operation::AutoContrast
                    | Operation::Equalize
            );
            if !of_values {
                tables.apply(self.channels());
            }
            match *operation {
                Operation::AdjustBrightness(factor) if exact => tables.then(|value| exact::blend(0, value, factor)),
                Operation::AdjustContrast(factor) if exact => {
                    let mean = exact::mean_brightness(self.channels());
                    tables.then(|value| exact::blend(mean, value, factor));
                }
                Operation::AdjustSaturation(factor) if exact => exact::saturation(self.channels(), factor),
                Operation::AdjustHue(hue) if exact => exact::hue(self.channels(), hue),
                Operation::Grayscale if exact => exact::grayscale(self.channels()),
                Operation::Solarize(threshold) if exact => {
                    tables.then(|value| if f64::from(value) >= threshold { 255 - value } else { value });
                }
                Operation::Affine { by, interpolation, fill } if exact => {
                    affine::run_exact(self, by, interpolation, fill)
                }
                Operation::AdjustBrightness(factor) => tables.brightness(factor),
                Operation::Posterize(bits) => tables.posterize(bits),
                Operation::Solarize(threshold) => tables.solarize(threshold),
                Operation::Invert => tables.invert(),
                Operation::AutoContrast => tables.autocontrast(self.channels(), exact),
                Operation::Equalize => tables.equalize(self.channels()),
                Operation::AdjustContrast(factor) => tables.blend(blend::mean_brightness(self.channels()), factor),
                Operation::AdjustSaturation(factor) => blend::saturation(self.channels(), factor),
                Operation::AdjustHue(hue) if hue != 0.0 => blend::hue(self.channels(), hue),
                Operation::AdjustHue(_) => {}
                Operation::Grayscale => blend::grayscale(self.channels()),
                Operation::AdjustSharpness(factor) => filter::sharpness(self, factor, exact),
                Operation::GaussianBlur { kernel_size, sigma } => filter::blur(self, kernel_size, sigma),
                Operation::Affine { by, interpolation, fill } => affine::run(self, by, interpolation, fill),
                Operation::Erase { top, left, height, width, value } => {
                    erase::bytes(self, [top, left], [height, width], value);
                }
            }
        }
        tables.apply(self.channels());
    }
}
