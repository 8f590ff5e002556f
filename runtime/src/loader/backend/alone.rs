//! Batches that the consumer makes itself, without workers: there is no ring, and no other thread to agree with.

use std::sync::Arc;

use slotline_core::wait::Wait;

use crate::dataset::{Dataset, Loadable};
use crate::loader::backend::{Begin, Begun, Got, Next, NotBegun, Nothing};
use crate::loader::collate::slab::Slab;
use crate::loader::collate::slot_state::SlotState;
use crate::loader::collate::{Collate, Storage};
use crate::loader::order::plan::{Drawn, Plan};
use crate::loader::order::plan_cell::PlanCell;
use crate::loader::order::progress::Progress;
use crate::loader::worker::cancel::{CancelFlag, Stopper};
use crate::loader::worker::engine::Engine;
use crate::loader::worker::portion::{Filled, Portion};
use crate::loader::worker::reader::Reader;
use crate::placed::Placed;
use crate::wait::{Until, Waiter};

/// The slot of a feed that has the indices.
const SLOT: usize = 0;

/// The consumer, which makes all batches.
pub(crate) struct Alone<P> {
    pub(crate) maker: Box<dyn MakeBatch<P>>,
    pub(crate) plan_cell: Arc<PlanCell>,
    /// Rows of a whole batch, and positions from one batch to the next.
    pub(crate) rows: usize,
    pub(crate) stride: usize,
    pub(crate) stop: Arc<Stop>,
    /// The next ticket of the pass, and the end of its tickets, if it is known.
    pub(crate) ticket: usize,
    pub(crate) end: usize,
}

/// What a stopper needs.
pub(crate) struct Stop {
    pub(crate) cancel: Placed<CancelFlag>,
    /// The waiter on which the consumer waits for a cell.
    pub(crate) released: Arc<Waiter>,
}

/// Makes whole batches.
pub(crate) trait MakeBatch<P>: Send {
    /// Makes the batch of a ticket; errors and panics are kept in the slot.
    fn make(&mut self, ticket: usize, work: &SlotState<P>) -> Filled;
}

/// Makes batches in the consumer's thread.
pub(crate) struct Maker<D: Loadable, C: Collate<D>> {
    pub(crate) engine: Arc<Engine<D, C>>,
    pub(crate) reader: Reader,
    /// The parts of a batch, and the rows of each.
    pub(crate) parts: usize,
    pub(crate) part_rows: usize,
}

impl<D: Dataset, C: Collate<D>> MakeBatch<C::Payload> for Maker<D, C> {
    fn make(&mut self, ticket: usize, work: &SlotState<C::Payload>) -> Filled {
        // SAFETY: only the loader calls `draft`, and not while it makes a batch.
        let plan = unsafe { self.engine.plan_cell.plan() };
        let (mut part, step) = (0, self.reader.sizer.parts());
        loop {
            let end = self.parts.min(part + step);
            let portion = Portion { ticket, slot: SLOT, parts: part..end, part_rows: self.part_rows, work };
            let filled = portion.fill(&self.engine, plan, &mut self.reader);
            part = end;
            if part >= self.parts {
                return filled;
            }
        }
    }
}

impl<P: Storage> Alone<P> {
    pub(crate) fn drain(&mut self, _: &mut Progress, _: &Until) -> Result<(), NotBegun> {
        Ok(())
    }

    pub(crate) fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, NotBegun> {
        if self.is_closed() {
            return Err(NotBegun::Closed);
        }
        (self.ticket, self.end) = (0, begin.left.unwrap_or(usize::MAX));
        Ok(Begun { failures: Vec::new(), no_worker_left: false })
    }

    #[inline(always)]
    pub(crate) fn try_next(&mut self, pass: &Progress, cancel: &CancelFlag, slab: &mut Slab<P>) -> Next<P> {
        if cancel.is_stopped() {
            return Err(Nothing::Closed);
        }
        if self.ticket >= self.end {
            return Err(Nothing::End);
        }
        let Some(place) = slab.find() else { return Err(Nothing::Held) };
        let cell = slab.found(place);
        let filled = self.maker.make(self.ticket, cell.work());
        if filled == Filled::End || cancel.is_stopped() {
            return Err(self.nothing(filled, cancel, slab, place));
        }
        self.ticket += 1;
        // SAFETY: only the loader calls `draft`, and not while `self` is borrowed.
        let plan = unsafe { self.plan_cell.plan() };
        let (task, rows) = match pass.tasks {
            Some(_) => {
                // Without gaps, batches come in sequence.
                let task = if pass.gaps { task(plan, self.ticket - 1) } else { pass.delivered };
                (task, plan.batch(task, self.stride, self.rows).1)
            }
            None => fed(plan),
        };
        Ok(Got { lease: slab.lend(place), task, rows })
    }

    /// Returns what comes instead of the batch in a cell, which is free then.
    #[cold]
    #[inline(never)]
    fn nothing(&mut self, filled: Filled, cancel: &CancelFlag, slab: &mut Slab<P>, place: usize) -> Nothing {
        let work = slab.found(place).work();
        drop(work.take_errors()); // Never panics.
        work.payload.discard();
        slab.put_back(place);
        if cancel.is_stopped() {
            return Nothing::Closed;
        }
        debug_assert_eq!(filled, Filled::End);
        self.end = self.ticket;
        Nothing::End
    }

    pub(crate) fn wait(&mut self, _: &Until) -> bool {
        true
    }

    pub(crate) fn wait_for_release(&mut self, deadline: &Until, slab: &Slab<P>) -> bool {
        slab.wait(deadline, || self.is_closed())
    }

    pub(crate) fn is_ready(&self) -> bool {
        false
    }

    pub(crate) fn ready(&self) -> usize {
        0
    }

    pub(crate) fn close(&self) {}

    pub(crate) fn is_closed(&self) -> bool {
        self.stop.cancel.is_stopped()
    }

    pub(crate) fn stopper(&self) -> Stopper {
        let stop = Arc::downgrade(&self.stop);
        Stopper::new(move || {
            if let Some(stop) = stop.upgrade() {
                stop.cancel.stop();
                stop.released.notify(|| true);
            }
        })
    }

    pub(crate) fn awaited(&self, pass: &Progress) -> usize {
        // SAFETY: only the loader calls `draft`, and not while `self` is borrowed.
        unsafe { self.plan_cell.plan() }.tickets.awaited(pass.delivered + pass.discarded)
    }
}

/// Returns the number of a ticket's batch.
#[inline(never)]
fn task(plan: &Plan, ticket: usize) -> usize {
    plan.tickets.task(ticket)
}

/// Returns the number and the rows of the batch that a feed was drawn for.
#[inline(never)]
fn fed(plan: &Plan) -> (usize, usize) {
    plan.feed.as_ref().map_or((0, 0), |feed| {
        let list = feed.peek(SLOT);
        debug_assert!(!matches!(list.outcome, Drawn::End));
        (list.number, list.indices.len())
    })
}
