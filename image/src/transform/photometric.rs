//! Transforms of colours, with random factors or with a probability.

use std::borrow::Cow;

use super::operate::operate;
use super::{Apply, Transform, check_p, check_range};
use crate::draw::{Operations, Random, Step};
use crate::error::ImageError;
use crate::operation::Operation;
use crate::plan::Plan;
use crate::text::{Arguments, Configure, Literal, Value};

/// A transform that changes brightness, contrast, saturation and hue by random factors, in random
/// order.
///
/// A range from 1 to 1 (for the hue, from 0 to 0) changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColorJitter {
    /// The smallest and the largest factor of brightness.
    pub brightness: [f64; 2],
    /// The smallest and the largest factor of contrast.
    pub contrast: [f64; 2],
    /// The smallest and the largest factor of saturation.
    pub saturation: [f64; 2],
    /// The smallest and the largest rotation of the hue, as a fraction of the colour circle,
    /// between -0.5 and 0.5.
    pub hue: [f64; 2],
}

impl ColorJitter {
    /// Creates a transform that draws the factor of brightness from `1 - brightness` (at least 0)
    /// to `1 + brightness`, the factors of contrast and saturation in the same way, and the
    /// rotation of the hue from `-hue` to `hue`.
    pub fn new(brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Self {
        let around = |by: f64| [if by <= 1.0 { 1.0 - by } else { 0.0 }, 1.0 + by];
        let [brightness, contrast, saturation] = [brightness, contrast, saturation].map(around);
        Self { brightness, contrast, saturation, hue: [0.0 - hue, hue] }
    }
}

impl Default for ColorJitter {
    fn default() -> Self {
        Self::new(0.0, 0.0, 0.0, 0.0)
    }
}

impl Apply for ColorJitter {
    fn check(&self) -> Result<(), ImageError> {
        for (parameter, range) in
            [("brightness", self.brightness), ("contrast", self.contrast), ("saturation", self.saturation)]
        {
            check_range("ColorJitter", parameter, range, [0.0, f64::MAX])?;
        }
        check_range("ColorJitter", "hue", self.hue, [-0.5, 0.5])
    }

    fn is_random(&self) -> bool {
        *self != Self::default()
    }

    fn is_photometric(&self) -> bool {
        true
    }

    fn draw(&self, random: &mut Random<'_>, _: [usize; 2]) -> Result<Step, ImageError> {
        let mut order = [0, 1, 2, 3];
        for i in (1..4).rev() {
            order.swap(i, random.below(i + 1));
        }
        let ranges = |of: Self| [of.brightness, of.contrast, of.saturation, of.hue];
        let (ranges, none) = (ranges(*self), ranges(Self::default()));
        let factors = ranges.map(|[from, to]| random.uniform(from, to));
        let operations = order.into_iter().filter(|&i| ranges[i] != none[i]).map(|i| match i {
            0 => Operation::AdjustBrightness(factors[0]),
            1 => Operation::AdjustContrast(factors[1]),
            2 => Operation::AdjustSaturation(factors[2]),
            _ => Operation::AdjustHue(factors[3]),
        });
        Ok(Step::Operations(operations.collect()))
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        operate("ColorJitter", step, plan)
    }
}

impl Configure for ColorJitter {
    fn blank() -> Self {
        Self::default()
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        let [mut brightness, mut contrast, mut saturation] =
            [self.brightness, self.contrast, self.saturation].map(Around::<1>);
        let mut hue = Around::<0>(self.hue);
        arguments.optional("brightness", &mut brightness)?;
        arguments.optional("contrast", &mut contrast)?;
        arguments.optional("saturation", &mut saturation)?;
        arguments.optional("hue", &mut hue)?;
        *self = Self { brightness: brightness.0, contrast: contrast.0, saturation: saturation.0, hue: hue.0 };
        Ok(())
    }
}

/// An argument that is a range, or one number: the distance of both ends of the range from
/// `MIDDLE`.
struct Around<const MIDDLE: u8>([f64; 2]);

impl<const MIDDLE: u8> Value for Around<MIDDLE> {
    fn expected() -> Cow<'static, str> {
        "a number, or [from, to]".into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        let around = |by: f64| {
            let jitter = ColorJitter::new(by, 0.0, 0.0, by);
            if MIDDLE == 1 { jitter.brightness } else { jitter.hue }
        };
        f64::read(literal).map(around).or_else(|| Value::read(literal)).map(Self)
    }

    fn write(&self) -> String {
        self.0.write()
    }
}

/// A transform that blurs a picture with a Gaussian kernel of random standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianBlur {
    /// The width and the height of the kernel, in pixels. Both must be odd.
    pub kernel_size: [usize; 2],
    /// The smallest and the largest standard deviation, in pixels (default: 0.1 to 2).
    pub sigma: [f64; 2],
}

impl GaussianBlur {
    /// The maximum side of a kernel, in pixels.
    const LARGEST: usize = 999;

    /// Creates a blur with a square kernel of this side, which must be odd.
    pub fn new(kernel_size: usize) -> Self {
        Self { kernel_size: [kernel_size; 2], sigma: [0.1, 2.0] }
    }
}

impl Apply for GaussianBlur {
    fn check(&self) -> Result<(), ImageError> {
        if let Some(side) = self.kernel_size.iter().find(|&&side| side % 2 == 0 || side > Self::LARGEST) {
            let message = format!("is {side}; it must be odd, and at most {}", Self::LARGEST);
            return Err(ImageError::parameter("GaussianBlur", "kernel_size", message));
        }
        check_range("GaussianBlur", "sigma", self.sigma, [f64::MIN_POSITIVE, f64::MAX])
    }

    fn is_random(&self) -> bool {
        self.sigma[0] != self.sigma[1]
    }

    fn is_photometric(&self) -> bool {
        true
    }

    fn inexact(&self) -> bool {
        true
    }

    fn draw(&self, random: &mut Random<'_>, _: [usize; 2]) -> Result<Step, ImageError> {
        let sigma = random.uniform(self.sigma[0], self.sigma[1]);
        let blur = Operation::GaussianBlur { kernel_size: self.kernel_size, sigma: [sigma; 2] };
        Ok(Step::Operations(Operations::from_iter([blur])))
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        operate("GaussianBlur", step, plan)
    }
}

impl Configure for GaussianBlur {
    fn blank() -> Self {
        Self::new(1)
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        let (mut kernel_size, mut sigma) = (Both(self.kernel_size), Both(self.sigma));
        arguments.required("kernel_size", &mut kernel_size)?;
        arguments.optional("sigma", &mut sigma)?;
        (self.kernel_size, self.sigma) = (kernel_size.0, sigma.0);
        Ok(())
    }
}

/// An argument that is two values, or one for both.
struct Both<T>([T; 2]);

impl<T: Value + Copy + PartialEq> Value for Both<T> {
    fn expected() -> Cow<'static, str> {
        format!("{}, or {}", T::expected(), <[T; 2]>::expected()).into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        T::read(literal).map(|both| [both; 2]).or_else(|| Value::read(literal)).map(Self)
    }

    fn write(&self) -> String {
        if self.0[0] == self.0[1] { self.0[0].write() } else { self.0.write() }
    }
}

/// A transform that applies a list of transforms of colours with a probability, either all of them
/// or none.
///
/// ```
/// use slotline_image::Pipeline;
/// use slotline_image::transform::{ColorJitter, RandomApply, RandomResizedCrop};
///
/// let jitter = RandomApply::new([ColorJitter::new(0.4, 0.4, 0.2, 0.1)], 0.8);
/// let pipeline: Pipeline = Pipeline::builder().then(RandomResizedCrop::new(224)).then(jitter).build()?;
/// # Ok::<(), slotline_image::ImageError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RandomApply {
    /// The transforms.
    pub transforms: Vec<Transform>,
    /// The probability of applying the transforms (torchvision's default: 0.5).
    pub p: f64,
}

impl RandomApply {
    /// Creates a transform that applies these transforms with this probability.
    pub fn new<T: Into<Transform>>(transforms: impl IntoIterator<Item = T>, p: f64) -> Self {
        Self { transforms: transforms.into_iter().map(Into::into).collect(), p }
    }
}

impl Apply for RandomApply {
    fn check(&self) -> Result<(), ImageError> {
        check_p("RandomApply", self.p)?;
        for transform in &self.transforms {
            if !transform.apply().is_photometric() {
                let message = format!("has {}; only transforms of colours are possible", transform.name());
                return Err(ImageError::parameter("RandomApply", "transforms", message));
            }
            transform.apply().check()?;
        }
        Ok(())
    }

    fn is_random(&self) -> bool {
        self.p > 0.0 && (self.p < 1.0 || self.transforms.iter().any(|transform| transform.apply().is_random()))
    }

    fn is_photometric(&self) -> bool {
        true
    }

    fn not_followed(&self) -> Option<&'static str> {
        self.transforms.iter().find_map(|transform| transform.apply().not_followed())
    }

    fn inexact(&self) -> bool {
        self.transforms.iter().any(|transform| transform.apply().inexact())
    }

    fn draw(&self, random: &mut Random<'_>, size: [usize; 2]) -> Result<Step, ImageError> {
        let mut all = Operations::default();
        if random.chance(self.p) {
            for transform in &self.transforms {
                let step = transform.apply().draw(random, size)?;
                all.extend(step.expect_operations(transform.name())?.iter().cloned());
            }
        }
        Ok(Step::Operations(all))
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        operate("RandomApply", step, plan)
    }
}

impl Configure for RandomApply {
    fn blank() -> Self {
        Self { transforms: Vec::new(), p: 0.5 }
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        arguments.required("transforms", &mut self.transforms)?;
        arguments.optional("p", &mut self.p)
    }
}

/// Defines transforms that apply one operation with a probability.
macro_rules! with_probability {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)? }, $default:literal,
        |$self:ident| $operation:expr, $check:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)?
            #[doc = concat!("The probability (torchvision's default: ", stringify!($default), ").")]
            pub p: f64,
        }

        impl $name {
            /// Creates the transform with this probability.
            pub fn new($($field: $type,)? p: f64) -> Self {
                Self { $($field,)? p }
            }
        }

        impl Configure for $name {
            fn blank() -> Self {
                Self { $($field: Default::default(),)? p: $default }
            }

            fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
                $(arguments.required(stringify!($field), &mut self.$field)?;)?
                arguments.optional("p", &mut self.p)
            }
        }

        impl Apply for $name {
            fn check(&self) -> Result<(), ImageError> {
                let $self = self;
                check_p(stringify!($name), self.p)?;
                $check
            }

            fn is_random(&self) -> bool {
                self.p > 0.0 && self.p < 1.0
            }

            fn is_photometric(&self) -> bool {
                true
            }

            fn draw(&self, random: &mut Random<'_>, _: [usize; 2]) -> Result<Step, ImageError> {
                let $self = self;
                Ok(Step::Operations(random.chance(self.p).then(|| $operation).into_iter().collect()))
            }

            fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
                operate(stringify!($name), step, plan)
            }
        }
    )*};
}

fn check_number(transform: &'static str, parameter: &'static str, number: f64, most: f64) -> Result<(), ImageError> {
    if (0.0..=most).contains(&number) {
        return Ok(());
    }
    Err(ImageError::parameter(transform, parameter, format!("is {number}; it must be between 0 and {most}")))
}

with_probability! {
    /// Replaces all channels by the brightness, with a probability.
    RandomGrayscale {}, 0.1, |_this| Operation::Grayscale, Ok(());
    /// Inverts all values, with a probability.
    RandomInvert {}, 0.5, |_this| Operation::Invert, Ok(());
    /// Keeps only the highest bits of each value, with a probability.
    RandomPosterize {
        /// The number of bits to keep.
        bits: u8,
    }, 0.5, |this| Operation::Posterize(this.bits), check_number("RandomPosterize", "bits", this.bits.into(), 8.0);
    /// Inverts values that are at least a threshold, with a probability.
    RandomSolarize {
        /// The threshold, from 0 to 255.
        threshold: f64,
    }, 0.5, |this| Operation::Solarize(this.threshold),
        check_number("RandomSolarize", "threshold", this.threshold, 255.0);
    /// Changes the sharpness, with a probability.
    RandomAdjustSharpness {
        /// The factor: 0 for a smoothed picture, 1 for the original, 2 for one that is twice as
        /// sharp.
        sharpness_factor: f64,
    }, 0.5, |this| Operation::AdjustSharpness(this.sharpness_factor),
        check_number("RandomAdjustSharpness", "sharpness_factor", this.sharpness_factor, f64::MAX);
    /// Stretches each channel to the full range, with a probability.
    RandomAutocontrast {}, 0.5, |_this| Operation::AutoContrast, Ok(());
    /// Makes all values of each channel equally frequent, with a probability.
    RandomEqualize {}, 0.5, |_this| Operation::Equalize, Ok(());
}
