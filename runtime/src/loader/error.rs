//! What can go wrong when a loader is built, and when it runs.

use std::fmt;
use std::time::Duration;

use super::limit::Fits;
use super::state::StateError;
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
    /// The loader would take more memory than [`memory_limit`](super::Builder::memory_limit) says.
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
    /// [`Builder::memory`](super::Builder::memory) gave no memory, or too little.
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

/// Why there is no batch.
///
/// After [`Sample`](Self::Sample) and [`Panic`](Self::Panic) the pass goes on with the next batch; after
/// [`Timeout`](Self::Timeout) and [`Held`](Self::Held) the next call asks for the same batch again; after [`Stopped`](Self::Stopped), [`Forked`](Self::Forked) and
/// [`WorkerDied`](Self::WorkerDied) it is over at once.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A sample could not be read, or did not fit the fields. Of several in a batch the first one.
    #[error("sample {index} of batch {task} failed in {by}: {source}")]
    Sample {
        /// Its index in the dataset; of an iterable dataset, its number in what this worker reads, from 0.
        index: usize,
        /// Its place in the pass; of an iterable dataset, as the index.
        position: usize,
        /// The batch, counted from 0.
        task: usize,
        /// Who read it.
        by: By,
        /// Why it failed.
        source: BoxError,
    },
    /// The code that reads a sample panicked.
    #[error("sample {index} of batch {task} panicked in {by}: {message}")]
    Panic {
        /// As of an error.
        index: usize,
        /// As of an error.
        position: usize,
        /// The batch, counted from 0.
        task: usize,
        /// Who read it.
        by: By,
        /// What the panic said.
        message: String,
    },
    /// A batch with bad samples, of which the pass has more than [`on_error`](super::Builder::on_error) allows. The next batch
    /// comes.
    #[error(
        "{bad} samples of this pass are bad, and on_error allows {budget}; of this batch the first beyond that: {source}"
    )]
    BadSamples {
        /// Bad samples of the pass so far, with those of this batch.
        bad: usize,
        /// How many there may be.
        budget: usize,
        /// The error of the first one of this batch that is beyond the budget.
        source: Box<Error>,
    },
    /// No batch within the timeout.
    #[error("loader timed out after {} seconds waiting for batch {task}: {}", after.as_secs_f64(), doing(busy))]
    Timeout {
        /// The timeout.
        after: Duration,
        /// The batch that was waited for.
        task: usize,
        /// Which workers are at it, and the index that each reads.
        busy: Vec<(usize, usize)>,
    },
    /// More batches are kept than there is memory for, and [`on_held`](super::Builder::on_held) says to fail, or more could not
    /// be had. Each call says so until a batch is dropped; then the next one comes.
    #[error("more than {hold} batches are kept, the oldest of them batch {task} of epoch {epoch}, and there is no memory for the next one{}; drop one, or build the loader with hold({})", why(source), hold + 1)]
    Held {
        /// The batch that was kept longest.
        task: usize,
        /// Its pass.
        epoch: u32,
        /// How many batches this loader was made to hold while another one is asked for.
        hold: usize,
        /// Why no more memory could be had, if it was asked for.
        source: Option<BoxError>,
    },
    /// The [`worker_init`](super::Builder::worker_init) of a worker failed, and the worker takes no part in the pass.
    #[error("worker_init failed in worker {worker}, which takes no part in this pass")]
    WorkerInit {
        /// Its number.
        worker: usize,
        /// Why it failed.
        source: BoxError,
    },
    /// An iterable dataset could not be started in a worker, or in the consumer's thread; there is nothing of it from there.
    #[error("the iterable dataset could not be started in {by}, which was asked for batch {task}")]
    Start {
        /// The batch, counted from 0.
        task: usize,
        /// Where it was to be started.
        by: By,
        /// Why it failed.
        source: BoxError,
    },
    /// The user's iterator of indices or batches panicked; the pass ends here.
    #[error("the sampler panicked when it was asked for batch {task}, in {by}: {message}")]
    Sampler {
        /// The batch, counted from 0.
        task: usize,
        /// Who asked it.
        by: By,
        /// What the panic said.
        message: String,
    },
    /// A batch sampler's list is longer than it had said.
    #[error("the batch sampler gave {len} indices for batch {task}, and said at most {most}; raise max_batch_size")]
    LongBatch {
        /// The batch, counted from 0.
        task: usize,
        /// How many there are.
        len: usize,
        /// How many there can be.
        most: usize,
    },
    /// The order of the pass could not be drawn.
    #[error(transparent)]
    Order(#[from] SamplerError),
    /// The pass that the [loaded state](super::Loader::load_state) is in cannot be gone on with: there is less in it.
    #[error(transparent)]
    State(#[from] StateError),
    /// The pass has more samples than it had when the loader was built, and the batches were made for those.
    #[error(
        "the pass has {len} samples, and had {most} when the loader was built, which its batches were made for; give a batch_size of {most} or less, or a sampler whose len() says the most that it will draw"
    )]
    LongOrder {
        /// Samples of the pass.
        len: usize,
        /// How many it had.
        most: usize,
    },
    /// More batches than a pass can count on a machine of this pointer width.
    #[error("{tasks} batches are more than one pass can have on this machine; make batch_size greater")]
    TooManyBatches {
        /// Batches of the pass.
        tasks: usize,
    },
    /// A [`Stopper`](super::Stopper) was used: there will be no more batches, of this pass or another one.
    #[error("the loader was stopped; build a new one to go on, from its state if need be")]
    Stopped,
    /// This process was forked from the one that built the loader, and has none of its workers, or not the memory that it was
    /// [given](super::Builder::memory). Other loaders without workers go on.
    #[error(
        "this process was forked from the one that built the loader, and has none of its workers, or not its memory; build another one, from its state if need be"
    )]
    Forked,
    /// A worker ended with a panic in the loader's own code, which no user code can cause, and what is left of the workers can't
    /// go on without it. No later pass begins.
    #[error("worker {worker} ended with a panic in the loader's own code, and the loader with it: {message}")]
    WorkerDied {
        /// Its number; of several the first one's.
        worker: usize,
        /// What the panic said.
        message: String,
    },
    /// A batch was given up before it was whole, which no user code can cause.
    #[error("batch {task} was lost")]
    Lost {
        /// The batch.
        task: usize,
    },
}

/// The thread that read a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum By {
    /// A worker, by its number.
    Worker(usize),
    /// The thread that asked for the batch.
    Consumer,
}

impl By {
    /// The thread of this worker, or the consumer's.
    pub(super) fn of(worker: Option<usize>) -> Self {
        worker.map_or(Self::Consumer, Self::Worker)
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(id) => write!(f, "worker {id}"),
            Self::Consumer => f.write_str("the consumer's thread"),
        }
    }
}

fn why(source: &Option<BoxError>) -> String {
    source.as_ref().map_or_else(String::new, |source| format!(" ({source})"))
}

fn doing(busy: &[(usize, usize)]) -> String {
    if busy.is_empty() {
        return "no worker has begun it".to_owned();
    }
    let each = busy.iter().map(|(worker, index)| format!("worker {worker} is reading sample {index}"));
    each.collect::<Vec<_>>().join(", ")
}

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
    /// More batches are kept than the loader was made to hold, and so it [took memory](super::OnHeld::Grow) for one more; as it
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
                "more than {hold} batches are kept while another one is asked for: each more takes {bytes} bytes, which are counted in Stats::extra_bytes; drop batches sooner, or build the loader with hold(n) to have the memory for n from the start"
            ),
            Self::UnknownCores => {
                f.write_str("affinity does nothing: the system does not say which cores this process may use")
            }
            Self::NotBound { worker, core } => write!(f, "worker {worker} could not be bound to core {core}"),
        }
    }
}
