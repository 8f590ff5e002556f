//! [`Map`] and [`Named`]: values under keys, in insertion order.

use std::sync::Arc;

use indexmap::IndexSet;

use crate::{Items, Value};

/// Values under keys, in insertion order. Looking up a key takes constant time.
///
/// A map can be collected from pairs; a repeated key keeps its position and takes the later value.
#[derive(Clone, Default)]
pub struct Map {
    /// The keys, shared by the first map of a batch and the collated map.
    keys: Arc<IndexSet<Arc<str>>>,
    /// One value for each key.
    values: Items,
}

impl Map {
    /// Returns the value under `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(self.keys.get_index_of(key)?)
    }

    /// Iterates over the keys, in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.keys.iter().map(|key| &**key)
    }

    /// Returns the values, in the order of their keys.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Iterates over the keys and values, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.keys().zip(&self.values)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns a map with the same keys and other values, one for each key.
    pub(crate) fn with_values(&self, values: Items) -> Self {
        debug_assert_eq!(self.len(), values.len());
        Self { keys: self.keys.clone(), values }
    }

    /// Returns the values for modification. There must be one for each key, so only a map that is
    /// being dropped may be emptied.
    pub(crate) fn values_mut(&mut self) -> &mut Items {
        &mut self.values
    }

    /// Returns whether the other map has the same keys in the same order.
    pub(crate) fn same_keys(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.keys, &other.keys) || self.keys().eq(other.keys())
    }
}

impl<K: Into<Arc<str>>> FromIterator<(K, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(entries: I) -> Self {
        let mut keys = IndexSet::new();
        let mut values = Vec::new();
        for (key, value) in entries {
            match keys.insert_full(key.into()) {
                (_, true) => values.push(value),
                (place, false) => values[place] = value,
            }
        }
        Self { keys: Arc::new(keys), values: values.into() }
    }
}

/// A tuple or struct with a type name and named fields.
#[derive(Clone)]
pub struct Named {
    name: Arc<str>,
    fields: Map,
}

impl Named {
    /// Creates a named tuple of type `name` with these fields.
    pub fn new(name: impl Into<Arc<str>>, fields: Map) -> Self {
        Self { name: name.into(), fields }
    }

    /// Returns the name of the type.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fields.
    pub fn fields(&self) -> &Map {
        &self.fields
    }

    /// Returns a named tuple with the same fields and other values.
    pub(crate) fn with_values(&self, values: Items) -> Self {
        Self { name: self.name.clone(), fields: self.fields.with_values(values) }
    }

    /// Returns the fields for modification, as [`Map::values_mut`] does.
    pub(crate) fn fields_mut(&mut self) -> &mut Map {
        &mut self.fields
    }

    /// Returns whether the other named tuple has the same type: the same name, and the same fields
    /// in the same order.
    pub(crate) fn same_type(&self, other: &Self) -> bool {
        self.name == other.name && self.fields.same_keys(&other.fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_the_later_value() {
        let map: Map =
            [("b", 1), ("a", 2), ("b", 3)].map(|(key, value)| (key, Value::Int(value))).into_iter().collect();
        assert_eq!(map.keys().collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(map.get("b"), Some(&Value::Int(3)));
        assert_eq!((map.get("c"), map.len()), (None, 2));
        assert!(map.iter().map(|(key, _)| key).eq(map.keys()) && Map::default().is_empty());
    }
}
