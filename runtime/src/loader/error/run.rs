//! The errors of a running loader.

use std::fmt;
use std::time::Duration;

use crate::BoxError;
use crate::causes::with_causes;
use crate::loader::error::state::StateError;
use crate::sampler::SamplerError;

/// The reason why there is no batch, or no pass.
///
/// After [`Sample`](Self::Sample) and [`Panic`](Self::Panic) the pass continues with the next
/// batch. After [`Timeout`](Self::Timeout) and [`Held`](Self::Held) the next call asks for the same
/// batch again. After [`Stopped`](Self::Stopped), [`Forked`](Self::Forked) and
/// [`WorkerDied`](Self::WorkerDied) the pass ends at once.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A sample could not be read, or did not match the fields. If a batch has several such
    /// samples, this is the first one.
    #[error("sample {index} of batch {task} failed in {by}: {}", with_causes(&**source))]
    Sample {
        /// The sample's index in the dataset; in an iterable dataset, its number in the worker's
        /// stream, from 0.
        index: usize,
        /// The sample's position in the pass; in an iterable dataset, the same as the index.
        position: usize,
        /// The number of the batch in the pass, from 0.
        task: usize,
        /// The thread that read the sample.
        by: By,
        /// The cause of the failure.
        r#source: BoxError,
    },
    /// The code that reads a sample panicked.
    #[error("sample {index} of batch {task} panicked in {by}: {message}")]
    Panic {
        /// The sample's index, as in [`Sample`](Self::Sample).
        index: usize,
        /// The sample's position, as in [`Sample`](Self::Sample).
        position: usize,
        /// The number of the batch in the pass, from 0.
        task: usize,
        /// The thread that read the sample.
        by: By,
        /// The message of the panic.
        message: String,
    },
    /// A batch has bad samples, and the pass has more of them than
    /// [`on_error`](crate::loader::Builder::on_error) allows. The next batch comes.
    #[error("{bad} samples of this pass are bad, but on_error allows {budget}: {}", with_causes(source))]
    BadSamples {
        /// Bad samples of the pass so far, including those of this batch.
        bad: usize,
        /// The number of bad samples that are allowed.
        budget: usize,
        /// The error of the first sample of this batch that is beyond the budget.
        r#source: Box<Error>,
    },
    /// More than [half](crate::loader::Budget::Minority) of the last samples are bad. Returned
    /// instead of a batch with bad samples; the next batch comes.
    #[error("{bad} of the last {of} samples are bad, and on_error allows half: {}", with_causes(source))]
    MostlyBad {
        /// The number of bad samples.
        bad: usize,
        /// The number of all samples that were counted, 1,000 or more.
        of: usize,
        /// The error of the last bad sample.
        r#source: Box<Error>,
    },
    /// No batch came within the timeout.
    #[error("loader timed out after {} seconds waiting for batch {task}: {}", after.as_secs_f64(), doing(busy, "no worker has started it"))]
    Timeout {
        /// The timeout.
        after: Duration,
        /// The number of the batch that was waited for.
        task: usize,
        /// The workers that are loading that batch, each with the index of the sample that it is
        /// reading.
        busy: Vec<(usize, usize)>,
    },
    /// More batches are kept than there is memory for, and
    /// [`on_held`](crate::loader::Builder::on_held) is set to fail, or the timeout ended while the
    /// loader waited for one to be dropped, or more memory is not available. Each call returns this
    /// error until a batch is dropped; then the next batch comes.
    #[error("more batches are kept than hold = {hold} allows, the oldest of them batch {task} of epoch {epoch}, and there is no memory for the next one; drop one, or build the loader with hold = {}{}", hold + 1, because(source))]
    Held {
        /// The number of the batch that was kept longest.
        task: usize,
        /// The epoch of the batch that was kept longest.
        epoch: u32,
        /// The [`hold`](crate::loader::Builder::hold) that the loader was built with.
        hold: usize,
        /// Why no more memory is available, if the loader asked for it.
        r#source: Option<BoxError>,
    },
    /// The [`worker_init`](crate::loader::Builder::worker_init) of a worker failed, and the worker
    /// takes no part in the pass.
    #[error("worker_init failed in worker {worker}, which takes no part in this pass: {}", with_causes(&**source))]
    WorkerInit {
        /// The worker's number.
        worker: usize,
        /// The cause of the failure.
        r#source: BoxError,
    },
    /// An iterable dataset could not be started in a worker or in the consumer's thread. That
    /// thread reads none of the dataset in this pass.
    #[error("the iterable dataset could not be started in {by}, which was asked for batch {task}: {}", with_causes(&**source))]
    Start {
        /// The number of the batch in the pass, from 0.
        task: usize,
        /// The thread in which it should have started.
        by: By,
        /// The cause of the failure.
        r#source: BoxError,
    },
    /// The user's iterator of indices or batches panicked; the pass ends here.
    #[error("the sampler panicked when it was asked for batch {task}, in {by}: {message}")]
    Sampler {
        /// The number of the batch in the pass, from 0.
        task: usize,
        /// The thread that asked for the batch.
        by: By,
        /// The message of the panic.
        message: String,
    },
    /// The batch sampler of
    /// [`batch_sampler_try_iter`](crate::loader::Builder::batch_sampler_try_iter) returned an
    /// error; the pass ends here.
    #[error("the batch sampler failed when it was asked for batch {task}, in {by}: {}", with_causes(&**source))]
    BatchSampler {
        /// The number of the batch in the pass, from 0.
        task: usize,
        /// The thread that asked for the batch.
        by: By,
        /// The cause of the failure.
        r#source: BoxError,
    },
    /// A batch sampler's list is longer than the announced maximum.
    #[error(
        "the batch sampler returned {len} indices for batch {task}, but the maximum is {most}; raise max_batch_size"
    )]
    LongBatch {
        /// The number of the batch in the pass, from 0.
        task: usize,
        /// The number of indices.
        len: usize,
        /// The maximum number of indices.
        most: usize,
    },
    /// The order of the pass could not be drawn.
    #[error(transparent)]
    Order(#[from] SamplerError),
    /// The pass of the [loaded state](crate::loader::Loader::load_state) cannot be resumed, because
    /// it has fewer batches than were already delivered when the state was saved.
    #[error(transparent)]
    State(#[from] StateError),
    /// The pass has more samples than when the loader was built, which is what the batches were
    /// sized for.
    #[error(
        "the pass has {len} samples, but had {most} when the loader was built and sized its batches; set batch_size to {most} or less, or use a sampler whose len() returns the maximum that it will draw"
    )]
    LongOrder {
        /// The number of samples in the pass.
        len: usize,
        /// The number of samples when the loader was built.
        most: usize,
    },
    /// The pass has more batches than can be counted on a machine of this pointer width.
    #[error("{tasks} batches are more than one pass can have on this machine; make batch_size greater")]
    TooManyBatches {
        /// The number of batches in the pass.
        tasks: usize,
    },
    /// A [`Stopper`](crate::loader::Stopper) was used: neither this pass nor a later one returns
    /// another batch.
    #[error("the loader was stopped; to continue, build a new one and load the state")]
    Stopped,
    /// This process was forked from the one that built the loader, and lacks its workers, or the
    /// memory from [`Builder::memory`](crate::loader::Builder::memory). Other loaders without
    /// workers continue to work.
    #[error(
        "this process was forked from the one that built the loader, and lacks its workers or its memory; to continue, build a new one and load the state"
    )]
    Forked,
    /// The loader cannot continue, because workers have ended. A worker thread ended with a panic
    /// in the loader's own code, which user code cannot cause; or the last [worker
    /// process](crate::loader::Builder::processes) ended, or a worker process whose batches no
    /// other worker makes. No later pass begins.
    #[error("worker {worker} ended, and the loader with it: {message}")]
    WorkerDied {
        /// The worker's number; if several ended, the number of the first one.
        worker: usize,
        /// The message of the panic, or how the process ended.
        message: String,
    },
    /// A batch was dropped before it was complete. User code cannot cause this.
    #[error("batch {task} was lost")]
    Lost {
        /// The number of the batch in the pass, from 0.
        task: usize,
    },
}

impl Error {
    /// Returns the error that caused this one, such as the sample's error, for downcasting; `None`
    /// if there is none. The [`source`](std::error::Error::source) is always `None`, because the
    /// message of this error already includes the cause.
    pub fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sample { source, .. }
            | Self::WorkerInit { source, .. }
            | Self::Start { source, .. }
            | Self::BatchSampler { source, .. }
            | Self::Held { source: Some(source), .. }
            | Self::Order(SamplerError::Other(source))
            | Self::State(StateError::Sampler { source }) => Some(&**source),
            Self::BadSamples { source, .. } | Self::MostlyBad { source, .. } => source.cause(),
            _ => None,
        }
    }
}

/// The thread that read a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum By {
    /// A worker, by its number.
    Worker(usize),
    /// The thread that asked for the batch.
    Consumer,
}

impl By {
    /// Returns the given worker, or the consumer if it is `None`.
    pub(crate) fn of(worker: Option<usize>) -> Self {
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

fn because(source: &Option<BoxError>) -> String {
    source.as_ref().map_or_else(String::new, |source| format!(": {}", with_causes(&**source)))
}

/// Returns a text that says what workers are reading, or `nothing` if the list is empty.
pub(crate) fn doing(busy: &[(usize, usize)], nothing: &str) -> String {
    if busy.is_empty() {
        return nothing.to_owned();
    }
    let each = busy.iter().map(|(worker, index)| format!("worker {worker} is reading sample {index}"));
    each.collect::<Vec<_>>().join(", ")
}
