//! The interface between a loader and its backends, and between a backend and the code that fills
//! batches.

use crate::BoxError;
use crate::dataset::WorkerInfo;
use crate::loader::checkpoint::state::{State, Stream, Streams};
use crate::loader::collate::batch_state::BatchState;
use crate::loader::collate::cell::Lease;
use crate::loader::collate::cell_pool::CellPool;
use crate::loader::collate::tag::Tag;
use crate::loader::error::failure::Failure;
use crate::loader::order::progress::Progress;
use crate::loader::worker::cancel::Stopper;
use crate::loader::worker::init_barrier::InitHook;
use crate::loader::worker::pool::WorkerPool;
use crate::wait::Until;

/// A backend: what makes the batches of a loader.
pub(crate) trait Backend<P> {
    /// Waits until the workers have left a pass, of which `pass` was delivered, and discards the
    /// rest of it.
    fn drain(&mut self, _pass: &mut Progress, _deadline: &Until) -> Result<(), NotBegun> {
        Ok(())
    }

    /// Begins a pass. If there is a `worker_init`, all workers run it first.
    fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, NotBegun>;

    /// Returns the next batch or failure, if it is ready. If the calling thread makes batches,
    /// makes it now.
    fn try_next(&mut self, pass: &Progress, pool: &WorkerPool, cell_pool: &mut CellPool<P>) -> Next<P>;

    /// Sets whether the calling thread makes batches while it could also just wait for the workers.
    /// Returns the previous value.
    fn set_helping(&mut self, _helps: bool) -> bool {
        false
    }

    /// Waits while [`try_next`](Self::try_next) would return `Empty`. Returns `false` if the
    /// deadline passed first.
    fn wait(&mut self, _deadline: &Until) -> bool {
        true
    }

    /// Waits while [`try_next`](Self::try_next) would return `Held`. Returns `false` if the
    /// deadline passed first.
    fn wait_for_release(&mut self, deadline: &Until, cell_pool: &CellPool<P>) -> bool;

    /// Returns the description of the delivered batch whose cell is still in a slot, if no free
    /// cell could replace it.
    fn kept(&self) -> Option<Tag> {
        None
    }

    /// Whether the next batch, or the end of the pass, is ready.
    fn is_ready(&self) -> bool;

    /// The number of finished batches that are not delivered yet.
    fn ready(&self) -> usize {
        0
    }

    /// Makes the workers begin nothing more of this pass.
    fn seal(&self) {}

    /// Makes the workers end.
    fn close(&self) {}

    /// Returns a handle that stops the loader. It does not keep the loader's memory alive.
    fn stopper(&self) -> Stopper;

    /// The number of the next batch in order.
    fn awaited(&self, pass: &Progress) -> usize;

    /// Whether the loader can return no more batches because workers have ended.
    fn cannot_continue(&self) -> bool;

    /// Whether each batch is assigned to one worker, and no other thread can help with it.
    fn assigns_batches(&self) -> bool {
        false
    }

    /// Returns the positions of the workers in an iterable dataset, after `samples` delivered
    /// samples, or at the start of a pass if `samples` is `None`. Unused for a dataset by index.
    fn streams(&self, _samples: Option<usize>) -> Option<Streams> {
        None
    }
}

/// The result of asking for the next batch.
pub(crate) type Next<P> = Result<Ready<P>, NotReady>;

/// A batch with its number and the number of its rows. It may have errors.
pub(crate) struct Ready<P> {
    pub(crate) lease: Lease<P>,
    pub(crate) task: usize,
    pub(crate) rows: usize,
}

/// Why the consumer gets no batch. It is small, so that the result with a batch stays in registers.
pub(crate) enum NotReady {
    Failed {
        failure: Box<Failure>,
        task: usize,
    },
    /// A batch that was never published. User code cannot cause this.
    Lost {
        task: usize,
    },
    /// There is no batch yet, but the next call may return one.
    Again,
    Empty,
    /// More batches are kept than there is memory for.
    Held,
    /// The loader was stopped, or has lost its workers. Batches that were made ahead stay in their
    /// slots, and none of them counts as delivered.
    Closed,
    End,
}

/// The arguments for beginning a pass.
pub(crate) struct Begin<'a> {
    pub(crate) request: Request,
    /// The number of batches still to come, if it is known.
    pub(crate) left: Option<usize>,
    /// The state from which the pass is resumed, which says what was already delivered.
    pub(crate) from: Option<&'a State>,
    pub(crate) deadline: &'a Until,
}

/// The outcome of beginning a pass.
pub(crate) struct Begun {
    /// The workers whose `worker_init` failed, by number, and their errors.
    pub(crate) failures: Vec<(usize, BoxError)>,
    /// Whether no thread is left that could load.
    pub(crate) no_worker_left: bool,
}

/// Why a pass could not begin, or why the previous one did not end.
pub(crate) enum NotBegun {
    /// The deadline passed first.
    Late,
    Closed,
    TooMany,
}

/// The consumer's request to a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    /// The number of the batch to make; `None` asks the worker to run the user's `worker_init`.
    pub(crate) task: Option<usize>,
    /// The number and the base seed of the pass.
    pub(crate) epoch: u32,
    pub(crate) seed: u64,
    /// The number of calls of `epoch`, in which a resumed pass counts again.
    pub(crate) pass: u64,
    /// How many bad samples the pass may have.
    pub(crate) budget: usize,
}

/// The position of a worker in its part of an iterable dataset.
#[derive(Debug, Default)]
pub(crate) struct StreamPosition {
    /// The number of samples requested from the dataset.
    pub(crate) samples: usize,
    pub(crate) ended: bool,
    /// Whether `saved` contains what the dataset saved for the worker's cursor; `false` if the
    /// dataset saves nothing.
    pub(crate) saves: bool,
    pub(crate) saved: String,
}

impl StreamPosition {
    /// Makes a position with room for what most datasets save for a cursor.
    pub(crate) fn new() -> Self {
        Self { saved: String::with_capacity(64), ..Self::default() }
    }

    /// Sets the position to that of a saved state, or to the start.
    pub(crate) fn start(&mut self, stream: Option<&Stream>) {
        self.saved.clear();
        (self.samples, self.ended, self.saves) = (0, false, false);
        if let Some(stream) = stream {
            (self.samples, self.ended, self.saves) = (stream.samples, stream.ended, stream.saved.is_some());
            self.saved.extend(stream.saved.as_deref());
        }
    }

    /// Returns the position in the form in which a state saves it.
    pub(crate) fn stream(&self) -> Stream {
        let saved = (self.saves && !self.ended).then(|| self.saved.clone());
        Stream { samples: self.samples, ended: self.ended, saved }
    }
}

/// Where a pass over an iterable dataset begins: at a position, from which the samples before
/// number `until` are skipped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    pub(crate) stream: Stream,
    pub(crate) until: usize,
}

impl From<Stream> for Start {
    fn from(stream: Stream) -> Self {
        Self { until: stream.samples, stream }
    }
}

/// The outcome of a worker's request.
#[derive(Debug, Default)]
pub(crate) enum Outcome {
    /// No batch, because none is left in this pass.
    #[default]
    End,
    /// A batch of this many rows. The cell contains the batch, or a failure.
    Batch(usize),
    /// The `worker_init` was run, with this result.
    Ready(Result<(), BoxError>),
    /// No outcome: the worker ends and sends no reply.
    Over,
}

/// Fills whole batches: in a worker those that are requested from it, and in the calling thread all
/// batches.
pub(crate) trait BatchWorker<P>: Send {
    /// Runs in the worker's thread before the first request.
    fn start(&mut self) {}

    /// Runs the user's `worker_init`, which is in `hook`.
    fn init(&mut self, hook: &mut InitHook, info: WorkerInfo, _request: Request) -> Result<(), BoxError> {
        hook.run(info)
    }

    /// Sets where in its stream the worker begins the next pass. For workers in other processes
    /// than the loader's.
    #[cfg(processes)]
    fn start_at(&mut self, _start: Start) {}

    /// Fills a batch. Never panics, even if user code does.
    fn fill(&mut self, request: &Request, task: usize, work: &BatchState<P>, position: &mut StreamPosition) -> Outcome;

    /// Returns a message if the worker ends after this reply and takes no more requests.
    fn over(&mut self) -> Option<String> {
        None
    }
}
