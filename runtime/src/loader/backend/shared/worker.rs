//! The workers of a ring that all of them share: any free worker claims rows of the next batch.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use slotline_core::ordered::{self, Claim, ClaimError, Slot, Worker};
use slotline_core::wait::Wait;

use crate::dataset::{Dataset, Loadable};
use crate::loader::collate::Collate;
use crate::loader::collate::allocate::Untouched;
use crate::loader::collate::cell::Owned;
use crate::loader::error::failure::{Cause, Failure};
use crate::loader::error::guard::{caught, take_message};
use crate::loader::order::passes::HasDataset;
use crate::loader::order::plan::{Drawn, Feed, Indices, Plan};
use crate::loader::spans;
use crate::loader::worker::backoff::Backoff;
use crate::loader::worker::cancel::CancelFlag;
use crate::loader::worker::deaths::Deaths;
use crate::loader::worker::engine::{Engine, Task, rows_of};
use crate::loader::worker::init_barrier::{InitBarrier, Visitor};
use crate::loader::worker::reader::Reader;
use crate::loader::worker::timing::timed;
use crate::placed::Placed;
use crate::sync::{Instant, mishap};
use crate::wait::Waiter;

/// The ring of a loader whose batches are written into `P`.
pub(crate) type Ring<P> = ordered::Ring<Box<[Slot<Owned<P>>]>, Waiter>;

/// The state that the threads at one ring share, independent of the dataset.
pub(crate) struct Shared<P> {
    pub(crate) ring: Arc<Ring<P>>,
    pub(crate) cancel: Placed<CancelFlag>,
    /// Rows of a part, at least 1.
    pub(crate) part_rows: usize,
    /// The barrier at which workers run the user's code before each pass.
    pub(crate) barrier: Option<InitBarrier>,
    /// Whether the consumer makes batches, too, so that workers can leave batches to it.
    pub(crate) shares: bool,
    pub(crate) deaths: Arc<Deaths>,
    pub(crate) untouched: Option<Untouched>,
    /// The waiter on which the consumer waits for a cell.
    pub(crate) released: Arc<Waiter>,
}

/// Fills the slots of a ring.
pub(crate) struct Filler<D: Loadable, C: Collate<D>> {
    pub(crate) engine: Engine<D, C>,
    pub(crate) shared: Arc<Shared<C::Payload>>,
}

impl<D: Dataset, C: Collate<D>> HasDataset for Arc<Filler<D, C>> {
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

/// A consumer that does the work of a worker.
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
    /// Stops the loader, from any thread.
    pub(crate) fn stop(&self) {
        // Set the flag first: a thread that finds the ring closed must know why.
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
        let (place, mut visit) =
            (reader.place, self.shared.barrier.as_ref().map(|barrier| barrier.visitor(reader.place)));
        let outcome = catch_unwind(AssertUnwindSafe(|| self.load(worker, reader, visit.as_mut())));
        let Err(panic) = outcome else { return };
        // A consumer that loads does not need workers. Any other consumer must not wait for batches that no thread will
        // make.
        if self.shared.deaths.ends(place, format!("a panic in the loader's own code: {}", take_message(panic)))
            && !self.shared.shares
        {
            self.shared.close();
        }
        // Another thread takes over the part of a batch that it had started.
        self.shared.ring.wake_all();
    }

    fn load(&self, worker: &Worker<Arc<Ring<C::Payload>>>, reader: &mut Reader, visit: Option<&mut Visitor<'_>>) {
        if let Some(untouched) = &self.shared.untouched {
            untouched.touch(reader.place, self.engine.workers(), || self.shared.ring.is_closed());
        }
        let (mut backoff, counters) = (Backoff::default(), &self.engine.activities[reader.place].counters);
        let mut fill = |claim, reader: &mut Reader| {
            self.fill(claim, reader);
            if self.shared.shares && reader.sizer.is_tiny() {
                counters.rested(backoff.nap(|| self.shared.ring.claimed()));
            }
        };
        let Some(visit) = visit else {
            loop {
                mishap();
                match self.claim(worker, reader) {
                    Ok(claim) => fill(claim, reader),
                    Err(ClaimError::Ended) if worker.wait_for_run().is_ok() => {}
                    Err(_) => return,
                }
            }
        };
        while let Some(ready) = visit.next_pass() {
            mishap();
            while ready && let Ok(claim) = self.claim(worker, reader) {
                fill(claim, reader);
                mishap();
            }
        }
    }

    /// Returns a worker's next claim, and times the wait for it, if there is one.
    fn claim<'w>(
        &self,
        worker: &'w Worker<Arc<Ring<C::Payload>>>,
        reader: &Reader,
    ) -> Result<Claim<'w, Ring<C::Payload>>, ClaimError> {
        match worker.try_claim(reader.sizer.parts()) {
            Err(ClaimError::Full) => {}
            outcome => return outcome,
        }
        // Leaving the span never panics: a claim must not be dropped.
        let _span = spans::wait();
        let begun = Instant::now();
        let outcome = worker.claim(reader.sizer.parts());
        self.engine.activities[reader.place].counters.waited(begun.elapsed());
        outcome
    }

    /// Fills the rows of a claim and publishes them in any case. So the consumer sees every slot of every lap, and
    /// takes its errors.
    #[inline]
    pub(crate) fn fill(&self, claim: Claim<'_, Ring<C::Payload>>, reader: &mut Reader) {
        let outcome = if reader.sizer.skips_timing() {
            caught(|| self.fill_claim::<false>(&claim, reader))
        } else {
            let (activity, claim) = (&*self.engine.activities[reader.place], &claim);
            caught(|| {
                let of = (claim.ticket(), claim.parts().len());
                timed(reader, activity, of, |reader| match reader.watch.laps() {
                    Some(_) => self.fill_claim::<true>(claim, reader),
                    None => self.fill_apart(claim, reader),
                })
            })
            .flatten()
        };
        if let Err(cause) = outcome {
            self.spoil(&claim, reader, cause);
        }
        claim.publish();
    }

    /// Fails the rows of a claim because of a panic that no sample's guard has caught.
    #[cold]
    #[inline(never)]
    fn spoil(&self, claim: &Claim<'_, Ring<C::Payload>>, reader: &mut Reader, cause: Cause) {
        // SAFETY: a claim is out, so the plan is not written.
        let plan = unsafe { self.engine.plan_cell.plan() };
        let Some(feed) = &plan.feed else {
            let (task, rows) = self.task(claim, plan);
            let rows = self.rows(claim, rows);
            return self.engine.spoil(claim.get().work(), task, rows, reader, cause);
        };
        let list = feed.list(claim.slot(), claim.ticket());
        if let Drawn::Batch = list.outcome {
            let task = Task { number: list.number, first: list.first, indices: Indices::List(&list.indices) };
            let rows = self.rows(claim, list.indices.len());
            self.engine.spoil(claim.get().work(), task, rows, reader, cause);
        } else {
            // There is no batch to fail, or it has an error already.
            drop(list);
            self.fill_from::<false>(feed, claim, plan, reader);
        }
    }

    /// Works like [`fill_claim`](Self::fill_claim) without samples to time, where the last instruction does not matter.
    #[inline(never)]
    fn fill_apart(&self, claim: &Claim<'_, Ring<C::Payload>>, reader: &mut Reader) {
        self.fill_claim::<false>(claim, reader);
    }

    /// Fills the rows of a claim. `TIMED` means that the reader times its samples.
    #[inline(always)] // As it would be without `fill_apart`.
    fn fill_claim<const TIMED: bool>(&self, claim: &Claim<'_, Ring<C::Payload>>, reader: &mut Reader) {
        // SAFETY: a claim is out, so the plan is not written.
        let plan = unsafe { self.engine.plan_cell.plan() };
        match &plan.feed {
            None => {
                let (task, rows) = self.task(claim, plan);
                self.fill_task::<TIMED>(claim, plan, task, rows, reader);
            }
            Some(feed) => self.fill_from::<TIMED>(feed, claim, plan, reader),
        }
    }

    /// Returns the batch of a claim and the number of its rows, without a feed.
    #[inline(always)]
    fn task<'p>(&self, claim: &Claim<'_, Ring<C::Payload>>, plan: &'p Plan) -> (Task<'p>, usize) {
        let number = plan.tickets.task(claim.ticket());
        let (first, rows) = plan.batch(number, self.engine.stride, self.engine.rows);
        (Task { number, first, indices: Indices::from(&plan.order, first) }, rows)
    }

    /// Returns the rows that a claim has of a batch with `rows` rows, or of a whole batch if that has fewer.
    #[inline(always)]
    fn rows(&self, claim: &Claim<'_, Ring<C::Payload>>, rows: usize) -> Range<usize> {
        rows_of(claim.parts(), self.shared.part_rows, rows.min(self.engine.rows))
    }

    /// Fills a claim whose indices come from a feed. A separate function, so that it costs claims without a feed
    /// nothing.
    #[inline(never)]
    fn fill_from<const TIMED: bool>(
        &self,
        feed: &Feed,
        claim: &Claim<'_, Ring<C::Payload>>,
        plan: &Plan,
        reader: &mut Reader,
    ) {
        let list = feed.list(claim.slot(), claim.ticket());
        if TIMED {
            reader.watch.laps().inspect(|laps| laps.drawn());
        }
        match &list.outcome {
            Drawn::Batch => {
                let task = Task { number: list.number, first: list.first, indices: Indices::List(&list.indices) };
                self.fill_task::<TIMED>(claim, plan, task, list.indices.len(), reader);
            }
            // The consumer skips tickets that were claimed beyond the end.
            Drawn::End => self.shared.ring.seal(),
            failed => {
                if let Some(cause) = failed.failure(self.engine.rows) {
                    claim.get().work().fail(Failure { position: list.first, index: 0, by: reader.by(), cause });
                }
            }
        }
    }

    /// Fills the rows that a claim has of a batch with `rows` rows, or of a whole batch if that has fewer.
    #[inline(always)]
    fn fill_task<const TIMED: bool>(
        &self,
        claim: &Claim<'_, Ring<C::Payload>>,
        plan: &Plan,
        task: Task<'_>,
        rows: usize,
        reader: &mut Reader,
    ) {
        self.engine.fill::<TIMED>(claim.get().work(), plan, task, self.rows(claim, rows), reader);
    }
}

impl<P> fmt::Debug for Shared<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("ring", &self.ring).finish_non_exhaustive()
    }
}
