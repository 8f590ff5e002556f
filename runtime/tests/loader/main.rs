//! Tests of the loader: the order of its batches, its options, errors, memory, statistics, and how
//! it is stopped and dropped.

#[path = "../support/mod.rs"]
mod support;

mod bad_samples;
mod build_errors;
mod errors;
mod kept;
mod layers;
mod lifetimes;
mod memory_limit;
#[cfg(feature = "serde")]
mod messages;
mod misbehaving_code;
mod order;
mod per_worker;
mod ranks;
#[cfg(feature = "serde")]
mod statistics;
mod stopping;
mod timeouts;
