//! The loader: a dataset, a sampler, worker threads and a ring of slots.
//!
//! [`Loader::builder`] takes torch's options under torch's names; [`Loader::epoch`] starts a pass, an iterator over
//! batches. A batch is a lease on the memory it was written into: dropped, that is used again, and kept, it stays as it is
//! ([`OnHeld`]).
//!
//! # What happens where
//!
//! `build` reads one sample to learn the fields (unless [`Dataset::fields`](crate::Dataset::fields) says them), maps the memory of all batches
//! and touches the first one's (with `pin_memory`, a `timeout`, or no workers, all of it), and starts `num_workers`
//! threads, which live as long as the loader (it returns when they run). They touch the rest of the memory before they
//! do anything else. In a pass workers claim rows of the next free slot, read the samples and write them there. The
//! thread that iterates does the same work while it would otherwise wait, unless [`help`](Builder::help) is off (as it
//! is by default with `in_order(false)`) or there is a [`timeout`](Builder::timeout); with `num_workers` 0 it does all
//! of it. As long as it makes batches faster by itself than they could be passed between cores, which takes about 0.2
//! µs, workers nap, for up to a millisecond at a time. After the first lap of the ring the loader allocates nothing, in
//! this pass and in later ones, unless packed samples [may spill](Overflow::Spill) and do, or more batches are kept than it was
//! [made to hold](Builder::hold).
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
//! ([`Loader::iterable`]), and where batches are dealt out as torch does ([`round_robin`](Builder::round_robin)), each worker has
//! a ring of its own, and these differ: each batch is made by one worker, and the calling thread loads only if there are no
//! workers.
//!
//! # When things go wrong
//!
//! | what | outcome |
//! |---|---|
//! | a sample's error, or a panic | [`Error::Sample`] or [`Error::Panic`] in the place of its batch, with index and worker; the next batch comes |
//! | the same with [`on_error`](Builder::on_error) | the sample is left out or replaced, and said once; beyond the budget [`Error::BadSamples`], and the next batch comes |
//! | a sample that takes long | with a [`watchdog`](Builder::watchdog) a warning that names it, and an entry in [`Stats::stuck`]; nothing is stopped |
//! | no batch within the timeout | [`Error::Timeout`] with the indices being read; the next call waits again |
//! | more batches kept than [`hold`](Builder::hold) says | more memory, which is counted and said once; or what else [`on_held`](Builder::on_held) says: a wait, or [`Error::Held`] |
//! | no more memory for them, by the [limit](Builder::memory_limit) or the system | [`Error::Held`] from each call, with the batch that was kept longest; after any is dropped the next one comes |
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
//! | a batch leaked (`mem::forget`) | it counts as one that is kept for ever |
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
//! | the `drop` of the dataset, or of memory from [`Builder::memory`] | comes out of dropping the loader, unless a worker, or a batch that is kept, was the last one to have it: then nothing |
//! | [`Memory`](crate::arena::Memory)'s functions, or the `drop` of what the closure of [`Builder::memory`] has | an error of `build`, or of [growing](OnHeld::Grow); of the `drop`, nothing |
//! | a panic hook, the destructor of a thread-local, a `drop` while another panic unwinds | ends the process, as everywhere in Rust. (A global allocator must not panic at all) |
//!
//! "Nothing" means that the loader goes on and nothing is lost; the panic hook has said what happened.
//!
//! And when the system fails (on Linux, where each of these is tried):
//!
//! | what | outcome |
//! |---|---|
//! | no memory for the batches, or the order of a pass | [`BuildError::Map`], [`BuildError::Memory`]; [`Error::Order`] from `epoch`, and the next call tries again |
//! | no memory while a pass runs | it needs none, but for batches that are kept ([above](#when-things-go-wrong)); packed samples that would spill are [`Error::Sample`]. What samples allocate themselves, and small things when a loader is built, end the process if they can't be had, as everywhere in Rust |
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
//! - A loader without workers goes on, and batches can be kept as before. Its memory is not locked any more: `mlock` ends with a
//!   fork.
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
mod bad_samples;
mod build;
mod builder;
mod checkpoint;
mod collate;
mod consumer;
mod cores;
mod error;
mod metrics;
mod order;
mod spans;
mod worker;

pub use self::bad_samples::{Budget, OnError};
pub use self::builder::Builder;
pub use self::checkpoint::state::State;
pub use self::collate::batch::{Batch, BatchOf};
pub use self::collate::on_held::OnHeld;
pub use self::collate::overflow::Overflow;
pub use self::collate::samples::Samples;
pub use self::collate::stack::Stack;
pub use self::collate::with::{Collated, With};
pub use self::collate::{Collate, Output};
pub use self::consumer::loader::Loader;
pub use self::consumer::pass::Pass;
pub use self::cores::Affinity;
pub use self::error::build::{BuildError, Fits};
pub use self::error::run::{By, Error};
pub use self::error::state::StateError;
pub use self::error::warning::Warning;
pub use self::metrics::bad_samples::BadSample;
pub use self::metrics::reader::StatsReader;
pub use self::metrics::stats::{Slow, Stats, Stuck, WorkerStats};
pub use self::metrics::verdict::{Bound, Verdict};
#[doc(hidden)]
pub use self::spans::PassSpan;
pub(crate) use self::spans::tell;
pub use self::worker::cancel::Stopper;
pub use self::worker::threads::GRACE;
