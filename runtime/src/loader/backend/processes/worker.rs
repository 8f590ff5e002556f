//! What a worker process does: it claims rows, fills them in place, and publishes them.

use std::sync::Arc;

use core_affinity::CoreId;
use slotline_core::ordered::{ClaimError, Delivery};
use slotline_core::robust::{Claim, Owner, Ring};
use slotline_core::wait::{Never, Wait};

use crate::dataset::{Dataset, WorkerInfo};
use crate::loader::backend::processes::control::{Control, SharedWaiter, SharedWords, SlotFacts};
use crate::loader::backend::processes::events::not_bound;
use crate::loader::backend::processes::socket::Socket;
use crate::loader::backend::processes::worker_messages;
use crate::loader::collate::Collate;
use crate::loader::collate::allocate::PayloadAt;
use crate::loader::collate::batch_state::BatchState;
use crate::loader::error::guard::caught;
use crate::loader::order::plan::{Indices, Plan, Task};
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::engine::{Engine, rows_of};
use crate::loader::worker::init_barrier::InitHook;
use crate::loader::worker::reader::Reader;
use crate::sync::Instant;

/// The ring in the shared memory, as a process sees it.
pub(crate) type ProcessView = Ring<SharedWords, SharedWaiter>;

/// The numbers of the waiters: for finished batches, and for something to claim.
const ITEMS: usize = 0;
const SPACE: usize = 1;

/// Returns a view of the ring in the shared memory.
pub(crate) fn view(control: &Arc<Control>, in_order: bool) -> ProcessView {
    let delivery = if in_order { Delivery::InOrder } else { Delivery::Arrival };
    let waiter = |which| SharedWaiter(control.clone(), which);
    Ring::new(SharedWords(control.clone()), control.shape(), delivery, waiter(ITEMS), waiter(SPACE))
}

/// Makes an engine use the cancel flag, the activities and the list of fatal samples in the shared
/// memory.
pub(crate) fn connect<D: Dataset, C: Collate<D>>(mut engine: Engine<D, C>, control: &Arc<Control>) -> Engine<D, C> {
    let fatal_samples = control.clone();
    engine.is_blocked = Some(Box::new(move |index| Some(fatal_samples.killed_by(index)?.into())));
    (engine.cancel, engine.activities) = (control.cancel(), control.activities());
    engine
}

/// Returns the value that identifies a worker's claims in the ring.
pub(crate) fn owner(worker: usize) -> Owner {
    Owner::new(worker as u16 + 1)
}

/// The main function of a worker process.
pub(crate) trait WorkerMain: Send + Sync {
    /// Works as worker number `worker` until the ring is closed. `replaces` says whether the
    /// process replaces one that has ended.
    fn work(&self, worker: usize, socket: Arc<Socket>, replaces: bool);
}

/// The values that a worker process needs. A forked process inherits them.
pub(crate) struct ProcessWorkers<D: Dataset, C: Collate<D>> {
    pub(crate) engine: Arc<Engine<D, C>>,
    pub(crate) control: Arc<Control>,
    pub(crate) in_order: bool,
    /// The number of rows of a part, the smallest unit of a claim; at least 1.
    pub(crate) part_rows: usize,
    pub(crate) payload_at: PayloadAt<C::Payload>,
    pub(crate) sizer: ClaimSizer,
    /// The user's `worker_init`, if there is one.
    pub(crate) init: Option<InitHook>,
    /// The core of each worker; empty if workers are not bound to cores.
    pub(crate) cores: Vec<CoreId>,
}

impl<D: Dataset, C: Collate<D>> WorkerMain for ProcessWorkers<D, C> {
    fn work(&self, worker: usize, socket: Arc<Socket>, replaces: bool) {
        if let Some(&core) = self.cores.get(worker)
            && !core_affinity::set_for_current(core)
        {
            let _ = socket.send(&not_bound(worker, core.id));
        }
        let ring = view(&self.control, self.in_order);
        let state = WorkerState {
            owner: owner(worker),
            reader: self.engine.reader(Some(worker), self.sizer.clone()),
            plan: Plan::default(),
            pass: 0,
            cells: Vec::new(),
            socket,
            called: 0,
        };
        self.load(&ring, state, replaces);
    }
}

/// The batches that a worker process has used so far, by the number of their cell.
pub(crate) type Cells<P> = Vec<Option<BatchState<P>>>;

/// Returns the batch in the cell with this number. Makes its state when it is first used.
pub(crate) fn cell<'c, P>(cells: &'c mut Cells<P>, number: usize, all: &PayloadAt<P>) -> &'c BatchState<P> {
    assert!(number < all.count, "the loader's memory was written over");
    if cells.len() <= number {
        cells.resize_with(number + 1, || None);
    }
    cells[number].get_or_insert_with(|| BatchState::new((all.make)(number)))
}

/// The state of one worker process.
struct WorkerState<P> {
    owner: Owner,
    reader: Reader,
    /// The plan of the pass, without an order.
    plan: Plan,
    pass: u64,
    cells: Cells<P>,
    socket: Arc<Socket>,
    /// The last pass for which the worker has run its `worker_init`.
    called: u64,
}

impl<D: Dataset, C: Collate<D>> ProcessWorkers<D, C> {
    /// Claims and fills parts until the ring is closed.
    fn load(&self, ring: &ProcessView, mut state: WorkerState<C::Payload>, replaces: bool) {
        let (mut init, mut is_first, mut is_ready) = (self.init.clone(), replaces, true);
        loop {
            let call = self.call();
            if let (Some(init), Some((pass, seed))) = (&mut init, call)
                && pass != state.called
            {
                state.called = pass;
                let outcome = init.run(WorkerInfo::new(state.reader.activity, self.engine.workers(), seed));
                is_ready = outcome.is_ok();
                let _ = state.socket.send(&worker_messages::begun(pass, outcome));
                // The loader asks all workers when a pass begins, and records whose `worker_init`
                // failed. A replacement that comes later was not asked, so it ends if its
                // `worker_init` fails.
                if is_first && !is_ready {
                    return;
                }
            }
            is_first = false;
            match self.claim(ring, &mut state, is_ready) {
                Ok(claim) => self.fill(claim, &mut state),
                Err(ClaimError::Full) => {}
                Err(_) => return,
            }
        }
    }

    /// Returns the pass for which workers run their `worker_init` and its seed, if there is a
    /// `worker_init`.
    fn call(&self) -> Option<(u64, u64)> {
        self.init.as_ref().map(|_| self.control.called()).filter(|&(pass, _)| pass > 0)
    }

    /// Returns the next claim. If it has to wait for one, records the time that belongs to the
    /// pass.
    ///
    /// # Errors
    ///
    /// Fails with [`ClaimError::Full`] if the worker must first run its `worker_init` for another
    /// pass, or with [`ClaimError::Closed`]. A worker whose `worker_init` failed claims nothing.
    fn claim<'r>(
        &self,
        ring: &'r ProcessView,
        state: &mut WorkerState<C::Payload>,
        is_ready: bool,
    ) -> Result<Claim<'r, SharedWords, SharedWaiter>, ClaimError> {
        let parts = state.reader.sizer.parts();
        let activity = &*self.engine.activities[state.reader.activity];
        let mut outcome = Err(ClaimError::Full);
        let mut try_claim = || {
            // A waiter may call this once more after it returned true; the claim must not be lost.
            if let Err(ClaimError::Full) = outcome {
                activity.record_claim_attempt();
                outcome = match is_ready {
                    true => ring.try_claim(state.owner, parts),
                    false if ring.is_closed() => Err(ClaimError::Closed),
                    false => Err(ClaimError::Full),
                };
            }
            !matches!(outcome, Err(ClaimError::Full)) || self.call().is_some_and(|(pass, _)| pass != state.called)
        };
        if !try_claim() {
            let begun = Instant::now();
            SharedWaiter(self.control.clone(), SPACE).wait_until(&Never, try_claim);
            // SAFETY: the claim is outstanding.
            if outcome.as_ref().is_ok_and(|claim| unsafe { self.control.slot(claim.slot()) }.0.pass == state.pass) {
                activity.counters.waited(begun);
            }
        }
        outcome
    }

    fn fill(&self, claim: Claim<'_, SharedWords, SharedWaiter>, state: &mut WorkerState<C::Payload>) {
        // SAFETY: the claim is outstanding until the end of this function.
        let (facts, indices) = unsafe { self.control.slot(claim.slot()) };
        if state.pass != facts.pass {
            (state.pass, state.plan) = (facts.pass, facts.plan());
        }
        let SlotFacts { task: number, first, rows, cell, .. } = facts;
        let task = Task { number, first, rows, indices: Indices::U64(indices) };
        let rows = rows_of(claim.parts(), self.part_rows, rows);
        let work = self::cell(&mut state.cells, cell, &self.payload_at);
        let (reader, plan) = (&mut state.reader, &state.plan);
        if C::STACKS && self.control.has_fatal_samples() {
            if let Err(cause) = caught(|| self.engine.fill_skipping(work, plan, &task, rows.clone(), reader)) {
                self.engine.fail_after_panic(work, &task, rows, reader, cause);
            }
        } else {
            self.engine.make(work, plan, &task, rows, (number, claim.parts().len()), reader);
        }
        if !work.has_errors() {
            return claim.publish();
        }
        let (ticket, errors) = (claim.ticket(), work.take_errors());
        // If this fails, the loader has ended, and nobody needs the message.
        let _ = worker_messages::send_errors(&state.socket, ticket, first, &errors);
        if !errors.bad.is_empty() {
            self.control.note(claim.slot(), ticket);
        }
        if errors.failure.is_none() {
            claim.publish();
        }
    }
}
