//! The loader: the order of its batches, its options, errors, memory, statistics, and how it ends.

#[path = "../support/mod.rs"]
mod support;

mod bad_samples;
mod build_errors;
mod errors;
mod kept;
mod lanes;
mod lifetimes;
mod memory_limit;
#[cfg(feature = "serde")]
mod messages;
mod order;
mod rooms;
mod rude_code;
#[cfg(feature = "serde")]
mod statistics;
mod stopping;
mod timeouts;
