//! Rebuilding a value from its converted leaves.

use crate::path::{Place, To};
use crate::{Items, MAX_DEPTH, Path, Value};

/// The functions that convert the parts of a value.
pub(crate) struct Rebuild<'f, E> {
    /// Converts a leaf.
    pub(crate) leaf: &'f dyn Fn(&Value, &Place<'_>) -> Result<Value, E>,
    /// Creates the container that replaces a tuple.
    pub(crate) tuple: fn(Items) -> Value,
    pub(crate) too_deep: fn(Path) -> E,
}

impl<E> Rebuild<'_, E> {
    pub(crate) fn top(&self, value: &Value) -> Result<Value, E> {
        self.value(value, &Place::TOP, 0)
    }

    fn value(&self, value: &Value, place: &Place<'_>, depth: usize) -> Result<Value, E> {
        if depth > MAX_DEPTH {
            return Err((self.too_deep)(place.path()));
        }
        Ok(match value {
            Value::Map(map) => Value::Map(map.with_values(self.items(map.iter().map(keyed), place, depth)?)),
            Value::Named(named) => {
                Value::Named(named.with_values(self.items(named.fields().iter().map(keyed), place, depth)?))
            }
            Value::Tuple(items) => (self.tuple)(self.items(items.iter().enumerate().map(indexed), place, depth)?),
            Value::List(items) => Value::List(self.items(items.iter().enumerate().map(indexed), place, depth)?),
            leaf => (self.leaf)(leaf, place)?,
        })
    }

    fn items<'v>(
        &self,
        items: impl Iterator<Item = (To<'v>, &'v Value)>,
        place: &Place<'_>,
        depth: usize,
    ) -> Result<Items, E> {
        items.map(|(to, value)| self.value(value, &place.at(to), depth + 1)).collect()
    }
}

fn keyed<'v>((key, value): (&'v str, &'v Value)) -> (To<'v>, &'v Value) {
    (To::Key(key), value)
}

fn indexed((i, value): (usize, &Value)) -> (To<'_>, &Value) {
    (To::Index(i), value)
}
