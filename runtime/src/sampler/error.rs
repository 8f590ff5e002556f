//! The errors of samplers.

use std::collections::TryReserveError;

use crate::BoxError;
use crate::causes::with_causes;

/// The error for a sampler that cannot be made, or cannot draw an order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// The dataset is empty, and the sampler draws from it at random.
    #[error("{sampler}: the dataset is empty; add at least one sample, or use a SequentialSampler, which may be empty")]
    EmptyDataset {
        /// The sampler's name.
        sampler: &'static str,
    },
    /// `num_samples` is 0.
    #[error("{sampler}: num_samples is 0; set it to a positive number of samples per pass")]
    NoSamples {
        /// The sampler's name.
        sampler: &'static str,
    },
    /// A weight is negative, infinite or not a number.
    #[error("{sampler}: weight {index} is {weight}; weights must be finite and not negative")]
    Weight {
        /// The sampler's name.
        sampler: &'static str,
        /// The index of the weight.
        index: usize,
        /// The weight.
        weight: f64,
    },
    /// The weights add up to 0, as for an empty dataset, or their sum overflows an f64.
    #[error("{sampler}: the weights add up to {sum}; at least one must be positive, and the sum must be finite")]
    WeightSum {
        /// The sampler's name.
        sampler: &'static str,
        /// The sum of the weights.
        sum: f64,
    },
    /// More samples are requested without replacement than have a weight above 0.
    #[error(
        "{sampler}: {num_samples} samples without replacement, but only {positive} weights are above 0; reduce \
         num_samples, or draw with replacement"
    )]
    TooFewWeights {
        /// The sampler's name.
        sampler: &'static str,
        /// The number of samples per pass.
        num_samples: usize,
        /// The number of weights above 0.
        positive: usize,
    },
    /// `batch_size` is 0.
    #[error("{sampler}: batch_size is 0; set it to a positive number of samples per batch")]
    NoBatchSize {
        /// The sampler's name.
        sampler: &'static str,
    },
    /// `num_replicas` is 0.
    #[error("{sampler}: num_replicas is 0; set it to the number of processes that share the dataset")]
    NoReplicas {
        /// The sampler's name.
        sampler: &'static str,
    },
    /// A replica's rank is not below the number of replicas.
    #[error(
        "{sampler}: rank {rank} is not one of {num_replicas} replicas; use a rank from 0 to {last}",
        last = num_replicas.saturating_sub(1)
    )]
    Rank {
        /// The sampler's name.
        sampler: &'static str,
        /// The rank.
        rank: usize,
        /// The number of replicas.
        num_replicas: usize,
    },
    /// The order has more entries than this machine can count.
    #[error(
        "{sampler}: {num_samples} samples from a dataset of {dataset_len} need a table of more than {max} entries; \
         reduce num_samples",
        max = usize::MAX
    )]
    TooLarge {
        /// The sampler's name.
        sampler: &'static str,
        /// The number of samples per pass.
        num_samples: usize,
        /// The number of samples in the dataset.
        dataset_len: usize,
    },
    /// The memory for the order could not be allocated.
    #[error(
        "{sampler}: cannot allocate {bytes} bytes for the order; free memory, or draw fewer samples per pass: {}",
        with_causes(source)
    )]
    Memory {
        /// The sampler's name.
        sampler: &'static str,
        /// The size of the order in bytes; `usize::MAX` if it is larger than that.
        bytes: usize,
        /// The allocator's error.
        r#source: TryReserveError,
    },
    /// A custom sampler failed. Made from a [`BoxError`] by `into`.
    #[error("{}", with_causes(&**_0))]
    Other(BoxError),
}

impl From<BoxError> for SamplerError {
    fn from(error: BoxError) -> Self {
        Self::Other(error)
    }
}
