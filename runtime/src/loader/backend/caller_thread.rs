//! The backend without workers: the calling thread makes all batches, without a ring and without
//! synchronization.

use std::sync::Arc;

use slotline_core::wait::Wait;

use crate::dataset::StopToken;
use crate::loader::backend::protocol::{
    Backend, BatchWorker, Begin, Begun, Next, NotBegun, NotReady, Outcome, Ready, Request, StreamPosition,
};
use crate::loader::checkpoint::state::Streams;
use crate::loader::checkpoint::tickets::Tickets;
use crate::loader::collate::cell::CellOwner;
use crate::loader::collate::cell_pool::CellPool;
use crate::loader::collate::storage::Storage;
use crate::loader::order::progress::Progress;
use crate::loader::worker::cancel::Stopper;
use crate::loader::worker::pool::WorkerPool;
use crate::wait::{Until, Waiter};

/// The backend in which the calling thread makes all batches.
pub(crate) struct CallerThread<P> {
    worker: Box<dyn BatchWorker<P>>,
    request: Request,
    /// The next ticket of the pass, and the end of its tickets, or `usize::MAX` if that is unknown.
    ticket: usize,
    end: usize,
    tickets: Tickets,
    /// The position in an iterable dataset after the last delivered batch, and the position after
    /// the batch that is being made. `delivered` is the index of the former, and changes with each
    /// batch.
    positions: [StreamPosition; 2],
    delivered: usize,
    stop: Arc<Stop>,
}

/// The state that a stopper needs.
struct Stop {
    cancel: StopToken,
    /// The waiter on which the consumer waits for a free cell.
    released: Arc<Waiter>,
}

impl<P: Storage> CallerThread<P> {
    pub(crate) fn new(worker: Box<dyn BatchWorker<P>>, cancel: StopToken, cell_pool: &CellPool<P>) -> Self {
        Self {
            worker,
            request: Request::default(),
            ticket: 0,
            end: 0,
            tickets: Tickets::default(),
            positions: [StreamPosition::new(), StreamPosition::new()],
            delivered: 0,
            stop: Arc::new(Stop { cancel, released: cell_pool.released().clone() }),
        }
    }

    fn is_closed(&self) -> bool {
        self.stop.cancel.is_stopped()
    }
}

impl<P: Storage> Backend<P> for CallerThread<P> {
    fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, NotBegun> {
        if self.is_closed() {
            return Err(NotBegun::Closed);
        }
        let Begin { request, left, from, .. } = begin;
        self.request = request;
        self.tickets.start(from);
        let streams = from.and_then(|state| state.streams.as_ref());
        let position = &mut self.positions[self.delivered];
        position.start(streams.and_then(|streams| streams.workers.first()));
        (self.ticket, self.end) = (0, if position.ended { 0 } else { left.unwrap_or(usize::MAX) });
        Ok(Begun { failures: Vec::new(), no_worker_left: false })
    }

    #[inline(always)]
    fn try_next(&mut self, _: &Progress, _: &WorkerPool, cell_pool: &mut CellPool<P>) -> Next<P> {
        if self.is_closed() {
            return Err(NotReady::Closed);
        }
        if self.ticket >= self.end {
            return Err(NotReady::End);
        }
        // Find a cell before anything is drawn or read.
        let Some(cell) = cell_pool.find_cell() else { return Err(NotReady::Held) };
        let (task, next) = (self.tickets.task(self.ticket), self.delivered ^ 1);
        let outcome = self.worker.fill(&self.request, task, cell.state(), &mut self.positions[next]);
        if self.stop.cancel.is_stopped() {
            return Err(nothing(cell, NotReady::Closed));
        }
        self.delivered = next;
        let Outcome::Batch(rows) = outcome else {
            self.end = self.ticket;
            return Err(nothing(cell, NotReady::End));
        };
        self.ticket += 1;
        Ok(Ready { lease: cell.lend(), task, rows })
    }

    fn is_ready(&self) -> bool {
        self.ticket >= self.end || self.is_closed()
    }

    fn wait_for_release(&mut self, deadline: &Until, cell_pool: &CellPool<P>) -> bool {
        cell_pool.wait(deadline, || self.is_closed())
    }

    fn stopper(&self) -> Stopper {
        let stop = Arc::downgrade(&self.stop);
        Stopper::new(move || {
            if let Some(stop) = stop.upgrade() {
                stop.cancel.stop();
                stop.released.notify(|| true);
            }
        })
    }

    fn awaited(&self, pass: &Progress) -> usize {
        self.tickets.awaited(pass.delivered + pass.discarded)
    }

    fn cannot_continue(&self) -> bool {
        self.is_closed()
    }

    fn streams(&self, samples: Option<usize>) -> Option<Streams> {
        let position = samples.map(|_| self.positions[self.delivered].stream());
        let workers = vec![position.unwrap_or_default()];
        Some(Streams { num_workers: 0, samples: samples.unwrap_or_default(), turn: 0, workers })
    }
}

/// Discards what is in a cell, so that the cell is free. Returns what the caller gets instead of a
/// batch.
#[cold]
#[inline(never)]
fn nothing<P: Storage>(cell: &CellOwner<P>, instead: NotReady) -> NotReady {
    drop(cell.state().take_errors()); // Never panics.
    cell.state().payload.discard();
    cell.put_back();
    instead
}
