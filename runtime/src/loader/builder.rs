//! The options of a loader, under torch's names.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use slotline_core::ordered::{Config, Consumer, Delivery, Slot, Worker};

use super::Loader;
use super::collate::{Collate, Region, Samples, Stack, With};
use super::crew::{Affinity, start_workers, usable_cores, worker_cores};
use super::engine::{Engine, Reader, Ring, Work, last_words};
use super::error::{BuildError, Warning};
use super::pacer::Pacer;
use crate::BoxError;
use crate::arena::{ALIGN, Memory, Pages, available_memory, lock_limit};
use crate::dataset::{Context, Dataset};
use crate::rng::{Generator, SharedGenerator};
use crate::sample::{Fields, Layout};
use crate::sampler::{RandomSampler, Sampler, SequentialSampler};
use crate::wait::{WaitStrategy, Waiter};

/// At most so many parts of a batch, so that the counting of parts stays small change.
const MOST_PARTS: usize = 1024;
/// At most so many slots.
const MOST_SLOTS: usize = 1 << 20;
/// At most so many threads: beyond it systems begin to run out of what a thread takes, and std then ends the process.
const MOST_WORKERS: usize = 4096;
/// How many samples are tried to learn the fields.
const PROBES: usize = 16;

/// The options of a [`Loader`]; [`build`](Self::build) makes it.
///
/// | option | default | |
/// |---|---|---|
/// | [`batch_size`](Self::batch_size) | 1 | samples in a batch |
/// | [`shuffle`](Self::shuffle) | false | a new permutation each pass |
/// | [`sampler`](Self::sampler) | sequential | an order of one's own |
/// | [`num_workers`](Self::num_workers) | 0 | threads; 0: all in the calling thread |
/// | [`prefetch_factor`](Self::prefetch_factor) | 2 | batches in the ring for each worker |
/// | [`hold`](Self::hold) | 1 | batches that the caller keeps while it asks for the next |
/// | [`drop_last`](Self::drop_last) | false | leave out a last batch that is not full |
/// | [`timeout`](Self::timeout) | none | how long one batch may take |
/// | [`in_order`](Self::in_order) | true | batches in order, or as they are finished |
/// | [`seed`](Self::seed), [`generator`](Self::generator) | the process's | where the order's random numbers come from |
/// | [`pin_memory`](Self::pin_memory) | false | lock the batches' memory |
/// | [`part_size`](Self::part_size) | by measurement | samples that a worker claims at once |
/// | [`help`](Self::help) | as `in_order` | whether the caller works while it waits |
/// | [`affinity`](Self::affinity) | off | which cores the workers run on |
/// | [`wait_strategy`](Self::wait_strategy) | park | how threads wait |
/// | [`wait_for_release`](Self::wait_for_release) | false | wait for held batches instead of an error |
/// | [`collate`](Self::collate) | stack | a batch of any type |
#[derive(Debug)]
pub struct Builder<D, C = Stack> {
    dataset: D,
    collate: C,
    options: Options,
}

/// Everything but what is loaded and how it is collated.
#[derive(Debug)]
struct Options {
    batch_size: usize,
    shuffle: bool,
    sampler: Option<SamplerOption>,
    num_workers: usize,
    prefetch_factor: usize,
    hold: usize,
    part_size: Option<usize>,
    drop_last: bool,
    timeout: Duration,
    in_order: bool,
    generator: Option<SharedGenerator>,
    pin_memory: bool,
    help: Option<bool>,
    wait_for_release: bool,
    affinity: Affinity,
    wait_strategy: WaitStrategy,
}

struct SamplerOption(Box<dyn Sampler>);

impl std::fmt::Debug for SamplerOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").field("len", &self.0.len()).finish_non_exhaustive()
    }
}

impl<D: Dataset> Builder<D> {
    pub(super) fn new(dataset: D) -> Self {
        let options = Options {
            batch_size: 1,
            shuffle: false,
            sampler: None,
            num_workers: 0,
            prefetch_factor: 2,
            hold: 1,
            part_size: None,
            drop_last: false,
            timeout: Duration::ZERO,
            in_order: true,
            generator: None,
            pin_memory: false,
            help: None,
            wait_for_release: false,
            affinity: Affinity::Off,
            wait_strategy: WaitStrategy::Park,
        };
        Self { dataset, collate: Stack, options }
    }

    /// Makes batches by a function of the samples; a pass then gives what it returns.
    ///
    /// Each batch is collated by one worker, from its samples one after the other.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::TensorDataset;
    ///
    /// let numbers = TensorDataset::new(vec![3_i64, 1, 4, 1, 5])?;
    /// let mut loader = Loader::builder(numbers)
    ///     .batch_size(2)
    ///     .collate(|samples| {
    ///         let mut sum = 0;
    ///         while let Some(sample) = samples.next() {
    ///             sum += sample?;
    ///         }
    ///         Ok(sum)
    ///     })
    ///     .build()?;
    /// let sums: Result<Vec<i64>, _> = loader.epoch()?.collect();
    /// assert_eq!(sums?, [4, 5, 5]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn collate<T, F>(self, collate: F) -> Builder<D, With<F, T>>
    where
        T: Send + 'static,
        F: Fn(&mut Samples<'_, '_, D>) -> Result<T, BoxError> + Send + Sync + 'static,
    {
        Builder { dataset: self.dataset, collate: With::new(collate), options: self.options }
    }
}

impl<D: Dataset, C> Builder<D, C> {
    /// How many samples a batch has. Memory is taken for no more than the dataset has.
    pub fn batch_size(mut self, samples: usize) -> Self {
        self.options.batch_size = samples;
        self
    }

    /// Whether each pass has a new random order: torch's, for the same generator.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.options.shuffle = shuffle;
        self
    }

    /// The order of the passes; excludes `shuffle`.
    ///
    /// A sampler without a generator of its own draws from a copy of the process's default one, which then goes on by as
    /// many draws: so the sampler may itself use loaders, and other threads don't wait for it.
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.options.sampler = Some(SamplerOption(Box::new(sampler)));
        self
    }

    /// How many threads load. With 0 all is done in the calling thread.
    pub fn num_workers(mut self, threads: usize) -> Self {
        self.options.num_workers = threads;
        self
    }

    /// How many batches the ring has for each worker. Without workers it means nothing.
    pub fn prefetch_factor(mut self, batches: usize) -> Self {
        self.options.prefetch_factor = batches;
        self
    }

    /// How many batches the caller means to keep while it asks for the next one.
    ///
    /// The ring has `max(prefetch_factor × num_workers, 1) + hold` slots, or one more to make that even; holding all of them and asking for another
    /// batch is [`Error::Held`](super::Error::Held). In order, so is keeping a single batch while as many others go by as
    /// the ring has slots, since each batch has its slot; [`in_order(false)`](Self::in_order) takes any free one.
    pub fn hold(mut self, batches: usize) -> Self {
        self.options.hold = batches;
        self
    }

    /// How many samples of a batch a worker claims at once.
    ///
    /// Without it threads measure what samples take: quick ones are claimed by the batch, slow ones one by one, so that
    /// the first batch is made by all workers together and one slow sample holds up nothing else.
    pub fn part_size(mut self, samples: usize) -> Self {
        self.options.part_size = Some(samples);
        self
    }

    /// Whether a last batch that is not full is left out.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.options.drop_last = drop_last;
        self
    }

    /// How long the wait for one batch may take; zero (the default) is for ever.
    ///
    /// Needs a worker, and the calling thread then does not work while it waits, since it could not be interrupted.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Whether batches come in order (the default), or as they are finished, so that a slow one holds up no other.
    pub fn in_order(mut self, in_order: bool) -> Self {
        self.options.in_order = in_order;
        self
    }

    /// Draws from a generator of the loader's own with this seed: the same as `generator(Generator::from_seed(seed))`.
    pub fn seed(self, seed: u64) -> Self {
        self.generator(Generator::from_seed(seed))
    }

    /// Where base seeds and permutations are drawn from, as with torch's `generator=`; else it is the process's
    /// [default generator](crate::rng::default_generator).
    pub fn generator(mut self, generator: impl Into<SharedGenerator>) -> Self {
        self.options.generator = Some(generator.into());
        self
    }

    /// Whether the memory of the batches is locked, so that it is never swapped out. If the system refuses, that is a
    /// [warning](Loader::warnings).
    pub fn pin_memory(mut self, pin_memory: bool) -> Self {
        self.options.pin_memory = pin_memory;
        self
    }

    /// Whether the calling thread works while it waits: by default it does, except with [`in_order(false)`], where it
    /// could be the one to get the slow sample that must not stop the others. Off, it never runs the dataset's code in a
    /// pass; without workers it must.
    ///
    /// [`in_order(false)`]: Self::in_order
    pub fn help(mut self, help: bool) -> Self {
        self.options.help = Some(help);
        self
    }

    /// Whether to wait, when held batches leave no slot for the next one, until another thread drops one of them.
    ///
    /// Only for loops that hand batches to other threads: a thread that holds them all itself would wait for ever.
    pub fn wait_for_release(mut self, wait: bool) -> Self {
        self.options.wait_for_release = wait;
        self
    }

    /// Which cores the workers run on.
    pub fn affinity(mut self, affinity: Affinity) -> Self {
        self.options.affinity = affinity;
        self
    }

    /// How threads wait for each other.
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.options.wait_strategy = strategy;
        self
    }

    /// Checks the options, takes the memory and starts the workers.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    pub fn build(mut self) -> Result<Loader<D, C>, BuildError>
    where
        C: Collate<D> + Payloads<D>,
    {
        self.check()?;
        let own_sampler = self.options.sampler.is_none();
        let sampler = self.make_sampler()?;
        // No batch has more rows than a pass has samples, however great the batch size.
        let rows = self.options.batch_size.min(sampler.len()).max(1);
        let slots = self.slots()?;
        let hold = slots - self.ahead();
        let order = sampler.memory();
        if let Some(available) = available_memory().filter(|&available| order as u64 > available) {
            return Err(BuildError::OrderMemory { bytes: order, available });
        }
        let payloads = C::payloads(&self, rows, slots, order)?;
        let part_rows = match self.options.part_size {
            _ if !C::SHARED => rows,
            Some(part_size) => part_size.min(rows).max(rows.div_ceil(MOST_PARTS)),
            // Nobody to share with.
            None if self.options.num_workers == 0 => rows,
            None => rows.div_ceil(MOST_PARTS),
        };
        let parts = rows.div_ceil(part_rows);
        let pacer = if self.options.part_size.is_some() { Pacer::fixed(1) } else { Pacer::adaptive(parts) };

        let mut warnings = payloads.warnings;
        let cores = usable_cores();
        if self.options.num_workers > cores {
            warnings.push(Warning::ManyWorkers { workers: self.options.num_workers, cores });
        }
        let words = slots * size_of::<Slot<Work<C::Payload>>>();
        let memory_ceiling = payloads.bytes.saturating_add(order).saturating_add(words);

        let delivery = if self.options.in_order { Delivery::InOrder } else { Delivery::Arrival };
        // Of what the caller does not hold, half.
        let config = Config::new().parts(parts).delivery(delivery).wake_at(self.ahead().div_ceil(2));
        let waiter = || Waiter::new(self.options.wait_strategy);
        let work: Box<[_]> = payloads.payloads.into_iter().map(|payload| Slot::new(Work::new(payload))).collect();
        let ring: Arc<Ring<C::Payload>> = Arc::new(Ring::with_wait(work, config, waiter(), waiter()));
        ring.seal();
        let consumer = Consumer::new(ring.clone()).expect("a new ring has no consumer");
        let workers = self.options.num_workers;
        let engine = Arc::new(Engine::new(self.dataset, self.collate, ring.clone(), rows, part_rows, workers));
        let cores = worker_cores(&self.options.affinity, workers)?;
        let crew = start_workers(&engine, workers, &cores, &pacer, &mut warnings)?;
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        Ok(Loader {
            own: Worker::new(ring),
            reader: Reader::new(workers, None, pacer),
            engine,
            consumer,
            crew,
            sampler,
            own_sampler,
            generator: self.options.generator,
            batch_size: self.options.batch_size,
            drop_last: self.options.drop_last,
            hold,
            timeout: Some(self.options.timeout).filter(|timeout| !timeout.is_zero()),
            in_order: self.options.in_order,
            helps: workers == 0
                || (self.options.help.unwrap_or(self.options.in_order) && self.options.timeout.is_zero()),
            waits_for_release: self.options.wait_for_release,
            memory_ceiling,
            warnings,
            epochs: 0,
            plan_epoch: 0,
            tasks: 0,
            positions: 0,
            delivered: 0,
        })
    }

    fn check(&self) -> Result<(), BuildError> {
        if !self.options.timeout.is_zero() && self.options.num_workers == 0 {
            let hint = "without workers nobody is left to notice the time; set num_workers or drop the timeout";
            return Err(BuildError::Clash { first: "timeout", second: "num_workers = 0", hint });
        }
        if self.options.shuffle && self.options.sampler.is_some() {
            let hint = "a sampler decides the order; drop shuffle";
            return Err(BuildError::Clash { first: "sampler", second: "shuffle", hint });
        }
        for (option, value) in [
            ("batch_size", self.options.batch_size),
            ("prefetch_factor", self.options.prefetch_factor),
            ("hold", self.options.hold),
            ("part_size", self.options.part_size.unwrap_or(1)),
            (
                "affinity's number of cores",
                if let Affinity::Cores(cores) = &self.options.affinity { cores.len() } else { 1 },
            ),
        ] {
            if value == 0 {
                return Err(BuildError::Zero { option });
            }
        }
        Ok(())
    }

    fn make_sampler(&mut self) -> Result<Box<dyn Sampler>, BuildError> {
        Ok(match self.options.sampler.take() {
            Some(sampler) => sampler.0,
            None if self.options.shuffle => {
                let sampler = RandomSampler::new(self.dataset.len())?;
                match &self.options.generator {
                    Some(generator) => Box::new(sampler.generator(generator.clone())),
                    None => Box::new(sampler),
                }
            }
            None => Box::new(SequentialSampler::new(self.dataset.len())),
        })
    }

    /// Slots that are there to be filled while the caller holds its own.
    fn ahead(&self) -> usize {
        self.options.prefetch_factor.saturating_mul(self.options.num_workers).max(1)
    }

    fn slots(&self) -> Result<usize, BuildError> {
        // Two threads that take turns then write into the slots that are in their own caches: with an odd number of slots
        // a shuffled gather of 50 KB batches by two threads took 1.5 times as long.
        let slots = self.ahead().saturating_add(self.options.hold).checked_next_multiple_of(2).unwrap_or(usize::MAX);
        for (option, value, most) in [
            ("num_workers", self.options.num_workers, MOST_WORKERS),
            ("prefetch_factor × num_workers + hold", slots, MOST_SLOTS),
        ] {
            if value > most {
                return Err(BuildError::TooMany { option, value, most });
            }
        }
        Ok(slots)
    }

    /// The fields of a sample: as the dataset says, or as the first readable one has them.
    fn fields(&self) -> Result<Fields, BuildError> {
        if let Some(fields) = self.dataset.fields() {
            return Ok(fields);
        }
        let mut cx = Context::new(None);
        let mut failure = None;
        for index in 0..self.dataset.len().min(PROBES) {
            cx.start_sample(index);
            let probe = catch_unwind(AssertUnwindSafe(|| Ok(Fields::of(&self.dataset.get(index, &mut cx)?))));
            let probe = probe.unwrap_or_else(|panic| Err(format!("panicked: {}", last_words(panic)).into()));
            match probe {
                Ok(fields) => return Ok(fields),
                Err(source) => failure = Some(BuildError::Probe { index, source }),
            }
        }
        // An empty dataset has no fields, and no batches either.
        failure.map_or_else(|| Ok(Fields::new()), Err)
    }
}

/// How the slots of a collation are made. Sealed, as [`Collate`] is.
#[doc(hidden)]
pub trait Payloads<D: Dataset>: Collate<D> + Sized {
    /// Whether several workers can fill one slot.
    const SHARED: bool;

    /// Makes the slots, with `reserved` bytes of memory left for other things.
    fn payloads(
        builder: &Builder<D, Self>,
        rows: usize,
        slots: usize,
        reserved: usize,
    ) -> Result<Made<Self::Payload>, BuildError>;
}

/// Slots made, and what they cost.
#[doc(hidden)]
#[derive(Debug)]
pub struct Made<P> {
    payloads: Vec<P>,
    bytes: usize,
    warnings: Vec<Warning>,
}

impl<D: Dataset> Payloads<D> for Stack {
    const SHARED: bool = true;

    fn payloads(
        builder: &Builder<D, Self>,
        rows: usize,
        slots: usize,
        reserved: usize,
    ) -> Result<Made<Region>, BuildError> {
        let layout = Arc::new(Layout::new(builder.fields()?, rows)?);
        let batch = layout.size.max(1).next_multiple_of(ALIGN);
        let bytes = batch as u128 * slots as u128;
        let available = available_memory().unwrap_or(u64::MAX).saturating_sub(reserved as u64);
        let fits = bytes <= u128::from(available);
        let Some(len) = usize::try_from(bytes).ok().filter(|_| fits) else {
            return Err(BuildError::Memory { slots, batch, bytes, available });
        };
        let mut pages = Pages::new(len).map_err(|source| BuildError::Map { bytes: len, source })?;
        let mut warnings = Vec::new();
        if builder.options.pin_memory
            && let Err(reason) = pages.lock()
        {
            warnings.push(Warning::NotLocked { bytes: len, limit: lock_limit(), reason: reason.to_string() });
        }
        let bytes = pages.len();
        let arena: Arc<dyn Memory> = Arc::new(pages);
        let payloads = (0..slots).map(|slot| {
            // SAFETY: the slots divide the arena, and each is as long as the layout, rounded up to pages.
            unsafe { Region::new(arena.start().add(slot * batch), layout.clone(), arena.clone()) }
        });
        Ok(Made { payloads: payloads.collect(), bytes, warnings })
    }
}

impl<D: Dataset, F, T> Payloads<D> for With<F, T>
where
    Self: Collate<D, Payload = std::sync::Mutex<Option<T>>>,
{
    const SHARED: bool = false;

    fn payloads(_: &Builder<D, Self>, _: usize, slots: usize, _: usize) -> Result<Made<Self::Payload>, BuildError> {
        Ok(Made { payloads: (0..slots).map(|_| Default::default()).collect(), bytes: 0, warnings: Vec::new() })
    }
}
