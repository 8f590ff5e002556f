//! What can be wrong with a sampler.

use std::collections::TryReserveError;

use crate::BoxError;

/// Why a sampler could not be made, or could not draw an order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// A sampler that draws was given nothing to draw from.
    #[error(
        "{sampler}: the dataset is empty; give it at least one sample, or use a SequentialSampler, which may be empty"
    )]
    EmptyDataset {
        /// The sampler's name.
        sampler: &'static str,
    },
    /// A pass of no samples was asked for.
    #[error("{sampler}: num_samples is 0; give a positive number of samples per pass")]
    NoSamples {
        /// The sampler's name.
        sampler: &'static str,
    },
    /// A weight is negative, infinite or not a number.
    #[error("{sampler}: weight {index} is {weight}; weights must be finite and not negative")]
    Weight {
        /// The sampler's name.
        sampler: &'static str,
        /// The weight's place among the weights.
        index: usize,
        /// The weight.
        weight: f64,
    },
    /// The weights add up to 0, as those of an empty dataset do, or to more than an f64 can hold.
    #[error(
        "{sampler}: the weights add up to {sum}; give at least one that is positive, and scale them down where they overflow"
    )]
    WeightSum {
        /// The sampler's name.
        sampler: &'static str,
        /// What they add up to.
        sum: f64,
    },
    /// More samples are wanted without replacement than have a weight above 0.
    #[error(
        "{sampler}: {num_samples} samples without replacement, but only {positive} weights are above 0; give a smaller \
         num_samples, or draw with replacement"
    )]
    TooFewWeights {
        /// The sampler's name.
        sampler: &'static str,
        /// Samples per pass.
        num_samples: usize,
        /// How many weights are above 0.
        positive: usize,
    },
    /// Batches of no samples were asked for.
    #[error("{sampler}: batch_size is 0; give a positive number of samples per batch")]
    NoBatchSize {
        /// The sampler's name.
        sampler: &'static str,
    },
    /// A dataset was to be shared by no replicas.
    #[error("{sampler}: num_replicas is 0; give the number of processes that share the dataset")]
    NoReplicas {
        /// The sampler's name.
        sampler: &'static str,
    },
    /// A replica's rank is not below the number of replicas.
    #[error(
        "{sampler}: rank {rank} is not one of {num_replicas} replicas; give a rank from 0 to {last}",
        last = num_replicas.saturating_sub(1)
    )]
    Rank {
        /// The sampler's name.
        sampler: &'static str,
        /// The rank.
        rank: usize,
        /// How many replicas there are.
        num_replicas: usize,
    },
    /// The order has more entries than this machine can count.
    #[error(
        "{sampler}: {num_samples} samples from a dataset of {dataset_len} need a table of more than {max} entries; \
         give a smaller num_samples",
        max = usize::MAX
    )]
    TooLarge {
        /// The sampler's name.
        sampler: &'static str,
        /// Samples per pass.
        num_samples: usize,
        /// Samples in the dataset.
        dataset_len: usize,
    },
    /// The memory for the order was refused.
    #[error("{sampler}: no memory for an order of {bytes} bytes; free memory, or draw fewer samples a pass")]
    Memory {
        /// The sampler's name.
        sampler: &'static str,
        /// Size of the order in bytes (`usize::MAX` where it is beyond that).
        bytes: usize,
        /// What the allocator said.
        source: TryReserveError,
    },
    /// A sampler of the user's own failed, for whatever reason; made of a [`BoxError`] by `into`.
    #[error(transparent)]
    Other(#[from] BoxError),
}
