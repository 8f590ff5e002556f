//! One pass over the dataset.

use std::fmt;

use slotline_core::ordered::NextError;

use super::collate::Collate;
use super::error::Error;
use super::{Loader, Stack};
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
}

impl<'a, D: Dataset, C: Collate<D>> Pass<'a, D, C> {
    pub(super) fn new(loader: &'a mut Loader<D, C>) -> Self {
        Self { loader, held: false, over: false }
    }

    /// How many batches of the pass are still to come.
    pub fn remaining(&self) -> usize {
        self.loader.tasks - self.loader.delivered
    }
}

impl<D: Dataset, C: Collate<D>> Iterator for Pass<'_, D, C> {
    type Item = Result<C::Batch, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let loader = &mut *self.loader;
        let was_held = std::mem::take(&mut self.held);
        let mut deadline = None;
        loop {
            if loader.helps && !loader.consumer.is_ready() && loader.help() {
                continue;
            }
            match loader.consumer.try_next() {
                Ok(mut lease) => {
                    loader.delivered += 1;
                    let task = lease.ticket();
                    if let Some(failure) = lease.take_failure() {
                        return Some(Err(failure.into_error(task)));
                    }
                    let rows = loader.rows_of(task);
                    return Some(Ok(C::deliver(lease, rows, loader.plan_epoch)));
                }
                Err(NextError::Empty) => {
                    let deadline = deadline.get_or_insert_with(|| Until::after(loader.timeout));
                    let consumer = &mut loader.consumer;
                    let more = if loader.helps { consumer.wait_or_work(deadline) } else { consumer.wait(deadline) };
                    if !more {
                        return Some(Err(loader.timed_out()));
                    }
                }
                Err(NextError::Held) if loader.waits_for_release => {
                    let deadline = deadline.get_or_insert_with(|| Until::after(loader.timeout));
                    if !loader.consumer.wait_for_release(deadline) {
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
                    loader.delivered += 1;
                    return Some(Err(Error::Lost { task: ticket }));
                }
                Err(NextError::Ended | NextError::Closed) => return None,
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Timeouts and held slots come on top of the batches, and the latter can end the pass.
        (0, None)
    }
}

impl<D: Dataset, C: Collate<D>> Drop for Pass<'_, D, C> {
    fn drop(&mut self) {
        if self.remaining() > 0 {
            self.loader.abandon();
        }
    }
}

impl<D: Dataset, C: Collate<D>> fmt::Debug for Pass<'_, D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("epoch", &self.loader.plan_epoch)
            .field("delivered", &self.loader.delivered)
            .field("remaining", &self.remaining())
            .finish()
    }
}
