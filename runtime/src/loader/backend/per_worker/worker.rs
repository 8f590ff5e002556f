//! The worker's end of a link, the pair of rings between the consumer and one worker.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use slotline_core::spsc::{self, NextError, Slot};

use crate::dataset::WorkerInfo;
use crate::loader::backend::protocol::{BatchWorker, Outcome, Request, StreamPosition};
use crate::loader::collate::cell::CellOwner;
use crate::loader::error::guard::take_message;
use crate::loader::metrics::activity::Activity;
use crate::loader::trace;
use crate::loader::worker::init_barrier::InitHook;
use crate::loader::worker::liveness::WorkerLiveness;
use crate::placed::Placed;
use crate::sync::{Instant, fault_point};
use crate::wait::Waiter;

/// One of the two rings of a link.
pub(crate) type Ring<T> = spsc::Ring<Box<[Slot<T>]>, Arc<Waiter>>;

/// A worker's reply to a request.
pub(crate) struct Reply<P> {
    /// The memory for the batch: the worker has written the batch into this cell, or will do so.
    pub(crate) cell: CellOwner<P>,
    pub(crate) task: usize,
    pub(crate) outcome: Outcome,
    pub(crate) position: StreamPosition,
}

/// A worker, with its ends of the two rings of its link.
pub(crate) struct RingWorker<P> {
    pub(crate) id: usize,
    pub(crate) workers: usize,
    pub(crate) requests: spsc::Consumer<Arc<Ring<Request>>>,
    pub(crate) replies: spsc::Producer<Arc<Ring<Reply<P>>>>,
    pub(crate) start: Option<InitHook>,
    pub(crate) maker: Box<dyn BatchWorker<P>>,
    /// The activity of each worker, followed by that of the consumer.
    pub(crate) activities: Placed<[CachePadded<Activity>]>,
    pub(crate) liveness: Arc<WorkerLiveness>,
}

impl<P> RingWorker<P> {
    /// Runs the worker until its rings are closed.
    pub(crate) fn work(&mut self) {
        self.activities[self.id].enter_thread();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.answer()));
        self.activities[self.id].leave_thread();
        if let Err(panic) = outcome {
            // Record this before the ends of the rings are dropped, because the consumer looks for
            // this record when it finds a ring closed.
            self.liveness.ends(self.id, format!("a panic in the loader's own code: {}", take_message(panic)));
        }
    }

    /// Answers requests until the rings are closed.
    fn answer(&mut self) {
        self.maker.start();
        while let Some(request) = self.next_request() {
            fault_point();
            let Ok(mut reply) = self.replies.claim() else { return };
            reply.outcome = match (request.task, &mut self.start) {
                (Some(task), _) => {
                    reply.task = task;
                    let reply = &mut *reply;
                    self.maker.fill(&request, task, reply.cell.state(), &mut reply.position)
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
            fault_point();
            if let Some(message) = self.maker.over() {
                self.liveness.ends(self.id, message);
                return;
            }
        }
    }

    /// Returns the next request. If it has to wait for one, records the time.
    fn next_request(&mut self) -> Option<Request> {
        match self.requests.try_next() {
            Ok(request) => return Some(*request),
            Err(NextError::Empty) => {}
            Err(_) => return None,
        }
        let span = trace::wait();
        let begun = Instant::now();
        let request = self.requests.next().map(|request| *request);
        drop(span);
        // Do not count time before the pass began as waiting.
        let pass = self.activities.last().and_then(|consumer| consumer.counters.pass_begun());
        self.activities[self.id].counters.waited(begun.max(pass.unwrap_or(begun)));
        request.ok()
    }
}
