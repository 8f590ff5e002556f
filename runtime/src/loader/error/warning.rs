//! The warnings of a loader.

use std::fmt;

/// A problem that does not stop a loader from loading. It is reported once, when it is noticed (also through
/// `tracing`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// There are more workers than cores, so they take turns.
    ManyWorkers {
        /// `num_workers`.
        workers: usize,
        /// Cores that this process may use.
        cores: usize,
    },
    /// With `drop_last` a pass has no batch: the batch size is larger than the dataset, or than the sampler's draw.
    NoBatch {
        /// `batch_size`.
        batch_size: usize,
        /// Samples in a pass.
        samples: usize,
    },
    /// The batches' memory could not be locked.
    NotLocked {
        /// Bytes of that memory.
        bytes: usize,
        /// `RLIMIT_MEMLOCK` in bytes; `None` if there is no limit.
        limit: Option<u64>,
        /// The system's error.
        reason: String,
    },
    /// `pin_memory` is set with a collate function, but [`pin_memory_with`](crate::loader::Builder::pin_memory_with) is
    /// not.
    NothingToPin,
    /// An iterable dataset returned more samples than its length: perhaps each worker reads all of them.
    Overlong {
        /// Samples so far.
        samples: usize,
        /// The dataset's `len()`.
        len: usize,
    },
    /// More batches are kept than the loader was built to hold, so it [took memory](crate::loader::OnHeld::Grow) for
    /// one more, and will do so for each further one.
    Kept {
        /// The [`hold`](crate::loader::Builder::hold) that the loader was built with.
        hold: usize,
        /// Bytes that each further batch takes.
        bytes: usize,
    },
    /// The source of the order, or of the samples, cannot be set to where the loaded state is. It is asked again for
    /// everything before that, which is discarded.
    FastForward {
        /// That source.
        what: &'static str,
    },
    /// A worker could not be bound to its core.
    NotBound {
        /// The worker.
        worker: usize,
        /// The core.
        core: usize,
    },
    /// Workers should be bound to cores, but the system does not say which cores there are.
    UnknownCores,
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
            Self::UnknownCores => {
                f.write_str("affinity has no effect: the system does not say which cores this process may use")
            }
            Self::NotBound { worker, core } => write!(f, "worker {worker} could not be bound to core {core}"),
        }
    }
}
