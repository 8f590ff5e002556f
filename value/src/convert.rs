//! `default_convert`: converts a sample that is not batched.

use crate::rebuild::Rebuild;
use crate::{CollateError, Value};

/// Converts one sample as torch's `default_convert` does: like [`default_collate`](crate::default_collate), but without
/// the new first dimension.
///
/// Tuples become lists. Named tuples, maps and lists keep their type, and the values in them are converted. A custom value
/// becomes the result of its [`convert`](crate::CustomValue::convert). Everything else is left unchanged: an array in a
/// [`Value`] is already a tensor, and an `Int` does not become one.
///
/// ```
/// use slotline_value::{Value, default_convert};
///
/// let converted = default_convert((1, ("a", [2.0, 3.0])))?;
/// assert_eq!(converted, Value::list([Value::Int(1), Value::list([Value::from("a"), [2.0, 3.0].into()])]));
/// # Ok::<(), slotline_value::CollateError>(())
/// ```
///
/// # Errors
///
/// Returns [`CollateError::TooDeep`], or [`CollateError::Custom`] with the error of a custom value's method.
pub fn default_convert(sample: impl Into<Value>) -> Result<Value, CollateError> {
    let rebuild = Rebuild {
        leaf: &|leaf, place| match leaf {
            Value::Custom(custom) => custom.convert().map_err(|source| CollateError::Custom {
                path: place.path(),
                what: custom.type_name().to_owned(),
                source,
            }),
            other => Ok(other.clone()),
        },
        tuple: Value::List,
        too_deep: |path| CollateError::TooDeep { path },
    };
    rebuild.top(&sample.into())
}
