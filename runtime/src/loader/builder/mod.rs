//! The options of a loader, under torch's names.

pub(crate) mod memory_budget;
pub(crate) mod options;

use std::sync::Arc;
use std::time::Duration;

use crate::BoxError;
use crate::arena::Memory;
use crate::dataset::{Loadable, WorkerInfo};
use crate::loader::bad_samples::OnError;
use crate::loader::builder::options::{BatchSampling, Options, Sampling};
use crate::loader::collate::allocate::Allocate;
use crate::loader::collate::on_held::OnHeld;
use crate::loader::collate::overflow::Overflow;
use crate::loader::collate::samples::Samples;
use crate::loader::collate::stack::Stack;
use crate::loader::collate::with::With;
#[cfg(doc)]
use crate::loader::consumer::loader::Loader;
use crate::loader::cores::Affinity;
use crate::loader::order::plan::Lists;
use crate::rng::{Generator, SharedGenerator};
use crate::sampler::{BatchSampler, Sampler};
use crate::wait::WaitStrategy;

/// The options of a [`Loader`]; [`build`](Self::build) makes it.
///
/// | option | default | |
/// |---|---|---|
/// | [`batch_size`](Self::batch_size) | 1 | samples in a batch; `None`: no batches |
/// | [`shuffle`](Self::shuffle) | false | a new permutation each pass |
/// | [`sampler`](Self::sampler), [`sampler_iter`](Self::sampler_iter) | sequential | an order of one's own |
/// | [`batch_sampler`](Self::batch_sampler), [`batch_sampler_iter`](Self::batch_sampler_iter) | none | batches of one's own |
/// | [`num_workers`](Self::num_workers) | 0 | threads; 0: all in the calling thread |
/// | [`prefetch_factor`](Self::prefetch_factor) | 2, or more if batches are small | batches in the ring for each worker |
/// | [`persistent_workers`](Self::persistent_workers) | false | one base seed and one `worker_init` for all passes |
/// | [`worker_init`](Self::worker_init) | none | runs in each worker before a pass |
/// | [`hold`](Self::hold) | 1 | batches that the caller keeps while it asks for the next |
/// | [`drop_last`](Self::drop_last) | false | leave out a last batch that is not full |
/// | [`timeout`](Self::timeout) | none | how long one batch may take |
/// | [`watchdog`](Self::watchdog) | none | how long one sample may take before it is reported |
/// | [`in_order`](Self::in_order) | true | batches in order, or as they are finished |
/// | [`seed`](Self::seed), [`generator`](Self::generator) | the process's | where the order's random numbers come from |
/// | [`pin_memory`](Self::pin_memory) | false | lock the batches' memory |
/// | [`memory`](Self::memory) | pages of its own | the batches' memory, made by you |
/// | [`memory_limit`](Self::memory_limit) | none | the most bytes that the loader may take |
/// | [`on_overflow`](Self::on_overflow) | an error | packed samples that find no room in their batch |
/// | [`part_size`](Self::part_size) | by measurement | samples that a worker claims at once |
/// | [`help`](Self::help) | mostly | whether the caller works while it waits |
/// | [`affinity`](Self::affinity) | off | which cores the workers run on |
/// | [`wait_strategy`](Self::wait_strategy) | park | how threads wait |
/// | [`on_held`](Self::on_held) | grow | what happens when more batches are kept than that |
/// | [`collate`](Self::collate) | stack | a batch of any type |
/// | [`on_error`](Self::on_error) | raise | what becomes of bad samples |
#[derive(Debug)]
pub struct Builder<D, C = Stack> {
    pub(crate) dataset: D,
    pub(crate) collate: C,
    pub(crate) options: Options,
}

impl<D: Loadable> Builder<D> {
    pub(crate) fn new(dataset: D) -> Self {
        Self { dataset, collate: Stack, options: Options::new() }
    }

    /// Makes batches by a function of the samples; a pass then gives what it returns.
    ///
    /// Each batch is collated by one worker, from its samples one after the other. What the function leaves of them is
    /// passed over. Only asking shows that an iterable dataset is at its end, so that there the function may find no sample
    /// at all; whatever it then makes or says is thrown away.
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
        F: Fn(&mut Samples<'_, D>) -> Result<T, BoxError> + Send + Sync + 'static,
    {
        Builder { dataset: self.dataset, collate: With::new(collate), options: self.options }
    }
}

impl<D, F, T> Builder<D, With<F, T>> {
    /// How a batch of the collate function's is pinned, if [`pin_memory`](Self::pin_memory) is asked for: this is run on
    /// each batch, by the worker that made it (torch's custom pin method).
    ///
    /// Without it `pin_memory` has nothing to lock, and says so in a [warning](Loader::warnings).
    pub fn pin_memory_with(mut self, pin: impl Fn(&mut T) -> Result<(), BoxError> + Send + Sync + 'static) -> Self {
        self.collate.pin = Some(Box::new(pin));
        self
    }
}

impl<D, C> Builder<D, C> {
    /// How many samples a batch has. Memory is taken for no more than the dataset has.
    ///
    /// `None`: no batches. A pass then gives the samples themselves, as [`Batch`](crate::loader::Batch)es whose tensors lack the
    /// batch dimension, and a [collate](Self::collate) function gets one sample.
    pub fn batch_size(mut self, samples: impl Into<Option<usize>>) -> Self {
        self.options.batch_size = samples.into();
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
        self.options.sampler = Some(Sampling::Drawn(Box::new(sampler)));
        self
    }

    /// The order of the passes as an iterator of your own, made anew for each pass; excludes `shuffle`.
    ///
    /// It may be endless: it is asked for the indices of a batch when a thread begins that batch, by that thread, and so at
    /// most as far ahead as the loader loads ahead. If it panics, that is [`Error::Sampler`](crate::loader::Error::Sampler) in the
    /// place of the batch, and the pass ends there.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    ///
    /// let dataset = from_fn(10, |index, _| Ok(index as i64));
    /// let mut loader = Loader::builder(dataset).batch_size(4).sampler_iter(|| (0..10).cycle().step_by(3)).build()?;
    /// let first = loader.epoch()?.next().expect("endless")?;
    /// assert_eq!(first.indices(), [0, 3, 6, 9]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn sampler_iter<I>(mut self, mut make: impl FnMut() -> I + Send + 'static) -> Self
    where
        I: IntoIterator<Item = usize>,
        I::IntoIter: Send + 'static,
    {
        self.options.sampler = Some(Sampling::Iter(Box::new(move || Box::new(make().into_iter()))));
        self
    }

    /// Batches of a sampler's indices; excludes `batch_size`, `shuffle`, `sampler` and `drop_last`.
    ///
    /// For batches that differ in their size, or are chosen in another way, see
    /// [`batch_sampler_iter`](Self::batch_sampler_iter).
    pub fn batch_sampler<S: Sampler + 'static>(mut self, sampler: BatchSampler<S>) -> Self {
        let (sampler, batch_size, drop_last) = sampler.into_parts();
        self.options.batch_sampler = Some(BatchSampling::Drawn { sampler: Box::new(sampler), batch_size, drop_last });
        self
    }

    /// Batches as an iterator of your own gives them, lists of indices of at most `max_batch_size`, made anew for each
    /// pass; excludes `batch_size`, `shuffle`, `sampler` and `drop_last`.
    ///
    /// Like that of [`sampler_iter`](Self::sampler_iter) it may be endless. A longer list than it said is
    /// [`Error::LongBatch`](crate::loader::Error::LongBatch), an empty one a batch without samples.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    ///
    /// let dataset = from_fn(10, |index, _| Ok(index as i64));
    /// let buckets = || [vec![7], vec![0, 9], vec![1, 2, 3]];
    /// let mut loader = Loader::builder(dataset).batch_sampler_iter(3, buckets).build()?;
    /// let sizes: Result<Vec<usize>, slotline::Error> = loader.epoch()?.map(|batch| Ok(batch?.len())).collect();
    /// assert_eq!(sizes?, [1, 2, 3]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn batch_sampler_iter<I>(mut self, max_batch_size: usize, mut make: impl FnMut() -> I + Send + 'static) -> Self
    where
        I: IntoIterator<Item: AsRef<[usize]>>,
        I::IntoIter: Send + 'static,
    {
        let make =
            Box::new(move || -> Box<dyn crate::loader::order::plan::Batches> { Box::new(Lists(make().into_iter())) });
        self.options.batch_sampler = Some(BatchSampling::Iter { most: max_batch_size, make });
        self
    }

    /// How many threads load. With 0 all is done in the calling thread.
    pub fn num_workers(mut self, threads: usize) -> Self {
        self.options.num_workers = threads;
        self
    }

    /// How many batches are loaded ahead for each worker. Needs a worker.
    ///
    /// Unless said, it is 2; or of small batches as many as fit into 64 KiB, up to 32, where a dataset is read by index and
    /// [in order](Self::in_order), not through a user's iterator of indices or a [collate function](Self::collate), and not
    /// [in turn](Self::round_robin).
    pub fn prefetch_factor(mut self, batches: usize) -> Self {
        self.options.prefetch_factor = Some(batches);
        self
    }

    /// Whether the workers make batches in turn, as torch's do: batch `i` is made by worker `i mod num_workers` as long as
    /// batches are taken in order, and a worker keeps up to [`prefetch_factor`](Self::prefetch_factor) batches that it was asked
    /// for, even if it is stuck at the first of them and the others have nothing to do.
    ///
    /// For those who rely on who makes what. Off, as by default, whoever is free makes the next batch; that is faster, and the
    /// first batch is made by all workers together. `part_size`, `help` and an iterator as sampler do not go with it. Over an
    /// iterable dataset, workers make batches in turn in any case.
    pub fn round_robin(mut self, in_turn: bool) -> Self {
        self.options.round_robin = in_turn;
        self
    }

    /// Whether workers are the same ones from pass to pass.
    ///
    /// The threads are, in any case. What it decides is what torch's workers bring with them: if it is off, each pass draws
    /// a new base seed and runs [`worker_init`](Self::worker_init) again, as for new workers; if it is on, the first pass
    /// draws the only base seed, and a worker runs its `worker_init` once.
    pub fn persistent_workers(mut self, persistent: bool) -> Self {
        self.options.persistent_workers = persistent;
        self
    }

    /// Runs `init` in each worker before it loads anything in a pass (torch's `worker_init_fn`).
    ///
    /// A pass begins when all workers have run it. A worker in which it fails, or panics, takes no part in the pass, which
    /// begins with an [`Error::WorkerInit`](crate::loader::Error::WorkerInit) for each of these and goes on with the others; if
    /// there are none, that was all. Where there is a `worker_init`, the calling thread does not [help](Self::help) unless
    /// it is told to: it is no worker. Without workers `init` is not run, nor is it for the sample that `build` reads to learn
    /// the fields, if the dataset does not say them.
    ///
    /// [`worker_info`](crate::worker_info) tells other code in the worker the same as `init` is told.
    pub fn worker_init(mut self, init: impl Fn(WorkerInfo) -> Result<(), BoxError> + Send + Sync + 'static) -> Self {
        self.options.worker_init = Some(Box::new(init));
        self
    }

    /// How many batches the caller means to keep while it asks for the next one: which ones, and for how long, does not matter.
    ///
    /// There is memory for `max(prefetch_factor × num_workers, 1) + hold` batches from the start, or one more to make that
    /// even. A loop that keeps no more than `hold` allocates nothing; one that does has the loader [grow](Self::on_held).
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

    /// Has a thread of its own (`slotline-watch`) look after the others: a sample that one of them is at for longer than this
    /// is reported, once for each occasion, through `tracing` and in [`Stats::stuck`](crate::loader::Stats::stuck). Nothing is
    /// stopped; that is for the [`timeout`](Self::timeout). Zero is none.
    ///
    /// It looks four times in that time, but at most once in a millisecond, so that reports come up to a quarter of it late.
    /// Where a dataset reads [many samples at once](crate::Dataset::get_many) they count as one, and an iterable dataset's
    /// [`iter`](crate::dataset::IterableDataset::iter) counts as its first sample. `worker_init`, and what draws indices, are
    /// not looked after.
    pub fn watchdog(mut self, patience: Duration) -> Self {
        self.options.watchdog = Some(patience).filter(|patience| !patience.is_zero());
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

    /// Has the batches written into memory that `allocate` makes, of at least so many bytes: memory that a device can read,
    /// say. It is asked by `build`, and once more for each batch that is [kept](Self::on_held) beyond what that is for;
    /// [`pin_memory`](Self::pin_memory) does not concern it. In a forked process the loader is [lost](super#after-a-fork).
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::arena::Pages;
    /// use slotline::dataset::from_fn;
    ///
    /// let numbers = from_fn(10, |index, _| Ok(index as i64));
    /// let loader = Loader::builder(numbers).batch_size(5).memory(|bytes| Ok(Pages::new(bytes)?)).build()?;
    /// assert!(loader.memory().expect("no collate function").len() >= loader.depth() * 5 * 8);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    ///
    /// It does not go with a [collate function](Self::collate), which makes batches in memory of its own.
    pub fn memory<M: Memory>(
        mut self,
        mut allocate: impl FnMut(usize) -> Result<M, BoxError> + Send + 'static,
    ) -> Self {
        self.options.memory = Some(Allocate(Box::new(move |bytes| Ok(Arc::new(allocate(bytes)?)))));
        self
    }

    /// The most bytes that [`memory_ceiling`](Loader::memory_ceiling) may say, with what [kept batches](Self::on_held) take on
    /// top.
    ///
    /// Unless [`prefetch_factor`](Self::prefetch_factor) is given, it is then the greatest one that fits, but not more than
    /// without a limit. What does not fit at all is [`BuildError::MemoryLimit`](crate::loader::BuildError::MemoryLimit), which says
    /// what would.
    ///
    /// With a [collate function](Self::collate) only the engine's own memory is counted: what the function makes is not
    /// known.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    /// use slotline::loader::{BuildError, Fits};
    ///
    /// let megabytes = || Loader::builder(from_fn(100, |index, _| Ok([index as u8; 1 << 20]))).num_workers(2).hold(2);
    /// let loader = megabytes().batch_size(10).memory_limit(50 << 20).build()?;
    /// // Six slots of 10 MiB would be what there is by default.
    /// assert_eq!((loader.depth(), loader.memory_ceiling() <= 50 << 20), (4, true));
    /// let error = megabytes().batch_size(32).memory_limit(50 << 20).build().unwrap_err();
    /// assert!(matches!(error, BuildError::MemoryLimit { fits: Fits::BatchSize { batch_size: 12, .. }, .. }));
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// What becomes of a batch whose [packed](crate::sample::Packed) samples have more items than it has room for: an error
    /// by default, or memory from the heap for this batch. A longer [`Ragged`](crate::sample::Ragged) or
    /// [`Text`](crate::sample::Text) than its maximum is an error in any case.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    /// use slotline::loader::Overflow;
    /// use slotline::sample::Packed;
    ///
    /// // Room for six numbers in a batch, and six to ten of them.
    /// const NUMBERS: &[u8] = &[7; 5];
    /// let runs = from_fn(6, |index, _| Ok(Packed::new(&NUMBERS[..1 + index % 5], 2)));
    /// let mut loader = Loader::builder(runs).batch_size(3).on_overflow(Overflow::Spill).build()?;
    /// let totals: Result<Vec<usize>, slotline::Error> = loader.epoch()?.map(|batch| Ok(batch?.tensors().values().len())).collect();
    /// assert_eq!(totals?, [6, 10]);
    /// assert_eq!((loader.stats().spilled_batches, loader.stats().spilled_bytes), (1, 10));
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn on_overflow(mut self, overflow: Overflow) -> Self {
        self.options.on_overflow = overflow;
        self
    }

    /// Whether the calling thread works while it waits. Off, it never runs the dataset's code in a pass; without workers it
    /// must.
    ///
    /// By default it does, except with [`in_order(false)`](Self::in_order), where it could be the one to get the slow sample
    /// that must not stop the others, and with a [`worker_init`](Self::worker_init), which is not run there. With a
    /// [`timeout`](Self::timeout) it never does.
    pub fn help(mut self, help: bool) -> Self {
        self.options.help = Some(help);
        self
    }

    /// What happens when more batches are kept than [`hold`](Self::hold) says and another one is asked for: more memory is taken,
    /// or the call waits until another thread drops one of them, or it fails.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    /// use slotline::loader::{Error, OnHeld};
    ///
    /// let numbers = || Loader::builder(from_fn(10, |index, _| Ok(index as i64)));
    /// let mut loader = numbers().build()?;
    /// let all: Result<Vec<_>, Error> = loader.epoch()?.collect();
    /// assert_eq!(all?.iter().map(|batch| batch.tensors().as_slice()[0]).sum::<i64>(), 45);
    /// assert!(loader.stats().extra_batches > 0);
    ///
    /// let mut loader = numbers().on_held(OnHeld::Fail).build()?;
    /// let mut pass = loader.epoch()?;
    /// let (first, second) = (pass.next().expect("ten batches")?, pass.next().expect("ten batches")?);
    /// let error = pass.next().expect("ten batches").unwrap_err();
    /// assert!(matches!(error, Error::Held { task: 0, .. }));
    /// drop(second);
    /// assert_eq!(pass.next().expect("ten batches")?.task(), 2);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn on_held(mut self, on_held: OnHeld) -> Self {
        self.options.on_held = on_held;
        self
    }

    /// Which cores the workers run on.
    pub fn affinity(mut self, affinity: Affinity) -> Self {
        self.options.affinity = affinity;
        self
    }

    /// What becomes of samples that cannot be read or written, and how many a pass may have.
    ///
    /// The index of each is said once, through `tracing`, when its batch is delivered, and is in
    /// [`Stats::bad_indices`](crate::loader::Stats::bad_indices). A batch keeps its number when those before it are passed over. A
    /// collate function does not see bad samples, and if there is no other in a batch, whatever it makes or says is thrown
    /// away. A panic of [`Dataset::prefetch`](crate::Dataset::prefetch) is then no failure of a sample, but the hints of that
    /// batch end with it. Of a [bulk read](crate::Dataset::get_many) that fails the first sample that was not put is the bad
    /// one, and the read begins anew after it.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.options.on_error = on_error;
        self
    }

    /// How threads wait for each other.
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.options.wait_strategy = strategy;
        self
    }
}
