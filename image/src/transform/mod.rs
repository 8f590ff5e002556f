//! The transforms of a [`Pipeline`](crate::Pipeline), with the names, parameters and defaults of
//! torchvision's `transforms.v2`.
//!
//! Each transform is a struct with public fields. `new` takes the arguments that torchvision
//! requires, and sets the other fields to torchvision's defaults. Values are checked when the
//! pipeline is built.

mod augment;
mod erasing;
mod fill;
mod geometry;
mod operate;
mod photometric;
mod policies;
mod size;

use std::fmt;

pub use self::augment::{AutoAugment, RandAugment, TrivialAugmentWide};
pub use self::erasing::RandomErasing;
pub use self::geometry::{CenterCrop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, RandomVerticalFlip, Resize};
pub use self::photometric::{
    ColorJitter, GaussianBlur, RandomAdjustSharpness, RandomApply, RandomAutocontrast, RandomEqualize, RandomGrayscale,
    RandomInvert, RandomPosterize, RandomSolarize,
};
pub use self::policies::AutoAugmentPolicy;
pub use self::size::{ResizeTo, Size};
use crate::draw::{Random, Step};
use crate::error::ImageError;
use crate::plan::Plan;
use crate::text::{self, Arguments, Configure, Known};

/// One transform of a pipeline.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Transform {
    /// See [`Resize`].
    Resize(Resize),
    /// See [`CenterCrop`].
    CenterCrop(CenterCrop),
    /// See [`RandomCrop`].
    RandomCrop(RandomCrop),
    /// See [`RandomResizedCrop`].
    RandomResizedCrop(RandomResizedCrop),
    /// See [`RandomHorizontalFlip`].
    RandomHorizontalFlip(RandomHorizontalFlip),
    /// See [`RandomVerticalFlip`].
    RandomVerticalFlip(RandomVerticalFlip),
    /// See [`ColorJitter`].
    ColorJitter(ColorJitter),
    /// See [`RandomGrayscale`].
    RandomGrayscale(RandomGrayscale),
    /// See [`GaussianBlur`].
    GaussianBlur(GaussianBlur),
    /// See [`RandomAdjustSharpness`].
    RandomAdjustSharpness(RandomAdjustSharpness),
    /// See [`RandomAutocontrast`].
    RandomAutocontrast(RandomAutocontrast),
    /// See [`RandomEqualize`].
    RandomEqualize(RandomEqualize),
    /// See [`RandomInvert`].
    RandomInvert(RandomInvert),
    /// See [`RandomPosterize`].
    RandomPosterize(RandomPosterize),
    /// See [`RandomSolarize`].
    RandomSolarize(RandomSolarize),
    /// See [`RandomApply`].
    RandomApply(RandomApply),
    /// See [`RandAugment`].
    RandAugment(RandAugment),
    /// See [`TrivialAugmentWide`].
    TrivialAugmentWide(TrivialAugmentWide),
    /// See [`AutoAugment`].
    AutoAugment(AutoAugment),
    /// See [`RandomErasing`].
    RandomErasing(RandomErasing),
    /// See [`Normalize`].
    Normalize(Normalize),
}

/// The operations that every transform supports.
pub(crate) trait Apply: fmt::Debug {
    /// Checks the parameters.
    fn check(&self) -> Result<(), ImageError>;

    /// Returns the size of the result, for a picture of this size; `None` if that differs between
    /// pictures.
    fn size(&self, size: Option<[usize; 2]>) -> Option<[usize; 2]> {
        size
    }

    /// Whether the transform draws random numbers.
    fn is_random(&self) -> bool;

    /// Whether the transform changes the values of pixels, so that it can be part of
    /// [`RandomApply`].
    fn is_photometric(&self) -> bool {
        false
    }

    /// Returns the name of the transform if it may shear or rotate, which masks and boxes do not
    /// support.
    fn not_followed(&self) -> Option<&'static str> {
        None
    }

    /// Whether the results differ from those for PIL images.
    fn inexact(&self) -> bool {
        false
    }

    /// Draws the step for a picture of this size.
    fn draw(&self, random: &mut Random<'_>, size: [usize; 2]) -> Result<Step, ImageError>;

    /// Adds the drawn step to the plan of a picture.
    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError>;
}

macro_rules! transforms {
    ($($name:ident)*) => {
        $(impl From<$name> for Transform {
            fn from(transform: $name) -> Self {
                Self::$name(transform)
            }
        })*

        impl Transform {
            pub(crate) fn apply(&self) -> &dyn Apply {
                match self { $(Self::$name(transform) => transform),* }
            }

            /// The transforms that a text can name.
            pub(crate) const KNOWN: &[Known<Self>] = &[$(Known::new::<$name>(stringify!($name))),*];

            /// Returns the arguments as text, except for those that have their defaults.
            pub(crate) fn written(&self) -> Vec<String> {
                match self { $(Self::$name(transform) => text::written(transform)),* }
            }

            /// Checks the parameters, as building a pipeline does.
            ///
            /// # Errors
            ///
            /// [`ImageError::Parameter`] names a parameter that is invalid.
            pub fn check(&self) -> Result<(), ImageError> {
                self.apply().check()
            }

            /// Returns the transform's name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => stringify!($name)),* }
            }
        }
    };
}

transforms! {
    Resize CenterCrop RandomCrop RandomResizedCrop RandomHorizontalFlip RandomVerticalFlip
    ColorJitter RandomGrayscale GaussianBlur RandomAdjustSharpness RandomAutocontrast RandomEqualize RandomInvert
    RandomPosterize RandomSolarize RandomApply RandAugment TrivialAugmentWide AutoAugment RandomErasing Normalize
}

/// A transform that subtracts `mean` from the channels and divides them by `std`, both in units of
/// full brightness. It must come after all transforms of colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalize {
    /// The means of red, green and blue.
    pub mean: [f32; 3],
    /// The standard deviations of red, green and blue.
    pub std: [f32; 3],
}

impl Normalize {
    /// Creates the transform with these means and standard deviations.
    pub fn new(mean: [f32; 3], std: [f32; 3]) -> Self {
        Self { mean, std }
    }

    /// Creates the transform with the statistics of ImageNet, which pretrained models expect: mean
    /// 0.485, 0.456, 0.406 and std 0.229, 0.224, 0.225.
    pub fn imagenet() -> Self {
        Self::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    }
}

impl Apply for Normalize {
    fn check(&self) -> Result<(), ImageError> {
        for (channel, (mean, std)) in self.mean.into_iter().zip(self.std).enumerate() {
            let fail = |parameter, value: f32, must: &str| {
                let message = format!("of channel {channel} is {value}; it must be {must}");
                Err(ImageError::parameter("Normalize", parameter, message))
            };
            if !mean.is_finite() {
                return fail("mean", mean, "finite");
            }
            if !std.is_normal() || std < 0.0 {
                return fail("std", std, "finite and above 0");
            }
        }
        Ok(())
    }

    fn is_random(&self) -> bool {
        false
    }

    fn draw(&self, _: &mut Random<'_>, _: [usize; 2]) -> Result<Step, ImageError> {
        Ok(Step::Fixed)
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        step.expect_fixed("Normalize")?;
        plan.normalize();
        Ok(())
    }
}

impl Configure for Normalize {
    fn blank() -> Self {
        Self::new([0.0; 3], [1.0; 3])
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        if arguments.preset("imagenet", *self == Self::imagenet()) {
            *self = Self::imagenet();
            return Ok(());
        }
        arguments.required("mean", &mut self.mean)?;
        arguments.required("std", &mut self.std)
    }
}

/// Checks a probability.
pub(crate) fn check_p(transform: &'static str, p: f64) -> Result<(), ImageError> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(ImageError::parameter(transform, "p", format!("is {p}; a probability is between 0 and 1")))
}

/// Checks that a range is in order, and within bounds.
pub(crate) fn check_range(
    transform: &'static str,
    parameter: &'static str,
    [from, to]: [f64; 2],
    [least, most]: [f64; 2],
) -> Result<(), ImageError> {
    if from <= to && from >= least && to <= most && to.is_finite() {
        return Ok(());
    }
    let message = format!("is {from} to {to}; the first must not be above the second, and both in {least} to {most}");
    Err(ImageError::parameter(transform, parameter, message))
}
