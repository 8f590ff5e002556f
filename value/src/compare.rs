//! Equality of values.

use crate::Value;

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        // A list of pairs that still have to be compared, instead of recursion, since values may be
        // nested to any depth.
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
    fn values_that_differ_in_kind_shape_or_content_are_unequal() {
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
    fn equality_ignores_the_order_of_keys_but_not_of_fields() {
        let pairs = [("a", Value::Int(1)), ("b", Value::Int(2))];
        let reversed = [pairs[1].clone(), pairs[0].clone()];
        assert_eq!(Value::map(pairs.clone()), Value::map(reversed.clone()));
        assert_ne!(Value::named("P", pairs), Value::named("P", reversed));
    }

    #[test]
    fn deeply_nested_values_are_compared() {
        let deep = |leaf: i64| (0..200_000).fold(Value::Int(leaf), |value, _| Value::list([value]));
        assert!(deep(1) == deep(1) && deep(1) != deep(2));
    }
}
