//! The values of a loader's options, and the check that they are compatible.

use std::fmt;
use std::time::Duration;

use crate::loader::bad_samples::{Budget, OnError};
use crate::loader::builder::memory_budget::{MemoryBudget, Size};
use crate::loader::collate::allocate::{Allocate, BatchBytes};
use crate::loader::collate::on_held::OnHeld;
use crate::loader::collate::overflow::Overflow;
use crate::loader::cores::Affinity;
use crate::loader::error::build::{BuildError, clash};
use crate::loader::error::warning::Listener;
use crate::loader::order::index_source::{Batching, IndexSource, Make, Origin};
use crate::loader::order::plan::{Batches, Chunks};
use crate::loader::worker::init_barrier::{Init, InitHook};
use crate::loader::worker::threads::GRACE;
use crate::ranks::Ranks;
use crate::rng::{Generator, SharedGenerator};
use crate::sampler::{RandomSampler, SampledBatches, Sampler};
use crate::wait::WaitStrategy;

/// The maximum number of threads. With more threads some systems run out of a resource that a
/// thread needs, and std then aborts the process.
const MAX_WORKERS: usize = 4096;
/// The maximum number of slots.
const MAX_SLOTS: usize = 1 << 20;
/// The default number of batches in the ring for each worker. For small batches the default is as
/// many as fit into `SMALL` bytes, up to `MAX_PREFETCH`.
const PREFETCH: usize = 2;
const MAX_PREFETCH: usize = 32;
const SMALL: usize = 64 << 10;

/// All options except the dataset and the collation.
pub(crate) struct Options {
    pub(crate) batch_size: Option<usize>,
    pub(crate) shuffle: bool,
    pub(crate) sampler: Option<Sampling>,
    pub(crate) batch_sampler: Option<BatchSampling>,
    pub(crate) num_workers: usize,
    pub(crate) round_robin: bool,
    pub(crate) prefetch_factor: Option<usize>,
    pub(crate) persistent_workers: bool,
    pub(crate) worker_init: Option<Init>,
    pub(crate) hold: usize,
    pub(crate) memory_limit: Option<usize>,
    pub(crate) on_overflow: Overflow,
    pub(crate) part_size: Option<usize>,
    pub(crate) drop_last: bool,
    pub(crate) timeout: Duration,
    pub(crate) watchdog: Option<Duration>,
    pub(crate) close_timeout: Duration,
    pub(crate) in_order: bool,
    pub(crate) generator: Option<SharedGenerator>,
    pub(crate) ranks: Option<Ranks>,
    pub(crate) pin_memory: bool,
    pub(crate) memory: Option<Allocate>,
    pub(crate) help: Option<bool>,
    pub(crate) on_held: OnHeld,
    pub(crate) affinity: Affinity,
    pub(crate) wait_strategy: WaitStrategy,
    pub(crate) on_error: OnError,
    pub(crate) on_warning: Listener,
}

/// The argument of [`Builder::sampler`](crate::loader::Builder::sampler) or
/// [`sampler_iter`](crate::loader::Builder::sampler_iter).
pub(crate) enum Sampling {
    Drawn(Box<dyn Sampler>),
    Iter(Make<dyn Iterator<Item = usize> + Send>),
}

/// The argument of [`Builder::batch_sampler`](crate::loader::Builder::batch_sampler) or
/// [`batch_sampler_iter`](crate::loader::Builder::batch_sampler_iter).
pub(crate) enum BatchSampling {
    Drawn(SampledBatches),
    Iter { most: usize, make: Make<dyn Batches> },
}

/// What the loader loads, as far as the check of the options depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Samples by index, claimed by any free thread; holds the number of samples.
    Shared(usize),
    /// Samples by index, whose batches the workers make in turn; holds the number of samples.
    RoundRobin(usize),
    Iterable,
}

impl Workload {
    /// The number of samples, or 0 if they have no indices.
    fn len(self) -> usize {
        match self {
            Self::Shared(len) | Self::RoundRobin(len) => len,
            Self::Iterable => 0,
        }
    }
}

impl Options {
    pub(crate) fn new() -> Self {
        Self {
            batch_size: Some(1),
            shuffle: false,
            sampler: None,
            batch_sampler: None,
            num_workers: 0,
            round_robin: false,
            prefetch_factor: None,
            persistent_workers: false,
            worker_init: None,
            hold: 1,
            memory_limit: None,
            on_overflow: Overflow::Error,
            part_size: None,
            drop_last: false,
            timeout: Duration::ZERO,
            watchdog: None,
            close_timeout: GRACE,
            in_order: true,
            generator: None,
            ranks: None,
            pin_memory: false,
            memory: None,
            help: None,
            on_held: OnHeld::Grow,
            affinity: Affinity::Off,
            wait_strategy: WaitStrategy::Park,
            on_error: OnError::Raise,
            on_warning: Listener::default(),
        }
    }

    /// Checks the options, first torch's, in the order in which torch checks them. Returns the
    /// source of the indices.
    pub(crate) fn check(&mut self, kind: Workload) -> Result<IndexSource, BuildError> {
        self.check_workers()?;
        self.check_sampling(kind)?;
        let mut draw = self.draw(kind)?;
        if let Some(ranks) = self.ranks {
            let seed = self.generator.get_or_insert_with(|| Generator::from_seed(0).into()).lock().initial_seed();
            draw = draw.divided(ranks, seed, kind.len())?;
        }
        if !self.timeout.is_zero() && self.num_workers == 0 {
            let hint = "without workers no thread can notice the time; set num_workers or drop the timeout";
            return clash("timeout", "num_workers = 0", hint);
        }
        self.check_ours(kind, &draw)?;
        Ok(draw)
    }

    fn check_workers(&self) -> Result<(), BuildError> {
        if self.prefetch_factor.is_some() && self.num_workers == 0 {
            let hint = "without workers nothing is loaded ahead; set num_workers or drop prefetch_factor";
            return clash("prefetch_factor", "num_workers = 0", hint);
        }
        if self.prefetch_factor == Some(0) {
            return Err(BuildError::Zero { option: "prefetch_factor" });
        }
        if self.persistent_workers && self.num_workers == 0 {
            let hint = "there are no workers to keep; set num_workers or drop persistent_workers";
            return clash("persistent_workers", "num_workers = 0", hint);
        }
        Ok(())
    }

    fn check_sampling(&self, kind: Workload) -> Result<(), BuildError> {
        if kind == Workload::Iterable {
            let hint = "an iterable dataset decides its own order; drop the option, or shuffle in the dataset";
            for (given, option) in [
                (self.shuffle, "shuffle"),
                (self.sampler.is_some(), "sampler"),
                (self.batch_sampler.is_some(), "batch_sampler"),
            ] {
                if given {
                    return clash("an iterable dataset", option, hint);
                }
            }
        }
        if kind == Workload::Iterable && self.ranks.is_some() {
            let hint = "let the dataset read its share, and end the passes of all ranks together with ranks::while_all";
            return clash("an iterable dataset", "ranks", hint);
        }
        if self.sampler.is_some() && self.shuffle {
            return clash("sampler", "shuffle", "a sampler decides the order; drop shuffle");
        }
        if self.batch_sampler.is_some() {
            let hint = "a batch sampler decides the contents of a batch; drop the other option";
            for (given, option) in [
                (self.batch_size != Some(1), "batch_size"),
                (self.shuffle, "shuffle"),
                (self.sampler.is_some(), "sampler"),
                (self.drop_last, "drop_last"),
            ] {
                if given {
                    return clash("batch_sampler", option, hint);
                }
            }
        }
        if self.batch_size.is_none() && self.drop_last {
            let hint = "without batches there is no last batch; set batch_size or drop drop_last";
            return clash("batch_size = None", "drop_last", hint);
        }
        Ok(())
    }

    /// Decides where indices come from. Checks the batch size after that, as torch does.
    fn draw(&mut self, kind: Workload) -> Result<IndexSource, BuildError> {
        let sampler = match self.batch_sampler.take() {
            Some(BatchSampling::Drawn(SampledBatches { sampler, batch_size, drop_last, is_planned })) => {
                let batching = Batching { batch_size, drop_last, single: false };
                return Ok(IndexSource {
                    from: Origin::Sampler(sampler),
                    batching,
                    is_planned,
                    passes: 0,
                    rank_batches: None,
                });
            }
            Some(BatchSampling::Iter { most: 0, .. }) => return Err(BuildError::Zero { option: "max_batch_size" }),
            Some(BatchSampling::Iter { most, make }) => {
                let batching = Batching { batch_size: most, drop_last: false, single: false };
                return Ok(IndexSource {
                    from: Origin::IndexStream(make),
                    batching,
                    is_planned: false,
                    passes: 0,
                    rank_batches: None,
                });
            }
            None => self.sampler.take(),
        };
        if let (Workload::Shared(len) | Workload::RoundRobin(len), true, None) = (kind, self.shuffle, &sampler) {
            // Torch makes the sampler together with the loader, and so reports its errors there.
            RandomSampler::new(len)?;
        }
        let batch_size = match self.batch_size {
            Some(0) => return Err(BuildError::Zero { option: "batch_size" }),
            batch_size => batch_size.unwrap_or(1),
        };
        let batching = Batching { batch_size, drop_last: self.drop_last, single: self.batch_size.is_none() };
        let from = match sampler {
            None if self.shuffle => Origin::Shuffled(self.generator.clone()),
            None => Origin::Sequential,
            Some(Sampling::Drawn(sampler)) => Origin::Sampler(sampler),
            Some(Sampling::Iter(mut make)) => Origin::IndexStream(Box::new(move |seed| {
                Box::new(Chunks { indices: make(seed), batch_size, drop_last: batching.drop_last })
            })),
        };
        Ok(IndexSource { from, batching, is_planned: false, passes: 0, rank_batches: None })
    }

    /// Checks the handling of bad samples; `known` says whether the length of a pass is known.
    pub(crate) fn check_on_error(&self, kind: Workload, known: bool) -> Result<(), BuildError> {
        if kind == Workload::Iterable && matches!(self.on_error, OnError::Replace(_)) {
            let hint = "a sample without an index cannot be replaced; skip bad samples instead";
            return clash("an iterable dataset", "replacing bad samples", hint);
        }
        match self.on_error.budget() {
            Budget::Share(share) if !(0.0..=1.0).contains(&share) => Err(BuildError::Share { share }),
            Budget::Share(_) if !known => {
                let hint = "the number of samples is not known in advance; limit their number instead";
                clash("a maximum share of bad samples", "a pass of unknown length", hint)
            }
            _ => Ok(()),
        }
    }

    /// Checks the options that torch does not have.
    fn check_ours(&self, kind: Workload, draw: &IndexSource) -> Result<(), BuildError> {
        let cores = if let Affinity::Cores(cores) = &self.affinity { cores.len() } else { 1 };
        for (option, value) in
            [("hold", self.hold), ("part_size", self.part_size.unwrap_or(1)), ("affinity's number of cores", cores)]
        {
            if value == 0 {
                return Err(BuildError::Zero { option });
            }
        }
        self.check_on_error(kind, !matches!(draw.from, Origin::IndexStream(_)))?;
        let links = match kind {
            Workload::Shared(_) => return Ok(()),
            Workload::RoundRobin(_) => "round_robin",
            Workload::Iterable => "an iterable dataset",
        };
        if self.part_size.is_some() {
            return clash(links, "part_size", "each batch is made by one worker; drop part_size");
        }
        if self.help == Some(true) && self.num_workers > 0 {
            return clash(links, "help", "each batch belongs to a worker; drop help, or set num_workers to 0");
        }
        if matches!(draw.from, Origin::IndexStream(_)) {
            return clash(
                links,
                "an iterator as sampler",
                "an iterator gives the next batch to any free worker; drop round_robin",
            );
        }
        Ok(())
    }

    /// The number of batches that are loaded ahead for each worker.
    pub(crate) fn prefetch(&self) -> usize {
        self.prefetch_factor.unwrap_or(PREFETCH)
    }

    /// Decides how many batches are loaded ahead, if `prefetch_factor` is not set. Small batches
    /// get a greater number: this costs next to nothing, and a slow sample among quick ones can
    /// then overlap with other slow ones. With `in_order(false)` the number stays small: there a
    /// slow sample does not delay other batches, and finding a finished slot takes longer with more
    /// slots (batches of 16 numbers by two workers took 1185 ns each with 32 per worker, and 202 ns
    /// with 2).
    pub(crate) fn settle_prefetch(&mut self, batch_bytes: usize) {
        let most = if self.in_order { MAX_PREFETCH } else { PREFETCH };
        let countable = MAX_SLOTS.saturating_sub(self.hold) / self.num_workers.max(1);
        let fits = (SMALL / batch_bytes.max(1)).min(most).min(countable);
        self.prefetch_factor.get_or_insert(fits.max(PREFETCH));
    }

    /// Works like [`settle_prefetch`](Self::settle_prefetch), but keeps the loader's memory within
    /// `memory_limit`.
    pub(crate) fn settle_below_limit(
        &mut self,
        batch_bytes: usize,
        rows: usize,
        batch: Option<BatchBytes<'_>>,
        budget: &MemoryBudget<'_>,
    ) -> Result<(), BuildError> {
        let given = self.prefetch_factor.is_some();
        self.settle_prefetch(batch_bytes);
        if let Some(limit) = self.memory_limit {
            let needs_worker = !self.timeout.is_zero() || self.persistent_workers;
            let prefetch = budget.prefetch(limit, self.size(rows), given, needs_worker, batch)?;
            self.prefetch_factor = Some(prefetch);
        }
        Ok(())
    }

    /// Takes the user's `worker_init` out of the options.
    pub(crate) fn init_hook(&mut self) -> Option<InitHook> {
        self.worker_init.take().map(|init| InitHook::new(init, self.persistent_workers))
    }

    /// The size of a loader whose batches have this many rows.
    pub(crate) fn size(&self, rows: usize) -> Size {
        Size { workers: self.num_workers, prefetch: self.prefetch(), rows }
    }

    /// The number of slots that can be filled while the caller holds its own batches.
    pub(crate) fn ahead(&self) -> usize {
        self.size(0).ahead()
    }

    /// The number of slots of a ring that all workers share.
    pub(crate) fn slots(&self) -> Result<usize, BuildError> {
        let slots = ring_slots(self.ahead(), self.hold);
        self.check_slots(slots)?;
        Ok(slots)
    }

    /// Checks that the numbers of slots and workers are within their maximums.
    pub(crate) fn check_slots(&self, slots: usize) -> Result<(), BuildError> {
        for (option, value, most) in
            [("num_workers", self.num_workers, MAX_WORKERS), ("prefetch_factor × num_workers + hold", slots, MAX_SLOTS)]
        {
            if value > most {
                return Err(BuildError::TooMany { option, value, most });
            }
        }
        Ok(())
    }
}

/// Returns the number of slots of a ring that all workers share, for `ahead` batches loaded ahead
/// and `hold` batches held by the caller.
///
/// The number is even, so that two threads that take turns always write into the same slots, which
/// are in their own caches. With an odd number, two threads took 1.5 times as long to gather
/// shuffled samples into batches of 50 KB.
pub(crate) fn ring_slots(ahead: usize, hold: usize) -> usize {
    ahead.saturating_add(hold).checked_next_multiple_of(2).unwrap_or(usize::MAX)
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("batch_size", &self.batch_size)
            .field("shuffle", &self.shuffle)
            .field("sampler", &self.sampler.is_some())
            .field("batch_sampler", &self.batch_sampler.is_some())
            .field("num_workers", &self.num_workers)
            .field("prefetch_factor", &self.prefetch_factor)
            .field("persistent_workers", &self.persistent_workers)
            .field("drop_last", &self.drop_last)
            .field("timeout", &self.timeout)
            .field("in_order", &self.in_order)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_batches_are_loaded_further_ahead_within_the_slot_limit() {
        let settled = |num_workers, hold, prefetch_factor, batch_bytes| {
            let mut options = Options { num_workers, hold, prefetch_factor, ..Options::new() };
            options.settle_prefetch(batch_bytes);
            (options.prefetch(), options.slots().ok())
        };
        assert_eq!(settled(2, 1, None, 256), (32, Some(66)));
        assert_eq!(settled(2, 1, None, 8192), (8, Some(18)));
        assert_eq!(settled(2, 1, None, 1 << 20), (2, Some(6)));
        assert_eq!(settled(2, 1, None, usize::MAX), (2, Some(6)));
        assert_eq!(settled(2, 1, Some(3), 256), (3, Some(8)));
        assert_eq!(settled(0, 1, None, 256), (32, Some(2)));
        assert_eq!(settled(MAX_WORKERS, 5, None, 0).0, 32);
        let mut unordered = Options { num_workers: 2, in_order: false, ..Options::new() };
        unordered.settle_prefetch(256);
        assert_eq!(unordered.prefetch(), 2);
        for hold in [MAX_SLOTS - 8, MAX_SLOTS - 9, MAX_SLOTS - 23] {
            let (prefetch, slots) = settled(4, hold, None, 256);
            assert!(slots.is_some_and(|slots| slots <= MAX_SLOTS), "{prefetch} for each worker, hold {hold}");
        }
        assert_eq!(settled(4, MAX_SLOTS - 7, None, 256), (2, None));
    }
}
