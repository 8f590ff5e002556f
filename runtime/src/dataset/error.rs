//! The error for an index that is out of range.

use crate::BoxError;

/// An index that is not below the dataset's length: a custom sampler returned it, or the dataset became shorter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{dataset}: index {index} is not below its length, {len}; check the sampler that returned it")]
pub struct OutOfRange {
    /// The dataset's name.
    pub dataset: &'static str,
    /// The index.
    pub index: usize,
    /// The number of samples in the dataset.
    pub len: usize,
}

impl OutOfRange {
    /// Makes the error that `get` returns; out of line, to keep the hot path small.
    #[cold]
    #[inline(never)]
    pub(crate) fn error(dataset: &'static str, index: usize, len: usize) -> BoxError {
        Self { dataset, index, len }.into()
    }
}
