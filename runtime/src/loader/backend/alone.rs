//! Batches that the consumer makes itself, without workers: there is no ring, and no other thread to agree with.

use std::sync::Arc;

use slotline_core::wait::Wait;

use crate::dataset::{Dataset, Loadable, StopToken};
use crate::loader::backend::{Begin, Begun, Got, Next, NotBegun, Nothing};
use crate::loader::collate::cell::Owned;
use crate::loader::collate::slab::Slab;
use crate::loader::collate::slot_state::SlotState;
use crate::loader::collate::{Collate, Storage};
use crate::loader::order::plan::{Drawn, Indices, Plan};
use crate::loader::order::plan_cell::PlanCell;
use crate::loader::order::progress::Progress;
use crate::loader::worker::cancel::{CancelFlag, Stopper};
use crate::loader::worker::engine::{Engine, Task};
use crate::loader::worker::portion::{Filled, Portion};
use crate::loader::worker::reader::Reader;
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
    pub(crate) cancel: StopToken,
    /// The waiter on which the consumer waits for a cell.
    pub(crate) released: Arc<Waiter>,
}

/// Makes whole batches; errors and panics are kept in the slot.
pub(crate) trait MakeBatch<P>: Send {
    /// Makes batch `number` of the order, of `rows` rows from position `first` on.
    fn make(&mut self, number: usize, first: usize, rows: usize, work: &SlotState<P>);

    /// Makes the batch of a ticket from a feed.
    fn make_fed(&mut self, ticket: usize, work: &SlotState<P>) -> Filled;
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
    fn make(&mut self, number: usize, first: usize, rows: usize, work: &SlotState<C::Payload>) {
        // SAFETY: only the loader calls `draft`, and not while it makes a batch.
        let plan = unsafe { self.engine.plan_cell.plan() };
        let task = Task { number, first, indices: Indices::from(&plan.order, first) };
        let (mut begin, step) = (0, self.part_rows);
        // At least once: a batch may have no rows.
        loop {
            let end = rows.min(begin + step);
            self.engine.make(work, plan, &task, begin..end, (number, 1), &mut self.reader);
            begin = end;
            if begin >= rows {
                return;
            }
        }
    }

    fn make_fed(&mut self, ticket: usize, work: &SlotState<C::Payload>) -> Filled {
        // SAFETY: only the loader calls `draft`, and not while it makes a batch.
        let plan = unsafe { self.engine.plan_cell.plan() };
        let mut filled = Filled::Rows;
        let step = self.reader.sizer.parts();
        for part in (0..self.parts).step_by(step) {
            let parts = part..self.parts.min(part + step);
            let portion = Portion { ticket, slot: SLOT, parts, part_rows: self.part_rows, work };
            filled = portion.fill(&self.engine, plan, &mut self.reader);
        }
        filled
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
        // Before anything is drawn from a feed.
        let Some(cell) = slab.find_cell() else { return Err(Nothing::Held) };
        // SAFETY: only the loader calls `draft`, and not while `self` is borrowed.
        let plan = unsafe { self.plan_cell.plan() };
        let (number, rows) = match pass.tasks {
            Some(_) => {
                // Without gaps, batches come in sequence.
                let number = if pass.gaps { task(plan, self.ticket) } else { pass.delivered };
                let (first, rows) = plan.batch(number, self.stride, self.rows);
                self.maker.make(number, first, rows, cell.work());
                (number, rows)
            }
            None => match self.maker.make_fed(self.ticket, cell.work()) {
                Filled::Rows => fed(plan),
                Filled::End => {
                    self.end = self.ticket;
                    return Err(nothing(cell, Nothing::End));
                }
            },
        };
        if cancel.is_stopped() {
            return Err(nothing(cell, Nothing::Closed));
        }
        self.ticket += 1;
        Ok(Got { lease: cell.lend(), task: number, rows })
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

/// Discards what is in a cell, which is free then. Returns what comes instead of the batch.
#[cold]
#[inline(never)]
fn nothing<P: Storage>(cell: &Owned<P>, nothing: Nothing) -> Nothing {
    drop(cell.work().take_errors()); // Never panics.
    cell.work().payload.discard();
    cell.put_back();
    nothing
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
