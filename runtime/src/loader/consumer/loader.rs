//! The public type of a loader.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::arena::Memory;
use crate::dataset::{Dataset, Iterable, IterableDataset};
use crate::loader::backend::protocol::Backend;
use crate::loader::builder::Builder;
use crate::loader::collate::Output;
use crate::loader::collate::batch::Batch;
use crate::loader::collate::batch_memory::BatchMemory;
use crate::loader::collate::on_held::OnHeld;
use crate::loader::consumer::core::LoaderCore;
use crate::loader::consumer::pass::Pass;
use crate::loader::error::run::Error;
use crate::loader::error::warning::Warning;
use crate::loader::metrics::reader::StatsReader;
use crate::loader::metrics::stats::Stats;
use crate::loader::trace::PassSpan;
use crate::loader::worker::cancel::Stopper;
use crate::sample::{Dynamic, Field};

/// Feeds a training loop with the batches of a dataset, pass after pass.
///
/// See [`builder`](Self::builder) for the options, and the [module](crate::loader) for how a loader
/// works. The type parameter is the type of the batches. A `Loader<Batch<(u8, i64)>>` returns byte
/// images with a label each, from any dataset. The batches of a `Loader<Collated<T>>` are made by a
/// [collate function](Builder::collate). A plain `Loader` has batches whose types are known only at
/// run time, and which are read by their [columns](Batch::columns); [`untyped`](Self::untyped)
/// turns any loader that stacks samples into a plain one.
///
/// ```
/// use slotline::loader::Batch;
/// use slotline::Loader;
/// use slotline::dataset::from_fn;
///
/// struct Trainer {
///     train: Loader<Batch<(f32, i64)>>,
///     total: f32,
/// }
///
/// impl Trainer {
///     fn step(&mut self, batch: &Batch<(f32, i64)>) {
///         let (inputs, _labels) = batch.tensors();
///         self.total += inputs.as_slice().iter().sum::<f32>();
///     }
/// }
///
/// let dataset = from_fn(100, |index, _| Ok((index as f32, index as i64)));
/// let mut trainer = Trainer { train: Loader::builder(dataset).batch_size(10).build()?, total: 0.0 };
/// trainer.train.begin_epoch()?;
/// while let Some(batch) = trainer.train.next_batch() {
///     trainer.step(&batch?);
/// }
/// assert_eq!(trainer.total, 4950.0);
/// # Ok::<(), slotline::BoxError>(())
/// ```
pub struct Loader<B: Output = Batch<Dynamic>> {
    pub(crate) core: LoaderCore<B::Payload>,
    pub(crate) output: PhantomData<fn() -> B>,
}

impl Loader {
    /// Returns the options of a loader over `dataset`, all with their default values.
    pub fn builder<D: Dataset>(dataset: D) -> Builder<D> {
        Builder::new(dataset)
    }

    /// Returns the options of a loader over an iterable dataset, all with their default values.
    ///
    /// Each worker reads and batches its own part of the dataset (see [`IterableDataset`] for how
    /// to split it), so the batches depend on the number of workers, too. Random numbers from
    /// [`Context::rng`](crate::dataset::Context::rng) are a function of the worker's seed, the
    /// epoch, and the sample's number in the worker's part.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::iter_fn;
    ///
    /// let letters = iter_fn(|_| Ok("slotline".bytes().map(Ok)));
    /// let mut loader = Loader::iterable(letters).batch_size(3).build()?;
    /// let words: Result<Vec<_>, _> = loader.epoch()?.map(|batch| Ok(batch?.tensors().as_slice().to_vec())).collect();
    /// let words: Result<_, slotline::Error> = words;
    /// assert_eq!(words?, [&b"slo"[..], b"tli", b"ne"]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn iterable<D: IterableDataset>(dataset: D) -> Builder<Iterable<D>> {
        Builder::new(Iterable(dataset))
    }
}

impl<S> Loader<Batch<S>> {
    /// Erases the type of the loader's samples; its batches are then read by their
    /// [columns](Batch::columns). Use this in code that takes any loader, or that stores loaders of
    /// several types.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::TensorDataset;
    ///
    /// let numbers = Loader::builder(TensorDataset::new(vec![1_u8, 2, 3])?).build()?;
    /// let pairs = Loader::builder(TensorDataset::new((vec![0.5_f32], vec![7_i64]))?).build()?;
    /// let mut all: Vec<Loader> = vec![numbers.untyped(), pairs.untyped()];
    /// let fields = all.iter().map(|loader| loader.fields().expect("samples are stacked").len());
    /// assert!(fields.eq([1, 2]));
    /// for loader in &mut all {
    ///     let batch = loader.epoch()?.next().expect("a batch")?;
    ///     println!("{:?}", batch.columns());
    /// }
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn untyped(self) -> Loader {
        Loader { core: self.core, output: PhantomData }
    }

    /// The maximum of [`Columns::bytes`](crate::sample::Columns::bytes) for a batch of this loader.
    pub fn batch_bytes(&self) -> usize {
        self.core.memory.block.as_ref().map_or(0, BatchMemory::batch_bytes)
    }
}

impl<B: Output> Loader<B> {
    pub(crate) fn new(core: LoaderCore<B::Payload>) -> Self {
        Self { core, output: PhantomData }
    }

    /// Starts a pass over the dataset. If the previous pass has not ended, it is abandoned.
    ///
    /// The pass borrows the loader. Use [`begin_epoch`](Self::begin_epoch) and
    /// [`next_batch`](Self::next_batch) instead in a loop that counts steps rather than epochs, or
    /// that calls methods of a struct that owns the loader.
    ///
    /// This draws from the generator in the same order as torch: first a base seed (with
    /// [persistent workers](Builder::persistent_workers) in the first pass only), from which
    /// [`Context::rng`] and the workers' seeds are derived, then what the sampler needs. If the
    /// pass cannot begin after that, because of a timeout in a `worker_init`, the next call begins
    /// the same pass and draws nothing, even if the sampler was set to another epoch in the
    /// meantime.
    ///
    /// [`Context::rng`]: crate::dataset::Context::rng
    ///
    /// # Errors
    ///
    /// [`Error::Order`], [`Error::LongOrder`], [`Error::TooManyBatches`]; [`Error::Timeout`] if a
    /// worker is still stuck in the previous pass, or in its `worker_init`; [`Error::State`] if a
    /// loaded state does not fit the pass; [`Error::WorkerDied`]; [`Error::Stopped`];
    /// [`Error::Forked`].
    pub fn epoch(&mut self) -> Result<Pass<'_, B>, Error> {
        self.begin_epoch()?;
        Ok(Pass::new(self, None))
    }

    /// Starts a pass like [`epoch`](Self::epoch), whose batches [`next_batch`](Self::next_batch)
    /// then returns. Use it where a [`Pass`] would borrow the loader for too long. There is no
    /// `pass` span, since such a loop may move between threads.
    ///
    /// # Errors
    ///
    /// Same as [`epoch`](Self::epoch).
    pub fn begin_epoch(&mut self) -> Result<(), Error> {
        self.core.begin()
    }

    /// Works like [`begin_epoch`](Self::begin_epoch), but waits at most `patience` for the workers
    /// to leave the previous pass, regardless of the [`timeout`](Builder::timeout). After
    /// [`Error::Timeout`] the next call begins the same pass. Meant for callers of
    /// [`next_within`](Self::next_within).
    ///
    /// # Errors
    ///
    /// Same as [`epoch`](Self::epoch).
    pub fn begin_epoch_within(&mut self, patience: Duration) -> Result<(), Error> {
        let timeout = self.core.timeout.replace(patience);
        let begun = self.begin_epoch();
        self.core.timeout = timeout;
        begun
    }

    /// The number of batches that the pass has yet to return: see [`Pass::remaining`].
    pub fn remaining(&self) -> Option<usize> {
        let pass = &self.core.position.pass;
        if !pass.open || !pass.running { Some(0) } else { pass.tasks.map(|tasks| tasks - pass.delivered) }
    }

    /// Returns the next batch of the pass, or the error instead of it. Returns `None` after the
    /// last batch, and if no pass was begun.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::TensorDataset;
    ///
    /// // Counts steps instead of epochs: a pass begins when the previous one has ended.
    /// let mut loader = Loader::builder(TensorDataset::new(vec![1_i64, 2, 3])?).batch_size(2).build()?;
    /// for _step in 0..5 {
    ///     let batch = match loader.next_batch() {
    ///         Some(batch) => batch?,
    ///         None => {
    ///             loader.begin_epoch()?;
    ///             loader.next_batch().expect("a pass has two batches")?
    ///         }
    ///     };
    ///     println!("{:?}", batch.tensors());
    /// }
    /// assert_eq!(loader.next_epoch(), 3);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    #[inline(always)] // A call would pass the batch through memory (32 more instructions).
    pub fn next_batch(&mut self) -> Option<Result<B::Item, Error>> {
        match self.core.next()? {
            Ok(lease) => Some(Ok(B::deliver(lease))),
            Err(error) => Some(Err(*error)),
        }
    }

    /// Abandons the pass, if it has not ended: workers stop after their current sample, and
    /// [`next_batch`](Self::next_batch) returns `None`. The [state](Self::state) remains that of
    /// the abandoned pass, so that it can be resumed. Dropping a [`Pass`] does the same.
    pub fn end_epoch(&mut self) {
        self.core.give_up();
    }

    /// Returns the span of the pass that has just begun. This thread is inside the span until it is
    /// dropped. For types in other crates that play the role of a [`Pass`].
    #[doc(hidden)]
    pub fn pass_span(&self) -> PassSpan {
        PassSpan::new(self.core.position.pass.epoch)
    }

    /// Works like [`next_batch`](Self::next_batch), for a caller that holds batches and could drop
    /// some: see [`Pass::next_or_held`].
    pub fn next_or_held(&mut self) -> Option<Result<B::Item, Error>> {
        let on_held = std::mem::replace(&mut self.core.memory.on_held, OnHeld::Fail);
        let next = self.next_batch();
        self.core.memory.on_held = on_held;
        next
    }

    /// Works like [`next_batch`](Self::next_batch), but waits at most `patience`, regardless of the
    /// [`timeout`](Builder::timeout), and then returns [`Error::Timeout`]; the next call asks for
    /// the same batch. For callers that have to do something else while they wait, such as handling
    /// signals.
    ///
    /// With workers, the calling thread does not load while it waits, unless no worker is left; see
    /// [`help_within`](Self::help_within). Without workers, a batch that the calling thread makes
    /// is not interrupted. If [`OnHeld::Wait`] makes the call wait for a batch to be dropped, the
    /// error is [`Error::Held`] instead.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use slotline::dataset::TensorDataset;
    /// use slotline::{Error, Loader};
    ///
    /// let mut loader = Loader::builder(TensorDataset::new(vec![0_u8; 8])?).batch_size(2).num_workers(1).build()?;
    /// loader.begin_epoch()?;
    /// let mut batches = 0;
    /// while let Some(batch) = loader.next_within(Duration::from_millis(10)) {
    ///     match batch {
    ///         Ok(_batch) => batches += 1,
    ///         Err(Error::Timeout { .. }) => {} // look for signals here
    ///         Err(error) => return Err(error.into()),
    ///     }
    /// }
    /// assert_eq!(batches, 4);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn next_within(&mut self, patience: Duration) -> Option<Result<B::Item, Error>> {
        let helped = self.core.backend.set_helping(false);
        let next = self.help_within(patience);
        self.core.backend.set_helping(helped);
        next
    }

    /// Works like [`next_within`](Self::next_within), but the calling thread [helps](Builder::help)
    /// the workers where `next_batch` would. It checks the time between samples (or groups of quick
    /// ones), so a call may take as long as a sample does.
    pub fn help_within(&mut self, patience: Duration) -> Option<Result<B::Item, Error>> {
        let timeout = self.core.timeout.replace(patience);
        let next = self.next_batch();
        self.core.timeout = timeout;
        next
    }

    /// Whether the next batch of the pass, an error instead of it, or its end is ready: see
    /// [`Pass::is_ready`].
    pub fn is_ready(&self) -> bool {
        self.core.is_ready()
    }

    /// The number of the pass that the next [`epoch`](Self::epoch) starts.
    ///
    /// ```
    /// # use slotline::{Loader, dataset::TensorDataset};
    /// # let mut loader = Loader::builder(TensorDataset::new(vec![0_u8; 3])?).build()?;
    /// for epoch in loader.next_epoch()..3 {
    ///     for batch in loader.epoch()? {
    ///         assert_eq!(batch?.epoch(), epoch);
    ///     }
    /// }
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn next_epoch(&self) -> u32 {
        self.core.position.epochs
    }

    /// Sets the number of the pass that the next [`epoch`](Self::epoch) starts, and abandons the
    /// current pass. A [loaded state](Self::load_state) from which no pass has resumed yet is
    /// discarded.
    ///
    /// This draws nothing: the order of the pass comes from the sampler and from the
    /// [generator](Builder::generator), which the caller must advance accordingly. For callers that
    /// use several loaders in turn for one sequence of passes.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    /// use slotline::rng::{Generator, SharedGenerator};
    ///
    /// let generator = SharedGenerator::from(Generator::from_seed(42));
    /// let numbers = || Loader::builder(from_fn(10, |index, _| Ok(index as i64))).shuffle(true);
    /// let mut first = numbers().generator(generator.clone()).build()?;
    /// let mut second = numbers().generator(generator).build()?;
    /// first.epoch()?.for_each(drop);
    /// second.set_next_epoch(first.next_epoch());
    /// assert_eq!(second.epoch()?.next().expect("ten batches")?.epoch(), 1);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn set_next_epoch(&mut self, epoch: u32) {
        self.core.set_next_epoch(epoch);
    }

    /// The number of batches in a pass; `None` if it is unknown before the end, as with an iterator
    /// of indices. For an iterable dataset the number is computed from the dataset's
    /// [`len`](IterableDataset::len); with several workers there may be more batches, because each
    /// worker's last batch may be smaller.
    pub fn len(&self) -> Option<usize> {
        self.core.len()
    }

    /// Whether a pass is known to have no batches.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The maximum number of samples in a batch.
    pub fn batch_size(&self) -> usize {
        self.core.batching.batch_size
    }

    /// The number of batches that fit into the loader's initial memory: those being filled, those
    /// that are ready, and those that are held.
    pub fn depth(&self) -> usize {
        self.core.memory.cell_pool.depth()
    }

    /// The number of batches that can be held in the loader's initial memory while the next one is
    /// asked for: [`hold`](Builder::hold), or one more if the number of slots was rounded up to an
    /// even one. Beyond that the loader [grows, waits or fails](OnHeld).
    pub fn most_held(&self) -> usize {
        self.core.memory.cell_pool.hold()
    }

    /// How long dropping the loader [waits](Builder::close_timeout) for its threads.
    pub fn close_timeout(&self) -> Duration {
        self.core.workers.close_timeout
    }

    /// The bytes that the loader takes for batches and for the order of a pass, known before the
    /// first batch.
    ///
    /// The code, the workers' stacks and some small allocations take in addition at most 1 MiB, and
    /// 128 KiB for each worker (on Linux, 0.4 MiB and 15 to 80 KiB were measured). Resident memory
    /// does not grow beyond that, however long a pass is. Not counted are the dataset and the
    /// allocations of its code, the results of a [collate function](Builder::collate), memory that
    /// is [spilled](crate::loader::Overflow::Spill),
    /// [memory for batches that are kept](Stats::extra_bytes), the list of
    /// [bad samples](Stats::bad_indices), and the longer order of a sampler that draws more than
    /// its `len()` was when the loader was built.
    pub fn memory_ceiling(&self) -> usize {
        self.core.memory.ceiling
    }

    /// The fields of a batch; `None` if a [collate function](Builder::collate) makes batches.
    pub fn fields(&self) -> Option<impl ExactSizeIterator<Item = &Field>> {
        self.core.memory.block.as_ref().map(BatchMemory::fields)
    }

    /// The loader's initial memory. All batches are in it, contiguously, except for those whose
    /// memory was added because [too many were kept](OnHeld::Grow). `None` if a
    /// [collate function](Builder::collate) makes the batches.
    pub fn memory(&self) -> Option<&dyn Memory> {
        self.core.memory.block.as_ref().map(BatchMemory::memory)
    }

    /// Returns statistics of what the loader has done since it was built, and what limited it.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    ///
    /// let dataset = from_fn(10, |index, _| Ok(index as i64));
    /// let mut loader = Loader::builder(dataset).batch_size(4).num_workers(1).build()?;
    /// loader.epoch()?.for_each(drop);
    /// let stats = loader.stats();
    /// assert_eq!((stats.batches, stats.samples, stats.bytes), (3, 10, 80));
    /// println!("{}", stats.verdict());
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.stats_reader().stats()
    }

    /// Returns a reader of the statistics, which can be used by any thread at any time, even while
    /// a pass is iterated.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::TensorDataset;
    ///
    /// let mut loader = Loader::builder(TensorDataset::new(vec![0_u8; 8])?).batch_size(2).build()?;
    /// let reader = loader.stats_reader();
    /// let mut pass = loader.epoch()?;
    /// pass.next().expect("a batch")?;
    /// let batches = std::thread::spawn(move || reader.stats().batches).join().expect("no panic");
    /// assert_eq!(batches, 1);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn stats_reader(&self) -> StatsReader {
        self.core.stats_reader()
    }

    /// The warnings since the loader was built, including those of `build`.
    pub fn warnings(&self) -> &[Warning] {
        &self.core.statistics.warnings.list
    }

    /// Returns a handle that stops this loader from any thread.
    ///
    /// ```
    /// use slotline::{Error, Loader};
    /// use slotline::dataset::TensorDataset;
    ///
    /// let mut loader = Loader::builder(TensorDataset::new(vec![0_u8; 8])?).batch_size(2).num_workers(1).build()?;
    /// let stopper = loader.stopper();
    /// let mut pass = loader.epoch()?;
    /// assert_eq!(pass.next().expect("a batch")?.len(), 2);
    /// std::thread::spawn(move || stopper.stop()).join().expect("no panic");
    /// assert!(matches!(pass.next(), Some(Err(Error::Stopped))));
    /// assert!(pass.next().is_none());
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn stopper(&self) -> Stopper {
        self.core.backend.stopper()
    }
}

/// Iterates over one pass. If [`epoch`](Loader::epoch) fails, its error is the only item.
///
/// ```
/// use slotline::Loader;
/// use slotline::dataset::TensorDataset;
///
/// let mut loader = Loader::builder(TensorDataset::new(vec![1_i64, 2, 3])?).batch_size(2).build()?;
/// for batch in &mut loader {
///     println!("{:?}", batch?.tensors());
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
impl<'a, B: Output> IntoIterator for &'a mut Loader<B> {
    type Item = Result<B::Item, Error>;
    type IntoIter = Pass<'a, B>;

    fn into_iter(self) -> Pass<'a, B> {
        let refused = self.begin_epoch().err();
        Pass::new(self, refused)
    }
}

impl<B: Output> fmt::Debug for Loader<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("batch_size", &self.batch_size())
            .field("num_workers", &self.core.workers.pool.len())
            .field("depth", &self.depth())
            .field("epochs", &self.next_epoch())
            .finish_non_exhaustive()
    }
}
