//! One pass of a lane loader.

use std::fmt;

use super::super::batch::Tag;
use super::super::collate::{Collate, Stack};
use super::super::error::{Error, Warning};
use super::super::lease::Lease;
use super::super::spans::{self, PassSpan};
use super::super::state::State;
use super::super::stats::Stats;
use super::super::work::dispose_each;
use super::LaneLoader;
use super::side::Next;
use super::slab::Taken;
use super::worker::{Outcome, Request};
use crate::BoxError;
use crate::dataset::Loadable;
use crate::wait::Until;

/// One pass (an epoch) of a [`LaneLoader`]: an iterator over its batches, or the errors in their places.
///
/// Dropped before its end, it is given up: workers stop at their current sample.
pub struct LanePass<'a, D: Loadable, C: Collate<D> = Stack> {
    loader: &'a mut LaneLoader<D, C>,
    /// Whether batches are those of an order, whose numbers they have; else they are counted.
    dealt: bool,
    /// How many samples an iterable dataset says that there are.
    said: Option<usize>,
    /// The last answer was `Held`.
    held: bool,
    /// Nothing more comes.
    over: bool,
    /// Workers that could not begin, the first one last.
    failures: Vec<(usize, BoxError)>,
    _span: PassSpan,
}

impl<'a, D: Loadable, C: Collate<D>> LanePass<'a, D, C> {
    pub(super) fn new(loader: &'a mut LaneLoader<D, C>, mut failures: Vec<(usize, BoxError)>) -> Self {
        failures.reverse();
        let dealt = loader.pass.tasks.is_some();
        let said = loader.passes.samples().filter(|_| !dealt);
        let span = PassSpan::new(loader.pass.epoch);
        Self { loader, dealt, said, held: false, over: false, failures, _span: span }
    }

    /// Where the loader is, at any time in the pass; see [`Loader::state`](super::super::Loader::state).
    pub fn state(&self) -> State {
        self.loader.state()
    }

    /// What the loader has done so far; see [`Loader::stats`](super::super::Loader::stats).
    pub fn stats(&self) -> Stats {
        self.loader.stats()
    }

    /// What was noticed so far; see [`LaneLoader::warnings`].
    pub fn warnings(&self) -> &[Warning] {
        self.loader.warnings()
    }

    /// Whether the next batch, or an error in its place, is there already; see [`Pass::is_ready`](super::super::Pass::is_ready).
    /// Of an iterable dataset it may also be that a worker is at its end, and `next` then asks another one.
    pub fn is_ready(&self) -> bool {
        !self.over && (!self.failures.is_empty() || self.loader.lanes.is_ready())
    }

    /// As `next`, but does not wait for held batches, nor notes that there were some.
    pub(in crate::loader) fn next_or_held(&mut self) -> Option<Result<C::Batch, Error>> {
        let waits = std::mem::take(&mut self.loader.waits_for_release);
        let next = self.next();
        (self.loader.waits_for_release, self.held) = (waits, false);
        next
    }

    /// The next batch or failure, if it is there; without workers, made now.
    fn try_next(&mut self) -> Next<C::Payload> {
        let loader = &mut *self.loader;
        let Some(own) = &mut loader.own else { return loader.lanes.try_next() };
        let abandoned = &loader.lanes.abandoned;
        if abandoned.is_stopped() {
            return Next::Stopped;
        }
        if own.over || own.tasks == Some(own.made) {
            return Next::End;
        }
        let slab = &loader.lanes.slab;
        let Some(cell) = slab.take_free() else { return Next::Held };
        let cell = Taken::new(slab.clone(), cell);
        let task = own.tickets.task(own.made);
        let outcome = own.hand.fill(Request { task: Some(task), ..own.request }, task, &cell, &mut own.next_mark);
        if abandoned.is_stopped() {
            return Next::Stopped;
        }
        std::mem::swap(&mut own.mark, &mut own.next_mark);
        own.made += 1;
        match (cell.take_failure(), outcome) {
            (Some(failure), _) => Next::Failed { failure, task },
            (None, Outcome::Batch(rows)) => Next::Batch { cell, task, rows },
            (None, _) => {
                own.over = true;
                Next::End
            }
        }
    }

    /// The end of a pass whose workers, or whose memory, were lost.
    #[cold]
    fn forked(&mut self) -> Option<Result<C::Batch, Error>> {
        self.over = true;
        Some(Err(Error::Forked))
    }

    /// Counts a batch or a failure that was asked for as number `task`, and gives the number that it has for the user.
    ///
    /// Workers at the end of an iterable dataset are asked in vain, the more often the greater `prefetch_factor` is.
    fn number(&mut self, task: usize) -> usize {
        let pass = &mut self.loader.pass;
        pass.delivered += 1;
        if pass.gaps {
            self.loader.log.gaps.note(task);
        }
        if self.dealt { task } else { pass.delivered - 1 }
    }

    /// What is delivered in the place of a batch that has met trouble, if anything is.
    #[cold]
    #[inline(never)]
    fn settle(&mut self, cell: Taken<C::Payload>, task: usize, rows: usize) -> Option<Result<C::Batch, Error>> {
        let tag = self.tag(task, rows);
        let loader = &mut *self.loader;
        match loader.ledger.settle::<D, C>(Lease::Taken(cell), tag, &mut loader.tally) {
            Some(Ok((batch, rows))) => {
                self.count(rows);
                Some(Ok(batch))
            }
            Some(Err(error)) => Some(Err(error)),
            None => {
                // Only a batch of an order keeps its number.
                if !self.dealt {
                    loader.pass.delivered -= 1;
                }
                None
            }
        }
    }

    fn tag(&self, task: usize, rows: usize) -> Tag {
        Tag { task, rows, single: self.loader.batching.single, epoch: self.loader.pass.epoch }
    }

    /// Counts samples, and warns if an iterable dataset has more than it said.
    #[inline(always)]
    fn count(&mut self, rows: usize) {
        let loader = &mut *self.loader;
        loader.samples = loader.samples.saturating_add(rows);
        if let Some(len) = self.said.filter(|&len| len < loader.samples && !loader.overlong) {
            loader.overlong = true;
            let warning = Warning::Overlong { samples: loader.samples, len };
            spans::tell(|| tracing::warn!("{warning}"));
            loader.warnings.push(warning);
        }
    }
}

impl<D: Loadable, C: Collate<D>> Iterator for LanePass<'_, D, C> {
    type Item = Result<C::Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        if let Some((worker, source)) = self.failures.pop() {
            return Some(Err(Error::WorkerInit { worker, source }));
        }
        if self.loader.crew.has_lost_memory() {
            return self.forked();
        }
        let LaneLoader { tally, lanes, pass, .. } = &mut *self.loader;
        if pass.delivered >= tally.look {
            tally.found(lanes.ready_count(), pass.delivered);
        }
        let was_held = std::mem::take(&mut self.held);
        let mut deadline = None;
        loop {
            match self.try_next() {
                Next::Batch { cell, task, rows } => {
                    let task = self.number(task);
                    if cell.is_troubled() {
                        match self.settle(cell, task, rows) {
                            // The time is that of one batch.
                            None => deadline = None,
                            outcome => return outcome,
                        }
                        continue;
                    }
                    self.count(rows);
                    let tag = self.tag(task, rows);
                    self.loader.tally.count::<D, C>(&cell.payload, tag);
                    return Some(Ok(C::deliver(Lease::Taken(cell), tag)));
                }
                Next::Failed { failure, task } => {
                    let task = self.number(task);
                    self.loader.tally.fail();
                    return Some(Err(failure.into_error(task)));
                }
                Next::Stopped => {
                    self.over = true;
                    self.loader.tally.end();
                    return Some(Err(Error::Stopped));
                }
                Next::Lost => {
                    self.over = true;
                    self.loader.tally.end();
                    return Some(Err(self.loader.gone().unwrap_or(Error::Stopped)));
                }
                Next::Empty | Next::Held if self.loader.crew.is_lost() => {
                    return self.forked();
                }
                Next::Empty => {
                    let deadline = deadline.get_or_insert_with(|| Until::after(self.loader.timeout));
                    let LaneLoader { tally, lanes, .. } = &mut *self.loader;
                    if !tally.waiting(|| lanes.wait(deadline)) {
                        return Some(Err(self.loader.timed_out(self.loader.awaited())));
                    }
                }
                Next::Held if self.loader.waits_for_release => {
                    let deadline = deadline.get_or_insert_with(|| Until::after(self.loader.timeout));
                    let LaneLoader { tally, lanes, .. } = &mut *self.loader;
                    if !tally.held(|| lanes.wait_for_free(deadline)) {
                        return Some(Err(self.held()));
                    }
                }
                Next::Held if was_held => {
                    // A loop that does not mind errors would else go round for ever.
                    self.over = true;
                    return None;
                }
                Next::Held => {
                    self.held = true;
                    return Some(Err(self.held()));
                }
                Next::End => {
                    (self.over, self.loader.pass.running) = (true, false);
                    self.loader.tally.end();
                    return None;
                }
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Timeouts and held batches come on top of what there is.
        (0, None)
    }
}

impl<D: Loadable, C: Collate<D>> LanePass<'_, D, C> {
    #[cold]
    fn held(&self) -> Error {
        Error::Held { depth: self.loader.depth(), hold: self.loader.hold }
    }
}

impl<D: Loadable, C: Collate<D>> Drop for LanePass<'_, D, C> {
    fn drop(&mut self) {
        // The next pass waits for them; they should not go on until then.
        self.loader.home.abandoned().set(true);
        self.loader.tally.end();
        dispose_each(std::mem::take(&mut self.failures));
    }
}

impl<D: Loadable, C: Collate<D>> fmt::Debug for LanePass<'_, D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LanePass")
            .field("epoch", &self.loader.pass.epoch)
            .field("delivered", &self.loader.pass.delivered)
            .finish_non_exhaustive()
    }
}
