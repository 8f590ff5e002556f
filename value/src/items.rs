//! [`Items`]: the values in a container. Clones share them, and they are dropped without recursion.

use std::ops::Deref;
use std::sync::Arc;

use crate::Value;

/// The values of a tuple or a list. Dereferences to a slice.
#[derive(Clone, Default)]
pub struct Items(
    /// `None` if there are no values, so that an empty container needs no allocation.
    Option<Arc<Vec<Value>>>,
);

impl Items {
    /// Returns the values, without a copy if they are not shared.
    pub fn into_vec(mut self) -> Vec<Value> {
        self.0.take().map(Arc::unwrap_or_clone).unwrap_or_default()
    }

    /// Takes the values, and returns them if they are not shared. `self` is empty afterwards in any case.
    pub(crate) fn take_unique(&mut self) -> Option<Vec<Value>> {
        self.0.take().and_then(Arc::into_inner)
    }
}

impl Drop for Items {
    /// Drops nested values in a loop: recursive drops of a million levels would overflow the stack.
    fn drop(&mut self) {
        let mut pending = self.take_unique().unwrap_or_default();
        while let Some(mut value) = pending.pop() {
            if let Some(mut below) = value.take_items() {
                pending.append(&mut below);
            }
        }
    }
}

impl Deref for Items {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl From<Vec<Value>> for Items {
    fn from(values: Vec<Value>) -> Self {
        Self((!values.is_empty()).then(|| Arc::new(values)))
    }
}

impl FromIterator<Value> for Items {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        Self::from(Vec::from_iter(values))
    }
}

impl<'a> IntoIterator for &'a Items {
    type Item = &'a Value;
    type IntoIter = std::slice::Iter<'a, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeply_nested_values_are_dropped() {
        for wrap in [
            (|value| Value::list([value])) as fn(Value) -> Value,
            |value| Value::tuple([value]),
            |value| Value::map([("key", value)]),
            |value| Value::named("Point", [("x", value)]),
        ] {
            let deep = (0..200_000).fold(Value::Int(1), |value, _| wrap(value));
            let clone = deep.clone();
            drop(deep);
            drop(clone);
        }
    }

    #[test]
    fn shared_values_outlive_their_container() {
        let inner = Value::list([1, 2]);
        let outer = Value::list([inner.clone(), inner.clone()]);
        drop(outer);
        assert_eq!(inner, Value::list([1, 2]));
        let items = Items::from(vec![inner.clone()]);
        assert_eq!(items.clone().into_vec(), [inner]);
        assert_eq!(items.len(), 1);
        assert!(Items::default().into_vec().is_empty());
    }
}
