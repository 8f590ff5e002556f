//! `default_convert`: what becomes of a sample that is not batched.

use crate::rebuild::Rebuild;
use crate::{CollateError, Value};

/// Converts one sample as torch does when there is no batch: [`default_collate`](crate::default_collate) without the
/// new first dimension.
///
/// Arrays are tensors already, once they are in a [`Value`]. Tuples become lists; named tuples, maps and lists stay
/// what they are, with what is in them converted; a custom value becomes what its
/// [`convert`](crate::CustomValue::convert) says; anything else is left as it is: an `Int` is no tensor.
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
/// [`CollateError::TooDeep`], or [`CollateError::Custom`] with what a custom value's own method failed with.
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
