//! Transforms that draw operations from a list: RandAugment, TrivialAugment and AutoAugment.

use std::borrow::Cow;

use super::Apply;
use super::fill::Fill;
use super::operate::operate;
use super::policies::{AutoAugmentPolicy, Kind};
use crate::draw::{Operations, Random, Step};
use crate::error::ImageError;
use crate::operation::{Affine, Interpolation, Operation};
use crate::plan::Plan;
use crate::text::{Arguments, Configure, Literal, Value, word_of};

/// The operations that a transform draws from, and their largest magnitudes.
struct Space {
    kinds: &'static [Kind],
    shear: f64,
    /// The largest translation, as a fraction of the side, or in pixels if it is above 1.
    translate: f64,
    /// The largest rotation, in degrees.
    rotate: f64,
    /// The largest difference of a factor from 1.
    factor: f64,
    /// The largest number of bits that posterizing removes.
    posterize: f64,
}

const FOURTEEN: [Kind; 14] = [
    Kind::Identity,
    Kind::ShearX,
    Kind::ShearY,
    Kind::TranslateX,
    Kind::TranslateY,
    Kind::Rotate,
    Kind::Brightness,
    Kind::Color,
    Kind::Contrast,
    Kind::Sharpness,
    Kind::Posterize,
    Kind::Solarize,
    Kind::AutoContrast,
    Kind::Equalize,
];

const USUAL: Space =
    Space { kinds: &FOURTEEN, shear: 0.3, translate: 150.0 / 331.0, rotate: 30.0, factor: 0.9, posterize: 4.0 };
const WIDE: Space =
    Space { kinds: &FOURTEEN, shear: 0.99, translate: 32.0, rotate: 135.0, factor: 0.99, posterize: 6.0 };

/// The options of operations that move pixels.
#[derive(Clone, Copy)]
struct Moving {
    interpolation: Interpolation,
    fill: [u8; 3],
}

impl Space {
    fn any(&self, random: &mut Random<'_>) -> Kind {
        self.kinds[random.below(self.kinds.len())]
    }

    /// Returns the operation of a kind, with the fraction `part` of the largest magnitude. If the
    /// operation has two directions, one is drawn.
    fn operation(
        &self,
        kind: Kind,
        part: f64,
        random: &mut Random<'_>,
        [height, width]: [usize; 2],
        Moving { interpolation, fill }: Moving,
    ) -> Option<Operation> {
        let mut signed = |number: f64| if random.unit() <= 0.5 { -number } else { number };
        let distance = |side: usize| if self.translate > 1.0 { self.translate } else { self.translate * side as f64 };
        let affine = |by| Operation::Affine { by, interpolation, fill };
        Some(match kind {
            Kind::Identity => return None,
            Kind::ShearX => affine(Affine::ShearX(signed(self.shear * part))),
            Kind::ShearY => affine(Affine::ShearY(signed(self.shear * part))),
            Kind::TranslateX => affine(Affine::TranslateX(signed(distance(width) * part) as i32)),
            Kind::TranslateY => affine(Affine::TranslateY(signed(distance(height) * part) as i32)),
            Kind::Rotate => affine(Affine::Rotate(signed(self.rotate * part))),
            Kind::Brightness => Operation::AdjustBrightness(1.0 + signed(self.factor * part)),
            Kind::Color => Operation::AdjustSaturation(1.0 + signed(self.factor * part)),
            Kind::Contrast => Operation::AdjustContrast(1.0 + signed(self.factor * part)),
            Kind::Sharpness => Operation::AdjustSharpness(1.0 + signed(self.factor * part)),
            Kind::Posterize => Operation::Posterize((8.0 - self.posterize * part).round_ties_even() as u8),
            Kind::Solarize => Operation::Solarize(255.0 * (1.0 - part)),
            Kind::AutoContrast => Operation::AutoContrast,
            Kind::Equalize => Operation::Equalize,
            Kind::Invert => Operation::Invert,
        })
    }
}

fn check_bins(transform: &'static str, bins: usize) -> Result<(), ImageError> {
    if (2..=1_000_000).contains(&bins) {
        return Ok(());
    }
    let message = format!("is {bins}; it must be between 2 and 1,000,000");
    Err(ImageError::parameter(transform, "num_magnitude_bins", message))
}

/// A transform that applies a number of operations from a list of 14, all with the same magnitude
/// ([Cubuk et al., 2019](https://arxiv.org/abs/1909.13719)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandAugment {
    /// The number of operations (default: 2).
    pub num_ops: usize,
    /// The magnitude of the operations, below `num_magnitude_bins` (default: 9).
    pub magnitude: usize,
    /// The number of possible magnitudes (default: 31).
    pub num_magnitude_bins: usize,
    /// How values between pixels are computed (default: the nearest pixel).
    pub interpolation: Interpolation,
    /// The colour of pixels that come from outside the picture (default: black).
    pub fill: [u8; 3],
}

impl Default for RandAugment {
    fn default() -> Self {
        let interpolation = Interpolation::Nearest;
        Self { num_ops: 2, magnitude: 9, num_magnitude_bins: 31, interpolation, fill: [0; 3] }
    }
}

impl Apply for RandAugment {
    fn check(&self) -> Result<(), ImageError> {
        check_bins("RandAugment", self.num_magnitude_bins)?;
        if self.magnitude >= self.num_magnitude_bins {
            let message =
                format!("is {}; it must be below num_magnitude_bins, {}", self.magnitude, self.num_magnitude_bins);
            return Err(ImageError::parameter("RandAugment", "magnitude", message));
        }
        if self.num_ops > 100 {
            let message = format!("is {}; it must be at most 100", self.num_ops);
            return Err(ImageError::parameter("RandAugment", "num_ops", message));
        }
        Ok(())
    }

    fn is_random(&self) -> bool {
        self.num_ops > 0
    }

    fn is_photometric(&self) -> bool {
        true
    }

    fn not_followed(&self) -> Option<&'static str> {
        Some("RandAugment")
    }

    fn draw(&self, random: &mut Random<'_>, size: [usize; 2]) -> Result<Step, ImageError> {
        let part = self.magnitude as f64 / (self.num_magnitude_bins - 1) as f64;
        let moving = Moving { interpolation: self.interpolation, fill: self.fill };
        let operations = (0..self.num_ops).filter_map(|_| {
            let kind = USUAL.any(random);
            USUAL.operation(kind, part, random, size, moving)
        });
        Ok(Step::Operations(operations.collect()))
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        operate("RandAugment", step, plan)
    }
}

/// A transform that applies one operation from a list of 14, with a random magnitude ([Müller and
/// Hutter, 2021](https://arxiv.org/abs/2103.10158)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrivialAugmentWide {
    /// The number of possible magnitudes (default: 31).
    pub num_magnitude_bins: usize,
    /// How values between pixels are computed (default: the nearest pixel).
    pub interpolation: Interpolation,
    /// The colour of pixels that come from outside the picture (default: black).
    pub fill: [u8; 3],
}

impl Default for TrivialAugmentWide {
    fn default() -> Self {
        Self { num_magnitude_bins: 31, interpolation: Interpolation::Nearest, fill: [0; 3] }
    }
}

impl Apply for TrivialAugmentWide {
    fn check(&self) -> Result<(), ImageError> {
        check_bins("TrivialAugmentWide", self.num_magnitude_bins)
    }

    fn is_random(&self) -> bool {
        true
    }

    fn is_photometric(&self) -> bool {
        true
    }

    fn not_followed(&self) -> Option<&'static str> {
        Some("TrivialAugmentWide")
    }

    fn draw(&self, random: &mut Random<'_>, size: [usize; 2]) -> Result<Step, ImageError> {
        let kind = WIDE.any(random);
        let part = random.below(self.num_magnitude_bins) as f64 / (self.num_magnitude_bins - 1) as f64;
        let moving = Moving { interpolation: self.interpolation, fill: self.fill };
        Ok(Step::Operations(WIDE.operation(kind, part, random, size, moving).into_iter().collect()))
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        operate("TrivialAugmentWide", step, plan)
    }
}

/// A transform that applies one of the pairs of operations of a learnt policy ([Cubuk et al.,
/// 2018](https://arxiv.org/abs/1805.09501)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoAugment {
    /// The policy (default: that of ImageNet).
    pub policy: AutoAugmentPolicy,
    /// How values between pixels are computed (default: the nearest pixel).
    pub interpolation: Interpolation,
    /// The colour of pixels that come from outside the picture (default: black).
    pub fill: [u8; 3],
}

impl AutoAugment {
    /// Creates the transform with this policy.
    pub fn new(policy: AutoAugmentPolicy) -> Self {
        Self { policy, interpolation: Interpolation::Nearest, fill: [0; 3] }
    }
}

impl Default for AutoAugment {
    fn default() -> Self {
        Self::new(AutoAugmentPolicy::ImageNet)
    }
}

impl Apply for AutoAugment {
    fn check(&self) -> Result<(), ImageError> {
        Ok(())
    }

    fn is_random(&self) -> bool {
        true
    }

    fn is_photometric(&self) -> bool {
        true
    }

    fn not_followed(&self) -> Option<&'static str> {
        Some("AutoAugment")
    }

    fn draw(&self, random: &mut Random<'_>, size: [usize; 2]) -> Result<Step, ImageError> {
        let pairs = self.policy.pairs();
        let pair = &pairs[random.below(pairs.len())];
        let moving = Moving { interpolation: self.interpolation, fill: self.fill };
        let mut operations = Operations::default();
        for &(kind, p, magnitude) in pair {
            if random.unit() <= p {
                // A magnitude is from 0 to 9.
                operations.extend(USUAL.operation(kind, f64::from(magnitude) / 9.0, random, size, moving));
            }
        }
        Ok(Step::Operations(operations))
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        operate("AutoAugment", step, plan)
    }
}

/// Visits the arguments of operations that move pixels.
fn moving(
    arguments: &mut Arguments<'_>,
    interpolation: &mut Interpolation,
    fill: &mut [u8; 3],
) -> Result<(), ImageError> {
    let mut colour = Fill(*fill);
    arguments.optional("interpolation", interpolation)?;
    arguments.optional("fill", &mut colour)?;
    *fill = colour.0;
    Ok(())
}

impl Configure for RandAugment {
    fn blank() -> Self {
        Self::default()
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        arguments.optional("num_ops", &mut self.num_ops)?;
        arguments.optional("magnitude", &mut self.magnitude)?;
        arguments.optional("num_magnitude_bins", &mut self.num_magnitude_bins)?;
        moving(arguments, &mut self.interpolation, &mut self.fill)
    }
}

impl Configure for TrivialAugmentWide {
    fn blank() -> Self {
        Self::default()
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        arguments.optional("num_magnitude_bins", &mut self.num_magnitude_bins)?;
        moving(arguments, &mut self.interpolation, &mut self.fill)
    }
}

impl Configure for AutoAugment {
    fn blank() -> Self {
        Self::default()
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        arguments.optional("policy", &mut self.policy)?;
        moving(arguments, &mut self.interpolation, &mut self.fill)
    }
}

impl Value for Interpolation {
    fn expected() -> Cow<'static, str> {
        "nearest or bilinear".into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        word_of(literal, &[("nearest", Self::Nearest), ("bilinear", Self::Bilinear)])
    }

    fn write(&self) -> String {
        if *self == Self::Nearest { "nearest" } else { "bilinear" }.into()
    }
}

impl Value for AutoAugmentPolicy {
    fn expected() -> Cow<'static, str> {
        "imagenet, cifar10 or svhn".into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        word_of(literal, &[("imagenet", Self::ImageNet), ("cifar10", Self::Cifar10), ("svhn", Self::Svhn)])
    }

    fn write(&self) -> String {
        match self {
            Self::ImageNet => "imagenet",
            Self::Cifar10 => "cifar10",
            Self::Svhn => "svhn",
        }
        .into()
    }
}
