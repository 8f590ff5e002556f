//! What a loader and its backends say to each other, and the code that fills batches.

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

/// Where a loader's batches come from.
pub(crate) trait Backend<P> {
    /// Takes the rest of a pass, whose delivered part is `pass`, and discards it.
    fn drain(&mut self, _pass: &mut Progress, _deadline: &Until) -> Result<(), NotBegun> {
        Ok(())
    }

    /// Begins a pass, after all workers have run their `worker_init`.
    fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, NotBegun>;

    /// Returns the next batch or failure if it is ready; makes it now if the calling thread makes batches.
    fn try_next(&mut self, pass: &Progress, pool: &WorkerPool, cell_pool: &mut CellPool<P>) -> Next<P>;

    /// Sets whether the calling thread helps the workers, if it can do without. Returns whether it has helped them.
    fn set_helping(&mut self, _helps: bool) -> bool {
        false
    }

    /// Waits while [`try_next`](Self::try_next) would return `Empty`; `false` if the deadline passed first.
    fn wait(&mut self, _deadline: &Until) -> bool {
        true
    }

    /// Waits while [`try_next`](Self::try_next) would return `Held`; `false` if the deadline passed first.
    fn wait_for_release(&mut self, deadline: &Until, cell_pool: &CellPool<P>) -> bool;

    /// Describes the delivered batch whose cell is still in a slot, because there was no other to leave there.
    fn kept(&self) -> Option<Tag> {
        None
    }

    /// Whether the next batch, or the end of the pass, is ready.
    fn is_ready(&self) -> bool;

    /// The number of finished batches.
    fn ready(&self) -> usize {
        0
    }

    /// Makes workers begin nothing more of this pass.
    fn seal(&self) {}

    /// Makes the workers end.
    fn close(&self) {}

    /// Returns a handle that stops the loader. It keeps none of the loader's memory.
    fn stopper(&self) -> Stopper;

    /// The number of the batch that would come next in order.
    fn awaited(&self, pass: &Progress) -> usize;

    /// Whether no more batches will come once a worker has ended with a panic.
    fn cannot_continue(&self) -> bool;

    /// Whether each batch belongs to one worker, which no other can help.
    fn deals_out(&self) -> bool {
        false
    }

    /// Returns how far the workers of an iterable dataset are, after `samples` samples; or at the start of a pass if that
    /// is `None`. Unused for a dataset by index.
    fn streams(&self, _samples: Option<usize>) -> Option<Streams> {
        None
    }
}

/// The result of asking for the next batch.
pub(crate) type Next<P> = Result<Ready<P>, NotReady>;

/// A batch, its number and its rows; it may have errors.
pub(crate) struct Ready<P> {
    pub(crate) lease: Lease<P>,
    pub(crate) task: usize,
    pub(crate) rows: usize,
}

/// Why the consumer gets no batch. It is small, so that the batch in the other case stays in registers.
pub(crate) enum NotReady {
    Failed {
        failure: Box<Failure>,
        task: usize,
    },
    /// A batch that was never published, which user code cannot cause.
    Lost {
        task: usize,
    },
    /// No batch yet, but the next call may have one.
    Again,
    Empty,
    /// More batches are kept than there is memory for.
    Held,
    /// The loader was stopped, or has lost its workers. Batches made ahead stay in their slots, so that none of them
    /// counts as delivered.
    Closed,
    End,
}

/// A pass to begin.
pub(crate) struct Begin<'a> {
    pub(crate) request: Request,
    /// The number of batches still to come, if that is known.
    pub(crate) left: Option<usize>,
    /// The part of the pass that was already delivered.
    pub(crate) from: Option<&'a State>,
    pub(crate) deadline: &'a Until,
}

/// A pass that has begun.
pub(crate) struct Begun {
    /// Workers that could not begin, by number.
    pub(crate) failures: Vec<(usize, BoxError)>,
    /// Whether no thread is left to load.
    pub(crate) no_worker_left: bool,
}

/// Why a pass did not begin, or the previous one did not end.
pub(crate) enum NotBegun {
    /// The deadline passed first.
    Late,
    Closed,
    TooMany,
}

/// A request to a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    /// The batch; `None` means to run the user's `worker_init`.
    pub(crate) task: Option<usize>,
    /// The pass, by its number and base seed.
    pub(crate) epoch: u32,
    pub(crate) seed: u64,
    /// A count of passes, in which each resumed pass counts again.
    pub(crate) pass: u64,
    /// How many bad samples the pass may have.
    pub(crate) budget: usize,
}

/// How far a worker of an iterable dataset is in its pass.
#[derive(Debug, Default)]
pub(crate) struct StreamPosition {
    /// Samples asked for.
    pub(crate) samples: usize,
    pub(crate) ended: bool,
    /// Whether `saved` is what the dataset saved of its cursor.
    pub(crate) saves: bool,
    pub(crate) saved: String,
}

impl StreamPosition {
    /// Makes a mark with room for what most cursors save.
    pub(crate) fn new() -> Self {
        Self { saved: String::with_capacity(64), ..Self::default() }
    }

    /// Sets the mark to the worker's place in a state, or to the start.
    pub(crate) fn start(&mut self, stream: Option<&Stream>) {
        self.saved.clear();
        (self.samples, self.ended, self.saves) = (0, false, false);
        if let Some(stream) = stream {
            (self.samples, self.ended, self.saves) = (stream.samples, stream.ended, stream.saved.is_some());
            self.saved.extend(stream.saved.as_deref());
        }
    }

    /// Returns the mark as it is saved in a state.
    pub(crate) fn stream(&self) -> Stream {
        let saved = (self.saves && !self.ended).then(|| self.saved.clone());
        Stream { samples: self.samples, ended: self.ended, saved }
    }
}

/// Where a pass begins: at a place in the stream, from which the samples before number `until` are skipped.
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

/// The outcome of a request.
#[derive(Debug, Default)]
pub(crate) enum Outcome {
    /// No batch, and no more of them in this pass.
    #[default]
    End,
    /// A batch of this many rows, or a failure in the cell.
    Batch(usize),
    /// The `worker_init` was run.
    Ready(Result<(), BoxError>),
    /// No reply, since the worker ends.
    Over,
}

/// Fills whole batches: those that a worker is asked for, or in the calling thread all of them.
pub(crate) trait BatchWorker<P>: Send {
    /// Runs in the worker's thread before anything is asked of it.
    fn start(&mut self) {}

    /// Runs the user's `worker_init`, which is `hook`.
    fn init(&mut self, hook: &mut InitHook, info: WorkerInfo, _request: Request) -> Result<(), BoxError> {
        hook.run(info)
    }

    /// Sets where in its stream the worker begins the next pass, in another process than the loader's.
    #[cfg(processes)]
    fn start_at(&mut self, _start: Start) {}

    /// Fills a batch; never panics, even if user code does.
    fn fill(&mut self, request: &Request, task: usize, work: &BatchState<P>, position: &mut StreamPosition) -> Outcome;

    /// Why nothing more can be asked of the worker after this reply, if so.
    fn over(&mut self) -> Option<String> {
        None
    }
}
