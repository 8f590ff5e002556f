//! How the indices of a pass are drawn, and into what batches they go.

use crate::loader::checkpoint::state::{State, check_batches};
use crate::loader::error::run::Error;
use crate::loader::error::state::{StateError, differs};
use crate::loader::error::warning::Warning;
use crate::loader::order::plan::{Batches, Feed, Plan};
use crate::rng::{Generator, SharedGenerator, default_generator};
use crate::sampler::{Order, Places, RandomSampler, Sampler, SamplerError, UNNAMED};

/// Where a loader's indices come from, and the batches that they go into.
pub(crate) struct IndexSource {
    pub(crate) from: Origin,
    pub(crate) batching: Batching,
    /// Passes drawn so far, of a user's sampler or iterator.
    pub(crate) passes: u32,
}

/// Names that only this crate's samplers have in states, and those that the C interface makes.
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

/// Where indices come from.
pub(crate) enum Origin {
    /// The dataset from its start to its end, as it is when the pass begins.
    Sequential,
    /// A permutation of it, drawn from this generator or the process's own.
    Shuffled(Option<SharedGenerator>),
    /// A sampler of the user's.
    Sampler(Box<dyn Sampler>),
    /// The user's iterators.
    Feed(Make<dyn Batches>),
}

/// Makes an iterator for each pass.
pub(crate) type Make<I> = Box<dyn FnMut() -> Box<I> + Send>;

/// How samples become batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batching {
    /// Samples of a whole batch, as the user said; at least 1.
    pub(crate) batch_size: usize,
    pub(crate) drop_last: bool,
    /// Samples by themselves instead of batches.
    pub(crate) single: bool,
}

impl Batching {
    /// How many batches so many samples make.
    pub(crate) fn batches(&self, samples: usize) -> usize {
        if self.drop_last { samples / self.batch_size } else { samples.div_ceil(self.batch_size) }
    }

    /// Whether there are samples, if it is known how many, and no batch of them.
    pub(crate) fn no_batch(&self, samples: Option<usize>) -> Option<Warning> {
        let samples = samples.filter(|&samples| samples > 0 && self.batches(samples) == 0)?;
        Some(Warning::NoBatch { batch_size: self.batch_size, samples })
    }
}

impl IndexSource {
    /// How many indices a pass has over a dataset of this length; `None` if only its end will tell.
    pub(crate) fn len(&self, dataset: usize) -> Option<usize> {
        match &self.from {
            Origin::Sequential | Origin::Shuffled(_) => Some(dataset),
            Origin::Sampler(sampler) => Some(sampler.len()),
            Origin::Feed(_) => None,
        }
    }

    /// Rows of a whole batch, at least 1: no batch has more than a pass has samples, however great the batch size.
    pub(crate) fn rows(&self, dataset: usize) -> usize {
        self.batching.batch_size.min(self.len(dataset).unwrap_or(usize::MAX)).max(1)
    }

    /// Bytes of an order of a dataset of this length, or of the lists of `slots` batches of so many rows; `usize::MAX` if it
    /// is even more.
    pub(crate) fn memory(&self, dataset: usize, slots: usize, rows: usize) -> usize {
        match &self.from {
            Origin::Sequential => 0,
            Origin::Shuffled(_) => RandomSampler::new(dataset).map_or(0, |sampler| sampler.memory()),
            Origin::Sampler(sampler) => sampler.memory(),
            Origin::Feed(_) => Feed::memory(slots, rows),
        }
    }

    /// Whether it is a sampler of the user's that has no name of its own.
    pub(crate) fn is_unnamed(&self) -> bool {
        matches!(&self.from, Origin::Sampler(sampler) if sampler.name() == UNNAMED)
    }

    /// What states call the place where indices come from.
    pub(crate) fn name(&self) -> &str {
        match &self.from {
            Origin::Sequential => "sequential",
            Origin::Shuffled(_) => "shuffle",
            Origin::Sampler(sampler) => sampler.name(),
            Origin::Feed(_) => "iterator",
        }
    }

    /// Puts a user's sampler where a state has it, and warns if it has to be brought there pass by pass.
    pub(crate) fn restore(&mut self, state: &State) -> Result<Option<Warning>, StateError> {
        let saved = state.start.sampler.as_ref().and_then(|sampler| sampler.saved.as_deref());
        let passes = match (&mut self.from, saved) {
            (Origin::Sampler(sampler), Some(saved)) => {
                let positions = |batches: usize| batches.saturating_mul(self.batching.batch_size);
                let first = state.missing.first().copied().unwrap_or(state.next());
                let seen = positions(first)..positions(state.next());
                sampler.restore(saved, seen).map_err(|source| StateError::Sampler { source })?;
                return Ok(None);
            }
            (Origin::Sampler(_) | Origin::Feed(_), _) if self.passes > state.epoch => {
                let hint = "its sampler does not save itself, and cannot go back: load the state into a new loader";
                return differs("epoch", state.epoch, format_args!("{} (passes drawn)", self.passes), hint);
            }
            (Origin::Sampler(_), None) => state.epoch,
            (Origin::Feed(_), _) => state.epoch.saturating_add(u32::from(state.next() > 0)),
            _ => 0,
        };
        Ok((passes > 0).then_some(Warning::FastForward { what: "the sampler" }))
    }

    /// Draws the passes before the one of a state, if a user's sampler has not saved itself.
    ///
    /// What they draw from the loader's generators is drawn from there already: these must be put back afterwards.
    pub(crate) fn fast_forward(&mut self, default: Option<&SharedGenerator>, to: &State) -> Result<(), Error> {
        if to.start.sampler.as_ref().is_some_and(|sampler| sampler.saved.is_some()) {
            return Ok(());
        }
        let mut order = Order::default();
        while self.passes < to.epoch {
            match &mut self.from {
                Origin::Sequential | Origin::Shuffled(_) => break,
                Origin::Sampler(sampler) => sampler.order(&mut copy_of(default), &mut order)?,
                Origin::Feed(make) => drop(make()),
            }
            self.passes += 1;
        }
        Ok(())
    }

    /// Draws a pass over a dataset of this length for batches of at most `rows`, and gives the number of these, if it is
    /// known. `default` stands in for the process's default generator, and `from` says what of the pass is not wanted any
    /// more.
    pub(crate) fn begin(
        &mut self,
        dataset: usize,
        rows: usize,
        plan: &mut Plan,
        default: Option<&SharedGenerator>,
        from: Option<&State>,
    ) -> Result<Option<usize>, Error> {
        (plan.samples, plan.places) = (dataset, Places::default());
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
                plan.places = sampler.places();
                self.passes = self.passes.saturating_add(1);
            }
            Origin::Feed(make) => {
                self.passes = self.passes.saturating_add(1);
                let feed = plan.feed.as_mut().expect("was made with the loader");
                feed.start(make());
                if let Some(state) = from {
                    feed.skip(state)?;
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
            // Not even the last batch of a pass begins beyond its end.
            start = first.saturating_mul(self.batching.batch_size).min(len);
        }
        if rows < self.batching.batch_size && len - start > rows {
            return Err(Error::LongOrder { len, most: rows });
        }
        plan.positions = if self.batching.drop_last { tasks * self.batching.batch_size } else { len };
        Ok(Some(tasks))
    }
}

/// Draws an order from a sampler of the user's, which may do anything, such as starting a pass of another loader: so not
/// under the default generator's lock.
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

/// Draws a base seed, from the default generator if there is no other.
pub(crate) fn draw_base_seed(generator: Option<&SharedGenerator>) -> u64 {
    let seed = match generator {
        Some(generator) => generator.lock().random_i64(),
        None => default_generator().random_i64(),
    };
    seed as u64
}
