//! Tests of loaders that resume from a state.

#[path = "../support/damage.rs"]
mod damage;
#[path = "../support/planned.rs"]
mod planned;
#[path = "../support/resumed.rs"]
mod resumed;
#[path = "../support/mod.rs"]
mod support;

mod again;
mod bad_samples;
mod orders;
mod parts;
mod refused;
mod replicas;
mod streams;
