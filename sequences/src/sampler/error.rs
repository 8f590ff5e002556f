//! The errors of samplers.

use slotline::sampler::SamplerError;

/// The error of a sampler of this crate that could not be made, or could not draw an order.
///
/// It converts into a [`SamplerError`], which is what [`order`](slotline::sampler::Sampler::order)
/// returns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SequenceError {
    /// An error of a kind that the samplers of slotline have, too.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The number of weights differs from the number of datasets.
    #[error("{sampler}: {weights} weights for {sources} datasets; give one weight for each")]
    Weights {
        /// The sampler's name.
        sampler: &'static str,
        /// The number of datasets.
        sources: usize,
        /// The number of weights.
        weights: usize,
    },
    /// A schedule has no mixture, or mixtures whose passes differ in length.
    #[error(
        "{sampler}: passes have {lens:?} samples; give a mixture for each epoch, all with the same Stop::NumSamples"
    )]
    Schedule {
        /// The sampler's name.
        sampler: &'static str,
        /// The number of samples of each mixture.
        lens: Vec<usize>,
    },
    /// A dataset of a mixture has no samples, but a weight above 0.
    #[error("{sampler}: dataset {dataset} is empty, but has weight {weight}; set its weight to 0, or leave it out")]
    EmptySource {
        /// The sampler's name.
        sampler: &'static str,
        /// The dataset, counted from 0.
        dataset: usize,
        /// The weight of the dataset.
        weight: f64,
    },
    /// A pass would have more samples than can be counted.
    #[error(
        "{sampler}: a pass would have more than 2^62 samples; set num_samples, or larger weights for long datasets"
    )]
    TooLong {
        /// The sampler's name.
        sampler: &'static str,
    },
    /// A length has more than 32 bits.
    #[error("{sampler}: length {index} is {length}; lengths must be below 2^32")]
    Length {
        /// The sampler's name.
        sampler: &'static str,
        /// The index of the sample.
        index: usize,
        /// The length of the sample.
        length: usize,
    },
    /// A single sample has more tokens than a batch may have.
    #[error(
        "{sampler}: sample {index} has {length} tokens, but max_tokens is {max_tokens}; raise it, or leave the sample out \
         (Subset)"
    )]
    TokenBudget {
        /// The sampler's name.
        sampler: &'static str,
        /// The index of the sample.
        index: usize,
        /// The length of the sample.
        length: usize,
        /// The maximum number of tokens of a batch.
        max_tokens: usize,
    },
    /// The number of buckets differs from the number of batch sizes, or the boundaries do not
    /// ascend.
    #[error(
        "{sampler}: boundaries {boundaries:?} with {batch_sizes} batch_sizes; boundaries must ascend, and there must be one \
         batch size more"
    )]
    Buckets {
        /// The sampler's name.
        sampler: &'static str,
        /// The boundaries of the buckets.
        boundaries: Vec<usize>,
        /// The number of batch sizes.
        batch_sizes: usize,
    },
    /// There are several replicas and no generator was set, so the replicas would draw different
    /// batches.
    #[error(
        "{sampler}: replicas without a generator would draw different batches, and wait for each other forever; give all of \
         them generators with the same seed"
    )]
    ReplicasWithoutGenerator {
        /// The sampler's name.
        sampler: &'static str,
    },
    /// `window` is 0.
    #[error("{sampler}: window is 0; set it to the number of shards to shuffle at a time, at least 1")]
    NoWindow {
        /// The sampler's name.
        sampler: &'static str,
    },
}

impl From<SequenceError> for SamplerError {
    fn from(error: SequenceError) -> Self {
        match error {
            SequenceError::Sampler(error) => error,
            error => Self::Other(error.into()),
        }
    }
}
