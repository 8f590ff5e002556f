//! Sequences of different lengths: packing, and batches by length.

#[path = "../../../runtime/tests/support/mod.rs"]
mod support;

mod bins;
mod lengths;
mod padded;
mod plans;

use serde_json::Value;

/// What transformers, TRL and torch have written.
fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors.json")).unwrap()
}

fn numbers(list: &Value) -> Vec<usize> {
    list.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as usize).collect()
}
