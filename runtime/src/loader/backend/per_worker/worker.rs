//! The worker's end of a link.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use slotline_core::spsc::{self, NextError, Slot};

use crate::BoxError;
use crate::dataset::WorkerInfo;
use crate::loader::checkpoint::state::Stream;
use crate::loader::collate::cell::Owned;
use crate::loader::collate::slot_state::SlotState;
use crate::loader::error::guard::take_message;
use crate::loader::metrics::activity::Activity;
use crate::loader::spans;
use crate::loader::worker::deaths::Deaths;
use crate::loader::worker::init_barrier::InitHook;
use crate::placed::Placed;
use crate::sync::{Instant, mishap};
use crate::wait::Waiter;

/// A ring of a link, in either direction.
pub(crate) type Ring<T> = spsc::Ring<Box<[Slot<T>]>, Arc<Waiter>>;

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

/// A worker's reply.
pub(crate) struct Reply<P> {
    /// The memory that a batch was, or will be, written into.
    pub(crate) cell: Owned<P>,
    pub(crate) task: usize,
    pub(crate) outcome: Outcome,
    pub(crate) mark: Mark,
}

/// How far a worker of an iterable dataset is in its pass.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    /// Samples asked for.
    pub(crate) samples: usize,
    pub(crate) ended: bool,
    /// Whether `saved` is what the dataset saved of its cursor.
    pub(crate) saves: bool,
    pub(crate) saved: String,
}

impl Mark {
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

/// Fills the batches that a worker is asked for.
pub(crate) trait MakeBatch<P>: Send {
    /// Runs in the worker's thread before anything is asked of it.
    fn start(&mut self) {}

    /// Runs the user's `worker_init`, which is `hook`.
    fn init(&mut self, hook: &mut InitHook, info: WorkerInfo, _request: Request) -> Result<(), BoxError> {
        hook.run(info)
    }

    /// Fills a batch; never panics, even if user code does.
    fn fill(&mut self, request: Request, task: usize, work: &SlotState<P>, mark: &mut Mark) -> Outcome;

    /// Why nothing more can be asked of the worker after this reply, if so.
    fn over(&mut self) -> Option<String> {
        None
    }
}

/// A worker, with its ends of the two rings.
pub(crate) struct RingWorker<P, H> {
    pub(crate) id: usize,
    pub(crate) workers: usize,
    pub(crate) requests: spsc::Consumer<Arc<Ring<Request>>>,
    pub(crate) replies: spsc::Producer<Arc<Ring<Reply<P>>>>,
    pub(crate) start: Option<InitHook>,
    pub(crate) maker: H,
    /// The activities of all threads: of the workers, and last of the consumer.
    pub(crate) activities: Placed<[CachePadded<Activity>]>,
    pub(crate) deaths: Arc<Deaths>,
}

impl<P, H: MakeBatch<P>> RingWorker<P, H> {
    /// Runs the worker until its rings are closed.
    pub(crate) fn work(&mut self) {
        self.activities[self.id].enter_thread();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.answer()));
        self.activities[self.id].leave_thread();
        if let Err(panic) = outcome {
            // Recorded before the ends of the rings are dropped, which makes the consumer check for it.
            self.deaths.ends(self.id, format!("a panic in the loader's own code: {}", take_message(panic)));
        }
    }

    /// Answers all requests until the rings are closed.
    fn answer(&mut self) {
        self.maker.start();
        while let Some(request) = self.next_request() {
            mishap();
            let Ok(mut reply) = self.replies.claim() else { return };
            reply.outcome = match (request.task, &mut self.start) {
                (Some(task), _) => {
                    reply.task = task;
                    let reply = &mut *reply;
                    self.maker.fill(request, task, reply.cell.work(), &mut reply.mark)
                }
                (None, Some(hook)) => {
                    let info = WorkerInfo::new(self.id, self.workers, request.seed);
                    Outcome::Ready(self.maker.init(hook, info, request))
                }
                (None, None) => Outcome::Ready(Ok(())),
            };
            if !matches!(reply.outcome, Outcome::Over) {
                reply.publish();
            }
            mishap();
            if let Some(message) = self.maker.over() {
                self.deaths.ends(self.id, message);
                return;
            }
        }
    }

    /// Returns the next request, and times the wait for it, if there is one.
    fn next_request(&mut self) -> Option<Request> {
        match self.requests.try_next() {
            Ok(request) => return Some(*request),
            Err(NextError::Empty) => {}
            Err(_) => return None,
        }
        let span = spans::wait();
        let begun = Instant::now();
        let request = self.requests.next().map(|request| *request);
        drop(span);
        // Time before the pass does not count as waiting for a slot.
        let pass = self.activities.last().and_then(|consumer| consumer.counters.pass_begun());
        self.activities[self.id].counters.waited(begun.max(pass.unwrap_or(begun)));
        request.ok()
    }
}
