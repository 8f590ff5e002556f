//! What a worker process does: claim rows, fill them in place, publish.

use std::fmt;
use std::sync::Arc;

use slotline_core::ordered::{ClaimError, Delivery};
use slotline_core::robust::{Claim, Owner, Ring};
use slotline_core::wait::Never;

use crate::dataset::Dataset;
use crate::loader::backend::processes::control::{Control, SharedWaiter, SlotFacts, Words};
use crate::loader::backend::processes::message::Message;
use crate::loader::collate::Collate;
use crate::loader::collate::allocate::PayloadAt;
use crate::loader::collate::slot_state::SlotState;
use crate::loader::error::guard::caught;
use crate::loader::order::plan::{Indices, Plan};
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::engine::{Engine, Task, rows_of};
use crate::loader::worker::reader::Reader;
use crate::loader::worker::timing::timed;
use crate::sync::Instant;

/// A process's view of the ring.
pub(crate) type ProcessView = Ring<Words, SharedWaiter>;

/// Returns a view of the ring in the shared memory.
pub(crate) fn view(control: &Arc<Control>, delivery: Delivery) -> ProcessView {
    let waiter = |which| SharedWaiter(control.clone(), which);
    Ring::new(Words(control.clone()), control.shape(), delivery, waiter(0), waiter(1))
}

/// Returns the name of a worker's claims.
pub(crate) fn owner(worker: usize) -> Owner {
    Owner::new(worker as u16 + 1)
}

/// The work of a worker process.
pub(crate) trait Life: Send + Sync {
    /// Works as worker number `worker` until the ring is closed.
    fn work(&self, worker: usize);
}

/// Everything that a worker process needs, which it inherits when it is forked.
pub(crate) struct Crew<D: Dataset, C: Collate<D>> {
    pub(crate) engine: Arc<Engine<D, C>>,
    pub(crate) control: Arc<Control>,
    pub(crate) delivery: Delivery,
    /// Rows of a part, at least 1.
    pub(crate) part_rows: usize,
    pub(crate) payload_at: PayloadAt<C::Payload>,
    pub(crate) sizer: ClaimSizer,
}

impl<D: Dataset, C: Collate<D>> Life for Crew<D, C> {
    fn work(&self, worker: usize) {
        let ring = view(&self.control, self.delivery);
        let mut desk = Desk {
            owner: owner(worker),
            reader: self.engine.reader(Some(worker), self.sizer.clone()),
            plan: Plan::default(),
            pass: 0,
            cells: Vec::new(),
        };
        while let Ok(claim) = self.claim(&ring, &mut desk) {
            self.fill(claim, &mut desk);
        }
    }
}

/// What a worker process has of its own.
struct Desk<P> {
    owner: Owner,
    reader: Reader,
    /// The plan of the pass, without an order.
    plan: Plan,
    pass: u64,
    /// The memory of batches, by number.
    cells: Vec<Option<SlotState<P>>>,
}

impl<D: Dataset, C: Collate<D>> Crew<D, C> {
    /// Returns the next claim, and times the wait for it, if there is one.
    fn claim<'r>(
        &self,
        ring: &'r ProcessView,
        desk: &mut Desk<C::Payload>,
    ) -> Result<Claim<'r, Words, SharedWaiter>, ClaimError> {
        let parts = desk.reader.sizer.parts();
        match ring.try_claim(desk.owner, parts) {
            Err(ClaimError::Full) => {}
            outcome => return outcome,
        }
        let begun = Instant::now();
        let outcome = ring.claim(desk.owner, parts, &Never);
        self.engine.activities[desk.reader.place].counters.waited(begun.elapsed());
        outcome
    }

    fn fill(&self, claim: Claim<'_, Words, SharedWaiter>, desk: &mut Desk<C::Payload>) {
        // SAFETY: the claim is out until the end of this function.
        let (facts, (slot, indices)) = unsafe { (self.control.pass(), self.control.slot(claim.slot())) };
        if desk.pass != facts.pass {
            desk.pass = facts.pass;
            let (seed, epoch, samples, places) = (facts.seed, facts.epoch, facts.samples, facts.places);
            desk.plan = Plan { seed, epoch, samples, places, ..Plan::default() };
        }
        let SlotFacts { task: number, first, cell, .. } = slot;
        let task = Task { number, first, indices: Indices::U64(indices) };
        let rows = rows_of(claim.parts(), self.part_rows, slot.rows);
        if desk.cells.len() <= cell {
            desk.cells.resize_with(cell + 1, || None);
        }
        let work = desk.cells[cell].get_or_insert_with(|| SlotState::new((self.payload_at.0)(cell)));
        let (reader, plan) = (&mut desk.reader, &desk.plan);
        let outcome = if reader.sizer.skips_timing() {
            caught(|| self.engine.fill::<false>(work, plan, task, rows.clone(), reader))
        } else {
            let activity = &*self.engine.activities[reader.place];
            caught(|| {
                timed(reader, activity, (number, claim.parts().len()), |reader| match reader.watch.laps() {
                    Some(_) => self.engine.fill::<true>(work, plan, task, rows.clone(), reader),
                    None => self.engine.fill::<false>(work, plan, task, rows.clone(), reader),
                })
            })
            .flatten()
        };
        if let Err(cause) = outcome {
            self.engine.spoil(work, task, rows, reader, cause);
        }
        match work.take_failure() {
            None => claim.publish(),
            Some(failure) => {
                // SAFETY: the part belongs to the claim.
                unsafe {
                    let message = self.control.message(claim.slot(), claim.parts().start);
                    Message::write(message, claim.ticket(), &failure);
                }
                drop(claim);
            }
        }
    }
}

impl<D: Dataset, C: Collate<D>> fmt::Debug for Crew<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("part_rows", &self.part_rows).finish_non_exhaustive()
    }
}
