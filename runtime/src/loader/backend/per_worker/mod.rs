//! The backend in which each worker has rings of its own: for an
//! [iterable dataset](crate::loader::Loader::iterable), or for a dataset by index whose workers
//! make batches [in turn](crate::loader::Builder::round_robin) as torch's do.
//!
//! An iterable dataset cannot be shared: each worker reads its own part, and only that worker knows
//! which sample comes next. So the consumer has a link to each worker. A link consists of two
//! single-producer, single-consumer (SPSC) rings of `prefetch_factor` slots: one for the consumer's
//! requests, and one for the worker's replies. The consumer sends requests to the workers in turn,
//! and takes the replies in the order of the requests. A worker that has reached the end of its
//! part says so in its reply, and gets no more requests.
//!
//! This is torch's protocol without the dictionary that puts results in order. Each ring is in
//! order already, and the order of requests is kept in a queue of at most
//! `prefetch_factor × num_workers` link numbers. With `in_order(false)` the consumer takes any
//! reply that is ready, and sends requests to any worker that has room.
//!
//! A batch must be able to outlive its slot in a ring, since the user may keep batches and drop
//! them in any order. So a reply does not contain the batch, but refers to the memory cell of the
//! batch ([`CellPool`](crate::loader::collate::cell_pool::CellPool)). The consumer puts a free cell
//! into the slot, which the worker fills when the ring comes to this slot again. Nothing is copied
//! or allocated.
//!
//! A dataset by index can be loaded in this way, too, to match torch exactly: worker
//! `i mod num_workers` makes batch `i`, in order, and the requests to a slow worker are not given
//! to others.
//!
//! The memory of a cell, and the plan of a pass, are used by one thread at a time, since they pass
//! between threads only with a slot of an SPSC ring (see the proof in [`slotline_core::spsc`]) or
//! with the cell's [loan](slotline_core::loan). The consumer writes the plan and puts cells into
//! slots before it publishes a request or releases a reply. The worker fills a cell before it
//! publishes the reply. A batch that is dropped gives its cell back with release ordering, and the
//! consumer takes it with acquire ordering.

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

/// The backend in which each worker has rings of its own. It has the consumer's ends of these
/// rings.
pub(crate) struct PerWorker<P> {
    pub(crate) links: RequestQueues<P>,
    pub(crate) has_init: bool,
    /// Wakes worker threads that wait for their worker processes, if they have such processes.
    pub(crate) wake_workers: Option<WakeWorkers>,
}

/// Wakes worker threads that wait for something other than their rings, after the rings were
/// closed.
pub(crate) type WakeWorkers = Arc<dyn Fn() + Send + Sync>;

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
        // A worker whose `worker_init` failed gets no requests, as if its part of the dataset had
        // ended.
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
        self.wake_workers.iter().for_each(|wake_workers| wake_workers());
    }

    fn stopper(&self) -> Stopper {
        let stop = self.links.stop();
        let Some(wake_workers) = self.wake_workers.clone() else { return Stopper::new(stop) };
        let process = Process::this();
        Stopper::new(move || {
            // In a forked process this would stop the parent's loader.
            if process.is_this() {
                stop();
                wake_workers();
            }
        })
    }

    fn awaited(&self, pass: &Progress) -> usize {
        self.links.task(pass.delivered)
    }

    /// Returns `true`, since each worker makes batches that no other worker makes.
    fn cannot_continue(&self) -> bool {
        true
    }

    fn assigns_batches(&self) -> bool {
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
