//! [`DefaultNumber`]: the number that replaces missing values.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The number that replaces missing values of a column: an integer or a float.
///
/// ```
/// use slotline_sources::DefaultNumber;
///
/// assert_eq!("9007199254740993".parse::<DefaultNumber>()?, 9_007_199_254_740_993_i64.into());
/// assert_eq!("0.5".parse::<DefaultNumber>()?, 0.5.into());
/// # Ok::<(), slotline_sources::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DefaultNumber {
    /// An integer.
    Integer(i64),
    /// A float. For a column of integers, a whole number below 2⁵³ is accepted, too.
    Float(f64),
}

impl From<i32> for DefaultNumber {
    fn from(number: i32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<i64> for DefaultNumber {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<f64> for DefaultNumber {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl fmt::Display for DefaultNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(integer) => write!(f, "{integer}"),
            Self::Float(float) => write!(f, "{float}"),
        }
    }
}

/// Parses a number, such as `7`, `-0.5`, `1e3` or `nan`. A number that neither type holds is an
/// error.
impl FromStr for DefaultNumber {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Ok(integer) = text.parse() {
            return Ok(Self::Integer(integer));
        }
        // A longer integer would lose digits, and a larger float would be infinite.
        let is_fraction = text.contains(['.', 'e', 'E']);
        let is_named = !text.contains(|letter: char| letter.is_ascii_digit());
        let float = text.parse().ok().filter(|float: &f64| is_named || is_fraction && float.is_finite());
        let wrong = || Error::usage(format!("{text} is no number that i64 or f64 holds"), "check its digits");
        float.map(Self::Float).ok_or_else(wrong)
    }
}

/// The largest integer such that it and all smaller ones are exact as `f64`.
const EXACT: u64 = 1 << f64::MANTISSA_DIGITS;

/// Returns an integer as a float, if it is not above [`EXACT`] in size.
pub(crate) fn exact(integer: i64) -> Option<f64> {
    (integer.unsigned_abs() <= EXACT).then_some(integer as f64)
}

impl DefaultNumber {
    /// Returns the number as an integer, if it is one.
    pub(crate) fn integer(self) -> Option<i64> {
        match self {
            Self::Integer(integer) => Some(integer),
            Self::Float(float) => (float.fract() == 0.0 && float.abs() < EXACT as f64).then_some(float as i64),
        }
    }

    /// Returns the number as a float, if that is exact.
    pub(crate) fn float(self) -> Option<f64> {
        match self {
            Self::Integer(integer) => exact(integer),
            Self::Float(float) => Some(float),
        }
    }
}
