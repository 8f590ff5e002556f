//! One pass over the dataset.

use std::fmt;

use slotline_core::wait::Deadline;

use crate::loader::backend::protocol::{Backend, NotReady, Ready};
use crate::loader::checkpoint::state::State;
use crate::loader::collate::batch::Batch;
use crate::loader::collate::cell::Lease;
use crate::loader::collate::on_held::OnHeld;
use crate::loader::collate::{Output, Storage};
use crate::loader::consumer::core::LoaderCore;
use crate::loader::consumer::loader::Loader;
use crate::loader::error::run::Error;
use crate::loader::error::warning::Warning;
use crate::loader::metrics::stats::Stats;
use crate::loader::spans::PassSpan;
use crate::sample::Dynamic;
use crate::wait::Until;

/// One pass (an epoch): an iterator over its batches, or the errors instead of them.
///
/// If it is dropped before its end, it is abandoned: workers stop after their current sample.
///
/// A `for` loop borrows the pass. To call [`state`](Self::state) or [`stats`](Self::stats) between batches, write
/// `while let Some(batch) = pass.next()`. A loop that must own what it iterates, or that takes batches in several
/// places, uses [`Loader::next_batch`] instead.
pub struct Pass<'a, B: Output = Batch<Dynamic>> {
    loader: &'a mut Loader<B>,
    /// Why the pass could not begin.
    refused: Option<Error>,
    _span: PassSpan,
}

impl<'a, B: Output> Pass<'a, B> {
    /// Returns the pass that has just begun, or one that returns the reason why it could not.
    pub(crate) fn new(loader: &'a mut Loader<B>, refused: Option<Error>) -> Self {
        let span = loader.pass_span();
        Self { loader, refused, _span: span }
    }

    /// Returns the statistics of the loader so far: [`Loader::stats`].
    pub fn stats(&self) -> Stats {
        self.loader.stats()
    }

    /// Returns the warnings of the loader so far: [`Loader::warnings`].
    pub fn warnings(&self) -> &[Warning] {
        self.loader.warnings()
    }

    /// The number of batches of the pass still to come, including those that consist only of
    /// [bad samples](crate::loader::OnError::Skip); `None` if it is not known before the end.
    pub fn remaining(&self) -> Option<usize> {
        self.loader.remaining()
    }

    /// Returns the loader's position, at any time in the pass; see [`Loader::state`].
    pub fn state(&self) -> State {
        self.loader.state()
    }

    /// Whether the next batch, an error instead of it, or the end of the pass is ready, so that `next` neither waits nor
    /// loads. With an iterable dataset it may be true when a worker has reached its end, and `next` then asks another
    /// worker. Without workers, the end of an iterator or a stream is known only when `next` has come to it.
    pub fn is_ready(&self) -> bool {
        self.loader.is_ready()
    }

    /// Works like `next`, for a caller that holds batches and could drop some: returns [`Held`](Error::Held) at once,
    /// even where `next` would [take more memory or wait](crate::loader::Builder::on_held).
    pub fn next_or_held(&mut self) -> Option<Result<B::Item, Error>> {
        if let Some(error) = self.refused.take() {
            return Some(Err(error));
        }
        self.loader.next_or_held()
    }
}

impl<B: Output> Iterator for Pass<'_, B> {
    type Item = Result<B::Item, Error>;

    #[inline(always)] // See `Loader::next_batch`.
    fn next(&mut self) -> Option<Self::Item> {
        if self.refused.is_some() {
            return self.refused.take().map(Err);
        }
        self.loader.next_batch()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Timeouts and held batches add items to the batches, and a stop can end the pass early.
        (0, None)
    }
}

impl<P: Storage> LoaderCore<P> {
    /// Returns the next batch of the pass, or the error instead of it. The error is boxed because it is large, and
    /// would otherwise be copied for each batch.
    #[inline(always)] // A call would pass its result through memory.
    pub(crate) fn next(&mut self) -> Option<Result<Lease<P>, Box<Error>>> {
        if !self.position.pass.open {
            return None;
        }
        if !self.position.pass.failures.is_empty() {
            return self.next_failure().map(|error| Err(Box::new(error)));
        }
        if self.workers.pool.has_lost_memory() {
            return Some(Err(Box::new(self.forked())));
        }
        if self.position.pass.delivered >= self.statistics.consumer.look {
            self.look();
        }
        let mut deadline = None;
        loop {
            match self.backend.try_next(&self.position.pass, &self.workers.pool, &mut self.memory.cell_pool) {
                Ok(Ready { lease, task, rows }) => {
                    let task = self.number(task);
                    lease.describe(task, rows, self.position.pass.epoch);
                    if lease.work().has_errors() {
                        match self.settle(lease) {
                            // Nothing is left of the batch. There may be many such batches.
                            None if self.is_late(&mut deadline) => return Some(Err(Box::new(self.timed_out()))),
                            None => {}
                            Some(outcome) => return Some(outcome.map_err(Box::new)),
                        }
                        continue;
                    }
                    self.count(&lease, rows);
                    return Some(Ok(lease));
                }
                Err(nothing) => match self.handle(nothing, &mut deadline) {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }

    /// Handles the case that no batch came: waits for one, or returns the error instead of it; `false` at the end of
    /// the pass.
    #[cold]
    #[inline(never)]
    fn handle(&mut self, nothing: NotReady, deadline: &mut Option<Until>) -> Result<bool, Box<Error>> {
        Err(Box::new(match nothing {
            // Only where the caller looks after something else may it load for a limited time.
            NotReady::Again if !self.is_late(deadline) => return Ok(true),
            NotReady::Again => self.timed_out(),
            NotReady::Empty | NotReady::Held if self.workers.pool.is_lost() => self.forked(),
            NotReady::Empty => {
                let deadline = deadline.get_or_insert_with(|| Until::after(self.timeout));
                let backend = &mut self.backend;
                if self.statistics.consumer.waiting(|| backend.wait(deadline)) {
                    return Ok(true);
                }
                self.timed_out()
            }
            NotReady::Held => {
                let deadline = deadline.get_or_insert_with(|| Until::after(self.timeout));
                match self.make_room(deadline) {
                    Ok(()) => return Ok(true),
                    Err(error) => error,
                }
            }
            NotReady::Failed { failure, task } => {
                let task = self.number(task);
                self.statistics.consumer.fail();
                failure.into_error(task)
            }
            NotReady::Lost { task } => {
                let task = self.number(task);
                self.statistics.consumer.fail();
                Error::Lost { task }
            }
            NotReady::Closed => self.end_closed(),
            NotReady::End => {
                self.position.pass.running = false;
                self.end();
                return Ok(false);
            }
        }))
    }

    /// Whether the deadline has passed, which is set by the first call.
    #[cold]
    fn is_late(&self, deadline: &mut Option<Until>) -> bool {
        self.timeout.is_some() && deadline.get_or_insert_with(|| Until::after(self.timeout)).remaining().is_zero()
    }

    /// Ends a pass whose loader was stopped, or has lost its workers. Batches that are ready stay in their slots: they
    /// may lack rows, and do not count as delivered.
    #[cold]
    fn end_closed(&mut self) -> Error {
        self.end();
        self.closed()
    }

    /// Ends a pass whose workers, or whose memory, were lost in a fork.
    #[cold]
    fn forked(&mut self) -> Error {
        self.end();
        Error::Forked
    }

    /// Returns the error of the next worker that could not begin.
    #[cold]
    fn next_failure(&mut self) -> Option<Error> {
        let (worker, source) = self.position.pass.failures.pop()?;
        if self.position.pass.failures.is_empty() && self.position.pass.no_worker_left {
            self.end();
            self.abandon();
        }
        Some(Error::WorkerInit { worker, source })
    }

    /// Makes room for the next batch when kept batches use all the memory.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, deadline: &Until) -> Result<(), Error> {
        let refused = match self.memory.on_held {
            OnHeld::Grow => match self.grow() {
                Ok(()) => return Ok(()),
                Err(reason) => Some(reason),
            },
            OnHeld::Wait => {
                let (backend, cell_pool) = (&mut self.backend, &self.memory.cell_pool);
                if self.statistics.consumer.held(|| backend.wait_for_release(deadline, cell_pool)) {
                    return Ok(());
                }
                None
            }
            OnHeld::Fail => None,
        };
        if self.memory.cell_pool.search_all() { Ok(()) } else { Err(self.held(refused)) }
    }

    /// Returns what is delivered instead of a batch that has errors, if anything is.
    #[cold]
    #[inline(never)]
    fn settle(&mut self, lease: Lease<P>) -> Option<Result<Lease<P>, Error>> {
        let outcome = self.statistics.bad_samples.settle(lease, &mut self.statistics.consumer);
        match &outcome {
            Some(Ok(lease)) if !self.position.pass.numbered => self.count_stream(lease.tag().rows),
            // Only batches of an order keep their numbers.
            None if !self.position.pass.numbered => {
                self.position.pass.delivered -= 1;
            }
            _ => {}
        }
        outcome
    }
}

impl<B: Output> Drop for Pass<'_, B> {
    fn drop(&mut self) {
        self.loader.end_epoch();
    }
}

impl<B: Output> fmt::Debug for Pass<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("epoch", &self.loader.core.position.pass.epoch)
            .field("delivered", &self.loader.core.position.pass.delivered)
            .field("remaining", &self.remaining())
            .finish()
    }
}
