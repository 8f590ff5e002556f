//! One pass over the dataset.

use std::fmt;

use slotline_core::ordered::NextError;

use super::batch::Tag;
use super::collate::Collate;
use super::error::Error;
use super::lease::Lease;
use super::plan::Drawn;
use super::spans::PassSpan;
use super::{Loader, Stack, Stats};
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
    pub(super) fn new(loader: &'a mut Loader<D, C>, mut failures: Vec<(usize, BoxError)>) -> Self {
        failures.reverse();
        let nobody_left = !failures.is_empty() && failures.len() == loader.crew.len() && !loader.helps;
        let span = PassSpan::new(loader.pass.epoch);
        Self { loader, held: false, over: false, failures, nobody_left, _span: span }
    }

    /// What the loader has done so far: [`Loader::stats`].
    pub fn stats(&self) -> Stats {
        self.loader.stats()
    }

    /// How many batches of the pass are still to come; `None` if only its end will tell.
    pub fn remaining(&self) -> Option<usize> {
        let pass = &self.loader.pass;
        if self.over || !pass.running { Some(0) } else { pass.tasks.map(|tasks| tasks - pass.delivered) }
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
        let loader = &mut *self.loader;
        if loader.pass.delivered >= loader.tally.look {
            loader.look();
        }
        let was_held = std::mem::take(&mut self.held);
        let mut deadline = None;
        loop {
            let helped = loader.helps && !loader.consumer.is_ready() && loader.help();
            match loader.consumer.try_next() {
                Ok(lease) => {
                    let (task, rows) = match loader.pass.tasks {
                        Some(_) => {
                            let (task, rows) = (lease.ticket(), loader.shared.engine.rows);
                            (task, rows.min(loader.pass.positions - task * rows))
                        }
                        None => match loader.fed(lease.slot()) {
                            Some(fed) => fed,
                            // Claimed beyond the end of the user's iterator.
                            None => continue,
                        },
                    };
                    loader.pass.delivered += 1;
                    if let Some(failure) = lease.take_failure() {
                        loader.tally.failed += 1;
                        return Some(Err(failure.into_error(task)));
                    }
                    let tag = Tag { task, rows, single: loader.draw.batching.single, epoch: loader.pass.epoch };
                    loader.tally.samples += rows;
                    if loader.tally.weighs {
                        loader.tally.weigh(|| C::bytes(&lease.payload, tag));
                    }
                    return Some(Ok(C::deliver(Lease::Slot(lease), tag)));
                }
                // What was made comes later, or was a part.
                Err(NextError::Empty) if helped => {}
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
                    loader.pass.delivered += 1;
                    loader.tally.failed += 1;
                    return Some(Err(Error::Lost { task: ticket }));
                }
                Err(NextError::Ended | NextError::Closed) => {
                    loader.pass.running = false;
                    loader.tally.end(loader.pass.delivered);
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
    /// Looks how many finished batches there are.
    #[cold]
    fn look(&mut self) {
        self.tally.found(self.consumer.ready(), self.pass.delivered);
    }

    /// The number and the rows of the batch in a slot that a feed was drawn for; `None` if the feed had come to its end.
    fn fed(&self, slot: usize) -> Option<(usize, usize)> {
        // SAFETY: this is the only one who may call `plan_mut`.
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
        self.loader.tally.end(self.loader.pass.delivered);
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
