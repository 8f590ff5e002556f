//! Samplers for sequences and for large data.
//!
//! | Sampler | a pass visits | bytes for each of n samples (n < 2³²) |
//! |---|---|---|
//! | [`MixtureSampler`] | several datasets, mixed by weight | 0 |
//! | [`ScheduledMixture`] | the same, by weights that change from epoch to epoch | 0 |
//! | [`ShardShuffleSampler`] | a permutation that stays within a few shards at a time | 0 |
//! | [`LengthGroupedSampler`] | a permutation with samples of similar lengths next to each other, as in transformers | 8 |
//! | [`LengthBatchSampler`] | batches of different sizes, by a budget of tokens or by buckets | up to 36 |

mod error;
mod length_batches;
mod length_grouped;
mod mixture;
mod shard_shuffle;

pub use error::SequenceError;
pub use length_batches::LengthBatchSampler;
pub use length_grouped::LengthGroupedSampler;
pub use mixture::{MixtureSampler, ScheduledMixture, Stop};
pub use shard_shuffle::ShardShuffleSampler;

use slotline::rng::{Generator, IndexWord, RandpermError};
use slotline::sampler::SamplerError;

/// Fills `table` with a permutation of 0 .. `n`.
fn permute<I: IndexWord>(
    sampler: &'static str,
    generator: &mut Generator,
    n: usize,
    table: &mut Vec<I>,
) -> Result<(), SamplerError> {
    generator.randperm_into(n, table).map_err(|error| match error {
        RandpermError::Memory { bytes, source, .. } => SamplerError::Memory { sampler, bytes, source },
        error => SamplerError::Other(error.into()),
    })
}

/// Returns the order of the next pass of `sampler`. Used by tests.
#[cfg(test)]
fn order_of(sampler: &mut impl slotline::sampler::Sampler, default: &mut Generator) -> Vec<usize> {
    let mut order = slotline::sampler::Order::default();
    sampler.order(default, &mut order).unwrap();
    order.iter().collect()
}
