//! The workers of one ring that they all share: whoever is free claims rows of the next batch.

use std::fmt;
use std::sync::Arc;

use slotline_core::ordered::{self, Claim, ClaimError, Slot, Worker};

use super::clock::timed;
use super::collate::Collate;
use super::engine::{Engine, Task};
use super::gate::Gate;
use super::job::Reader;
use super::payloads::Untouched;
use super::plan::{Drawn, Feed, Indices, Plan};
use super::rest::Rest;
use super::spans;
use super::work::{Cause, Failure, Work};
use crate::dataset::{Dataset, Loadable};
use crate::sync::Instant;
use crate::wait::Waiter;

/// The ring of a loader whose slots hold `P`.
pub(super) type Ring<P> = ordered::Ring<Box<[Slot<Work<P>>]>, Waiter>;

/// What the threads at one ring share.
pub(super) struct Shared<D: Loadable, C: Collate<D>> {
    pub(super) engine: Engine<D, C>,
    pub(super) ring: Arc<Ring<C::Payload>>,
    /// Rows of a part, at least 1.
    pub(super) part_rows: usize,
    /// Where workers run the user's code before each pass.
    pub(super) gate: Option<Gate>,
    /// Whether the consumer makes batches, too, so that workers can leave them to it.
    pub(super) shares: bool,
    pub(super) untouched: Option<Untouched>,
}

impl<D: Loadable, C: Collate<D>> Shared<D, C> {
    /// Stops the loader, from whatever thread.
    pub(super) fn stop(&self) {
        // First: who finds the ring closed must know why.
        self.engine.abandoned.stop();
        self.close();
    }

    /// Sends the workers home.
    pub(super) fn close(&self) {
        self.ring.close();
        if let Some(gate) = &self.gate {
            gate.close();
        }
    }
}

impl<D: Dataset, C: Collate<D>> Shared<D, C> {
    /// A worker's whole life.
    pub(super) fn work(&self, worker: &Worker<Arc<Ring<C::Payload>>>, reader: &mut Reader) {
        if let Some(untouched) = &self.untouched {
            untouched.touch(reader.place, self.engine.workers(), || self.ring.is_closed());
        }
        let (mut rest, figures) = (Rest::default(), &self.engine.activities[reader.place].figures);
        let mut fill = |claim, reader: &mut Reader| {
            self.fill(claim, reader);
            if self.shares && reader.pacer.is_tiny() {
                figures.rested(rest.nap(|| self.ring.claimed()));
            }
        };
        let Some(gate) = &self.gate else {
            loop {
                match self.claim(worker, reader) {
                    Ok(claim) => fill(claim, reader),
                    Err(ClaimError::Ended) if worker.wait_for_run().is_ok() => {}
                    Err(_) => return,
                }
            }
        };
        let mut visit = gate.visitor(reader.place);
        while let Some(ready) = visit.next_pass() {
            while ready && let Ok(claim) = self.claim(worker, reader) {
                fill(claim, reader);
            }
        }
    }

    /// A worker's next claim; times the wait for it, if there is one.
    fn claim<'w>(
        &self,
        worker: &'w Worker<Arc<Ring<C::Payload>>>,
        reader: &Reader,
    ) -> Result<Claim<'w, Ring<C::Payload>>, ClaimError> {
        match worker.try_claim(reader.pacer.parts()) {
            Err(ClaimError::Full) => {}
            outcome => return outcome,
        }
        let _span = spans::wait();
        let begun = Instant::now();
        let outcome = worker.claim(reader.pacer.parts());
        self.engine.activities[reader.place].figures.waited(begun.elapsed());
        outcome
    }

    /// Fills the rows of a claim and publishes them.
    #[inline]
    pub(super) fn fill(&self, claim: Claim<'_, Ring<C::Payload>>, reader: &mut Reader) {
        if reader.pacer.lets_go() {
            self.fill_claim::<false>(&claim, reader);
        } else {
            let activity = &*self.engine.activities[reader.place];
            timed(reader, activity, (claim.ticket(), claim.parts().len()), |reader| {
                self.fill_claim::<true>(&claim, reader);
            });
        }
        claim.publish();
    }

    /// Fills the rows of a claim. `TIMED`: the reader times it.
    #[inline]
    fn fill_claim<const TIMED: bool>(&self, claim: &Claim<'_, Ring<C::Payload>>, reader: &mut Reader) {
        // SAFETY: a claim is out.
        let plan = unsafe { self.engine.plan() };
        match &plan.feed {
            None => {
                let number = plan.tickets.task(claim.ticket());
                let first = number * self.engine.stride;
                let task = Task { number, first, indices: Indices::from(&plan.order, first) };
                self.fill_task::<TIMED>(claim, plan, task, plan.positions - first, reader);
            }
            Some(feed) => self.fill_from::<TIMED>(feed, claim, plan, reader),
        }
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
        let cause = match &list.outcome {
            Drawn::Batch => {
                let task = Task { number: list.number, first: list.first, indices: Indices::List(&list.indices) };
                return self.fill_task::<TIMED>(claim, plan, task, list.indices.len(), reader);
            }
            // The consumer passes over tickets that were claimed beyond the end.
            Drawn::End => return self.ring.seal(),
            Drawn::Failed(message) => Cause::Sampler(message.clone()),
            Drawn::TooLong(len) => Cause::LongBatch(*len, self.engine.rows),
        };
        claim.get().fail(Failure { position: list.first, index: 0, by: reader.by(), cause });
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
        let (rows, parts) = (rows.min(self.engine.rows), claim.parts());
        let begin = (parts.start * self.part_rows).min(rows);
        let end = parts.end.saturating_mul(self.part_rows).min(rows);
        self.engine.fill::<TIMED>(claim.get(), plan, task, begin..end, reader);
    }
}

impl<D: Loadable, C: Collate<D>> fmt::Debug for Shared<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("ring", &self.ring).finish_non_exhaustive()
    }
}
