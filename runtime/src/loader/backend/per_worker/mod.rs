//! Workers that each have separate rings: for an [iterable dataset](crate::loader::Loader::iterable), or for a dataset
//! by index whose batches are [dealt out](crate::loader::Builder::round_robin) as torch does.
//!
//! An iterable dataset cannot be shared: each worker reads its own replica, and only that worker knows what comes next.
//! So each worker has a link, which consists of two SPSC rings of `prefetch_factor` slots: one for requests from the
//! consumer to the worker, and one for the replies. The consumer asks the workers in turn, and takes the replies in the
//! order in which it asked; a worker that is at its end replies so and is asked no more. That is torch's protocol,
//! without the dict that puts results in order: each ring is in order already, and the order of asking is a queue of at
//! most `prefetch_factor × num_workers` link numbers. With `in_order(false)` the consumer takes any reply that is
//! ready, and asks any worker that has room.
//!
//! Batches must be able to outlive their place in a ring, to be held and dropped in any order. So a reply does not
//! carry the batch but refers to the memory cell that it is in ([`Slab`](crate::loader::collate::slab::Slab)), and the
//! consumer leaves a free cell in its place, which the worker fills one lap later. Nothing is copied or allocated.
//!
//! Datasets by index can be loaded in this way, too, to match torch exactly: worker `i mod num_workers` makes batch
//! `i`, in order, and a slow worker keeps its requests.
//!
//! The memory of a cell, and the plan of a pass, are used by one thread at a time, since each hand-over is a hand-over
//! of a slot of an SPSC ring (proved in that module) or of the cell's `free` flag. The consumer writes the plan and
//! gives cells away before it publishes a request or releases a reply; the worker fills a cell before it publishes the
//! reply; and a batch that is dropped sets the flag with release, which the consumer reads with acquire.

pub(crate) mod dispatch;
pub(crate) mod iterable;
pub(crate) mod round_robin;
pub(crate) mod worker;

use std::sync::Arc;

use crate::fork::Process;
use crate::loader::backend::per_worker::dispatch::Dispatch;
use crate::loader::backend::per_worker::worker::{MakeBatch, Mark, Outcome, Request};
use crate::loader::backend::{Begin, Begun, Got, Next, NotBegun, Nothing};
use crate::loader::checkpoint::state::{State, Stream, Streams};
use crate::loader::checkpoint::tickets::Tickets;
use crate::loader::collate::Storage;
use crate::loader::collate::slab::Slab;
use crate::loader::order::progress::Progress;
use crate::loader::worker::cancel::Stopper;
use crate::wait::Until;

/// The consumer's ends of all workers' rings, or without workers, the calling thread's batch maker.
pub(crate) struct PerWorker<P> {
    pub(crate) links: Dispatch<P>,
    pub(crate) own: Option<Own<P>>,
    pub(crate) has_init: bool,
    /// Wakes worker threads that wait for their processes.
    pub(crate) rouse: Option<Rouse>,
}

/// Wakes worker threads that wait for something outside of their rings, which have been closed.
pub(crate) type Rouse = Arc<dyn Fn() + Send + Sync>;

/// The calling thread's batch maker.
pub(crate) struct Own<P> {
    maker: Box<dyn MakeBatch<P>>,
    request: Request,
    /// The number of batches made, which ones they are, and how many there are in all, if known.
    made: usize,
    tickets: Tickets,
    tasks: Option<usize>,
    /// Whether the pass has ended.
    over: bool,
    mark: Mark,
    /// The mark of the batch that is being made, until it is known to be delivered.
    next_mark: Mark,
}

impl<P> Own<P> {
    pub(crate) fn new(maker: Box<dyn MakeBatch<P>>) -> Self {
        let (request, tickets) = (Request::default(), Tickets::default());
        Self { maker, request, made: 0, tickets, tasks: None, over: true, mark: Mark::new(), next_mark: Mark::new() }
    }

    /// Begins a pass with `tasks` batches to come; `from` says what was already delivered.
    fn begin(&mut self, request: Request, tasks: Option<usize>, from: Option<&State>) {
        (self.request, self.made, self.tasks) = (request, 0, tasks);
        self.tickets.start(from);
        let streams = from.and_then(|state| state.streams.as_ref());
        self.mark.start(streams.and_then(|streams| streams.workers.first()));
        self.over = self.mark.ended;
    }

    /// Makes the next batch.
    fn make(&mut self, links: &Dispatch<P>, slab: &mut Slab<P>) -> Next<P> {
        let cancel = &links.cancel;
        if cancel.is_stopped() {
            return Err(Nothing::Closed);
        }
        if self.over || self.tasks == Some(self.made) {
            return Err(Nothing::End);
        }
        let Some(lease) = slab.free() else { return Err(Nothing::Held) };
        let work = lease.work();
        let task = self.tickets.task(self.made);
        let outcome = self.maker.fill(Request { task: Some(task), ..self.request }, task, work, &mut self.next_mark);
        if cancel.is_stopped() {
            return Err(Nothing::Closed);
        }
        std::mem::swap(&mut self.mark, &mut self.next_mark);
        self.made += 1;
        match (work.take_failure(), outcome) {
            (Some(failure), _) => Err(Nothing::Failed { failure: Box::new(failure), task }),
            (None, Outcome::Batch(rows)) => Ok(Got { lease, task, rows }),
            (None, _) => {
                self.over = true;
                Err(Nothing::End)
            }
        }
    }
}

impl<P: Storage> PerWorker<P> {
    pub(crate) fn drain(&mut self, _: &mut Progress, deadline: &Until) -> Result<(), NotBegun> {
        self.links.cancel.set(true);
        if self.links.drain(deadline, P::discard) { Ok(()) } else { Err(NotBegun::Late) }
    }

    pub(crate) fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, NotBegun> {
        let Begin { request, left, from, deadline } = begin;
        let mut failures = Vec::new();
        match &mut self.own {
            Some(own) => own.begin(request, left, from),
            None => {
                if self.has_init {
                    failures = self.links.init(request, deadline).ok_or(NotBegun::Late)?;
                    if self.links.cancel.is_stopped() {
                        return Err(NotBegun::Closed);
                    }
                }
                self.links.begin(request, left, self.has_init, from);
            }
        }
        // A worker that could not begin is asked for nothing, as if it were at its end.
        Ok(Begun { failures, no_worker_left: false })
    }

    pub(crate) fn try_next(&mut self, slab: &mut Slab<P>) -> Next<P> {
        match &mut self.own {
            Some(own) => own.make(&self.links, slab),
            None => self.links.try_next(slab),
        }
    }

    pub(crate) fn wait(&mut self, deadline: &Until) -> bool {
        self.links.wait(deadline)
    }

    pub(crate) fn wait_for_release(&mut self, deadline: &Until, slab: &Slab<P>) -> bool {
        slab.wait(deadline, || self.links.cancel.is_stopped())
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.links.is_ready()
    }

    pub(crate) fn ready(&self) -> usize {
        self.links.ready_count()
    }

    pub(crate) fn close(&self) {
        self.links.close();
        self.rouse.iter().for_each(|rouse| rouse());
    }

    pub(crate) fn stopper(&self) -> Stopper {
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

    pub(crate) fn awaited(&self, pass: &Progress) -> usize {
        self.links.task(pass.delivered)
    }

    /// Returns how far the workers of an iterable dataset are, after `samples` samples; or at the start of a pass if
    /// that is `None`.
    pub(crate) fn streams(&self, num_workers: usize, samples: Option<usize>) -> Streams {
        let marks = self.links.links.iter().map(|link| &link.mark).chain(self.own.iter().map(|own| &own.mark));
        let stream = |mark: &Mark| if samples.is_some() { mark.stream() } else { Stream::default() };
        let turn = if samples.is_some() { self.links.after } else { 0 };
        Streams { num_workers, samples: samples.unwrap_or_default(), turn, workers: marks.map(stream).collect() }
    }
}
