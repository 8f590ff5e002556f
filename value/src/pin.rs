//! Values in pinned (page-locked) memory, which a GPU's copy engine can read directly.

use std::sync::Arc;

use crate::rebuild::Rebuild;
use crate::{PinError, Value};

impl Value {
    /// Returns this value with all its tensors in page-locked memory, as torch's `pin_memory` does.
    ///
    /// Each tensor that is not pinned yet is copied to separate [pinned
    /// memory](slotline::array::AnyArray::pin_memory). Maps, tuples and lists keep their structure,
    /// with pinned values. A custom value becomes the result of its
    /// [`pin_memory`](crate::CustomValue::pin_memory). Everything else is left unchanged.
    ///
    /// # Errors
    ///
    /// Returns [`PinError::Tensor`] if the system refuses to lock that much memory; the message
    /// names `RLIMIT_MEMLOCK` and says what to do. Returns [`PinError::Custom`] with the error of a
    /// custom value's method, and [`PinError::TooDeep`] if the value is nested too deeply.
    pub fn pin_memory(self) -> Result<Value, PinError> {
        let rebuild = Rebuild {
            leaf: &|leaf, place| match leaf {
                Value::Tensor(array) if !array.is_pinned() => match array.pin_memory() {
                    Ok(pinned) => Ok(Value::Tensor(Arc::new(pinned))),
                    Err(source) => Err(PinError::Tensor { path: place.path(), source }),
                },
                Value::Custom(custom) => custom.pin_memory().map_err(|source| PinError::Custom {
                    path: place.path(),
                    what: custom.type_name().to_owned(),
                    source,
                }),
                other => Ok(other.clone()),
            },
            tuple: Value::Tuple,
            too_deep: |path| PinError::TooDeep { path },
        };
        rebuild.top(&self)
    }

    /// Returns whether this value contains tensors and all of them are in pinned memory. Tensors
    /// inside custom values are ignored.
    pub fn is_pinned(&self) -> bool {
        let (mut pending, mut tensors) = (vec![self], false);
        while let Some(value) = pending.pop() {
            match value {
                Value::Tensor(array) if !array.is_pinned() => return false,
                Value::Tensor(_) => tensors = true,
                other => pending.extend(other.items()),
            }
        }
        tensors
    }
}
