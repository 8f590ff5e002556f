//! The order of the samples in a pass, and their division into batches.

pub(crate) mod index_source;
pub(crate) mod passes;
pub(crate) mod plan;
pub(crate) mod plan_cell;
pub(crate) mod progress;
pub(crate) mod rank_batches;
