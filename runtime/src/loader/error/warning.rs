//! The warnings of a loader.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::loader::error::guard::catch_panic;
use crate::loader::error::run::{By, doing};

/// A problem that does not stop a loader from loading. It is reported once, when it is noticed:
/// through `tracing`, and to [`Builder::on_warning`](crate::loader::Builder::on_warning).
///
/// [`Loader::warnings`](crate::loader::Loader::warnings) lists the warnings about the loader
/// itself. Warnings about single samples and workers, which are counted in the
/// [statistics](crate::loader::Stats), are reported but not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// There are more workers than cores, so the workers share cores.
    ManyWorkers {
        /// The value of `num_workers`.
        workers: usize,
        /// Cores that this process may use.
        cores: usize,
    },
    /// A pass has no batch, because of `drop_last`: the batch size is larger than the dataset, or
    /// than the number of samples that the sampler draws.
    NoBatch {
        /// The value of `batch_size`.
        batch_size: usize,
        /// Samples in a pass.
        samples: usize,
    },
    /// The batches' memory could not be locked.
    NotLocked {
        /// The size of that memory in bytes.
        bytes: usize,
        /// `RLIMIT_MEMLOCK` in bytes; `None` if there is no limit.
        limit: Option<u64>,
        /// The system's error.
        reason: String,
    },
    /// `pin_memory` is set with a collate function, but
    /// [`pin_memory_with`](crate::loader::Builder::pin_memory_with) is not.
    NothingToPin,
    /// An iterable dataset returned more samples than its `len()` says. Perhaps each worker reads
    /// the whole dataset instead of its own part.
    Overlong {
        /// Samples so far.
        samples: usize,
        /// The dataset's `len()`.
        len: usize,
    },
    /// The program is built with `panic = "abort"`: a panic that the loader would otherwise turn
    /// into an error ends the process.
    PanicAborts,
    /// More batches are kept than the loader was built to hold. It
    /// [allocated memory](crate::loader::OnHeld::Grow) for one more, and will do so for each
    /// further one.
    Kept {
        /// The [`hold`](crate::loader::Builder::hold) that the loader was built with.
        hold: usize,
        /// Bytes that each further batch takes.
        bytes: usize,
    },
    /// The source of the order, or of the samples, cannot skip to the position of the loaded state.
    /// Everything before that position is drawn or read again, and discarded.
    FastForward {
        /// The name of the source.
        what: &'static str,
    },
    /// A worker could not be bound to its core.
    NotBound {
        /// The number of the worker.
        worker: usize,
        /// The number of the core.
        core: usize,
    },
    /// Workers should be bound to cores, but the system does not say which cores there are.
    UnknownCores,
    /// The [watchdog](crate::loader::Builder::watchdog) has seen a thread spend too long on a
    /// sample. Reported but not listed; see [`Stats::stuck`](crate::loader::Stats::stuck).
    Stuck {
        /// The sample's index; in an iterable dataset, its number in the worker's stream.
        index: usize,
        /// The number of the sample's batch, from 0; with an iterable dataset, the number of the
        /// consumer's request for that batch.
        batch: usize,
        /// The thread that is reading the sample.
        by: By,
        /// How long the thread has spent on the sample.
        time: Duration,
    },
    /// A sample was [skipped or replaced](crate::loader::Builder::on_error). Reported once for each
    /// index but not listed; see [`Stats::bad_causes`](crate::loader::Stats::bad_causes).
    BadSample {
        /// The sample's index; in an iterable dataset, its number in the worker's stream.
        index: usize,
        /// The number of the sample's batch, from 0.
        batch: usize,
        /// The thread that read the sample.
        by: By,
        /// The error with its sources, or the message of the panic; at most 512 bytes.
        message: String,
    },
    /// The loader was dropped, but some of its threads had not ended within the
    /// [`close_timeout`](crate::loader::Builder::close_timeout). Reported but not listed.
    LeftBehind {
        /// The number of threads that have not ended.
        threads: usize,
        /// The workers among them that are reading a sample, each with the index of that sample.
        busy: Vec<(usize, usize)>,
    },
    /// A [worker process](crate::loader::Builder::processes) ended. Reported but not listed.
    WorkerEnded {
        /// The number of the worker.
        worker: usize,
        /// The signal or exit code with which its process ended.
        end: String,
        /// Whether another process replaces the one that ended.
        replaced: bool,
    },
    /// Packed samples needed more memory than their batch has room for. The memory was [taken from
    /// the heap](crate::loader::Overflow::Spill), and the same will be done for later batches.
    /// Reported for the first such batch but not listed; see
    /// [`Stats::spilled_batches`](crate::loader::Stats::spilled_batches).
    Spilled {
        /// The number of the batch.
        batch: usize,
        /// The name of the field.
        field: String,
        /// The number of items in the batch.
        items: usize,
        /// The number of items to reserve per sample, with which all items of this batch would have
        /// fit.
        room: usize,
    },
}

/// The user's function that is called with each warning, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Listener(Option<Arc<Listen>>);

type Listen = dyn Fn(&Warning) + Send + Sync;

impl Listener {
    pub(crate) fn new(listen: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listen)))
    }

    /// Calls the user's function with a warning that was, or is about to be, emitted through
    /// `tracing`. A panic of the function is reported by the panic hook only.
    pub(crate) fn notify(&self, warning: impl FnOnce() -> Warning) {
        if let Some(listen) = &self.0 {
            catch_panic(|| listen(&warning()));
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.0.is_some()).finish()
    }
}

/// The warnings of a loader so far, and the user's function that is called with each.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    pub(crate) list: Vec<Warning>,
    pub(crate) listener: Listener,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ManyWorkers { workers, cores } => {
                write!(
                    f,
                    "num_workers is {workers}, but this process may only use {cores} cores, so workers take turns on them"
                )
            }
            Self::NoBatch { batch_size, samples } => write!(
                f,
                "a pass has no batch: batch_size is {batch_size}, there are {samples} samples, and drop_last drops an incomplete batch; make batch_size smaller, or drop drop_last"
            ),
            Self::NotLocked { bytes, limit, reason } => {
                let limit = limit.map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit} bytes"));
                write!(
                    f,
                    "{bytes} bytes of batches could not be locked into memory ({reason}): RLIMIT_MEMLOCK is {limit}; raise it (ulimit -l), or make the batches smaller; loading continues without the lock"
                )
            }
            Self::NothingToPin => f.write_str(
                "pin_memory has no effect on the results of a collate function; set pin_memory_with, or drop pin_memory",
            ),
            Self::Overlong { samples, len } => write!(
                f,
                "the iterable dataset's len() is {len}, but a pass has returned {samples} samples; with several workers each must return only its part (see worker_info), or len() must return more"
            ),
            Self::FastForward { what } => write!(
                f,
                "{what} does not save itself, so everything before the state is read from it again; this takes longer the later the state is, and is correct only if it always returns the same sequence"
            ),
            Self::Kept { hold, bytes } => write!(
                f,
                "more batches are kept than hold = {hold} has memory for; each further one takes {bytes} bytes, counted in the statistics (extra_bytes); drop batches sooner, or build the loader with hold = n to have memory for n from the start"
            ),
            Self::PanicAborts => f.write_str(
                "the program is built with panic = \"abort\", so a panic while a sample is read ends it and is no error of the sample; build it with panic = \"unwind\"",
            ),
            Self::UnknownCores => {
                f.write_str("affinity has no effect: the system does not say which cores this process may use")
            }
            Self::NotBound { worker, core } => write!(f, "worker {worker} could not be bound to core {core}"),
            Self::Stuck { index, batch, by, time } => {
                write!(f, "{by} has been working on sample {index} of batch {batch} for {time:.1?}")
            }
            Self::BadSample { index, batch, by, message } => {
                write!(f, "sample {index} of batch {batch} is bad, in {by}: {message}")
            }
            Self::LeftBehind { threads, busy } => write!(
                f,
                "{threads} threads of a dropped loader are still in the dataset's code ({}); let that code look at Context::stop, or wait longer with close_timeout",
                doing(busy, "no worker is reading a sample")
            ),
            Self::WorkerEnded { worker, end, replaced: true } => write!(f, "worker {worker} is replaced: its process {end}"),
            Self::WorkerEnded { worker, end, .. } => write!(f, "worker {worker} is not replaced: its process {end}"),
            Self::Spilled { batch, field, items, room } => write!(
                f,
                "field {field}: batch {batch} has {items} items, more than it has room for, so it took memory from the heap, as later batches will; declare room for {room} per sample (of files: the option `room`) to use the loader's memory"
            ),
        }
    }
}
