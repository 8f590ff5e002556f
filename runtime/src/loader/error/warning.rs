//! What does not keep a loader from loading.

use std::fmt;

/// Something that does not keep a loader from loading, said once, when it is noticed (and through `tracing`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// More workers than cores: they take turns.
    ManyWorkers {
        /// `num_workers`.
        workers: usize,
        /// Cores that this process may use.
        cores: usize,
    },
    /// With `drop_last` there is no batch at all: the batch size is larger than the dataset, or what the sampler draws of it.
    NoBatch {
        /// `batch_size`.
        batch_size: usize,
        /// Samples in a pass.
        samples: usize,
    },
    /// The batches' memory could not be locked.
    NotLocked {
        /// Bytes of it.
        bytes: usize,
        /// `RLIMIT_MEMLOCK` in bytes; `None` if there is no limit.
        limit: Option<u64>,
        /// What the system said.
        reason: String,
    },
    /// `pin_memory` was asked for with a collate function, and nothing says how to pin what it makes.
    NothingToPin,
    /// An iterable dataset gave more samples than its length says: perhaps each worker gives them all.
    Overlong {
        /// Samples so far.
        samples: usize,
        /// What its `len()` says.
        len: usize,
    },
    /// More batches are kept than the loader was made to hold, and so it [took memory](crate::loader::OnHeld::Grow) for one more; as it
    /// will for each further one.
    Kept {
        /// How many it was made to hold while another one is asked for.
        hold: usize,
        /// Bytes that one more takes.
        bytes: usize,
    },
    /// What gives the order, or the samples, cannot be put where the loaded state is: it is asked for all that comes before,
    /// and that is thrown away.
    FastForward {
        /// What it is.
        what: &'static str,
    },
    /// A worker could not be bound to its core.
    NotBound {
        /// The worker.
        worker: usize,
        /// The core.
        core: usize,
    },
    /// Workers were to be bound to cores, and the system does not say which there are.
    UnknownCores,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ManyWorkers { workers, cores } => {
                write!(
                    f,
                    "num_workers is {workers}, and this process may use {cores} cores: more workers take turns on them"
                )
            }
            Self::NoBatch { batch_size, samples } => write!(
                f,
                "a pass has no batch: batch_size is {batch_size}, there are {samples} samples, and drop_last drops what is no whole batch; make batch_size smaller, or do without drop_last"
            ),
            Self::NotLocked { bytes, limit, reason } => {
                let limit = limit.map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit} bytes"));
                write!(
                    f,
                    "{bytes} bytes of batches could not be locked into memory ({reason}): RLIMIT_MEMLOCK is {limit}; raise it (ulimit -l), or make the batches smaller; loading goes on without the lock"
                )
            }
            Self::NothingToPin => f.write_str(
                "pin_memory does nothing for what a collate function makes; say how with pin_memory_with, or drop it",
            ),
            Self::Overlong { samples, len } => write!(
                f,
                "the iterable dataset's len() is {len}, and a pass has given {samples} samples: with several workers each must give a part only (worker_info tells which), or len() must say more"
            ),
            Self::FastForward { what } => write!(
                f,
                "{what} does not save itself, and is asked again for what comes before the state; this takes the longer the later the state is, and gives the same only if it always gives the same"
            ),
            Self::Kept { hold, bytes } => write!(
                f,
                "more batches are kept than hold({hold}) has memory for: each more takes {bytes} bytes, which are counted in Stats::extra_bytes; drop batches sooner, or build the loader with hold(n) to have the memory for n from the start"
            ),
            Self::UnknownCores => {
                f.write_str("affinity does nothing: the system does not say which cores this process may use")
            }
            Self::NotBound { worker, core } => write!(f, "worker {worker} could not be bound to core {core}"),
        }
    }
}
