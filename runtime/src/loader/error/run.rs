//! What can go wrong while a loader runs.

use std::fmt;
use std::time::Duration;

use crate::BoxError;
use crate::loader::error::state::StateError;
use crate::sampler::SamplerError;

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
    /// A batch with bad samples, of which the pass has more than [`on_error`](crate::loader::Builder::on_error) allows. The next batch
    /// comes.
    #[error(
        "{bad} samples of this pass are bad, and on_error allows {budget}; of this batch the first beyond that: {source}"
    )]
    BadSamples {
        /// Skipped samples of the pass so far, with those of this batch.
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
    /// More batches are kept than there is memory for, and [`on_held`](crate::loader::Builder::on_held) says to fail, or more could not
    /// be had. Each call says so until a batch is dropped; then the next one comes.
    #[error("more batches are kept than hold({hold}) allows, the oldest of them batch {task} of epoch {epoch}, and there is no memory for the next one{}; drop one, or build the loader with hold({})", why(source), hold + 1)]
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
    /// The [`worker_init`](crate::loader::Builder::worker_init) of a worker failed, and the worker takes no part in the pass.
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
    /// The pass that the [loaded state](crate::loader::Loader::load_state) is in cannot be gone on with: there is less in it.
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
    /// A [`Stopper`](crate::loader::Stopper) was used: there will be no more batches, of this pass or another one.
    #[error("the loader was stopped; build a new one to go on, from its state if need be")]
    Stopped,
    /// This process was forked from the one that built the loader, and has none of its workers, or not the memory that it was
    /// [given](crate::loader::Builder::memory). Other loaders without workers go on.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum By {
    /// A worker, by its number.
    Worker(usize),
    /// The thread that asked for the batch.
    Consumer,
}

impl By {
    /// The thread of this worker, or the consumer's.
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
