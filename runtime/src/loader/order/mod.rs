//! The samples of a pass, their order, and their batches.

pub(crate) mod index_source;
pub(crate) mod passes;
pub(crate) mod plan;
pub(crate) mod plan_cell;
pub(crate) mod progress;
pub(crate) mod rank_batches;
