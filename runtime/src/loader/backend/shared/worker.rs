//! Worker threads that share one ring: any free worker claims rows of the next batch.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use slotline_core::ordered::{self, Claim, ClaimError, Slot, Worker};
use slotline_core::wait::Wait;

use crate::dataset::{Dataset, Loadable, StopToken};
use crate::loader::collate::Collate;
use crate::loader::collate::allocate::Untouched;
use crate::loader::collate::cell::CellOwner;
use crate::loader::error::guard::take_message;
use crate::loader::order::passes::HasDataset;
use crate::loader::trace;
use crate::loader::worker::backoff::Backoff;
use crate::loader::worker::claimed::{ClaimedRows, Filled};
use crate::loader::worker::engine::Engine;
use crate::loader::worker::init_barrier::{InitBarrier, Visitor};
use crate::loader::worker::liveness::WorkerLiveness;
use crate::loader::worker::reader::Reader;
use crate::sync::{Instant, fault_point};
use crate::wait::Waiter;

/// The ring of a loader whose batches are stored in `P`.
pub(crate) type Ring<P> = ordered::Ring<Box<[Slot<CellOwner<P>>]>, Waiter>;

/// The state that the consumer and the workers of one ring share, without the dataset.
pub(crate) struct Shared<P> {
    pub(crate) ring: Arc<Ring<P>>,
    pub(crate) cancel: StopToken,
    /// The number of rows of a part, the smallest unit of a claim; at least 1.
    pub(crate) part_rows: usize,
    /// The barrier at which workers run the `worker_init` before each pass, if there is one.
    pub(crate) barrier: Option<InitBarrier>,
    /// Whether the consumer makes batches, too, so that workers can leave small batches to it.
    pub(crate) shares: bool,
    pub(crate) liveness: Arc<WorkerLiveness>,
    pub(crate) untouched: Option<Untouched>,
    /// The waiter on which the consumer waits for a free cell.
    pub(crate) released: Arc<Waiter>,
}

/// Fills claimed rows, in workers and in the consumer.
pub(crate) struct Filler<D: Loadable, C: Collate<D>> {
    pub(crate) engine: Engine<D, C>,
    pub(crate) shared: Arc<Shared<C::Payload>>,
}

impl<D: Dataset, C: Collate<D>> HasDataset for Filler<D, C> {
    type Dataset = D;

    fn dataset(&self) -> &D {
        &self.engine.dataset
    }
}

/// Fills rows in the consumer's thread.
pub(crate) trait Help: Send {
    /// Fills some rows, if any can be claimed.
    fn help(&mut self) -> bool;
}

/// A consumer that fills rows like a worker.
pub(crate) struct Helper<D: Loadable, C: Collate<D>> {
    pub(crate) filler: Arc<Filler<D, C>>,
    pub(crate) worker: Worker<Arc<Ring<C::Payload>>>,
    pub(crate) reader: Reader,
}

impl<D: Dataset, C: Collate<D>> Help for Helper<D, C> {
    #[inline]
    fn help(&mut self) -> bool {
        match self.worker.try_claim(self.reader.sizer.parts()) {
            Ok(claim) => {
                self.filler.fill(claim, &mut self.reader);
                true
            }
            Err(_) => false,
        }
    }
}

impl<P> Shared<P> {
    /// Stops the loader. May be called by any thread.
    pub(crate) fn stop(&self) {
        // Set the flag first: a thread that finds the ring closed reads it to learn why.
        self.cancel.stop();
        self.close();
    }

    /// Makes the workers end.
    pub(crate) fn close(&self) {
        self.ring.close();
        if let Some(barrier) = &self.barrier {
            barrier.close();
        }
        self.released.notify(|| true);
    }
}

impl<D: Dataset, C: Collate<D>> Filler<D, C> {
    /// Runs a worker until the ring is closed.
    pub(crate) fn work(&self, worker: &Worker<Arc<Ring<C::Payload>>>, reader: &mut Reader) {
        let (id, mut visit) =
            (reader.activity, self.shared.barrier.as_ref().map(|barrier| barrier.visitor(reader.activity)));
        let activity = &self.engine.activities[id];
        activity.enter_thread();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.load(worker, reader, visit.as_mut())));
        activity.leave_thread();
        let Err(panic) = outcome else { return };
        // A consumer that makes batches does not need workers. Otherwise close the ring, so that
        // the consumer does not wait for batches that no thread will make.
        if self.shared.liveness.ends(id, format!("a panic in the loader's own code: {}", take_message(panic)))
            && !self.shared.shares
        {
            self.shared.close();
        }
        // Wake the others, one of which takes over the part of a batch that this worker had
        // started.
        self.shared.ring.wake_all();
    }

    fn load(&self, worker: &Worker<Arc<Ring<C::Payload>>>, reader: &mut Reader, visit: Option<&mut Visitor<'_>>) {
        if let Some(untouched) = &self.shared.untouched {
            untouched.touch(reader.activity, self.engine.workers(), || self.shared.ring.is_closed());
        }
        let (mut backoff, counters) = (Backoff::default(), &self.engine.activities[reader.activity].counters);
        let mut fill = |claim, reader: &mut Reader| {
            self.fill(claim, reader);
            if self.shared.shares && reader.sizer.is_tiny() {
                counters.rested(backoff.nap(&|| self.shared.ring.claimed()));
            }
        };
        let Some(visit) = visit else {
            loop {
                fault_point();
                match self.claim(worker, reader) {
                    Ok(claim) => fill(claim, reader),
                    Err(ClaimError::Ended) if worker.wait_for_run().is_ok() => {}
                    Err(_) => return,
                }
            }
        };
        while let Some(ready) = visit.next_pass() {
            fault_point();
            while ready && let Ok(claim) = self.claim(worker, reader) {
                fill(claim, reader);
                fault_point();
            }
        }
    }

    /// Returns a worker's next claim. If it has to wait for one, records the time.
    fn claim<'w>(
        &self,
        worker: &'w Worker<Arc<Ring<C::Payload>>>,
        reader: &Reader,
    ) -> Result<Claim<'w, Ring<C::Payload>>, ClaimError> {
        match worker.try_claim(reader.sizer.parts()) {
            Err(ClaimError::Full) => {}
            outcome => return outcome,
        }
        // The claim must not be lost by a panic; leaving the span never panics.
        let _span = trace::wait();
        let begun = Instant::now();
        let outcome = worker.claim(reader.sizer.parts());
        self.engine.activities[reader.activity].counters.waited(begun);
        outcome
    }

    /// Fills the rows of a claim, and publishes them in any case. So the consumer gets every slot
    /// in turn, and with it the errors.
    #[inline]
    pub(crate) fn fill(&self, claim: Claim<'_, Ring<C::Payload>>, reader: &mut Reader) {
        let (ticket, slot, parts) = (claim.ticket(), claim.slot(), claim.parts());
        let claimed = ClaimedRows { ticket, slot, parts, part_rows: self.shared.part_rows, work: claim.get().state() };
        // SAFETY: a claim is outstanding, so the plan is not written.
        let plan = unsafe { self.engine.plan_cell.plan() };
        if claimed.fill(&self.engine, plan, reader) == Filled::End {
            // The consumer skips tickets that were claimed beyond the end.
            self.shared.ring.seal();
        }
        claim.publish();
    }
}

impl<P> fmt::Debug for Shared<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("ring", &self.ring).finish_non_exhaustive()
    }
}
