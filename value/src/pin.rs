//! Values in memory that a GPU's copy engine can read at any time.

use std::sync::Arc;

use crate::rebuild::Rebuild;
use crate::{PinError, Value};

impl Value {
    /// This value with all its tensors in page-locked memory, as torch's `pin_memory` has it.
    ///
    /// Each tensor that isn't pinned yet is copied to [pinned memory](slotline::array::AnyArray::pin_memory) of its own;
    /// maps, tuples and lists are kept, with what is in them pinned; a custom value becomes what its
    /// [`pin_memory`](crate::CustomValue::pin_memory) says; anything else is left as it is.
    ///
    /// # Errors
    ///
    /// [`PinError::Tensor`] if the system refuses to lock so much; the message names `RLIMIT_MEMLOCK` and says what to
    /// do. [`PinError::Custom`] with what a custom value's own method failed with, and [`PinError::TooDeep`].
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

    /// Whether there are tensors in this value, and all of them are in pinned memory. What is inside of custom values
    /// does not count.
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
