//! When values are equal.

use crate::Value;

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        // A list of what is left to compare, instead of recursion: values may be nested to any depth.
        let mut pending = vec![(self, other)];
        while let Some((a, b)) = pending.pop() {
            let alike = match (a, b) {
                (Self::Bool(a), Self::Bool(b)) => a == b,
                (Self::Int(a), Self::Int(b)) => a == b,
                (Self::Float(a), Self::Float(b)) => a == b,
                (Self::Text(a), Self::Text(b)) => a == b,
                (Self::Bytes(a), Self::Bytes(b)) => a == b,
                (Self::Tensor(a), Self::Tensor(b)) => a == b,
                (Self::Custom(a), Self::Custom(b)) => a == b,
                (Self::Tuple(a), Self::Tuple(b)) | (Self::List(a), Self::List(b)) => {
                    pending.extend(a.iter().zip(b));
                    a.len() == b.len()
                }
                (Self::Named(a), Self::Named(b)) => {
                    pending.extend(a.fields().values().iter().zip(b.fields().values()));
                    a.same_type(b)
                }
                (Self::Map(a), Self::Map(b)) => {
                    a.len() == b.len()
                        && a.iter().all(|(key, value)| {
                            let found = b.get(key);
                            pending.extend(found.map(|found| (value, found)));
                            found.is_some()
                        })
                }
                _ => false,
            };
            if !alike {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_in_kind_type_shape_or_content_is_not_equal() {
        let all = [
            Value::from(1),
            Value::from(1.0),
            Value::from(true),
            Value::from("1"),
            Value::bytes(*b"1"),
            Value::from([1_i64]),
            Value::from([1_i32]),
            Value::from([[1_i64]]),
            Value::from([2_i64]),
            Value::list([1]),
            Value::list([1, 1]),
            Value::tuple([1]),
            Value::map([("a", 1.into())]),
            Value::map([("b", 1.into())]),
            Value::named("a", [("a", 1.into())]),
            Value::named("a", [("b", 1.into())]),
            Value::named("b", [("a", 1.into())]),
        ];
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                assert_eq!(a == b, i == j, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn floats_are_compared_as_numbers() {
        assert_eq!(Value::from([0.0_f32]), Value::from([-0.0_f32]));
        assert_ne!(Value::from([f64::NAN]), Value::from([f64::NAN]));
    }

    #[test]
    fn the_order_of_a_maps_keys_does_not_matter_and_that_of_fields_does() {
        let pairs = [("a", Value::Int(1)), ("b", Value::Int(2))];
        let turned = [pairs[1].clone(), pairs[0].clone()];
        assert_eq!(Value::map(pairs.clone()), Value::map(turned.clone()));
        assert_ne!(Value::named("P", pairs), Value::named("P", turned));
    }

    #[test]
    fn values_nested_very_deep_are_compared() {
        let deep = |leaf: i64| (0..200_000).fold(Value::Int(leaf), |value, _| Value::list([value]));
        assert!(deep(1) == deep(1) && deep(1) != deep(2));
    }
}
