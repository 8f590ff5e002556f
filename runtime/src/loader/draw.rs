//! How the indices of a pass are drawn, and into what batches they go.

use super::error::Error;
use super::plan::{Batches, Plan};
use crate::rng::{SharedGenerator, default_generator};
use crate::sampler::{Order, RandomSampler, Sampler, SamplerError};

/// Where a loader's indices come from, and the batches that they go into.
pub(super) struct Draw {
    pub(super) from: Origin,
    pub(super) batching: Batching,
}

/// Where indices come from.
pub(super) enum Origin {
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
pub(super) type Make<I> = Box<dyn FnMut() -> Box<I> + Send>;

/// How samples become batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batching {
    /// Samples of a whole batch, as the user said; at least 1.
    pub(super) batch_size: usize,
    pub(super) drop_last: bool,
    /// Samples by themselves instead of batches.
    pub(super) single: bool,
}

impl Batching {
    /// How many batches so many samples make.
    pub(super) fn batches(&self, samples: usize) -> usize {
        if self.drop_last { samples / self.batch_size } else { samples.div_ceil(self.batch_size) }
    }
}

impl Draw {
    /// How many indices a pass has over a dataset of this length; `None` if only its end will tell.
    pub(super) fn len(&self, dataset: usize) -> Option<usize> {
        match &self.from {
            Origin::Sequential | Origin::Shuffled(_) => Some(dataset),
            Origin::Sampler(sampler) => Some(sampler.len()),
            Origin::Feed(_) => None,
        }
    }

    /// Rows of a whole batch, at least 1: no batch has more than a pass has samples, however great the batch size.
    pub(super) fn rows(&self, dataset: usize) -> usize {
        self.batching.batch_size.min(self.len(dataset).unwrap_or(usize::MAX)).max(1)
    }

    /// Bytes of an order of a dataset of this length, or of the lists of `slots` batches; `usize::MAX` if it is even more.
    pub(super) fn memory(&self, dataset: usize, slots: usize) -> usize {
        match &self.from {
            Origin::Sequential => 0,
            Origin::Shuffled(_) => RandomSampler::new(dataset).map_or(0, |sampler| sampler.memory()),
            Origin::Sampler(sampler) => sampler.memory(),
            Origin::Feed(_) => slots.saturating_mul(self.batching.batch_size).saturating_mul(size_of::<usize>()),
        }
    }

    /// Draws a pass over a dataset of this length for batches of at most `rows`, and gives the number of these, if it is
    /// known.
    pub(super) fn begin(&mut self, dataset: usize, rows: usize, plan: &mut Plan) -> Result<Option<usize>, Error> {
        plan.samples = dataset;
        let order = &mut plan.order;
        match &mut self.from {
            Origin::Sequential => *order = Order::Range(dataset),
            Origin::Shuffled(generator) => {
                let mut sampler = RandomSampler::new(dataset)?;
                if let Some(generator) = generator {
                    sampler = sampler.generator(generator.clone());
                }
                sampler.order(&mut default_generator(), order)?;
            }
            Origin::Sampler(sampler) => draw_from(&mut **sampler, order)?,
            Origin::Feed(make) => {
                plan.feed.as_mut().expect("was made with the loader").start(make());
                return Ok(None);
            }
        }
        let len = order.len();
        if rows < self.batching.batch_size && len > rows {
            return Err(Error::LongOrder { len, most: rows });
        }
        let tasks = self.batching.batches(len);
        plan.positions = if self.batching.drop_last { tasks * self.batching.batch_size } else { len };
        Ok(Some(tasks))
    }
}

/// Draws an order from a sampler of the user's, which may do anything, such as starting a pass of another loader: so not
/// under the default generator's lock.
fn draw_from(sampler: &mut dyn Sampler, order: &mut Order) -> Result<(), SamplerError> {
    let mut copy = default_generator().clone();
    let drawn = copy.drawn();
    sampler.order(&mut copy, order)?;
    default_generator().discard(copy.drawn().saturating_sub(drawn));
    Ok(())
}

/// Draws a base seed, from the default generator if there is no other.
pub(super) fn draw_base_seed(generator: Option<&SharedGenerator>) -> u64 {
    let seed = match generator {
        Some(generator) => generator.lock().random_i64(),
        None => default_generator().random_i64(),
    };
    seed as u64
}
