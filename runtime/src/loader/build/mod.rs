//! Builds a loader from its options.

pub(crate) mod per_worker;
pub(crate) mod shared;
