//! One pass over the dataset.

use std::fmt;
use std::sync::Arc;

use slotline_core::ordered::{self, NextError};

use super::batch::Tag;
use super::collate::Collate;
use super::error::{Error, Warning};
use super::lease::Lease;
use super::plan::Drawn;
use super::ring::Ring;
use super::spans::PassSpan;
use super::work::dispose_each;
use super::{Loader, Stack, State, Stats};
use crate::BoxError;
use crate::dataset::Dataset;
use crate::wait::Until;

/// One pass (an epoch): an iterator over its batches, or the errors in their places.
///
/// Dropped before its end, it is given up: workers stop at their current sample.
pub struct Pass<'a, D: Dataset, C: Collate<D> = Stack> {
    loader: &'a mut Loader<D, C>,
    /// The last answer was `Held`.
    held: bool,
    /// Nothing more comes.
    over: bool,
    /// Workers that could not begin, the first one last.
    failures: Vec<(usize, BoxError)>,
    /// Whether these are all that could load.
    nobody_left: bool,
    _span: PassSpan,
}

impl<'a, D: Dataset, C: Collate<D>> Pass<'a, D, C> {
    /// `nobody_left`: no worker is left but those that failed.
    pub(super) fn new(
        loader: &'a mut Loader<D, C>,
        mut failures: Vec<(usize, BoxError)>,
        mut nobody_left: bool,
    ) -> Self {
        failures.reverse();
        nobody_left &= !failures.is_empty() && !loader.helps;
        let span = PassSpan::new(loader.pass.epoch);
        Self { loader, held: false, over: false, failures, nobody_left, _span: span }
    }

    /// What the loader has done so far: [`Loader::stats`].
    pub fn stats(&self) -> Stats {
        self.loader.stats()
    }

    /// What was noticed so far: [`Loader::warnings`].
    pub fn warnings(&self) -> &[Warning] {
        self.loader.warnings()
    }

    /// How many batches of the pass are still to come, with those that have nothing but [bad samples](super::OnError::Skip);
    /// `None` if only its end will tell.
    pub fn remaining(&self) -> Option<usize> {
        let pass = &self.loader.pass;
        if self.over || !pass.running { Some(0) } else { pass.tasks.map(|tasks| tasks - pass.delivered) }
    }

    /// Where the loader is, at any time in the pass; see [`Loader::state`].
    pub fn state(&self) -> State {
        self.loader.state()
    }

    /// Whether the next batch, or an error in its place, is there already, so that `next` need neither wait nor load. At the
    /// end of the pass it never is.
    pub fn is_ready(&self) -> bool {
        !self.over && (!self.failures.is_empty() || self.loader.consumer.is_ready())
    }

    /// As `next`, but does not wait for held batches, nor notes that there were some.
    pub(in crate::loader) fn next_or_held(&mut self) -> Option<Result<C::Batch, Error>> {
        let waits = std::mem::take(&mut self.loader.waits_for_release);
        let next = self.next();
        (self.loader.waits_for_release, self.held) = (waits, false);
        next
    }

    /// The end of a pass whose loader was stopped, or has lost its workers. What is ready stays where it is: it may lack rows,
    /// and does not count as delivered.
    #[cold]
    fn closed(&mut self) -> Option<Result<C::Batch, Error>> {
        self.over = true;
        self.loader.tally.end();
        Some(Err(self.loader.closed()))
    }

    /// The end of a pass whose workers, or whose memory, were lost.
    #[cold]
    fn forked(&mut self) -> Option<Result<C::Batch, Error>> {
        self.over = true;
        Some(Err(Error::Forked))
    }

    /// The next worker that could not begin.
    #[cold]
    fn next_failure(&mut self) -> Option<Error> {
        let (worker, source) = self.failures.pop()?;
        if self.failures.is_empty() && self.nobody_left {
            self.over = true;
            self.loader.abandon();
        }
        Some(Error::WorkerInit { worker, source })
    }
}

impl<D: Dataset, C: Collate<D>> Iterator for Pass<'_, D, C> {
    type Item = Result<C::Batch, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        if !self.failures.is_empty() {
            return self.next_failure().map(Err);
        }
        if self.loader.crew.has_lost_memory() {
            return self.forked();
        }
        let loader = &mut *self.loader;
        if loader.pass.delivered >= loader.tally.look {
            loader.look();
        }
        let mut was_held = std::mem::take(&mut self.held);
        let mut deadline = None;
        loop {
            let helped = loader.helps && !loader.consumer.is_ready() && !loader.crew.is_lost() && loader.help();
            match loader.consumer.try_next() {
                Ok(lease) => {
                    if loader.shared.engine.abandoned.is_stopped() {
                        return self.closed();
                    }
                    let (task, rows) = match loader.pass.tasks {
                        Some(_) => {
                            // Without gaps they come one after the other.
                            let next = loader.pass.delivered;
                            let task = if loader.pass.gaps { loader.take(lease.ticket()) } else { next };
                            let engine = &loader.shared.engine;
                            (task, engine.rows.min(loader.pass.positions - task * engine.stride))
                        }
                        None => match loader.fed(lease.slot()) {
                            Some(fed) => {
                                if loader.pass.gaps {
                                    loader.log.gaps.note(fed.0);
                                }
                                fed
                            }
                            // Claimed beyond the end of the user's iterator.
                            None => continue,
                        },
                    };
                    loader.pass.delivered += 1;
                    if lease.is_troubled() {
                        match loader.settle(lease, task, rows) {
                            // The time is that of one batch, and it is another one that may be held up now.
                            None => (deadline, was_held) = (None, false),
                            outcome => return outcome,
                        }
                        continue;
                    }
                    let tag = loader.tag(task, rows);
                    loader.tally.count::<D, C>(&lease.payload, tag);
                    return Some(Ok(C::deliver(Lease::Slot(lease), tag)));
                }
                // What was made comes later, or was a part.
                Err(NextError::Empty) if helped => {}
                Err(NextError::Empty | NextError::Held) if loader.crew.is_lost() => return self.forked(),
                Err(NextError::Empty) => {
                    let deadline = deadline.get_or_insert_with(|| Until::after(loader.timeout));
                    let consumer = &mut loader.consumer;
                    let more = loader.tally.waiting(|| {
                        if loader.helps { consumer.wait_or_work(deadline) } else { consumer.wait(deadline) }
                    });
                    if !more {
                        return Some(Err(loader.timed_out()));
                    }
                }
                Err(NextError::Held) if loader.waits_for_release => {
                    let deadline = deadline.get_or_insert_with(|| Until::after(loader.timeout));
                    if !loader.tally.held(|| loader.consumer.wait_for_release(deadline)) {
                        return Some(Err(loader.held()));
                    }
                }
                // A loop that does not mind errors would else go round for ever.
                Err(NextError::Held) if was_held => {
                    self.over = true;
                    loader.abandon();
                    return None;
                }
                Err(NextError::Held) => {
                    self.held = true;
                    return Some(Err(loader.held()));
                }
                Err(NextError::Failed { ticket }) => {
                    let task = loader.take(ticket);
                    loader.pass.delivered += 1;
                    loader.tally.fail();
                    return Some(Err(Error::Lost { task }));
                }
                Err(NextError::Closed) => return self.closed(),
                Err(NextError::Ended) => {
                    (self.over, loader.pass.running) = (true, false);
                    loader.tally.end();
                    return None;
                }
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Timeouts and held slots come on top of the batches, and the latter can end the pass.
        (0, None)
    }
}

impl<D: Dataset, C: Collate<D>> Loader<D, C> {
    /// What is delivered in the place of a batch that has met trouble, if anything is.
    #[cold]
    #[inline(never)]
    fn settle(
        &mut self,
        lease: ordered::Lease<Arc<Ring<C::Payload>>>,
        task: usize,
        rows: usize,
    ) -> Option<Result<C::Batch, Error>> {
        let tag = self.tag(task, rows);
        let outcome = self.ledger.settle::<D, C>(Lease::Slot(lease), tag, &mut self.tally)?;
        Some(outcome.map(|(batch, _)| batch))
    }

    #[inline]
    fn tag(&self, task: usize, rows: usize) -> Tag {
        Tag { task, rows, single: self.draw.batching.single, epoch: self.pass.epoch }
    }

    /// Notes that the batch of a ticket is taken, and gives its number.
    #[inline(never)]
    fn take(&mut self, ticket: usize) -> usize {
        let task = self.plan().tickets.task(ticket);
        self.log.gaps.note(task);
        task
    }

    /// Looks how many finished batches there are.
    #[cold]
    fn look(&mut self) {
        self.tally.found(self.consumer.ready(), self.pass.delivered);
    }

    /// The number and the rows of the batch in a slot that a feed was drawn for; `None` if the feed had come to its end.
    fn fed(&self, slot: usize) -> Option<(usize, usize)> {
        // SAFETY: this is the only one who may call `draft`.
        let plan = unsafe { self.shared.engine.plan() };
        let list = plan.feed.as_ref()?.peek(slot);
        (!matches!(list.outcome, Drawn::End)).then_some((list.number, list.indices.len()))
    }
}

impl<D: Dataset, C: Collate<D>> Drop for Pass<'_, D, C> {
    fn drop(&mut self) {
        if self.loader.pass.has_more() {
            self.loader.abandon();
        }
        self.loader.tally.end();
        dispose_each(std::mem::take(&mut self.failures));
    }
}

impl<D: Dataset, C: Collate<D>> fmt::Debug for Pass<'_, D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("epoch", &self.loader.pass.epoch)
            .field("delivered", &self.loader.pass.delivered)
            .field("remaining", &self.remaining())
            .finish()
    }
}
