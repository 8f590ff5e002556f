//! `Debug` output of values: a tensor shows its dtype and shape but not its elements, and nesting is cut off at
//! [`MAX_DEPTH`].

use std::fmt;

use crate::{Items, MAX_DEPTH, Map, Named, Value};

/// A value and the number of containers around it.
struct Shown<'a>(&'a Value, usize);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, depth) = *self;
        if depth > MAX_DEPTH {
            return f.write_str("…");
        }
        let below = |value| Shown(value, depth + 1);
        match value {
            Value::Bool(value) => value.fmt(f),
            Value::Int(value) => value.fmt(f),
            Value::Float(value) => value.fmt(f),
            Value::Text(value) => value.fmt(f),
            Value::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Value::Tensor(array) => array.fmt(f),
            Value::Custom(custom) => custom.fmt(f),
            Value::Map(map) => f.debug_map().entries(map.iter().map(|(key, value)| (key, below(value)))).finish(),
            Value::Named(named) => {
                let mut shown = f.debug_struct(named.name());
                named.fields().iter().for_each(|(key, value)| {
                    shown.field(key, &below(value));
                });
                shown.finish()
            }
            Value::Tuple(items) => {
                let mut shown = f.debug_tuple("");
                items.iter().for_each(|value| {
                    shown.field(&below(value));
                });
                shown.finish()
            }
            Value::List(items) => f.debug_list().entries(items.iter().map(below)).finish(),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(self, 0).fmt(f)
    }
}

impl fmt::Debug for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Value::Named(self.clone()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_kinds_and_content() {
        let value = Value::map([
            ("a", Value::from((1, 2.5, true, "text"))),
            ("b", Value::list([Value::bytes(*b"abc"), [[0_u8; 3]; 2].into()])),
            ("c", Value::named("Point", [("x", 1.into())])),
        ]);
        let shown = r#"{"a": (1, 2.5, true, "text"), "b": [Bytes(3), AnyArray(u8 [2, 3])], "c": Point { x: 1 }}"#;
        assert_eq!(format!("{value:?}"), shown);
    }

    #[test]
    fn deep_values_are_cut_off() {
        let deep = (0..200_000).fold(Value::Int(1), |value, _| Value::list([value]));
        let shown = format!("{deep:?}");
        assert!(shown.contains("[…]") && shown.len() < 1000, "{shown}");
    }
}
