//! [`ExactPlan`]: pictures transformed by steps that the caller has chosen, with Pillow's exact
//! results.

use crate::axis_map::PaddingMode;
use crate::decode::{Limits, MAX_SIDE, OpenedImage};
use crate::error::ImageError;
use crate::exact::{Filter, Resampling, Resizer};
use crate::operation::Operation;
use crate::pipeline::MAX_PIXELS;
use crate::plan::Plan;
use crate::scratch;

/// A list of steps for one picture, whose results are bit for bit those of torchvision's functions
/// for PIL images. [`Resizer`] names the library whose `resize` is meant.
///
/// This is for programs that draw random numbers themselves; others use a
/// [`Pipeline`](crate::Pipeline). Each method adds a step. Consecutive steps are combined where
/// that does not change the result.
///
/// ```
/// use slotline_image::{ExactPlan, ExactSource, Resampling, Resizer};
///
/// # let bytes = include_bytes!("../tests/pictures/rgb.png");
/// let source = ExactSource::File(bytes);
/// let [height, width] = source.size()?;
/// let mut plan = ExactPlan::new(height, width)?;
/// plan.crop([0, 0], [height / 2, width / 2])?;
/// plan.resize([32, 32], Resampling::Bilinear, Resizer::Pillow)?;
/// plan.flip_horizontally();
/// let red = plan.run(source, |planes| planes[..32 * 32].to_vec())?;
/// # Ok::<(), slotline_image::ImageError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ExactPlan {
    size: [usize; 2],
    plan: Plan,
}

/// The pixels that an [`ExactPlan`] starts with.
#[derive(Clone, Copy, Debug)]
pub enum ExactSource<'a> {
    /// The bytes of a file. The picture is converted to red, green and blue, as by PIL's
    /// `convert("RGB")`. JPEGs need the cargo feature `turbo`.
    File(&'a [u8]),
    /// Rows of pixels.
    Pixels {
        /// The pixels, row by row.
        bytes: &'a [u8],
        /// The height and width of the picture, in pixels.
        size: [usize; 2],
        /// The number of bytes of each pixel: 3 for red, green and blue, or 1 for grey.
        channels: usize,
    },
}

impl<'a> ExactSource<'a> {
    /// Returns the height and width of the picture.
    ///
    /// # Errors
    ///
    /// If the header of a file cannot be read, the picture is too large, or the number of bytes
    /// does not match the size and the channels.
    pub fn size(&self) -> Result<[usize; 2], ImageError> {
        self.open().map(|opened| [opened.height, opened.width])
    }

    fn open(self) -> Result<OpenedImage<'a>, ImageError> {
        match self {
            Self::File(bytes) if cfg!(all(feature = "jpeg", not(feature = "turbo"))) && is_jpeg(bytes) => Err(
                ImageError::draw("a JPEG with these bits needs the cargo feature `turbo` of slotline-image".to_owned()),
            ),
            Self::File(bytes) => OpenedImage::new(bytes, Limits { max_pixels: MAX_PIXELS, strict: true }),
            Self::Pixels { bytes, size: [height, width], channels } => {
                if !matches!(channels, 1 | 3) || Some(bytes.len()) != height.checked_mul(width * channels) {
                    let have = bytes.len();
                    let message = format!("{have} bytes are not {height} × {width} pixels of {channels} bytes");
                    return Err(ImageError::draw(message));
                }
                Ok(OpenedImage::of_pixels(bytes, [height, width], channels))
            }
        }
    }
}

impl ExactPlan {
    /// Starts with a picture of this size.
    ///
    /// # Errors
    ///
    /// If a side is 0 or above 65,535.
    pub fn new(height: usize, width: usize) -> Result<Self, ImageError> {
        let size = [height, width];
        Ok(Self { size, plan: Plan::of(size, true)? })
    }

    /// Returns the height and width after all steps so far.
    pub fn size(&self) -> [usize; 2] {
        self.plan.size()
    }

    /// Crops `size` rows and columns from `at` on (torchvision's `crop`).
    ///
    /// # Errors
    ///
    /// If the crop is empty, or not inside of the picture.
    pub fn crop(&mut self, at: [usize; 2], size: [usize; 2]) -> Result<(), ImageError> {
        let all = self.size();
        if (0..2).any(|i| size[i] == 0 || at[i].saturating_add(size[i]) > all[i]) {
            let message = format!("a crop of {size:?} from {at:?} on is not in a picture of {all:?}");
            return Err(ImageError::draw(message));
        }
        self.plan.crop(at, size);
        Ok(())
    }

    /// Resizes to this height and width (torchvision's `resize`).
    ///
    /// # Errors
    ///
    /// If a side is 0 or above 65,535, or if torch has no such filter.
    pub fn resize(&mut self, size: [usize; 2], resampling: Resampling, resizer: Resizer) -> Result<(), ImageError> {
        check_sides(size)?;
        let is_of_torch = matches!(resampling, Resampling::Bilinear | Resampling::Bicubic | Resampling::Lanczos);
        if resizer == Resizer::Torch && !is_of_torch {
            return Err(ImageError::draw(format!("torch has no filter {resampling:?} for bytes")));
        }
        self.plan.resize(size, Filter { resampling, resizer });
        Ok(())
    }

    /// Mirrors the picture from left to right (torchvision's `hflip`).
    pub fn flip_horizontally(&mut self) {
        self.plan.mirror(1);
    }

    /// Mirrors the picture from top to bottom (torchvision's `vflip`).
    pub fn flip_vertically(&mut self) {
        self.plan.mirror(0);
    }

    /// Adds pixels at the top and bottom, and at the left and right (torchvision's `pad`).
    ///
    /// # Errors
    ///
    /// If a side of the result is above 65,535, or if a mirrored border is larger than the picture.
    pub fn pad(&mut self, sides: [[usize; 2]; 2], padding: PaddingMode, fill: [u8; 3]) -> Result<(), ImageError> {
        let size = self.size();
        for (size, side) in size.into_iter().zip(sides.iter().flat_map(|sides| sides.iter().max())) {
            let most = match padding {
                PaddingMode::Reflect => size - 1,
                PaddingMode::Symmetric => size,
                _ => MAX_SIDE,
            };
            if *side > most {
                return Err(ImageError::draw(format!("{side} pixels cannot be added by {padding:?} to {size}")));
            }
        }
        check_sides([0, 1].map(|i| sides[i].iter().sum::<usize>() + size[i]))?;
        self.plan.pad(sides, padding, fill);
        Ok(())
    }

    /// Applies an operation on the colours or pixels.
    ///
    /// # Errors
    ///
    /// If the operation has invalid parameters, does not fit the picture, or has no exact results.
    pub fn operate(&mut self, operation: Operation) -> Result<(), ImageError> {
        operation.check(self.size())?;
        if matches!(operation, Operation::GaussianBlur { .. } | Operation::Erase { .. }) {
            return Err(ImageError::draw(format!("{operation:?} has no exact results")));
        }
        self.plan.operate(operation);
        Ok(())
    }

    /// Makes the picture, and passes its planes of red, green and blue to `then`. A plane has a
    /// byte for each pixel, row by row.
    ///
    /// # Errors
    ///
    /// If the plan is for another size, or the file is not a complete, undamaged picture. Warnings
    /// of the JPEG decoder are errors, too. Below the pixels that are needed, JPEGs are not read.
    ///
    /// # Panics
    ///
    /// If `then` makes another picture on the same thread.
    pub fn run<R>(&self, source: ExactSource<'_>, then: impl FnOnce(&[u8]) -> R) -> Result<R, ImageError> {
        let opened = source.open()?;
        let size = [opened.height, opened.width];
        if size != self.size {
            let [[h, w], [height, width]] = [self.size, size];
            return Err(ImageError::draw(format!("it is for {h} × {w} pixels, the picture has {height} × {width}")));
        }
        self.plan.check_sizes(size, MAX_PIXELS)?;
        // PIL ignores damage of a JPEG below the crop if the file has its end marker, which is
        // checked anyway.
        let whole = !matches!(source, ExactSource::File(bytes) if is_jpeg(bytes));
        scratch::run_planes(opened, Default::default(), &self.plan, whole, |planes, _| then(planes))
    }
}

fn is_jpeg(bytes: &[u8]) -> bool {
    crate::format::Format::of(bytes).is_ok_and(|format| format == crate::format::Format::Jpeg)
}

fn check_sides(size: [usize; 2]) -> Result<(), ImageError> {
    if size.iter().all(|side| (1..=MAX_SIDE).contains(side)) {
        return Ok(());
    }
    Err(ImageError::draw(format!("{size:?} is not a size; each side is between 1 and {MAX_SIDE}")))
}
