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
use crate::loader::error::warning::{Listener, Warning};
use crate::loader::order::plan::{Batches, Lists, TryLists};
use crate::ranks::Ranks;
use crate::rng::{Generator, SharedGenerator};
use crate::sampler::{SampledBatches, Sampler};
use crate::wait::WaitStrategy;

/// The options of a [`Loader`]; [`build`](Self::build) builds it.
///
/// | option | default | |
/// |---|---|---|
/// | [`batch_size`](Self::batch_size) | 1 | samples in a batch; `None`: no batches |
/// | [`shuffle`](Self::shuffle) | false | a new permutation each pass |
/// | [`sampler`](Self::sampler), [`sampler_iter`](Self::sampler_iter) | sequential | a custom order |
/// | [`batch_sampler`](Self::batch_sampler), [`batch_sampler_iter`](Self::batch_sampler_iter), [`batch_sampler_try_iter`](Self::batch_sampler_try_iter) | none | custom batches |
/// | [`num_workers`](Self::num_workers) | 0 | threads, or [processes](Self::processes); 0: all in the calling thread |
/// | [`prefetch_factor`](Self::prefetch_factor) | 2, or more if batches are small | batches in the ring for each worker |
/// | [`persistent_workers`](Self::persistent_workers) | false | draw one base seed, and run `worker_init` once, for all passes |
/// | [`worker_init`](Self::worker_init) | none | runs in each worker before a pass |
/// | [`hold`](Self::hold) | 1 | batches that the caller keeps while it asks for the next |
/// | [`drop_last`](Self::drop_last) | false | leave out a last batch that is not full |
/// | [`timeout`](Self::timeout) | none | how long one batch may take |
/// | [`watchdog`](Self::watchdog) | none | how long one sample may take before it is reported |
/// | [`close_timeout`](Self::close_timeout) | 5 s | how long dropping the loader waits for its threads |
/// | [`in_order`](Self::in_order) | true | batches in order, or as they finish |
/// | [`seed`](Self::seed), [`generator`](Self::generator) | the process's default generator | where the order's random numbers come from |
/// | [`pin_memory`](Self::pin_memory) | false | lock the batches' memory |
/// | [`memory`](Self::memory) | pages of the loader's own | the batches' memory, allocated by you |
/// | [`memory_limit`](Self::memory_limit) | none | the maximum number of bytes that the loader may take |
/// | [`on_overflow`](Self::on_overflow) | an error | what to do with packed samples that do not fit into their batch |
/// | [`part_size`](Self::part_size) | chosen by measuring samples | samples that a worker claims at once |
/// | [`help`](Self::help) | on, with exceptions | whether the caller loads samples while it waits |
/// | [`affinity`](Self::affinity) | off | which cores the workers run on |
/// | [`wait_strategy`](Self::wait_strategy) | park | how threads wait |
/// | [`on_held`](Self::on_held) | take more memory | what to do when more batches are kept than `hold` |
/// | [`collate`](Self::collate) | stacked tensors | makes batches of any type |
/// | [`on_error`](Self::on_error) | return an error | what to do with bad samples |
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

    /// Makes batches with a function of the samples; a pass then returns the function's results.
    ///
    /// Each batch is collated by one worker, which reads its samples in order. Samples that the
    /// function does not take are skipped. The end of an iterable dataset is found only when one
    /// more sample is asked for. At that point the function may be called without any sample; its
    /// result or error is then discarded.
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
    /// Sets the function that pins a batch from the collate function if
    /// [`pin_memory`](Self::pin_memory) is on (torch's custom pin method). The worker that made the
    /// batch calls `pin` on it.
    ///
    /// Without such a function `pin_memory` has nothing to lock, which is a
    /// [warning](Loader::warnings).
    pub fn pin_memory_with(mut self, pin: impl Fn(&mut T) -> Result<(), BoxError> + Send + Sync + 'static) -> Self {
        self.collate.pin = Some(Box::new(pin));
        self
    }
}

impl<D, C> Builder<D, C> {
    /// Sets the number of samples in a batch. If it is more than the dataset has, memory is taken
    /// only for the samples of the dataset.
    ///
    /// With `None` there are no batches. A pass then returns the samples themselves, as
    /// [`Batch`](crate::loader::Batch)es whose tensors lack the batch dimension, and a
    /// [collate](Self::collate) function gets one sample.
    pub fn batch_size(mut self, samples: impl Into<Option<usize>>) -> Self {
        self.options.batch_size = samples.into();
        self
    }

    /// Sets whether each pass has a new random order. With the same generator state, the order is
    /// the one that torch draws.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.options.shuffle = shuffle;
        self
    }

    /// Sets the sampler that draws the order of the passes; excludes `shuffle`.
    ///
    /// As in torch, the loader's [`seed`](Self::seed) does not seed the sampler. Give the sampler a
    /// generator of its own if its order is to be the same in every run. Without one it draws from
    /// a copy of the process's default generator, and the default generator is then advanced by the
    /// same number of draws. Therefore the sampler may itself use loaders, and other threads don't
    /// wait for it.
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.options.sampler = Some(Sampling::Drawn(Box::new(sampler)));
        self
    }

    /// Sets the order of the passes by an iterator, which `make` creates for each pass; excludes
    /// `shuffle`.
    ///
    /// The iterator may be endless. The thread that begins a batch asks the iterator for the
    /// indices of that batch, so the iterator is never further ahead than the loader. If it panics,
    /// [`Error::Sampler`](crate::loader::Error::Sampler) is returned instead of the batch, and the
    /// pass ends there.
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
        self.options.sampler = Some(Sampling::Iter(Box::new(move |_| Box::new(make().into_iter()))));
        self
    }

    /// Divides each pass among ranks: this loader loads the share of one rank. Without this option
    /// it loads everything.
    ///
    /// All ranks have the same number of batches, so that none waits for another: samples at the
    /// end of a pass are repeated to make the shares equal, or dropped with
    /// [`drop_last`](Self::drop_last). Each rank must have the same options and the same
    /// [`seed`](Self::seed). If no seed is set, it is 0 instead of a random one, which would differ
    /// from rank to rank.
    ///
    /// - With `shuffle`, the shares are those of torch's `DistributedSampler` with this seed and
    ///   with the loader's number of the pass as its epoch. No `set_epoch` is needed.
    /// - A [`sampler`](Self::sampler), or a [`BatchSampler`](crate::sampler::BatchSampler) over
    ///   one, is divided by [`DistributedSampler::over`](crate::sampler::DistributedSampler::over).
    ///   If it draws from a generator of its own, that generator must be in the same state on all
    ///   ranks.
    /// - Iterators of indices or of batches are divided item by item, so they must return the same
    ///   items on all ranks. Ranks for which no item is left at the end repeat an earlier one.
    /// - With a sampler that plans its batches, such as `LengthBatchSampler`, and with a dataset
    ///   without indices, `ranks` is an error. Give such a sampler its share by its own `replicas`,
    ///   and let such a dataset read its own share.
    ///
    /// A batch whose samples were all bad and skipped is delivered without samples, so that all
    /// ranks still have the same number of batches. (If a [collate](Self::collate) function makes
    /// the batches, or `batch_size` is `None`, the batch is left out; replace bad samples instead.)
    ///
    /// With samplers, the random numbers of a sample are the same for any number of ranks, and a
    /// [state](Loader::state) that any rank saved when all ranks had delivered the same number of
    /// batches can be loaded by any number of ranks. With iterators, both hold only for the same
    /// number of ranks.
    ///
    /// ```
    /// use slotline::dataset::from_fn;
    /// use slotline::{Loader, Ranks};
    ///
    /// let mut seen = Vec::new();
    /// for rank in 0..2 {
    ///     // In a real program: Ranks::from_env()?.unwrap_or_default()
    ///     let ranks = Ranks::new(rank, 2)?;
    ///     let dataset = from_fn(10, |index, _| Ok(index as i64));
    ///     let mut loader = Loader::builder(dataset).batch_size(2).shuffle(true).seed(7).ranks(ranks).build()?;
    ///     for batch in loader.epoch()? {
    ///         seen.extend_from_slice(batch?.tensors().as_slice());
    ///     }
    /// }
    /// seen.sort();
    /// assert!(seen.into_iter().eq(0..10));
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn ranks(mut self, ranks: Ranks) -> Self {
        self.options.ranks = Some(ranks);
        self
    }

    /// Sets a sampler that decides the batches. [`BatchSampler`] groups the indices of any sampler;
    /// [`SampledBatches::planned`] takes the batches that your own sampler plans;
    /// `LengthBatchSampler` (in `slotline-sequences`) makes batches of samples of similar lengths,
    /// which differ in size. Excludes `batch_size`, `shuffle`, `sampler` and `drop_last`.
    ///
    /// For batches that are chosen in another way, see
    /// [`batch_sampler_iter`](Self::batch_sampler_iter).
    ///
    /// [`BatchSampler`]: crate::sampler::BatchSampler
    pub fn batch_sampler(mut self, sampler: impl Into<SampledBatches>) -> Self {
        self.options.batch_sampler = Some(BatchSampling::Drawn(sampler.into()));
        self
    }

    /// Sets the batches by an iterator over lists of at most `max_batch_size` indices, which `make`
    /// creates for each pass; excludes `batch_size`, `shuffle`, `sampler` and `drop_last`.
    ///
    /// The iterator may be endless, as with [`sampler_iter`](Self::sampler_iter). A list that is
    /// longer than `max_batch_size` is [`Error::LongBatch`](crate::loader::Error::LongBatch); an
    /// empty one is a batch without samples.
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
        let make = Box::new(move |_| -> Box<dyn Batches> { Box::new(Lists(make().into_iter())) });
        self.options.batch_sampler = Some(BatchSampling::Iter { most: max_batch_size, make });
        self
    }

    /// Works like [`batch_sampler_iter`](Self::batch_sampler_iter), with an iterator that may fail:
    /// an error becomes [`Error::BatchSampler`](crate::loader::Error::BatchSampler) instead of the
    /// batch, and the pass ends there.
    ///
    /// `make` gets a seed: a random number, which differs from pass to pass. It depends on the
    /// loader's [`seed`](Self::seed) or [`generator`](Self::generator), and a resumed pass gets the
    /// same seed again, so that batches drawn from it can be resumed. (When a loader resumes, it
    /// also calls `make` for each earlier pass, with other seeds, and takes nothing from those
    /// iterators.)
    ///
    /// ```
    /// use slotline::dataset::from_fn;
    /// use slotline::{BoxError, Error, Loader};
    ///
    /// let lines = |_| ["7", "0 9", "x"].into_iter().map(|line| line.split(' ').map(|word| Ok(word.parse()?)).collect());
    /// let dataset = from_fn(10, |index, _| Ok(index as i64));
    /// let mut loader = Loader::builder(dataset).batch_sampler_try_iter::<_, Vec<usize>>(2, lines).build()?;
    /// let batches: Vec<_> = loader.epoch()?.collect();
    /// let [Ok(_), Ok(_), Err(Error::BatchSampler { task: 2, source, .. })] = &batches[..] else { panic!("{batches:?}") };
    /// assert!(source.is::<std::num::ParseIntError>());
    /// # Ok::<(), BoxError>(())
    /// ```
    pub fn batch_sampler_try_iter<I, B>(
        mut self,
        max_batch_size: usize,
        mut make: impl FnMut(u64) -> I + Send + 'static,
    ) -> Self
    where
        I: IntoIterator<Item = Result<B, BoxError>>,
        I::IntoIter: Send + 'static,
        B: AsRef<[usize]>,
    {
        let make = Box::new(move |seed| -> Box<dyn Batches> { Box::new(TryLists(make(seed).into_iter())) });
        self.options.batch_sampler = Some(BatchSampling::Iter { most: max_batch_size, make });
        self
    }

    /// Sets the number of threads that load. With 0, the calling thread does all the work.
    pub fn num_workers(mut self, threads: usize) -> Self {
        self.options.num_workers = threads;
        self
    }

    /// Sets the number of batches that are loaded ahead for each worker. Needs a worker.
    ///
    /// The default is 2. For small batches it is as many as fit into 64 KiB, up to 32, if they come
    /// [in order](Self::in_order), without a user's iterator of indices, a
    /// [collate function](Self::collate) or [`round_robin`](Self::round_robin).
    pub fn prefetch_factor(mut self, batches: usize) -> Self {
        self.options.prefetch_factor = Some(batches);
        self
    }

    /// Sets whether the workers make batches in turn, as torch's do: as long as batches are taken
    /// in order, worker `i mod num_workers` makes batch `i`. Up to
    /// [`prefetch_factor`](Self::prefetch_factor) batches are assigned to a worker at once; if it
    /// is stuck at the first of them, no other worker makes the rest, even if it is idle.
    ///
    /// Use this if you rely on which worker makes which batch. It is off by default: the next free
    /// worker makes the next batch, which is faster, and all workers make the first batch together.
    /// It excludes `part_size`, `help` and an iterator as sampler. Over an iterable dataset,
    /// workers always make batches in turn.
    pub fn round_robin(mut self, in_turn: bool) -> Self {
        self.options.round_robin = in_turn;
        self
    }

    /// Sets whether workers count as the same ones from pass to pass.
    ///
    /// The same threads run in all passes in any case. This option decides what depends on the
    /// workers' lifetime in torch. If it is off, each pass draws a new base seed (from which the
    /// workers' seeds are derived) and runs [`worker_init`](Self::worker_init) again, as for new
    /// workers. If it is on, only the first pass draws a base seed, and each worker runs its
    /// `worker_init` once.
    pub fn persistent_workers(mut self, persistent: bool) -> Self {
        self.options.persistent_workers = persistent;
        self
    }

    /// Runs `init` in each worker before it loads anything in a pass (torch's `worker_init_fn`).
    ///
    /// A pass begins when all workers have run `init`. A worker in which `init` fails or panics
    /// takes no part in the pass, which begins with an
    /// [`Error::WorkerInit`](crate::loader::Error::WorkerInit) for each such worker and continues
    /// with the others; if no worker is left, the pass ends there. With a `worker_init`, the
    /// calling thread does not [help](Self::help) unless `help(true)` is set, since it is not a
    /// worker. `init` is not run if there are no workers, nor for the sample that `build` reads to
    /// learn the fields.
    ///
    /// [`worker_info`](crate::worker_info) gives other code in the worker the value that `init`
    /// gets.
    pub fn worker_init(mut self, init: impl Fn(WorkerInfo) -> Result<(), BoxError> + Send + Sync + 'static) -> Self {
        self.options.worker_init = Some(Box::new(init));
        self
    }

    /// Sets the number of batches that the caller keeps while it asks for the next one. They may be
    /// any batches, kept for any time.
    ///
    /// There is memory for `max(prefetch_factor × num_workers, 1) + hold` batches from the start,
    /// rounded up to an even number. A loop that keeps no more than `hold` batches allocates
    /// nothing. If it keeps more, the loader allocates more memory, or does what
    /// [`on_held`](Self::on_held) says.
    pub fn hold(mut self, batches: usize) -> Self {
        self.options.hold = batches;
        self
    }

    /// Sets the number of samples of a batch that a worker claims at once.
    ///
    /// By default, threads measure how long samples take. Quick samples are claimed a batch at a
    /// time and slow ones one by one, so that all workers make the first batch together and one
    /// slow sample holds up nothing else.
    pub fn part_size(mut self, samples: usize) -> Self {
        self.options.part_size = Some(samples);
        self
    }

    /// Sets whether a last batch that is not full is left out.
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.options.drop_last = drop_last;
        self
    }

    /// Sets the maximum time to wait for one batch; zero (the default) means no limit.
    ///
    /// Needs a worker. With a timeout, the calling thread does not load while it waits, since
    /// loading could not be interrupted.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Starts a thread (`slotline-watch`) that watches the threads that load. If one of them spends
    /// longer than `patience` on a sample, that is reported once, through `tracing` and in
    /// [`Stats::stuck`](crate::loader::Stats::stuck). Nothing is stopped; for that, see
    /// [`timeout`](Self::timeout). Zero means no watchdog.
    ///
    /// The watchdog checks four times per `patience`, but at most once per millisecond, so reports
    /// come up to a quarter of `patience` late. If a dataset reads
    /// [many samples at once](crate::Dataset::get_many), they count as one sample. An iterable
    /// dataset's [`iter`](crate::dataset::IterableDataset::iter) counts as its first sample.
    /// `worker_init`, and code that draws indices, are not watched.
    pub fn watchdog(mut self, patience: Duration) -> Self {
        self.options.watchdog = Some(patience).filter(|patience| !patience.is_zero());
        self
    }

    /// Sets how long dropping the loader waits, in all, until its threads have left the dataset's
    /// code and have ended. With `Duration::MAX` there is no limit: then no code of the dataset
    /// runs once the loader is dropped.
    ///
    /// Threads that have not ended by then keep the memory that they can access, and run until the
    /// dataset's code returns; [`Warning::LeftBehind`](crate::loader::Warning::LeftBehind) names
    /// the samples that they read. A dataset whose code may take long should look at
    /// [`Context::stop`](crate::dataset::Context::stop).
    ///
    /// A type that owns a loader may wait for the same time in addition: a `DeviceLoader` of
    /// `slotline-cuda` waits for its copies to the device.
    pub fn close_timeout(mut self, time: Duration) -> Self {
        self.options.close_timeout = time;
        self
    }

    /// Sets whether batches come in order (the default) or as they finish. In the latter case a
    /// slow batch does not delay the others.
    pub fn in_order(mut self, in_order: bool) -> Self {
        self.options.in_order = in_order;
        self
    }

    /// Uses a generator of the loader's own with this seed: the same as
    /// `generator(Generator::from_seed(seed))`.
    pub fn seed(self, seed: u64) -> Self {
        self.generator(Generator::from_seed(seed))
    }

    /// Sets the generator from which base seeds and permutations are drawn, as with torch's
    /// `generator=`. The default is the process's
    /// [default generator](crate::rng::default_generator).
    pub fn generator(mut self, generator: impl Into<SharedGenerator>) -> Self {
        self.options.generator = Some(generator.into());
        self
    }

    /// Sets whether the memory of the batches is locked, so that it is never swapped out. If the
    /// system refuses to lock it, the loader has a [warning](Loader::warnings).
    pub fn pin_memory(mut self, pin_memory: bool) -> Self {
        self.options.pin_memory = pin_memory;
        self
    }

    /// Writes the batches into memory that `allocate` returns, for example memory that a device can
    /// read. `allocate` gets the least number of bytes to return. `build` calls it for the initial
    /// memory, and the loader calls it for each further batch that is [kept](Self::on_held).
    /// [`pin_memory`](Self::pin_memory) does not apply to this memory. In a forked process the
    /// loader [cannot be used](super#after-a-fork).
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
    /// It excludes a [collate function](Self::collate), which makes batches in its own memory.
    pub fn memory<M: Memory>(
        mut self,
        mut allocate: impl FnMut(usize) -> Result<M, BoxError> + Send + 'static,
    ) -> Self {
        self.options.memory = Some(Allocate(Box::new(move |bytes| Ok(Arc::new(allocate(bytes)?)))));
        self
    }

    /// Sets the maximum of [`memory_ceiling`](Loader::memory_ceiling) plus the memory for
    /// [kept batches](Self::on_held), in bytes.
    ///
    /// Unless [`prefetch_factor`](Self::prefetch_factor) is given, the loader uses the greatest
    /// prefetch factor that fits below the limit, up to the usual default. If nothing fits, `build`
    /// returns [`BuildError::MemoryLimit`](crate::loader::BuildError::MemoryLimit), which says what
    /// would fit.
    ///
    /// With a [collate function](Self::collate), the size of its results is not known: only the
    /// loader's own memory is counted.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    /// use slotline::loader::{BuildError, Fits};
    ///
    /// let megabytes = || Loader::builder(from_fn(100, |index, _| Ok([index as u8; 1 << 20]))).num_workers(2).hold(2);
    /// let loader = megabytes().batch_size(10).memory_limit(50 << 20).build()?;
    /// // The default would be six slots of 10 MiB.
    /// assert_eq!((loader.depth(), loader.memory_ceiling() <= 50 << 20), (4, true));
    /// let error = megabytes().batch_size(32).memory_limit(50 << 20).build().unwrap_err();
    /// assert!(matches!(error, BuildError::MemoryLimit { fits: Fits::BatchSize { batch_size: 12, .. }, .. }));
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.options.memory_limit = Some(bytes);
        self
    }

    /// Sets what to do with a batch whose [packed](crate::sample::Packed) samples have more items
    /// than it has room for: return an error, which is the default, or take memory from the heap
    /// for this batch. A [`PaddedToMax`](crate::sample::PaddedToMax) or
    /// [`Text`](crate::sample::Text) that is longer than its maximum is always an error.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    /// use slotline::loader::Overflow;
    /// use slotline::sample::Packed;
    ///
    /// // Room for six numbers in a batch; the batches have six and ten.
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

    /// Sets whether the calling thread loads samples while it waits. If this is off, the calling
    /// thread never runs the dataset's code in a pass, except without workers, when no other thread
    /// could.
    ///
    /// The default is on, with two exceptions. With [`in_order(false)`](Self::in_order) it is off,
    /// because the calling thread could get the slow sample that must not delay the other batches.
    /// With a [`worker_init`](Self::worker_init) it is off, because `worker_init` is not run in the
    /// calling thread. With a [`timeout`](Self::timeout) the calling thread never loads.
    pub fn help(mut self, help: bool) -> Self {
        self.options.help = Some(help);
        self
    }

    /// Sets what to do when more batches are kept than [`hold`](Self::hold) allows and another one
    /// is asked for: take more memory, wait until another thread drops one of them, or fail.
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
    /// assert_eq!(pass.next().expect("ten batches")?.batch_index(), 2);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn on_held(mut self, on_held: OnHeld) -> Self {
        self.options.on_held = on_held;
        self
    }

    /// Sets which cores the workers run on.
    pub fn affinity(mut self, affinity: Affinity) -> Self {
        self.options.affinity = affinity;
        self
    }

    /// Sets what to do with samples that cannot be read or written, and how many of them a pass may
    /// have.
    ///
    /// The index of each bad sample is reported once, through `tracing`, when its batch is
    /// delivered, and listed in [`Stats::bad_indices`](crate::loader::Stats::bad_indices). If a
    /// batch is skipped, the batches after it keep their numbers. A collate function is not given
    /// bad samples, and can declare other samples bad
    /// ([`Samples::next_as`](crate::loader::Samples::next_as)); if a batch has no good samples, the
    /// function's result or error is discarded. A panic of
    /// [`Dataset::prefetch`](crate::Dataset::prefetch) does not count as a failed sample; it only
    /// ends the prefetching for that batch. If a [bulk read](crate::Dataset::get_many) fails, the
    /// first sample that it did not return is the bad one, and a new read starts after it.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.options.on_error = on_error;
        self
    }

    /// Calls `listen` with each [warning](crate::loader::Warning) when it is noticed. These include
    /// the warnings that otherwise go only to `tracing`, such as the [watchdog](Self::watchdog)'s
    /// reports.
    ///
    /// `listen` runs in the thread that notices the problem: the one that calls `build` or the
    /// loader, the watchdog's thread, or the thread that supervises
    /// [worker processes](Self::processes). So it may run in several threads at once, and it delays
    /// the thread that it runs in. It may [stop](crate::loader::Loader::stopper) the loader. A
    /// panic in it is caught after the panic hook has reported it.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    /// use slotline::loader::{OnError, Budget};
    ///
    /// let heard = Arc::new(Mutex::new(Vec::new()));
    /// let telling = heard.clone();
    /// let numbers = from_fn(6, |index, _| if index == 2 { Err("scratched".into()) } else { Ok(index as i64) });
    /// let mut loader = Loader::builder(numbers)
    ///     .on_error(OnError::Skip(Budget::Samples(1)))
    ///     .on_warning(move |warning| telling.lock().unwrap().push(warning.to_string()))
    ///     .build()?;
    /// assert_eq!(loader.epoch()?.count(), 5);
    /// assert_eq!(heard.lock().unwrap()[..], ["sample 2 of batch 2 is bad, in the consumer's thread: scratched"]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn on_warning(mut self, listen: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.options.on_warning = Listener::new(listen);
        self
    }

    /// Sets how threads wait for each other.
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.options.wait_strategy = strategy;
        self
    }
}
