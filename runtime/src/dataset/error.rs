//! What is said of an index that a dataset does not have.

use crate::BoxError;

/// An index that is not one of the dataset's: a sampler of one's own gave it, or the dataset became shorter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{dataset}: index {index} is not below its length, {len}; check the sampler that gave this index")]
pub struct OutOfRange {
    /// The dataset's name.
    pub dataset: &'static str,
    /// The index.
    pub index: usize,
    /// How many samples the dataset has.
    pub len: usize,
}

impl OutOfRange {
    /// As an error of `get`, made out of the way of the samples that are there.
    #[cold]
    #[inline(never)]
    pub(crate) fn error(dataset: &'static str, index: usize, len: usize) -> BoxError {
        Self { dataset, index, len }.into()
    }
}
