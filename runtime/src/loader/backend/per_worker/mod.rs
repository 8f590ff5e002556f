//! Workers that each have separate rings: for an [iterable dataset](crate::loader::Loader::iterable), or for a dataset
//! by index whose batches are [dealt out](crate::loader::Builder::round_robin) as torch does.
//!
//! An iterable dataset cannot be shared: each worker reads its own replica, and only that worker knows what comes next.
//! So each worker has a link, which consists of two SPSC rings of `prefetch_factor` slots: one for requests from the
//! consumer to the worker, and one for the replies. The consumer asks the workers in turn, and takes the replies in the
//! order in which it asked. A worker whose dataset has ended says so in its reply, and gets no more requests. This is
//! torch's protocol without the dict that puts results in order: each ring is in order already, and the order of the
//! requests is kept in a queue of at most `prefetch_factor × num_workers` link numbers. With `in_order(false)` the
//! consumer takes any reply that is ready, and asks any worker that has room.
//!
//! Batches must be able to outlive their place in a ring, to be held and dropped in any order. So a reply does not
//! contain the batch, but refers to the memory cell that it is in
//! ([`CellPool`](crate::loader::collate::cell_pool::CellPool)). The consumer leaves a free cell in its place, which the
//! worker fills one lap later. Nothing is copied or allocated.
//!
//! Datasets by index can be loaded in this way, too, to match torch exactly: worker `i mod num_workers` makes batch
//! `i`, in order, and a slow worker keeps its requests.
//!
//! The memory of a cell, and the plan of a pass, are used by one thread at a time, since each hand-over is a hand-over
//! of a slot of an SPSC ring (proved in that module) or of the cell's `free` flag. The consumer writes the plan and
//! gives cells away before it publishes a request or releases a reply; the worker fills a cell before it publishes the
//! reply; and a batch that is dropped sets the flag with release, which the consumer reads with acquire.

pub(crate) mod request_queues;
pub(crate) mod start;
pub(crate) mod worker;

use std::sync::Arc;

use crate::fork::Process;
use crate::loader::backend::per_worker::request_queues::RequestQueues;
use crate::loader::backend::protocol::{Backend, Begin, Begun, Next, NotBegun, StreamPosition};
use crate::loader::checkpoint::state::{Stream, Streams};
use crate::loader::collate::cell_pool::CellPool;
use crate::loader::collate::storage::Storage;
use crate::loader::order::progress::Progress;
use crate::loader::worker::cancel::Stopper;
use crate::loader::worker::pool::WorkerPool;
use crate::wait::Until;

/// The consumer's ends of all workers' rings.
pub(crate) struct PerWorker<P> {
    pub(crate) links: RequestQueues<P>,
    pub(crate) has_init: bool,
    /// Wakes worker threads that wait for their processes.
    pub(crate) rouse: Option<Rouse>,
}

/// Wakes worker threads that wait for something outside of their rings, which have been closed.
pub(crate) type Rouse = Arc<dyn Fn() + Send + Sync>;

impl<P: Storage> Backend<P> for PerWorker<P> {
    fn drain(&mut self, _: &mut Progress, deadline: &Until) -> Result<(), NotBegun> {
        self.links.cancel.set(true);
        if self.links.drain(deadline, P::discard) { Ok(()) } else { Err(NotBegun::Late) }
    }

    fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, NotBegun> {
        let Begin { request, left, from, deadline } = begin;
        let mut failures = Vec::new();
        if self.has_init {
            failures = self.links.init(request, deadline).ok_or(NotBegun::Late)?;
            if self.links.cancel.is_stopped() {
                return Err(NotBegun::Closed);
            }
        }
        self.links.begin(request, left, self.has_init, from);
        // A worker that could not begin is asked for nothing, as if it were at its end.
        Ok(Begun { failures, no_worker_left: false })
    }

    fn try_next(&mut self, _: &Progress, _: &WorkerPool, cell_pool: &mut CellPool<P>) -> Next<P> {
        self.links.try_next(cell_pool)
    }

    fn wait(&mut self, deadline: &Until) -> bool {
        self.links.wait(deadline)
    }

    fn wait_for_release(&mut self, deadline: &Until, cell_pool: &CellPool<P>) -> bool {
        cell_pool.wait(deadline, || self.links.cancel.is_stopped())
    }

    fn is_ready(&self) -> bool {
        self.links.is_ready()
    }

    fn ready(&self) -> usize {
        self.links.ready_count()
    }

    fn close(&self) {
        self.links.close();
        self.rouse.iter().for_each(|rouse| rouse());
    }

    fn stopper(&self) -> Stopper {
        let stop = self.links.stop();
        let Some(rouse) = self.rouse.clone() else { return Stopper::new(stop) };
        let process = Process::this();
        Stopper::new(move || {
            // In a forked process this would stop the parent's loader.
            if process.is_this() {
                stop();
                rouse();
            }
        })
    }

    fn awaited(&self, pass: &Progress) -> usize {
        self.links.task(pass.delivered)
    }

    /// Each worker reads a part that no other worker reads.
    fn cannot_continue(&self) -> bool {
        true
    }

    fn deals_out(&self) -> bool {
        true
    }

    fn streams(&self, samples: Option<usize>) -> Option<Streams> {
        let positions = self.links.links.iter().map(|link| &link.position);
        let stream = |position: &StreamPosition| if samples.is_some() { position.stream() } else { Stream::default() };
        let turn = if samples.is_some() { self.links.after } else { 0 };
        let num_workers = self.links.links.len();
        let (samples, workers) = (samples.unwrap_or_default(), positions.map(stream).collect());
        Some(Streams { num_workers, samples, turn, workers })
    }
}
