//! The sources of indices of loaders that are interrupted and resumed.

use slotline::BoxError;
use slotline::dataset::Dataset;
use slotline::loader::Builder;
use slotline::rng::{Generator, SharedGenerator};
use slotline::sampler::{
    BatchSampler, CipherSampler, DistributedSampler, Order, RandomSampler, Sampler, SamplerError, SequentialSampler,
    SubsetRandomSampler, WeightedRandomSampler,
};

use crate::planned::Planned;
use crate::resumed::What;

/// A sampler that saves no state, and draws a new order in each pass.
pub(crate) struct WithoutSave(pub(crate) usize, pub(crate) SharedGenerator);

impl Sampler for WithoutSave {
    fn len(&self) -> usize {
        self.0
    }

    fn memory(&self) -> usize {
        4 * self.0
    }

    fn order(&mut self, _: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        self.1.lock().randperm_into(self.0, order.u32_table()).map_err(|error| BoxError::from(error.to_string()).into())
    }
}

/// The sources of indices that save no state.
pub(crate) const WITHOUT_SAVE: [From; 5] =
    [From::WithoutSave, From::WithoutSaveShared, From::Iterator, From::IteratorShared, From::Lists];

/// A source of indices. Those with `Shared` in their name draw from the loader's own generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Sequential,
    Shuffle,
    SequentialSampler,
    Random,
    Shared,
    Draws,
    Subset,
    Weighted,
    Cipher,
    Distributed,
    Shares,
    Planned,
    BatchSampler,
    WithoutSave,
    WithoutSaveShared,
    Iterator,
    IteratorShared,
    Lists,
}

pub(crate) const ALL: [From; 18] = [
    From::Sequential,
    From::Shuffle,
    From::SequentialSampler,
    From::Random,
    From::Shared,
    From::Draws,
    From::Subset,
    From::Weighted,
    From::Cipher,
    From::Distributed,
    From::Shares,
    From::Planned,
    From::BatchSampler,
    From::WithoutSave,
    From::WithoutSaveShared,
    From::Iterator,
    From::IteratorShared,
    From::Lists,
];

impl From {
    /// Returns whether the source is an iterator of the user.
    pub(crate) fn is_stream(self) -> bool {
        matches!(self, Self::Iterator | Self::IteratorShared | Self::Lists)
    }

    /// Sets this source of indices on a builder. `shared` is the generator from which the loader
    /// draws.
    pub(crate) fn set<D: Dataset>(self, builder: Builder<D>, what: &What, shared: SharedGenerator) -> Builder<D> {
        let n = what.len;
        let own = || Generator::from_seed(9);
        let sized = |builder: Builder<D>| builder.batch_size(what.batch_size).drop_last(what.drop_last);
        let random = || RandomSampler::new(n).unwrap();
        let size = what.batch_size.unwrap_or(1);
        match self {
            From::Sequential => sized(builder),
            From::Shuffle => sized(builder).shuffle(true),
            From::SequentialSampler => sized(builder).sampler(SequentialSampler::new(n)),
            From::Random => sized(builder).sampler(random().generator(own()).num_samples(n + 3).unwrap()),
            From::Shared => sized(builder).sampler(Box::new(random().generator(shared)) as Box<dyn Sampler>),
            From::Draws => sized(builder).sampler(random().generator(own()).replacement(true)),
            From::Subset => sized(builder).sampler(SubsetRandomSampler::new((0..n).step_by(2)).generator(own())),
            From::Weighted => {
                let weights = (0..n).map(|i| 1.0 + (i % 3) as f64);
                sized(builder).sampler(WeightedRandomSampler::new(weights, n).unwrap().generator(own()))
            }
            From::Cipher => sized(builder).sampler(CipherSampler::new(n).generator(own())),
            From::Distributed => sized(builder).sampler(DistributedSampler::new(n, 3, 1).unwrap().seed(4)),
            From::Shares => {
                sized(builder).sampler(DistributedSampler::over(CipherSampler::new(n), 3, 1).unwrap().seed(4))
            }
            From::Planned => builder.batch_sampler(Planned::batches((0..n as u32).map(|i| i * 7 % 12), 9)),
            From::BatchSampler => {
                builder.batch_sampler(BatchSampler::new(random().generator(own()), size, what.drop_last).unwrap())
            }
            From::WithoutSave => sized(builder).sampler(WithoutSave(n, own().into())),
            From::WithoutSaveShared => sized(builder).sampler(WithoutSave(n, shared)),
            From::Iterator => {
                let mut passes = 0;
                sized(builder).sampler_iter(move || {
                    passes += 1;
                    (0..n).map(move |i| (i * 7 + passes) % n)
                })
            }
            From::IteratorShared => sized(builder).sampler_iter(move || {
                let mut indices = Vec::<u64>::new();
                shared.lock().randperm_into(n, &mut indices).unwrap();
                indices.into_iter().map(|index| index as usize)
            }),
            From::Lists => {
                let mut passes = 0;
                builder.batch_sampler_iter(3, move || {
                    passes += 1;
                    (0..n).map(move |i| (0..(i + passes) % 4).map(|j| (i + j) % n).collect::<Vec<_>>())
                })
            }
        }
    }
}
