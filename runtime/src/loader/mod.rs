//! The loader: a dataset, a sampler, worker threads and a ring of slots.
//!
//! [`Loader::builder`] takes torch's options under torch's names, and [`Loader::epoch`] starts a
//! pass (an epoch), which is an iterator over batches. A batch gives access to the memory that the
//! workers wrote it into. The loader uses that memory again once the batch is dropped; until then
//! the batch does not change. [`OnHeld`] says what happens if a loop keeps many batches.
//!
//! # How it works
//!
//! [`build`](Builder::build) reads one sample to learn the fields, unless
//! [`Dataset::fields`](crate::Dataset::fields) returns them. It maps the memory of all batches and
//! touches the pages of the first batch. (With `pin_memory`, with a `timeout` or without workers it
//! touches all pages.) It then starts `num_workers` threads, which live as long as the loader, and
//! returns once they run. Before they do anything else, the workers touch the remaining pages.
//!
//! In a pass, workers claim rows of the next free slot, read the samples and write them there. The
//! thread that iterates does the same work while it would otherwise wait, unless
//! [`help`](Builder::help) is off (the default with `in_order(false)`) or there is a
//! [`timeout`](Builder::timeout). With `num_workers` 0 it does all the work. While that thread
//! alone makes batches faster than they could be passed between cores (about 0.2 µs each), the
//! workers sleep, for up to a millisecond at a time.
//!
//! Once each slot of the ring has been used, the loader allocates nothing more, in this pass and in
//! later ones, with two exceptions: packed samples that spill, where that is
//! [allowed](Overflow::Spill), and batches that are kept beyond [`hold`](Builder::hold).
//!
//! The batches of a pass, and their order, depend only on the dataset, the sampler, the seed and
//! `batch_size`. They do not depend on the number of workers, `prefetch_factor`, `part_size`,
//! affinity or timing (except that `in_order(false)` may reorder whole batches), nor on whether a
//! pass was interrupted and [resumed](Loader::load_state).
//!
//! The loader always counts what it does and what it waits for ([`Loader::stats`]). It also emits
//! `tracing` spans: of passes (`pass`, at debug level), of rows being filled (`fill`) and of
//! waiting (`wait`, both at trace level). Without a subscriber for them they cost next to nothing.
//! A [`watchdog`](Builder::watchdog) adds one thread.
//!
//! # Shared and separate rings
//!
//! If the dataset has indices, all workers share one ring, as described above. Each worker has a
//! ring of its own if there is no index ([`Loader::iterable`]), or if the workers take batches in
//! turn as torch's do ([`round_robin`](Builder::round_robin)). Then each batch is made by one
//! worker, and the calling thread loads only if there are no workers.
//!
//! # When things go wrong
//!
//! A panic becomes an error if the program unwinds. In a program built with `panic = "abort"`, the
//! first panic ends the process, whatever the tables below say; each loader then has a
//! [`Warning::PanicAborts`].
//!
//! | what | outcome |
//! |---|---|
//! | a sample's error or panic | [`Error::Sample`] or [`Error::Panic`] instead of its batch, with index and worker; the next batch comes |
//! | a sample's error or panic, with [`on_error`](Builder::on_error) | the sample is left out or replaced, and reported once; if the pass has more bad samples than the [`Budget`] of `on_error` allows, [`Error::BadSamples`] or [`Error::MostlyBad`], and the next batch comes |
//! | a sample that takes long | with a [`watchdog`](Builder::watchdog) a warning that names it, and an entry in [`Stats::stuck`]; nothing is stopped |
//! | no batch within the timeout | [`Error::Timeout`] with the indices being read; the next call waits again |
//! | more batches kept than [`hold`](Builder::hold) allows | the loader allocates more memory, counts it and warns once; or, depending on [`on_held`](Builder::on_held), it waits or returns [`Error::Held`] |
//! | more batches kept than `hold` allows, and no more memory, because of the [limit](Builder::memory_limit) or the system | [`Error::Held`] from each call, with the batch that was kept longest; once any batch is dropped, the next one comes |
//! | `worker_init` fails in a worker | [`Error::WorkerInit`] before the first batch; the pass continues with the other workers, if there are any |
//! | a user's iterator of indices panics, or returns an error | [`Error::Sampler`] or [`Error::BatchSampler`] instead of the batch; the pass ends |
//! | a state that does not fit, or is damaged | [`StateError`] from [`Loader::load_state`], and the loader is unchanged; [`Error::State`] from `epoch` if this is found out only when the order of the pass is drawn |
//! | a pass dropped half-way | workers stop after their current sample; the next pass starts clean |
//! | a panic in the `drop` of a collate function's result, while the rest of a pass is discarded | the next `epoch` panics with it; further such panics come from the calls of `epoch` after that. The first `epoch` that returns starts clean |
//! | the loader is stopped by a [`Stopper`] | [`Error::Stopped`] from `next`, which returns at once if it is waiting, and from every `epoch`; workers end after their current sample; batches already delivered stay valid |
//! | a loader dropped | workers stop after their current sample, and the threads end; batches already delivered stay valid. A thread that is stuck in user code (including destructors of thread-locals and subscribers of `tracing`) is abandoned with the memory it can touch; dropping takes at most [`GRACE`] in all, or [`close_timeout`](Builder::close_timeout) |
//! | a loader dropped by one of its own threads (in a dataset's code, or by a thread-local) | as for any dropped loader, but the thread does not wait for itself, and ends later |
//! | a worker that ends with a panic in the loader's own code | the other workers take over its share. If no worker is left and the caller does not load, or if each worker has a ring of its own: [`Error::WorkerDied`], then and from every `epoch` |
//! | a [worker process](Builder::processes) that ends, by a signal or an exit | [`Error::Sample`] instead of its batch, which names the signal or the exit code; the other workers go on. With [`restart_workers`](ProcessBuilder::restart_workers) the process is replaced, and its samples are read again. With [`on_error`](Builder::on_error) the sample that the process was reading is left out or replaced instead. If no worker is left: [`Error::WorkerDied`] |
//! | a worker process that takes longer than [`sample_timeout`](ProcessBuilder::sample_timeout) for a sample | it is killed and replaced, and an [`Error::Sample`] is returned instead of the batch, or with [`on_error`](Builder::on_error) the sample is left out or replaced |
//! | a command that cannot be started as a [worker](ProcessBuilder::spawn) | [`BuildError::Command`] |
//! | a command that ends without becoming a worker, or whose dataset cannot be made or differs from the loader's | [`Error::WorkerDied`] with the reason, once no worker is left; the command is not started again |
//! | a command that neither ends nor becomes a worker | with a [`timeout`](Builder::timeout) [`Error::Timeout`]; it is killed when the loader is dropped |
//! | a worker process that writes over memory at random | batches with other contents, errors, or [`Error::Stopped`]; the program does not crash |
//! | packed samples that do not fit into their batch | [`Error::Sample`] for the first sample without room, or with [`on_overflow`](Builder::on_overflow) memory from the heap for this batch, which is counted |
//! | a batch leaked (`mem::forget`) | it counts as a batch that is kept forever |
//!
//! User code runs in more places than these. The outcome of a panic there:
//!
//! | where | outcome |
//! |---|---|
//! | `get`, `get_many`, `prefetch`, `next` of an iterable dataset's cursor (its iterator), writing a sample, a collate function, and the `drop` of samples, in a worker or a caller that loads | [`Error::Panic`] instead of the batch; the next batch comes |
//! | a subscriber of `tracing`, at the span `fill` | [`Error::Panic`] instead of the batch, with the subscriber's message and the first sample of the rows that were filled |
//! | a subscriber at other spans or at events, including the `Display` of an error that it formats | only the span or the event is lost; the panic is caught |
//! | `worker_init` | [`Error::WorkerInit`] |
//! | an iterable dataset's `iter` and `resume` | [`Error::Start`] |
//! | an iterable dataset's `save` | the dataset is treated as one that saves nothing |
//! | `next` of a user's iterator of indices | [`Error::Sampler`] |
//! | `Dataset::len`, and `Sampler::len`, `order` and the other methods of a sampler; the closure that makes a user's iterator | propagates out of `build`, `epoch`, `len` or `state`, where it was called; the next call starts again |
//! | `Dataset::fields`, `IterableDataset::fields` | propagates out of `build`, before any thread is started |
//! | the `drop` of an error that was not returned, of a panic's payload, of an iterator, of an iterable dataset's cursor, or of a batch that is dropped with the loader | nothing |
//! | the `drop` of the dataset, or of memory from [`Builder::memory`] | propagates out of dropping the loader, unless a worker, or a batch that is kept, was the last owner: then nothing |
//! | [`Memory`](crate::arena::Memory)'s functions, or the `drop` of what the closure of [`Builder::memory`] captures | an error of `build`, or of [growing](OnHeld::Grow); for the `drop`, nothing |
//! | a panic hook, the destructor of a thread-local, a `drop` while another panic unwinds | aborts the process, as everywhere in Rust. (A global allocator must not panic at all) |
//!
//! "Nothing" means that the loader continues and nothing is lost; the panic hook has reported the
//! panic.
//!
//! Failures of the system (on Linux, where each of these is tested):
//!
//! | what | outcome |
//! |---|---|
//! | no memory for the batches, or the order of a pass | [`BuildError::Map`], [`BuildError::Memory`]; [`Error::Order`] from `epoch`, and the next call tries again |
//! | no memory while a pass runs | the loader needs none, except for batches that are kept ([above](#when-things-go-wrong)); packed samples that would spill are [`Error::Sample`]. A failed allocation of a sample's own memory, or of small things while a loader is built, aborts the process, as everywhere in Rust |
//! | no thread can be started | [`BuildError::Thread`] with the worker, or [`BuildError::Watchdog`]; the threads that were started end first. If the system provides a thread but not the page that std wants with it, std aborts the process |
//! | memory cannot be locked | [`Warning::NotLocked`] with the limit; the memory is used unlocked |
//! | workers cannot be bound to cores | [`Warning::NotBound`], or [`Warning::UnknownCores`]; they run on any core |
//! | no `membarrier`, or no way to populate pages in advance | other fences are used, and pages are populated when they are first written. (If `membarrier` is forbidden after a loader was built, a thread that is about to sleep panics: `next` panics, and a worker ends with a panic in the loader's own code) |
//! | a mapped file that is truncated or written to (which breaks the safety contract of mapping it), removed, or replaced | see [`map_npy`](crate::source::map_npy) for each of these |
//! | a signal while a thread waits | the thread keeps waiting, and no timeout comes early |
//! | a worker, or the whole process, suspended for a while | with a `timeout` [`Error::Timeout`] that names the worker and its sample; everything continues when the suspended worker or process does |
//! | the clock jumps ahead, as after a suspend | timeouts and the watchdog count the jump as elapsed time; nothing else is affected |
//! | the clock goes back, or the time of day changes | nothing: negative durations count as zero |
//! | the process is forked | see [below](#after-a-fork) |
//!
//! # After a fork
//!
//! A child process has a copy of its parent's memory, and of its threads only the one that called
//! `fork`. There:
//!
//! - A loader with workers still returns the batches that are ready, then [`Error::Forked`];
//!   `epoch` returns that error at once. A [`Stopper`] stops a loader only if it has no workers, or
//!   if each worker has a ring of its own.
//! - A loader without workers continues, and its batches can be kept as usual. Its memory is not
//!   locked in the child: `mlock` ends with a fork.
//! - A loader whose batches are in memory from [`Builder::memory`] (page-locked for a device, for
//!   example) returns [`Error::Forked`] from `next` and `epoch` at once, with or without workers:
//!   the child may lack that memory, or may share it with its parent. Reading a batch in such
//!   memory panics. Tensors that were borrowed from such a batch before the fork must not be read.
//! - Dropping a value in the child frees nothing that belongs to the parent, waits for no thread
//!   that exists only in the parent, and touches no memory that may be absent: spilled memory, and
//!   memory from [`Builder::memory`], is leaked. A dataset, and the result of a collate function,
//!   is dropped like any other value if it has no other owner.
//! - A loader that is built in the child works normally. If another thread had a generator locked
//!   when the process forked, the child's copy of the generator is reseeded with an unpredictable
//!   seed ([`SharedGenerator`](crate::rng::SharedGenerator),
//!   [`default_generator`](crate::rng::default_generator)).
//!
//! This holds for forks by the C library's `fork`, which `std` and others use too; a bare `clone`
//! cannot be detected. Locks of other code that were held at the fork stay locked: those of a
//! subscriber of `tracing`, of `stdout`, or a dataset's own mutex. glibc takes care of the
//! allocator.

mod assembly;
mod backend;
mod bad_samples;
mod builder;
mod checkpoint;
mod collate;
mod consumer;
mod cores;
mod error;
mod metrics;
mod order;
mod trace;
pub(crate) mod worker;

#[cfg(processes)]
pub use self::assembly::processes::ProcessBuilder;
#[cfg(processes)]
pub use self::assembly::share::Share;
#[cfg(processes)]
pub use self::assembly::spawned::{Work, work_if_spawned};
pub use self::bad_samples::{Budget, OnError};
pub use self::builder::Builder;
pub use self::checkpoint::merge::MergeError;
pub use self::checkpoint::state::State;
pub use self::collate::batch::{Batch, BatchOf};
pub use self::collate::on_held::OnHeld;
pub use self::collate::overflow::Overflow;
#[doc(hidden)]
pub use self::collate::poison::AddressSanitizer;
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
pub use self::trace::PassSpan;
pub(crate) use self::trace::tell;
pub use self::worker::cancel::Stopper;
pub use self::worker::threads::GRACE;
