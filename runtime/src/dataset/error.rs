//! The errors for an index that is out of range, for an incomplete bulk read, for a function that
//! panicked, and for datasets that cannot be concatenated.

use std::any::Any;
use std::sync::Mutex;

use crate::BoxError;

/// The error for an index that is not below the dataset's length: a custom sampler returned it, or
/// the dataset became shorter.
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
    /// Makes the error that `get` returns. Not inlined, to keep the hot path small.
    #[cold]
    #[inline(never)]
    pub(crate) fn error(dataset: &'static str, index: usize, len: usize) -> BoxError {
        Self { dataset, index, len }.into()
    }
}

/// The error for a bulk read that returned the wrong number of samples, or could not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManyError {
    #[error("a bulk read was asked for {wanted} samples but put only {given}")]
    Fewer { wanted: usize, given: usize },
    #[error("a bulk read was asked for {wanted} samples but put more")]
    More { wanted: usize },
    #[error("there is no memory for {bytes} bytes of indices of a bulk read; choose a smaller batch_size")]
    Memory { bytes: usize },
}

impl ManyError {
    /// Makes room for more indices.
    pub(crate) fn reserve(indices: &mut Vec<usize>, more: usize) -> Result<(), Self> {
        let bytes = indices.len().saturating_add(more).saturating_mul(size_of::<usize>());
        indices.try_reserve(more).map_err(|_| Self::Memory { bytes })
    }
}

/// The payload of a panic in a function that was passed to
/// [`IterableDataset::map`](super::IterableDataset::map). The loader treats this error like a panic of
/// the sample, and the pass continues.
#[derive(Debug, thiserror::Error)]
#[error("the function panicked")]
pub(crate) struct Panicked(pub(crate) Mutex<Box<dyn Any + Send>>);

/// The error for datasets that cannot be concatenated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConcatError {
    /// There are no datasets.
    #[error("ConcatDataset: the list of datasets is empty; pass at least one dataset")]
    Empty,
    /// The total number of samples overflows.
    #[error("ConcatDataset: dataset {dataset} makes the total exceed {max} samples; use fewer", max = usize::MAX)]
    TooLong {
        /// The dataset at which the total overflows, counted from 0.
        dataset: usize,
    },
}
