//! Makes invalid states by changing their JSON.

use serde_json::Value;

/// The values by which a number is replaced.
const NUMBERS: [u64; 12] = [0, 1, 2, 3, 5, 9, 10, 11, 1000, 1 << 41, 1 << 63, u64::MAX];

/// Changes one of the values in a state. `at` selects the value, and `with` its replacement.
pub(crate) fn damage(value: &mut Value, at: usize, with: usize) {
    fn leaves(value: &mut Value, path: String, to: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter_mut().for_each(|(key, value)| {
                to.push(format!("{path}/{key}"));
                leaves(value, format!("{path}/{key}"), to);
            }),
            Value::Array(list) => list.iter_mut().enumerate().for_each(|(i, value)| {
                to.push(format!("{path}/{i}"));
                leaves(value, format!("{path}/{i}"), to);
            }),
            _ => {}
        }
    }
    let mut paths = Vec::new();
    leaves(value, String::new(), &mut paths);
    let path = &paths[at % paths.len()];
    let place = value.pointer_mut(path).unwrap();
    let number = NUMBERS[with % NUMBERS.len()];
    *place = match place {
        Value::Number(_) => number.into(),
        Value::Bool(was) => (!*was).into(),
        // Change a number in the text that a sampler saved.
        Value::String(text) if text.contains('=') => {
            let mut pairs: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let pair = with / NUMBERS.len() % pairs.len();
            let (key, was) = pairs[pair].split_once('=').unwrap();
            let new = match was.split_once(':') {
                Some((seed, _)) => format!("{key}={seed}:{number}"),
                None => format!("{key}={number}"),
            };
            pairs[pair] = new;
            pairs.join(" ").into()
        }
        Value::String(_) => "other".into(),
        Value::Null if with.is_multiple_of(2) => number.into(),
        Value::Null => Value::Array(vec![number.into()]),
        Value::Array(list) => list.iter().cloned().rev().chain([number.into()]).collect(),
        Value::Object(map) => map.iter().skip(1).map(|(key, value)| (key.clone(), value.clone())).collect(),
    };
}
