//! The orders of loaders that are interrupted and resumed.

use slotline::dataset::Dataset;
use slotline::loader::Builder;
use slotline::rng::{Generator, SharedGenerator};
use slotline::sampler::DistributedSampler;
use slotline_sequences::sampler::{
    LengthBatchSampler, LengthGroupedSampler, MixtureSampler, ShardShuffleSampler, Stop,
};

use crate::resumed::What;

/// The source of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Mixture,
    MixtureShares,
    Shards,
    LengthGrouped,
    TokenBudget,
    BucketShares,
}

pub(crate) const ALL: [From; 6] =
    [From::Mixture, From::MixtureShares, From::Shards, From::LengthGrouped, From::TokenBudget, From::BucketShares];

/// Returns a mixture of two parts of `len` samples, of which the second one begins again.
pub(crate) fn mixture(len: usize) -> MixtureSampler {
    let parts = [len - len / 4, len / 4];
    let mixture = MixtureSampler::new(parts, [1.0, if parts[1] > 0 { 1.0 } else { 0.0 }]).unwrap();
    mixture.stop(Stop::NumSamples((len as u64).try_into().unwrap())).unwrap()
}

impl From {
    /// Whether a user's iterators are the source.
    pub(crate) fn is_stream(self) -> bool {
        false
    }

    /// Gives a loader this order.
    pub(crate) fn set<D: Dataset>(self, builder: Builder<D>, what: &What, _: SharedGenerator) -> Builder<D> {
        let n = what.len;
        let own = || Generator::from_seed(9);
        let sized = |builder: Builder<D>| builder.batch_size(what.batch_size).drop_last(what.drop_last);
        let lengths = (0..n).map(|i| i * 7 % 12);
        match self {
            Self::Mixture => sized(builder).sampler(mixture(n).generator(own())),
            Self::MixtureShares => sized(builder).sampler(DistributedSampler::over(mixture(n), 3, 1).unwrap().seed(4)),
            Self::Shards => {
                let lens = [n / 3, n - n / 3 - n / 5, n / 5];
                sized(builder).sampler(ShardShuffleSampler::new(lens, 2).unwrap().generator(own()))
            }
            Self::LengthGrouped => {
                let sampler = LengthGroupedSampler::new(lengths, what.batch_size.unwrap_or(1)).unwrap();
                sized(builder).sampler(sampler.generator(own()))
            }
            Self::TokenBudget => {
                builder.batch_sampler(LengthBatchSampler::token_budget(lengths, 40).unwrap().generator(own()))
            }
            Self::BucketShares => {
                let sampler = LengthBatchSampler::buckets(lengths, [5, 9], [4, 3, 1]).unwrap().generator(own());
                builder.batch_sampler(sampler.replicas(3, 1).unwrap().drop_last(what.drop_last))
            }
        }
    }
}
