//! What can go wrong when a loader is built.

use std::fmt;

use crate::BoxError;
use crate::sample::LayoutError;
use crate::sampler::SamplerError;

/// Why there is no loader.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// An option that must be positive is 0.
    #[error("{option} is 0; give a positive number")]
    Zero {
        /// The option.
        option: &'static str,
    },
    /// Two options exclude each other.
    #[error("{first} and {second} exclude each other; {hint}")]
    Clash {
        /// One option, with its value where that matters.
        first: &'static str,
        /// The other one.
        second: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// A budget is no share.
    #[error("Budget::Share is {share}; give a share from 0 to 1")]
    Share {
        /// What it is.
        share: f64,
    },
    /// The sampler cannot be made, for one because the dataset is empty.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// No sample could be read to learn the fields.
    #[error(
        "sample {index} was read to learn the fields of a sample, and failed; implement Dataset::fields if samples may be bad"
    )]
    Probe {
        /// The index that was tried last.
        index: usize,
        /// Why it failed.
        source: BoxError,
    },
    /// A batch has no possible layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The batches need more memory than there is.
    #[error(
        "{slots} batches of {batch} bytes are {bytes} bytes, and {available} are available; make batch_size, prefetch_factor or num_workers smaller"
    )]
    Memory {
        /// Slots of the ring.
        slots: usize,
        /// Bytes of each.
        batch: usize,
        /// Bytes of all.
        bytes: u128,
        /// Bytes that can be had.
        available: u64,
    },
    /// The order of a pass needs more memory than there is.
    #[error("the order of a pass takes {bytes} bytes, and {available} are available; use a sampler that needs less")]
    OrderMemory {
        /// Bytes of the order; `usize::MAX` if it is even more.
        bytes: usize,
        /// Bytes that can be had.
        available: u64,
    },
    /// The loader would take more memory than [`memory_limit`](crate::loader::Builder::memory_limit) says.
    #[error(
        "the loader needs {needed} bytes, {beside} of them for the order of a pass and the like, and memory_limit is {limit}; {fits}"
    )]
    MemoryLimit {
        /// The limit in bytes.
        limit: usize,
        /// What it would take: with the `prefetch_factor` that was given, or the least one there is.
        needed: usize,
        /// Bytes of that which are not the batches' own.
        beside: usize,
        /// What would fit.
        fits: Fits,
    },
    /// The system refused the memory.
    #[error("the system refused {bytes} bytes for the batches")]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// What it said.
        source: std::io::Error,
    },
    /// [`Builder::memory`](crate::loader::Builder::memory) gave no memory, or too little.
    #[error("the {bytes} bytes for the batches could not be had by Builder::memory")]
    Allocate {
        /// Bytes asked for.
        bytes: usize,
        /// Why not.
        source: BoxError,
    },
    /// More slots or parts than a ring can count.
    #[error("{option} is {value}, and at most {most} can be had")]
    TooMany {
        /// The option.
        option: &'static str,
        /// Its value.
        value: usize,
        /// The greatest value.
        most: usize,
    },
    /// There is no such core.
    #[error("affinity names core {core}, and this process may use {usable}")]
    NoSuchCore {
        /// The core.
        core: usize,
        /// What there is instead.
        usable: String,
    },
    /// A worker thread could not be started.
    #[error("worker {worker} could not be started; make num_workers smaller")]
    Thread {
        /// Its number.
        worker: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The watchdog's thread could not be started.
    #[error("the watchdog's thread could not be started; make num_workers smaller, or drop watchdog")]
    Watchdog {
        /// What the system said.
        source: std::io::Error,
    },
}

/// What would fit below a [memory limit](crate::loader::Builder::memory_limit): the greatest that does, with all other options as
/// they are but for [`prefetch_factor`](crate::loader::Builder::prefetch_factor), which is left to the builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fits {
    /// This prefetch factor.
    PrefetchFactor(usize),
    /// So many workers.
    NumWorkers(usize),
    /// Smaller batches.
    BatchSize {
        /// Samples in a batch.
        batch_size: usize,
        /// With so many workers.
        workers: usize,
    },
    /// None of these.
    Nothing,
}

impl fmt::Display for Fits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrefetchFactor(batches) => write!(f, "prefetch_factor = {batches} would fit"),
            Self::NumWorkers(workers) => write!(f, "num_workers = {workers} would fit, with no prefetch_factor given"),
            Self::BatchSize { batch_size, workers } => write!(
                f,
                "batch_size = {batch_size} would fit, with num_workers = {workers} and no prefetch_factor given"
            ),
            Self::Nothing => f.write_str("no smaller batches would fit either; raise it"),
        }
    }
}

pub(crate) fn clash<T>(first: &'static str, second: &'static str, hint: &'static str) -> Result<T, BuildError> {
    Err(BuildError::Clash { first, second, hint })
}
