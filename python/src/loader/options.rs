//! The options of a loader, and the engine's builder with these options.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use slotline::dataset::Dataset;
use slotline::loader::{Affinity, Budget, BuildError, Builder, OnError, OnHeld};
use slotline::rng::{Generator, SharedGenerator};
use slotline::sampler::{DistributedSampler, Order, RandomSampler, SampledBatches, Sampler, SamplerError};
use slotline::{Loader, Ranks};
use slotline_sequences::sampler::LengthBatchSampler;

use super::failure;
use super::plan::{GivenSampler, Handles, Passes};
use super::source::Node;

/// The options of a loader after they were checked.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) passes: Passes,
    /// If a sampler of the program chooses batches, the most samples of one that it has chosen so far.
    pub(crate) batch_size: Option<usize>,
    pub(crate) shuffle: bool,
    pub(crate) replacement: bool,
    pub(crate) num_samples: Option<usize>,
    pub(crate) ranks: Option<Ranks>,
    pub(crate) drop_last: bool,
    pub(crate) num_workers: usize,
    pub(crate) prefetch_factor: Option<usize>,
    pub(crate) in_order: bool,
    pub(crate) hold: usize,
    pub(crate) on_held: OnHeld,
    pub(crate) on_error: OnError,
    pub(crate) timeout: Duration,
    pub(crate) memory_limit: Option<usize>,
    pub(crate) affinity: Affinity,
}

/// Parses the option `on_error`.
pub(crate) fn on_error(py: Python<'_>, name: &str) -> PyResult<OnError> {
    let budget = Budget::default();
    match name {
        "raise" => Ok(OnError::Raise),
        "skip" => Ok(OnError::Skip(budget)),
        "replace" => Ok(OnError::Replace(budget)),
        _ => Err(failure::option(py, format!("on_error is {name:?}; it must be \"raise\", \"skip\" or \"replace\""))),
    }
}

pub(crate) fn on_held(py: Python<'_>, name: &str) -> PyResult<OnHeld> {
    match name {
        "grow" => Ok(OnHeld::Grow),
        "wait" => Ok(OnHeld::Wait),
        "raise" => Ok(OnHeld::Fail),
        _ => Err(failure::option(py, format!("on_held is {name:?}; it must be \"grow\", \"wait\" or \"raise\""))),
    }
}

/// Parses the option `affinity`: `None`, `"spread"` or a list of CPU cores.
pub(crate) fn affinity(cores: Option<&Bound<'_, PyAny>>) -> PyResult<Affinity> {
    let Some(cores) = cores else { return Ok(Affinity::Off) };
    if let Ok(name) = cores.extract::<String>() {
        return match &*name {
            "spread" => Ok(Affinity::Spread),
            _ => Err(failure::option(
                cores.py(),
                format!("affinity is {name:?}; it must be None, \"spread\" or a list of cores, such as [0, 2]"),
            )),
        };
    }
    cores.extract().map(Affinity::Cores)
}

pub(crate) fn timeout(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    // Zero means no timeout, so a tiny number must not be rounded down to it.
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero() || seconds == 0.0);
    time.ok_or_else(|| {
        failure::option(py, format!("timeout is {seconds}; it must be a number of seconds, or 0 for no timeout"))
    })
}

impl Options {
    /// Checks the combinations of options that the engine does not check.
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        let drawn = self.replacement || self.num_samples.is_some();
        let option = if self.replacement { "replacement" } else { "num_samples" };
        let is_given = matches!(self.passes, Passes::Given { .. });
        if drawn && !self.shuffle && (self.replacement || !is_given) {
            return Err(failure::option(py, format!("{option} needs shuffle=True, since it draws samples at random")));
        }
        if drawn && !is_given && !matches!(self.passes, Passes::Whole) {
            return Err(failure::option(
                py,
                format!(
                    "{option} excludes datasets that are mixed, or batched by length, which decide what a pass has"
                ),
            ));
        }
        if drawn && self.ranks.is_some() {
            return Err(failure::option(
                py,
                format!("{option} and world_size exclude each other; each rank loads its share of one permutation"),
            ));
        }
        Ok(())
    }

    /// Applies the options that all kinds of datasets support to a builder.
    pub(crate) fn apply<D>(&self, builder: Builder<D>, generator: &SharedGenerator) -> Builder<D> {
        let mut builder = builder
            .generator(generator.clone())
            .num_workers(self.num_workers)
            .in_order(self.in_order)
            .hold(self.hold)
            .on_held(self.on_held)
            .on_error(self.on_error)
            .timeout(self.timeout)
            .affinity(self.affinity.clone());
        if !self.passes.has_batches() {
            builder = builder.batch_size(self.batch_size).drop_last(self.drop_last);
        }
        if let Some(prefetch_factor) = self.prefetch_factor {
            builder = builder.prefetch_factor(prefetch_factor);
        }
        if let Some(memory_limit) = self.memory_limit {
            builder = builder.memory_limit(memory_limit);
        }
        builder
    }

    /// Returns the engine's builder with these options.
    pub(crate) fn builder(
        &self,
        node: &Arc<Node>,
        seed: u64,
        handles: &Handles,
    ) -> Result<Builder<Arc<Node>>, BuildError> {
        let generator = &handles.generator;
        let builder = self.apply(Loader::builder(node.clone()), generator);
        let (world_size, rank) = self.ranks.map_or((1, 0), |ranks| (ranks.world_size(), ranks.rank()));
        let shared = |sampler: Result<DistributedSampler, SamplerError>| {
            Ok::<_, SamplerError>(sampler?.drop_last(self.drop_last).seed(seed).follow(&handles.epoch))
        };
        match &self.passes {
            Passes::Whole => {}
            Passes::Given { batches } => {
                let sampler = GivenSampler::new(handles.given.clone(), *batches);
                return Ok(match (batches, self.batch_size) {
                    (true, Some(most)) => builder.batch_sampler(SampledBatches::planned(sampler, most)),
                    _ => builder.sampler(sampler),
                });
            }
            Passes::Mixture(mixture) => {
                let mixture = mixture.clone().shuffle(self.shuffle).follow(&handles.epoch);
                return Ok(builder.sampler(shared(DistributedSampler::over(mixture, world_size, rank))?));
            }
            Passes::Lengths(sampler) => {
                return Ok(builder.batch_sampler(self.by_length(sampler, handles)?));
            }
        }
        Ok(match self.ranks {
            Some(_) => {
                let sampler = DistributedSampler::new(node.len(), world_size, rank);
                builder.sampler(shared(sampler)?.shuffle(self.shuffle))
            }
            None if self.is_drawn() => builder.sampler(self.sampler(node.len())?.generator(generator.clone())),
            None => builder.shuffle(self.shuffle),
        })
    }

    /// Returns the sampler of batches by length with these options.
    fn by_length(&self, sampler: &LengthBatchSampler, handles: &Handles) -> Result<LengthBatchSampler, SamplerError> {
        let (world_size, rank) = self.ranks.map_or((1, 0), |ranks| (ranks.world_size(), ranks.rank()));
        let sampler = sampler.clone().shuffle(self.shuffle).drop_last(self.drop_last).replicas(world_size, rank)?;
        Ok(sampler.generator(handles.own.clone()))
    }

    /// Returns how many batches by length the pass with this seed and number has.
    pub(crate) fn batches_by_length(
        &self,
        sampler: &LengthBatchSampler,
        (seed, epoch): (u64, u32),
    ) -> Result<usize, SamplerError> {
        let handles = Handles::new(seed);
        handles.set_epoch(seed, epoch);
        Ok(self.by_length(sampler, &handles)?.batches()?.len())
    }

    /// Returns whether an engine's sampler keeps the seed that it was built with.
    pub(crate) fn keeps_seed(&self) -> bool {
        self.ranks.is_some() || matches!(self.passes, Passes::Mixture(_))
    }

    /// Returns whether a pass is something other than one permutation of the dataset.
    fn is_drawn(&self) -> bool {
        self.replacement || self.num_samples.is_some()
    }

    fn sampler(&self, len: usize) -> Result<RandomSampler, SamplerError> {
        let sampler = RandomSampler::new(len)?.replacement(self.replacement);
        self.num_samples.map_or(Ok(sampler.clone()), |num_samples| sampler.num_samples(num_samples))
    }

    /// Returns how many words of the loader's generator a pass draws, for its base seed and its
    /// order. A stream has no order of indices.
    pub(crate) fn words(&self, len: Option<usize>) -> Result<u64, SamplerError> {
        let generator = SharedGenerator::from(Generator::from_seed(0));
        generator.lock().random_i64();
        let is_drawn = self.shuffle && self.ranks.is_none() && matches!(self.passes, Passes::Whole);
        if let Some(len) = len.filter(|_| is_drawn) {
            let mut sampler = self.sampler(len)?.generator(generator.clone());
            sampler.order(&mut Generator::from_seed(0), &mut Order::default())?;
        }
        let words = generator.lock().drawn();
        Ok(words)
    }
}
