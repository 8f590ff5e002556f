//! What can be wrong with a sampler.

use std::collections::TryReserveError;

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
    #[error("{sampler}: num_samples is 0; give a positive number, or leave it out to draw as many as the dataset has")]
    NoSamples {
        /// The sampler's name.
        sampler: &'static str,
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
    #[error("{sampler}: no memory for an order of {bytes} bytes; free memory, or give a smaller num_samples")]
    Memory {
        /// The sampler's name.
        sampler: &'static str,
        /// Size of the order in bytes (`usize::MAX` where it is beyond that).
        bytes: usize,
        /// What the allocator said.
        source: TryReserveError,
    },
}
