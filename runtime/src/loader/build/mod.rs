//! How a loader is made of its options.

pub(crate) mod per_worker;
pub(crate) mod shared;
