//! The errors of building a loader.

use std::fmt;

use crate::BoxError;
use crate::causes::with_causes;
use crate::sample::LayoutError;
use crate::sampler::SamplerError;

/// The reason why a loader could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// An option that must be positive is 0.
    #[error("{option} is 0; set it to a positive number")]
    Zero {
        /// The name of the option.
        option: &'static str,
    },
    /// Two options exclude each other.
    #[error("{first} and {second} exclude each other; {hint}")]
    Clash {
        /// The name of one of the options, with its value if the value matters.
        first: &'static str,
        /// The name of the other of the two options.
        second: &'static str,
        /// What the user can do about it.
        hint: &'static str,
    },
    /// The maximum share of bad samples is not a number from 0 to 1.
    #[error("the maximum share of bad samples is {share}; set it to a number from 0 to 1")]
    Share {
        /// The value that was given.
        share: f64,
    },
    /// The sampler cannot be made, for example because the dataset is empty.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// No sample could be read to learn the fields.
    #[error(
        "reading sample {index} to learn the fields failed; let the dataset declare its fields if samples may be bad: {}", with_causes(&**source))]
    Probe {
        /// The index of the sample that was tried last.
        index: usize,
        /// The cause of the failure.
        r#source: BoxError,
    },
    /// The fields of the samples cannot be laid out in a batch.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The batches need more memory than is available.
    #[error(
        "{slots} batches of {batch} bytes take {bytes} bytes, but only {available} are available; make batch_size, prefetch_factor or num_workers smaller"
    )]
    Memory {
        /// The number of slots of the ring.
        slots: usize,
        /// Bytes of one batch.
        batch: usize,
        /// Bytes of all batches.
        bytes: u128,
        /// Bytes that are available.
        available: u64,
    },
    /// The order of a pass needs more memory than is available.
    #[error(
        "the order of a pass takes {bytes} bytes, but only {available} are available; use a sampler that needs less, such as CipherSampler"
    )]
    OrderMemory {
        /// The size of the order in bytes; `usize::MAX` if it is even larger.
        bytes: usize,
        /// Bytes that are available.
        available: u64,
    },
    /// The loader would take more memory than
    /// [`memory_limit`](crate::loader::Builder::memory_limit) allows.
    #[error(
        "the loader needs {needed} bytes, {overhead} of them for the order of a pass and other overhead, but memory_limit is {limit}; {fits}"
    )]
    MemoryLimit {
        /// The limit in bytes.
        limit: usize,
        /// Bytes that the loader would take with the given `prefetch_factor`, or with the least
        /// possible one if none is given.
        needed: usize,
        /// Bytes of `needed` that are not for the batches themselves.
        overhead: usize,
        /// Other options that would fit below the limit.
        fits: Fits,
    },
    /// The system refused to allocate the memory.
    #[error("the system refused {bytes} bytes for the batches: {}", with_causes(source))]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// The system's error.
        r#source: std::io::Error,
    },
    /// [`Builder::memory`](crate::loader::Builder::memory) failed, or returned too little memory.
    #[error("the loader's own memory function could not allocate the {bytes} bytes for the batches: {}", with_causes(&**source))]
    Allocate {
        /// Bytes asked for.
        bytes: usize,
        /// The cause of the failure.
        r#source: BoxError,
    },
    /// More workers or slots than the loader supports.
    #[error("{option} is {value}, but the maximum is {most}")]
    TooMany {
        /// The name of the option.
        option: &'static str,
        /// The option's value.
        value: usize,
        /// The maximum.
        most: usize,
    },
    /// A core of [`Affinity::Cores`](crate::loader::Affinity::Cores) does not exist, or this
    /// process may not use it.
    #[error("affinity names core {core}, but this process may only use {usable}")]
    NoSuchCore {
        /// The number of the core.
        core: usize,
        /// The cores that this process may use.
        usable: String,
    },
    /// A worker thread could not be started.
    #[error("worker {worker} could not be started; make num_workers smaller: {}", with_causes(source))]
    Thread {
        /// The worker's number.
        worker: usize,
        /// The system's error.
        r#source: std::io::Error,
    },
    /// The command of [`ProcessBuilder::spawn`](crate::loader::ProcessBuilder::spawn) could not be
    /// started.
    #[error("worker {worker} could not be started by {program}: {}", with_causes(source))]
    Command {
        /// The worker's number.
        worker: usize,
        /// The program of the command.
        program: String,
        /// The system's error.
        r#source: std::io::Error,
    },
    /// This process is a worker that was started by a loader's command, or a child of such a
    /// worker, and builds a loader that would itself start workers by a command.
    #[error(
        "this process was started as a worker, but does not work; call loader::work_if_spawned first in main (or, if a worker has started this program, remove SLOTLINE_WORKER from its environment)"
    )]
    StartedAsWorker,
    /// The watchdog's thread could not be started.
    #[error(
        "the watchdog's thread could not be started; make num_workers smaller, or drop watchdog: {}",
        with_causes(source)
    )]
    Watchdog {
        /// The system's error.
        r#source: std::io::Error,
    },
}

/// Returns an empty list with room for `len` entries. `len` is a number that options determine, so
/// a failed allocation is an error.
pub(crate) fn room_for<T>(len: usize) -> Result<Vec<T>, BuildError> {
    let (mut list, bytes) = (Vec::new(), len.saturating_mul(size_of::<T>()));
    let refused = |_| BuildError::Map { bytes, source: std::io::ErrorKind::OutOfMemory.into() };
    list.try_reserve_exact(len).map_err(refused)?;
    Ok(list)
}

/// The greatest value of an option with which the loader fits below a
/// [memory limit](crate::loader::Builder::memory_limit). All other options are assumed to stay the
/// same, except that [`prefetch_factor`](crate::loader::Builder::prefetch_factor) is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fits {
    /// This prefetch factor.
    PrefetchFactor(usize),
    /// This number of workers.
    NumWorkers(usize),
    /// Smaller batches.
    BatchSize {
        /// Samples in a batch.
        batch_size: usize,
        /// The number of workers.
        workers: usize,
    },
    /// No value of these options fits.
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
            Self::Nothing => f.write_str("no batch size fits; raise memory_limit"),
        }
    }
}

pub(crate) fn clash<T>(first: &'static str, second: &'static str, hint: &'static str) -> Result<T, BuildError> {
    Err(BuildError::Clash { first, second, hint })
}
