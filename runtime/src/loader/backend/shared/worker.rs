//! The workers of one ring that they all share: whoever is free claims rows of the next batch.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use slotline_core::ordered::{self, Claim, ClaimError, Slot, Worker};
use slotline_core::wait::Wait;

use crate::dataset::{Dataset, Loadable};
use crate::loader::collate::Collate;
use crate::loader::collate::allocate::Untouched;
use crate::loader::collate::slab::Cell;
use crate::loader::error::failure::{Cause, Failure};
use crate::loader::error::guard::{caught, last_words};
use crate::loader::order::plan::{Drawn, Feed, Indices, Plan};
use crate::loader::spans;
use crate::loader::worker::backoff::Backoff;
use crate::loader::worker::cancel::CancelFlag;
use crate::loader::worker::deaths::Deaths;
use crate::loader::worker::engine::{Engine, Task};
use crate::loader::worker::init_barrier::{InitBarrier, Visitor};
use crate::loader::worker::reader::Reader;
use crate::loader::worker::timing::timed;
use crate::sync::{Instant, mishap};
use crate::wait::Waiter;

/// The ring of a loader whose batches are written into `P`.
pub(crate) type Ring<P> = ordered::Ring<Box<[Slot<Arc<Cell<P>>>]>, Waiter>;

/// What the threads at one ring share, whatever their dataset.
pub(crate) struct Shared<P> {
    pub(crate) ring: Arc<Ring<P>>,
    pub(crate) cancel: Arc<CancelFlag>,
    /// Rows of a part, at least 1.
    pub(crate) part_rows: usize,
    /// Where workers run the user's code before each pass.
    pub(crate) barrier: Option<InitBarrier>,
    /// Whether the consumer makes batches, too, so that workers can leave them to it.
    pub(crate) shares: bool,
    pub(crate) deaths: Arc<Deaths>,
    pub(crate) untouched: Option<Untouched>,
    /// Where the consumer waits for a cell.
    pub(crate) released: Arc<Waiter>,
}

/// What fills the slots of a ring.
pub(crate) struct Filler<D: Loadable, C: Collate<D>> {
    pub(crate) engine: Engine<D, C>,
    pub(crate) shared: Arc<Shared<C::Payload>>,
}

/// The consumer's own hands.
pub(crate) trait Help: Send {
    /// Fills some rows, if any are to be claimed.
    fn help(&mut self) -> bool;
}

/// A consumer that does a worker's work.
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
    /// Stops the loader, from whatever thread.
    pub(crate) fn stop(&self) {
        // First: who finds the ring closed must know why.
        self.cancel.stop();
        self.close();
    }

    /// Sends the workers home.
    pub(crate) fn close(&self) {
        self.ring.close();
        if let Some(barrier) = &self.barrier {
            barrier.close();
        }
        self.released.notify(|| true);
    }
}

impl<D: Dataset, C: Collate<D>> Filler<D, C> {
    /// A worker's whole life.
    pub(crate) fn work(&self, worker: &Worker<Arc<Ring<C::Payload>>>, reader: &mut Reader) {
        let (place, mut visit) =
            (reader.place, self.shared.barrier.as_ref().map(|barrier| barrier.visitor(reader.place)));
        let outcome = catch_unwind(AssertUnwindSafe(|| self.load(worker, reader, visit.as_mut())));
        let Err(panic) = outcome else { return };
        // A consumer that loads, too, needs no workers. Any other one must not wait for what nobody will make.
        if self.shared.deaths.ends(place, last_words(panic)) && !self.shared.shares {
            self.shared.close();
        }
        // Somebody else takes what it had begun of a batch.
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

    /// A worker's next claim; times the wait for it, if there is one.
    fn claim<'w>(
        &self,
        worker: &'w Worker<Arc<Ring<C::Payload>>>,
        reader: &Reader,
    ) -> Result<Claim<'w, Ring<C::Payload>>, ClaimError> {
        match worker.try_claim(reader.sizer.parts()) {
            Err(ClaimError::Full) => {}
            outcome => return outcome,
        }
        // Leaves without a panic: a claim must not be dropped.
        let _span = spans::wait();
        let begun = Instant::now();
        let outcome = worker.claim(reader.sizer.parts());
        self.engine.activities[reader.place].counters.waited(begun.elapsed());
        outcome
    }

    /// Fills the rows of a claim and publishes them, come what may: so the consumer comes by every slot of every lap, and
    /// takes with it what went wrong there.
    #[inline]
    pub(crate) fn fill(&self, claim: Claim<'_, Ring<C::Payload>>, reader: &mut Reader) {
        let outcome = if reader.sizer.lets_go() {
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

    /// Gives up the rows of a claim because of a panic that no sample's guard has caught.
    #[cold]
    #[inline(never)]
    fn spoil(&self, claim: &Claim<'_, Ring<C::Payload>>, reader: &mut Reader, cause: Cause) {
        // SAFETY: a claim is out.
        let plan = unsafe { self.engine.plan_cell.plan() };
        let Some(feed) = &plan.feed else {
            let task = self.task(claim, plan);
            let rows = self.rows(claim, plan.positions - task.first);
            return self.engine.spoil(claim.get().work(), task, rows, reader, cause);
        };
        let list = feed.list(claim.slot(), claim.ticket());
        if let Drawn::Batch = list.outcome {
            let task = Task { number: list.number, first: list.first, indices: Indices::List(&list.indices) };
            let rows = self.rows(claim, list.indices.len());
            self.engine.spoil(claim.get().work(), task, rows, reader, cause);
        } else {
            // There is no batch that it could be the error of, or it has one already.
            drop(list);
            self.fill_from::<false>(feed, claim, plan, reader);
        }
    }

    /// As [`fill_claim`](Self::fill_claim) without samples to time, where not the last instruction matters.
    #[inline(never)]
    fn fill_apart(&self, claim: &Claim<'_, Ring<C::Payload>>, reader: &mut Reader) {
        self.fill_claim::<false>(claim, reader);
    }

    /// Fills the rows of a claim. `TIMED`: the reader times its samples.
    #[inline(always)] // As without `fill_apart`, where it would be by itself.
    fn fill_claim<const TIMED: bool>(&self, claim: &Claim<'_, Ring<C::Payload>>, reader: &mut Reader) {
        // SAFETY: a claim is out.
        let plan = unsafe { self.engine.plan_cell.plan() };
        match &plan.feed {
            None => {
                let task = self.task(claim, plan);
                self.fill_task::<TIMED>(claim, plan, task, plan.positions - task.first, reader);
            }
            Some(feed) => self.fill_from::<TIMED>(feed, claim, plan, reader),
        }
    }

    /// The batch that a claim is of, without a feed.
    #[inline(always)]
    fn task<'p>(&self, claim: &Claim<'_, Ring<C::Payload>>, plan: &'p Plan) -> Task<'p> {
        let number = plan.tickets.task(claim.ticket());
        let first = number * self.engine.stride;
        Task { number, first, indices: Indices::from(&plan.order, first) }
    }

    /// What a claim has of a batch with so many rows, or at most the whole one.
    #[inline(always)]
    fn rows(&self, claim: &Claim<'_, Ring<C::Payload>>, rows: usize) -> Range<usize> {
        let (rows, parts) = (rows.min(self.engine.rows), claim.parts());
        let begin = (parts.start * self.shared.part_rows).min(rows);
        begin..parts.end.saturating_mul(self.shared.part_rows).min(rows)
    }

    /// Fills a claim whose indices come from a feed. Apart, so that it costs the other way nothing.
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
        let cause = match &list.outcome {
            Drawn::Batch => {
                let task = Task { number: list.number, first: list.first, indices: Indices::List(&list.indices) };
                return self.fill_task::<TIMED>(claim, plan, task, list.indices.len(), reader);
            }
            // The consumer passes over tickets that were claimed beyond the end.
            Drawn::End => return self.shared.ring.seal(),
            Drawn::Failed(message) => Cause::Sampler(message.clone()),
            Drawn::TooLong(len) => Cause::LongBatch(*len, self.engine.rows),
        };
        claim.get().work().fail(Failure { position: list.first, index: 0, by: reader.by(), cause });
    }

    /// Fills what a claim has of a batch with so many rows, or at most the whole one.
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
