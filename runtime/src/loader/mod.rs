//! The loader: a dataset, a sampler, worker threads and a ring of slots.
//!
//! [`Loader::builder`] takes torch's options under torch's names; [`Loader::epoch`] starts a pass, an iterator over
//! batches. A batch is a lease on the slot it was written into.
//!
//! # What happens where
//!
//! `build` reads one sample to learn the fields (unless [`Dataset::fields`] says them), maps the memory of all batches
//! and touches the first one's (with `pin_memory`, a `timeout`, or no workers, all of it), and starts `num_workers`
//! threads, which live as long as the loader (it returns when they run). They touch the rest of the memory before they
//! do anything else. In a pass workers claim rows of the next free slot, read the samples and write them there. The
//! thread that iterates does the same work while it would otherwise wait, unless [`help`](Builder::help) is off (as it
//! is by default with `in_order(false)`) or there is a [`timeout`](Builder::timeout); with `num_workers` 0 it does all
//! of it. As long as it makes batches faster by itself than they could be passed between cores, which takes about 0.2
//! µs, workers nap, for up to a millisecond at a time. After the first lap of the ring the loader allocates nothing, in
//! this pass and in later ones, unless packed samples [may spill](Overflow::Spill) and do.
//!
//! The batches of a pass, and their order, depend on the dataset, the sampler, the seed and `batch_size` only: never on
//! the number of workers, `prefetch_factor`, `part_size`, affinity or timing (but for `in_order(false)`, which may
//! reorder whole batches), nor on whether a pass was left and [gone on with](Loader::load_state).
//!
//! What it did and waited for is counted all the while ([`Loader::stats`]). Through `tracing` there are spans of passes
//! (`pass`, at debug level), of rows being filled (`fill`) and of waiting (`wait`, both at trace level); where nobody
//! listens they cost next to nothing. With a [`watchdog`](Builder::watchdog) there is one thread more.
//!
//! # Two ways from the workers
//!
//! Batches of a dataset by index come through one ring that all workers share, as said above. Where there is no index
//! ([`Loader::iterable`]), and where batches are dealt out as torch does ([`build_dealt`](Builder::build_dealt)), each worker has
//! a ring of its own, and these differ: each batch is made by one worker; the calling thread loads only if there are no workers;
//! and it does not matter which batches are held, but only how many.
//!
//! # When things go wrong
//!
//! | what | outcome |
//! |---|---|
//! | a sample's error, or a panic | [`Error::Sample`] or [`Error::Panic`] in the place of its batch, with index and worker; the next batch comes |
//! | the same with [`on_error`](Builder::on_error) | the sample is left out or replaced, and said once; beyond the budget [`Error::BadSamples`], and the next batch comes |
//! | a sample that takes long | with a [`watchdog`](Builder::watchdog) a warning that names it, and an entry in [`Stats::stuck`]; nothing is stopped |
//! | no batch within the timeout | [`Error::Timeout`] with the indices being read; the next call waits again |
//! | all slots held | [`Error::Held`]; after a batch is dropped the next call goes on; if none was, it ends the pass |
//! | `worker_init` fails in a worker | [`Error::WorkerInit`] first of all; the pass goes on with the other workers, if there are any |
//! | a user's iterator of indices panics | [`Error::Sampler`] in the place of the batch; the pass ends |
//! | a state that does not fit, or is damaged | [`StateError`] from [`Loader::load_state`], and the loader is as it was; [`Error::State`] from `epoch` if only the drawn pass shows it |
//! | a pass dropped half-way | workers stop at their current sample; the next pass starts clean |
//! | a panic in the `drop` of what a collate function made, while the rest of a pass is thrown away | it comes out of the next `epoch`, and others like it of those after it; the first `epoch` that returns starts clean |
//! | a [`Stopper`] used | [`Error::Stopped`] from `next`, which returns at once if it waits, and from `epoch`, for ever; workers end at their current sample; batches in hand stay good |
//! | a loader dropped | the same, and the threads end. One that is stuck in user code, which includes destructors of thread-locals and subscribers of `tracing`, is left behind with the memory it can touch; dropping takes at most [`GRACE`] in all |
//! | a loader dropped by one of its own threads (in a dataset's code, or by a thread-local) | the same; the thread does not wait for itself, and ends by itself |
//! | a worker that ends with a panic in the loader's own code | its share goes to the others. When none is left, and the caller does not load, or each worker has a ring of its own, at the first one: [`Error::WorkerDied`], then and from every `epoch` |
//! | packed samples find no room in their batch | [`Error::Sample`] for the one that found none, or with [`on_overflow`](Builder::on_overflow) memory from the heap for this batch, which is counted |
//! | a batch leaked (`mem::forget`) | its slot is lost: the loader says `Held` when it comes round to it |
//!
//! Code of the user's runs in more places than those. A panic there:
//!
//! | where | outcome |
//! |---|---|
//! | `get`, `get_many`, `prefetch`, a cursor's `next`, writing a sample, a collate function, and the `drop` of samples, in a worker or a caller that loads | [`Error::Panic`] in the place of the batch; the next batch comes |
//! | a subscriber of `tracing`, at the span `fill` | the same: the message is the subscriber's, the sample the first one of the rows that were filled |
//! | a subscriber at other spans, at messages, and what it has put in words (`Display` of an error) | nothing is lost but the span or the message, and nothing comes out |
//! | `worker_init` | [`Error::WorkerInit`] |
//! | an iterable dataset's `iter` and `resume`; `save` | [`Error::Start`]; it counts as one that saves nothing |
//! | `next` of a user's iterator of indices | [`Error::Sampler`] |
//! | `Dataset::len`, `Sampler::len`, `order` and the like, what makes a user's iterator | comes out of `build`, `epoch`, `len` or `state`, where it was called; the next call begins anew |
//! | `Dataset::fields`, `IterableDataset::fields` | comes out of `build`, before there are threads |
//! | the `drop` of an error that nobody took, of a panic's payload, of an iterator, of a cursor, or of a batch that is dropped with the loader | nothing |
//! | the `drop` of the dataset, or of memory from [`Builder::memory`] | comes out of dropping the loader, unless a worker was the last one to have it: then nothing |
//! | a panic hook, the destructor of a thread-local, a `drop` while another panic unwinds | ends the process, as everywhere in Rust. (A global allocator must not panic at all) |
//!
//! "Nothing" means that the loader goes on and nothing is lost; the panic hook has said what happened.
//!
//! And when the system fails (on Linux, where each of these is tried):
//!
//! | what | outcome |
//! |---|---|
//! | no memory for the batches, or the order of a pass | [`BuildError::Map`], [`BuildError::Memory`]; [`Error::Order`] from `epoch`, and the next call tries again |
//! | no memory while a pass runs | it needs none; packed samples that would spill are [`Error::Sample`]. What samples allocate themselves, and small things when a loader is built, end the process if they can't be had, as everywhere in Rust |
//! | no thread can be started | [`BuildError::Thread`] with the worker, or [`BuildError::Watchdog`]; those that were started end first. If a thread can be had but not the page that std wants with it, std ends the process |
//! | memory cannot be locked | [`Warning::NotLocked`] with the limit; it is used without |
//! | workers cannot be bound to cores | [`Warning::NotBound`], or [`Warning::UnknownCores`]; they run anywhere |
//! | no `membarrier`, or no pages ahead of time | other fences, and pages when they are first written. (If `membarrier` is forbidden once a loader is built, a thread that is about to sleep panics: `next` does, and a worker ends as above) |
//! | a mapped file that is cut short or written to, which whoever mapped it has promised not to happen; or removed, or replaced | what [`map_npy`](crate::source::map_npy) says of each |
//! | a signal while a thread waits | it waits on, and no timeout comes sooner |
//! | a worker, or the whole process, stopped for a while | with a `timeout` [`Error::Timeout`] that names the worker and its sample; everything goes on when it does |
//! | the clock leaps ahead, as after a suspend | timeouts and the watchdog take it for time that has passed, and nothing else minds |
//! | the clock goes back, or the time of day changes | nothing: times that would be negative count as none |
//! | the process is forked | see [below](#after-a-fork) |
//!
//! # After a fork
//!
//! A child has a copy of its parent's memory, and of its threads only the one that called `fork`. There:
//!
//! - Of a loader with workers, what is ready still comes, then [`Error::Forked`], and from `epoch` at once. A [`Stopper`] stops
//!   only what has no workers, or workers with a ring each.
//! - A loader without workers goes on. Its memory is not locked any more: `mlock` ends with a fork.
//! - A loader in memory that [`Builder::memory`] was given (page-locked for a device, say), with workers or without, is
//!   [`Error::Forked`] from `next` and `epoch` at once, since the child may not have that memory, or may share it. To read a batch
//!   in it panics; tensors of one that were borrowed before the fork must not be read.
//! - Whatever is dropped gives back nothing of its parent's, waits for no thread that is gone, and touches no memory that may not
//!   be there: what spilled, and memory that was given, is leaked. A dataset, and what a collate function made, is dropped as any
//!   other value if nothing else has it.
//! - A loader that is built there is as good as any. If another thread held a generator at the fork, the child's starts over with
//!   an unpredictable seed ([`SharedGenerator`](crate::rng::SharedGenerator), [`default_generator`](crate::rng::default_generator)).
//!
//! This holds for forks by the C library's `fork`, which `std` and others use too: of a bare `clone` nobody hears. What others
//! have locked at the fork stays locked: a subscriber of `tracing`, `stdout`, a dataset's own mutex. glibc sees to the allocator.

mod backend;
mod batch;
mod block;
mod build;
mod builder;
mod clock;
mod collate;
mod crew;
mod draw;
mod engine;
mod error;
mod facts;
mod fate;
mod figures;
mod gate;
mod inner;
mod job;
mod lanes;
mod lease;
mod limit;
mod on_error;
mod options;
mod overflow;
mod pacer;
mod pass;
mod passes;
mod payloads;
mod plan;
mod rest;
mod resume;
mod ring;
mod samples;
mod shared;
mod spans;
mod state;
mod stats;
mod stop;
mod threads;
mod tolerant;
mod verdict;
mod watch;
mod work;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

pub use self::batch::{Batch, BatchOf};
use self::block::Block;
pub use self::builder::{Builder, Values};
pub use self::collate::{Collate, Collated, Output, Stack, With};
pub use self::crew::Affinity;
pub use self::error::{BuildError, By, Error, Warning};
use self::inner::{Inner, Progress};
pub use self::limit::Fits;
pub use self::on_error::{BadSample, Budget, OnError};
pub use self::overflow::Overflow;
pub use self::pass::Pass;
pub use self::samples::Samples;
pub use self::state::{State, StateError};
pub use self::stats::{Slow, Stats, StatsReader, Stuck, WorkerStats};
pub use self::stop::Stopper;
pub use self::verdict::{Bound, Verdict};
use crate::arena::Memory;
use crate::dataset::{Dataset, Iterable, IterableDataset};
use crate::sample::{Dynamic, Field};

/// How long a dropped loader waits, in all, for its threads to come out of user code and to end.
pub const GRACE: Duration = Duration::from_secs(5);
/// At most so many threads: beyond it systems begin to run out of what a thread takes, and std then ends the process.
const MOST_WORKERS: usize = 4096;

/// Feeds a training loop with the batches of a dataset, pass after pass.
///
/// See [`builder`](Self::builder) for the options and the [module](self) for what it does. Its type names what it gives and
/// nothing else: `Loader<Batch<(u8, i64)>>` is any loader of images of bytes with a label each, whatever its dataset, and
/// `Loader<Collated<T>>` one whose batches are made by a [collate function](Builder::collate). `Loader` by itself is one whose
/// batches are read by their [columns](Batch::columns): what [`untyped`](Self::untyped) makes of any loader that stacks samples.
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
    inner: Inner<B::Payload>,
    output: PhantomData<fn() -> B>,
}

impl Loader {
    /// The options of a loader over `dataset`, all at their defaults.
    pub fn builder<D: Dataset>(dataset: D) -> Builder<D> {
        Builder::new(dataset)
    }

    /// The options of a loader over an iterable dataset, all at their defaults.
    ///
    /// Each worker reads and batches what it is given ([`IterableDataset`] says how to share), so that the batches depend on the
    /// number of workers, too; random numbers from [`Context::rng`](crate::dataset::Context::rng) are a function of the worker's
    /// seed, the epoch and the sample's number in what the worker reads.
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
    /// The loader without the type of its samples, to be read by their [columns](Batch::columns): for code that takes any
    /// loader, or keeps several.
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
        Loader { inner: self.inner, output: PhantomData }
    }

    /// The most bytes that [`Columns::bytes`](crate::sample::Columns::bytes) of a batch can have.
    pub fn batch_bytes(&self) -> usize {
        self.inner.block.as_ref().map_or(0, Block::batch_bytes)
    }
}

impl<B: Output> Loader<B> {
    fn new(inner: Inner<B::Payload>) -> Self {
        Self { inner, output: PhantomData }
    }

    /// Starts a pass over the dataset. A pass before it that is not over is given up.
    ///
    /// Draws from the generator as torch does: first a base seed (with [persistent workers](Builder::persistent_workers)
    /// in the first pass only), which [`Context::rng`] and the workers' seeds are made from, then what the sampler wants.
    /// If the pass cannot begin after that, for a timeout in a `worker_init`, the next call begins the same one and draws
    /// nothing, whatever epoch a sampler was set to meanwhile.
    ///
    /// [`Context::rng`]: crate::dataset::Context::rng
    ///
    /// # Errors
    ///
    /// [`Error::Order`], [`Error::LongOrder`], [`Error::TooManyBatches`]; [`Error::Timeout`] if a worker is still stuck in
    /// the pass before, or in its `worker_init`; [`Error::State`] if a loaded state does not fit the pass;
    /// [`Error::WorkerDied`]; [`Error::Stopped`]; [`Error::Forked`].
    pub fn epoch(&mut self) -> Result<Pass<'_, B>, Error> {
        self.begin_epoch()?;
        Ok(Pass::new(self, None))
    }

    /// Starts a pass as [`epoch`](Self::epoch) does, for [`next_batch`](Self::next_batch) to take the batches of: where a
    /// [`Pass`], which borrows the loader, is in the way.
    ///
    /// # Errors
    ///
    /// As [`epoch`](Self::epoch).
    pub fn begin_epoch(&mut self) -> Result<(), Error> {
        self.inner.begin()
    }

    /// The next batch of the pass, or the error in its place; `None` after the last one, and where no pass was begun.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::TensorDataset;
    ///
    /// // Steps, and not epochs: a pass begins when the one before is over.
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
    #[inline]
    pub fn next_batch(&mut self) -> Option<Result<B::Item, Error>> {
        let next = self.inner.next()?;
        Some(next.map(|(lease, tag)| B::deliver(lease, tag)))
    }

    /// As [`next_batch`](Self::next_batch), for a caller that holds batches and could drop some: see [`Pass::next_or_held`].
    pub fn next_or_held(&mut self) -> Option<Result<B::Item, Error>> {
        let waits = std::mem::take(&mut self.inner.waits_for_release);
        let next = self.next_batch();
        (self.inner.waits_for_release, self.inner.pass.held) = (waits, false);
        next
    }

    /// Whether the next batch of the pass, or an error in its place, is there already: see [`Pass::is_ready`].
    pub fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    /// The number of the pass that the next [`epoch`](Self::epoch) gives.
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
        self.inner.epochs
    }

    /// How many batches a pass has; `None` if only its end will tell, as with an iterator for a sampler. Of an iterable dataset
    /// by its own [`len`](IterableDataset::len), and with several workers there may be more that are not full.
    pub fn len(&self) -> Option<usize> {
        self.inner.len()
    }

    /// Whether a pass surely has no batches.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The most samples a batch has.
    pub fn batch_size(&self) -> usize {
        self.inner.batching.batch_size
    }

    /// How many batches there can be at once: those being filled, those ready, and those held.
    pub fn depth(&self) -> usize {
        self.inner.backend.depth()
    }

    /// How many batches can be held while the next one is asked for, at most, so that it is not [refused](Error::Held).
    pub fn most_held(&self) -> usize {
        self.inner.most_held()
    }

    /// The bytes that the loader takes for batches and for the order of a pass, known before the first batch.
    ///
    /// On top come the code, the workers' stacks and some small things, no more than 1 MiB and 128 KiB for each worker: that
    /// is what resident memory may grow by beside the ceiling, however long a pass is (Linux; 0.4 MiB and 15 to 80 KiB were
    /// measured). Not counted are the dataset and what its code allocates, what a [collate function](Builder::collate) makes,
    /// what [spills](Overflow::Spill), the list of [bad samples](Stats::bad_indices), and the longer order of a sampler that
    /// draws more than its `len()` said when the loader was built.
    pub fn memory_ceiling(&self) -> usize {
        self.inner.memory_ceiling
    }

    /// The fields of a batch; `None` if a [collate function](Builder::collate) makes batches.
    pub fn fields(&self) -> Option<impl ExactSizeIterator<Item = &Field>> {
        self.inner.block.as_ref().map(Block::fields)
    }

    /// The memory that all batches are in, one beside the other; `None` if a [collate function](Builder::collate) makes them.
    pub fn memory(&self) -> Option<&dyn Memory> {
        self.inner.block.as_ref().map(Block::memory)
    }

    /// What the loader has done since it was built, and what held it back.
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

    /// What reads the statistics from any thread, at any time: while a pass is iterated, too.
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
        self.inner.stats_reader()
    }

    /// What was noticed when the loader was built, and since.
    pub fn warnings(&self) -> &[Warning] {
        &self.inner.warnings
    }

    /// What stops this loader, from whatever thread.
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
        self.inner.backend.stopper()
    }
}

/// A pass; an error of [`epoch`](Loader::epoch) is its only item.
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
            .field("num_workers", &self.inner.crew.len())
            .field("depth", &self.depth())
            .field("epochs", &self.next_epoch())
            .finish_non_exhaustive()
    }
}
