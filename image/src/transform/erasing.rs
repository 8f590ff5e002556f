//! [`RandomErasing`]: replaces a random rectangle.

use std::borrow::Cow;

use super::operate::operate;
use super::{Apply, check_p, check_range};
use crate::draw::{Random, Step};
use crate::error::ImageError;
use crate::operation::{Erasing, Operation};
use crate::plan::Plan;
use crate::text::{Arguments, Configure, Literal, Value};

/// A transform that replaces a rectangle of random size, proportion and position, with a
/// probability. It may come after [`Normalize`](super::Normalize).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomErasing {
    /// The probability of replacing a rectangle (torchvision's default: 0.5).
    pub p: f64,
    /// The smallest and the largest fraction of the picture's area (default: 0.02 to 0.33).
    pub scale: [f64; 2],
    /// The smallest and the largest height divided by the width (default: 0.3 to 3.3).
    pub ratio: [f64; 2],
    /// The value of each channel (default: 0), from 0 to 255, or after `Normalize` in normalised
    /// units. `None` for noise of the standard normal distribution (torchvision's `"random"`),
    /// which is possible after `Normalize` only.
    pub value: Option<[f32; 3]>,
}

impl RandomErasing {
    /// Creates a transform that replaces a rectangle by 0, with this probability.
    pub fn new(p: f64) -> Self {
        Self { p, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: Some([0.0; 3]) }
    }
}

impl Default for RandomErasing {
    fn default() -> Self {
        Self::new(0.5)
    }
}

impl RandomErasing {
    /// Checks that the value is possible for pictures of bytes.
    pub(crate) fn check_bytes(&self) -> Result<(), ImageError> {
        let fail = |message: String| Err(ImageError::parameter("RandomErasing", "value", message));
        match self.value {
            None => fail("noise has the units of normalised pictures; move RandomErasing behind Normalize".into()),
            Some(values) => match values.iter().find(|value| !(0.0..=255.0).contains(*value)) {
                Some(value) => fail(format!("is {value}; it must be between 0 and 255 in front of Normalize")),
                None => Ok(()),
            },
        }
    }
}

impl Apply for RandomErasing {
    fn check(&self) -> Result<(), ImageError> {
        check_p("RandomErasing", self.p)?;
        check_range("RandomErasing", "scale", self.scale, [0.0, 1.0])?;
        check_range("RandomErasing", "ratio", self.ratio, [f64::MIN_POSITIVE, f64::MAX])?;
        match self.value.iter().flatten().find(|value| !value.is_finite()) {
            Some(value) => {
                Err(ImageError::parameter("RandomErasing", "value", format!("is {value}; it must be finite")))
            }
            None => Ok(()),
        }
    }

    fn is_random(&self) -> bool {
        self.p > 0.0
    }

    fn draw(&self, random: &mut Random<'_>, [rows, columns]: [usize; 2]) -> Result<Step, ImageError> {
        let erased = random.chance(self.p).then(|| {
            let area = (rows * columns) as f64;
            (0..10).find_map(|_| {
                let [height, width] = random.sides(area, self.scale, self.ratio);
                (height < rows && width < columns).then(|| {
                    let value = match self.value {
                        Some(value) => Erasing::Value(value),
                        None => Erasing::Noise(random.bits()),
                    };
                    let (top, left) = (random.below(rows - height + 1), random.below(columns - width + 1));
                    Operation::Erase { top, left, height, width, value }
                })
            })
        });
        Ok(Step::Operations(erased.flatten().into_iter().collect()))
    }

    fn plan(&self, step: &Step, plan: &mut Plan) -> Result<(), ImageError> {
        if let Some(other) =
            step.expect_operations("RandomErasing")?.iter().find(|it| !matches!(it, Operation::Erase { .. }))
        {
            return Err(ImageError::draw(format!("{other:?} is not an operation of RandomErasing")));
        }
        operate("RandomErasing", step, plan)
    }
}

impl Configure for RandomErasing {
    fn blank() -> Self {
        Self::default()
    }

    fn arguments(&mut self, arguments: &mut Arguments<'_>) -> Result<(), ImageError> {
        let mut value = By(self.value);
        arguments.optional("p", &mut self.p)?;
        arguments.optional("scale", &mut self.scale)?;
        arguments.optional("ratio", &mut self.ratio)?;
        arguments.optional("value", &mut value)?;
        self.value = value.0;
        Ok(())
    }
}

/// The argument that says what replaces the rectangle.
struct By(Option<[f32; 3]>);

impl Value for By {
    fn expected() -> Cow<'static, str> {
        "a number, [red, green, blue], or random".into()
    }

    fn read(literal: &Literal<'_>) -> Option<Self> {
        if *literal == Literal::Word("random") {
            return Some(Self(None));
        }
        f32::read(literal).map(|all| [all; 3]).or_else(|| Value::read(literal)).map(|value| Self(Some(value)))
    }

    fn write(&self) -> String {
        match self.0 {
            None => "random".into(),
            Some([red, green, blue]) if red == green && green == blue => red.write(),
            Some(value) => value.write(),
        }
    }
}
