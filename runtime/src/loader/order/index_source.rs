//! Draws the indices of a pass, and divides them into batches.

use std::sync::Arc;

use crate::loader::checkpoint::state::{State, check_batches};
use crate::loader::error::build::{BuildError, clash};
use crate::loader::error::run::Error;
use crate::loader::error::state::{StateError, differs};
use crate::loader::error::warning::Warning;
use crate::loader::order::plan::{Batches, IndexStream, Plan};
use crate::loader::order::rank_batches::RankBatches;
use crate::ranks::Ranks;
use crate::rng::{Generator, SharedGenerator, default_generator};
use crate::sampler::{DistributedSampler, Order, RandomSampler, ReplicaStride, Sampler, SamplerError, UNNAMED};

/// The source of a loader's indices, and how they are divided into batches.
pub(crate) struct IndexSource {
    pub(crate) from: Origin,
    pub(crate) batching: Batching,
    /// Whether the sampler decides which positions each batch has. The batch size is then the
    /// maximum.
    pub(crate) is_planned: bool,
    /// The number of passes drawn so far from a user's sampler or iterator.
    pub(crate) passes: u32,
    /// For a user's iterator that is divided among ranks: the map from positions in this rank's
    /// share to positions in the pass of all ranks, and the name of the source in states.
    pub(crate) rank_batches: Option<(ReplicaStride, String)>,
}

/// The names that slotline's own orders, its samplers and those of its C interface have in states
/// of version 1. Do not add newer names: in a state of version 1 they would be names of users'
/// types.
pub(crate) const NAMES: [&str; 12] = [
    "sequential",
    "shuffle",
    "iterator",
    "SequentialSampler",
    "RandomSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
    "DistributedSampler",
    "CipherSampler",
    "BatchSampler",
    "List",
    "Ordered",
];

/// The source of indices.
pub(crate) enum Origin {
    /// All indices of the dataset in order; its length is asked for when the pass begins.
    Sequential,
    /// A permutation of all indices, drawn from this generator, or from the process's default one
    /// if it is `None`.
    Shuffled(Option<SharedGenerator>),
    /// A user's sampler.
    Sampler(Box<dyn Sampler>),
    /// A user's iterators, one for each pass.
    IndexStream(Make<dyn Batches>),
}

/// Makes the iterator of a pass, given a seed that differs from pass to pass.
pub(crate) type Make<I> = Box<dyn FnMut(u64) -> Box<I> + Send>;

/// How indices are divided into batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batching {
    /// The number of samples of a full batch, as the user set it; at least 1.
    pub(crate) batch_size: usize,
    pub(crate) drop_last: bool,
    /// Whether the loader returns single samples instead of batches.
    pub(crate) single: bool,
}

impl Batching {
    /// Returns the number of batches that this many samples are divided into.
    pub(crate) fn batches(&self, samples: usize) -> usize {
        if self.drop_last { samples / self.batch_size } else { samples.div_ceil(self.batch_size) }
    }

    /// Returns a warning if the number of samples is known and positive, but too small for one
    /// batch.
    pub(crate) fn no_batch(&self, samples: Option<usize>) -> Option<Warning> {
        let samples = samples.filter(|&samples| samples > 0 && self.batches(samples) == 0)?;
        Some(Warning::NoBatch { batch_size: self.batch_size, samples })
    }
}

impl IndexSource {
    /// Divides the passes over a dataset of length `dataset` among ranks, which all have the same
    /// seed.
    pub(crate) fn divided(self, ranks: Ranks, seed: u64, dataset: usize) -> Result<Self, BuildError> {
        let (world_size, rank, drop_last) = (ranks.world_size(), ranks.rank(), self.batching.drop_last);
        let own = |shuffle| Ok::<_, SamplerError>(DistributedSampler::new(dataset, world_size, rank)?.shuffle(shuffle));
        let sampler = match self.from {
            Origin::Sequential => own(false)?,
            Origin::Shuffled(_) => own(true)?,
            Origin::Sampler(_) if self.is_planned => {
                let hint = "let it make the batches of one rank, as LengthBatchSampler::replicas does; drop ranks";
                return clash("a sampler that plans its batches", "ranks", hint);
            }
            Origin::Sampler(sampler) => DistributedSampler::over(sampler, world_size, rank)?,
            Origin::IndexStream(mut make) => {
                let make: Make<dyn Batches> =
                    Box::new(move |seed| Box::new(RankBatches::new(make(seed), ranks, drop_last)));
                let global_positions = ReplicaStride { first: rank as u64, step: world_size as u64 };
                let rank_batches = Some((global_positions, format!("iterator of {world_size} ranks")));
                return Ok(Self { from: Origin::IndexStream(make), rank_batches, ..self });
            }
        };
        Ok(Self { from: Origin::Sampler(Box::new(sampler.drop_last(drop_last).seed(seed).advancing())), ..self })
    }

    /// Returns the lengths of all samples, if the sampler makes batches by length.
    pub(crate) fn lengths(&self) -> Option<Arc<[u32]>> {
        match &self.from {
            Origin::Sampler(sampler) if self.is_planned => sampler.lengths(),
            _ => None,
        }
    }

    /// Returns the number of indices in a pass over a dataset of this length; `None` if it is
    /// unknown before the end.
    pub(crate) fn len(&self, dataset: usize) -> Option<usize> {
        match &self.from {
            Origin::Sequential | Origin::Shuffled(_) => Some(dataset),
            Origin::Sampler(sampler) if !self.is_planned => Some(sampler.len()),
            Origin::Sampler(_) | Origin::IndexStream(_) => None,
        }
    }

    /// Returns the number of rows of a full batch, at least 1. Even if the batch size is greater,
    /// no batch has more rows than a pass has samples.
    pub(crate) fn rows(&self, dataset: usize) -> usize {
        self.batching.batch_size.min(self.len(dataset).unwrap_or(usize::MAX)).max(1)
    }

    /// Returns the bytes that an order takes for a dataset of this length, or the lists of `slots`
    /// batches with `rows` rows each; `usize::MAX` on overflow.
    pub(crate) fn memory(&self, dataset: usize, slots: usize, rows: usize) -> usize {
        match &self.from {
            Origin::Sequential => 0,
            Origin::Shuffled(_) => RandomSampler::new(dataset).map_or(0, |sampler| sampler.memory()),
            Origin::Sampler(sampler) => sampler.memory(),
            Origin::IndexStream(_) => IndexStream::memory(slots, rows),
        }
    }

    /// Whether the source is a user's sampler that has no name.
    pub(crate) fn is_unnamed(&self) -> bool {
        matches!(&self.from, Origin::Sampler(sampler) if sampler.name() == UNNAMED)
    }

    /// The name of the source in states.
    pub(crate) fn name(&self) -> &str {
        match &self.from {
            Origin::Sequential => "sequential",
            Origin::Shuffled(_) => "shuffle",
            Origin::Sampler(sampler) => sampler.name(),
            Origin::IndexStream(_) => self.rank_batches.as_ref().map_or("iterator", |(_, name)| name),
        }
    }

    /// Restores a user's sampler from a state. Returns a warning if the sampler has to draw all
    /// earlier passes again instead.
    pub(crate) fn restore(&mut self, state: &State) -> Result<Option<Warning>, StateError> {
        let saved = state.start.sampler.as_ref().and_then(|sampler| sampler.saved.as_deref());
        let passes = match (&mut self.from, saved) {
            (Origin::Sampler(sampler), Some(saved)) => {
                let stride = if self.is_planned { 1 } else { self.batching.batch_size };
                let positions = |batches: usize| batches.saturating_mul(stride);
                let first = state.missing.first().copied().unwrap_or(state.next());
                let seen = positions(first)..positions(state.next());
                sampler.restore(saved, seen).map_err(|source| StateError::Sampler { source })?;
                return Ok(None);
            }
            (Origin::Sampler(_) | Origin::IndexStream(_), _) if self.passes > state.epoch => {
                let hint = "its sampler does not save itself and cannot go back; load the state into a new loader";
                return differs("epoch", state.epoch, format_args!("{} (passes drawn)", self.passes), hint);
            }
            (Origin::Sampler(_), None) => state.epoch,
            (Origin::IndexStream(_), _) => state.epoch.saturating_add(u32::from(state.next() > 0)),
            _ => 0,
        };
        Ok((passes > 0).then_some(Warning::FastForward { what: "the sampler" }))
    }

    /// Makes the next pass that a user's sampler draws a whole one.
    pub(crate) fn restart(&mut self) {
        if let Origin::Sampler(sampler) = &mut self.from {
            sampler.restart();
        }
    }

    /// Draws all passes before the pass of a state, unless there is no user's sampler or the
    /// sampler was restored from what it saved.
    ///
    /// This also draws from the loader's generators, which must be set back afterwards.
    pub(crate) fn fast_forward(&mut self, default: Option<&SharedGenerator>, to: &State) -> Result<(), Error> {
        if to.start.sampler.as_ref().is_some_and(|sampler| sampler.saved.is_some()) {
            return Ok(());
        }
        let mut order = Order::default();
        while self.passes < to.epoch {
            match &mut self.from {
                Origin::Sequential | Origin::Shuffled(_) => break,
                Origin::Sampler(sampler) => sampler.order(&mut copy_of(default), &mut order)?,
                // Nothing is taken from this iterator, so its seed does not matter.
                Origin::IndexStream(make) => drop(make(0)),
            }
            self.passes += 1;
        }
        Ok(())
    }

    /// Draws a pass over a dataset of length `dataset` into `plan`, for batches of at most `rows`
    /// rows. Returns the number of batches, if it is known. `seed` is for a user's iterator,
    /// `default` replaces the process's default generator if given, and `from` says which part of
    /// the pass was already delivered.
    pub(crate) fn begin(
        &mut self,
        dataset: usize,
        rows: usize,
        plan: &mut Plan,
        seed: u64,
        default: Option<&SharedGenerator>,
        from: Option<&State>,
    ) -> Result<Option<usize>, Error> {
        (plan.samples, plan.global_positions, plan.spans) = (dataset, ReplicaStride::default(), None);
        let order = &mut plan.order;
        match &mut self.from {
            Origin::Sequential => *order = Order::Range(dataset),
            Origin::Shuffled(generator) => {
                let mut sampler = RandomSampler::new(dataset)?;
                if let Some(generator) = generator {
                    sampler = sampler.generator(generator.clone());
                }
                match default {
                    Some(default) => sampler.order(&mut default.lock(), order)?,
                    None => sampler.order(&mut default_generator(), order)?,
                }
            }
            Origin::Sampler(sampler) => {
                draw_from(&mut **sampler, default, order)?;
                plan.global_positions = sampler.global_positions();
                self.passes = self.passes.saturating_add(1);
                if self.is_planned {
                    let spans = sampler.spans().ok_or_else(|| {
                        let error = "it plans the batches, but `Sampler::spans` returned none after `Sampler::order`";
                        SamplerError::Other(format!("{}: {error}", sampler.name()).into())
                    })?;
                    let tasks = spans.len();
                    if let Some(state) = from {
                        check_batches(state, tasks)?;
                    }
                    plan.positions = spans.samples(plan.order.len(), rows)?;
                    plan.spans = Some(spans);
                    return Ok(Some(tasks));
                }
            }
            Origin::IndexStream(make) => {
                self.passes = self.passes.saturating_add(1);
                plan.global_positions = self
                    .rank_batches
                    .as_ref()
                    .map_or(ReplicaStride::default(), |(global_positions, _)| *global_positions);
                let index_stream = plan.index_stream.as_mut().expect("the index stream was made with the loader");
                index_stream.start(make(seed));
                if let Some(state) = from {
                    index_stream.skip(state)?;
                }
                return Ok(None);
            }
        }
        let len = order.len();
        let tasks = self.batching.batches(len);
        let mut start = 0;
        if let Some(state) = from {
            check_batches(state, tasks)?;
            let first = state.missing.first().copied().unwrap_or(state.next());
            // If all batches were delivered, the product may exceed the length.
            start = first.saturating_mul(self.batching.batch_size).min(len);
        }
        if rows < self.batching.batch_size && len - start > rows {
            return Err(Error::LongOrder { len, most: rows });
        }
        plan.positions = if self.batching.drop_last { tasks * self.batching.batch_size } else { len };
        Ok(Some(tasks))
    }
}

/// Draws an order from a user's sampler. The sampler may run any code, such as a pass of another
/// loader, so the default generator must not be locked during the call.
fn draw_from(
    sampler: &mut dyn Sampler,
    default: Option<&SharedGenerator>,
    order: &mut Order,
) -> Result<(), SamplerError> {
    let mut copy = copy_of(default);
    let drawn = copy.drawn();
    sampler.order(&mut copy, order)?;
    let words = copy.drawn().saturating_sub(drawn);
    match default {
        Some(default) => default.lock().discard(words),
        None => default_generator().discard(words),
    }
    Ok(())
}

fn copy_of(default: Option<&SharedGenerator>) -> Generator {
    match default {
        Some(default) => default.lock().clone(),
        None => default_generator().clone(),
    }
}

/// Draws a base seed from a generator, or from the default generator if none is given.
pub(crate) fn draw_base_seed(generator: Option<&SharedGenerator>) -> u64 {
    let seed = match generator {
        Some(generator) => generator.lock().random_i64(),
        None => default_generator().random_i64(),
    };
    seed as u64
}
