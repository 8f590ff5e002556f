//! How the next batch of a pass is delivered.

use slotline_core::wait::Deadline;

use crate::loader::backend::protocol::{Backend, NotReady, Ready};
use crate::loader::collate::cell::Lease;
use crate::loader::collate::on_held::OnHeld;
use crate::loader::collate::storage::Storage;
use crate::loader::consumer::core::LoaderCore;
use crate::loader::error::run::Error;
use crate::wait::Until;

impl<P: Storage> LoaderCore<P> {
    /// Returns the next batch of the pass, or the error instead of it. The error is boxed because
    /// it is large, and an unboxed one would make the result of every call as large.
    #[inline(always)] // Without inlining, the result is passed through memory.
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
                    if lease.state().has_errors() {
                        match self.handle_errors(lease) {
                            // All samples of the batch were skipped. Many such batches may follow
                            // each other, so check the time.
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

    /// Handles the case that no batch is ready: waits for one, or returns the error instead of it.
    /// Returns `false` at the end of the pass.
    #[cold]
    #[inline(never)]
    fn handle(&mut self, nothing: NotReady, deadline: &mut Option<Until>) -> Result<bool, Box<Error>> {
        Err(Box::new(match nothing {
            // The backend loaded for a limited time only, because the caller has to do something
            // else in between.
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

    /// Whether the time to wait is over. The time starts at the first call.
    #[cold]
    fn is_late(&self, deadline: &mut Option<Until>) -> bool {
        self.timeout.is_some() && deadline.get_or_insert_with(|| Until::after(self.timeout)).remaining().is_zero()
    }

    /// Ends a pass whose loader was stopped, or has lost its workers. Batches that are ready stay
    /// in their slots: they may lack rows, and do not count as delivered.
    #[cold]
    fn end_closed(&mut self) -> Error {
        self.end();
        self.closed()
    }

    /// Ends a pass whose workers or memory were lost by a fork.
    #[cold]
    fn forked(&mut self) -> Error {
        self.end();
        Error::Forked
    }

    /// Returns the error of the next worker whose `worker_init` failed.
    #[cold]
    fn next_failure(&mut self) -> Option<Error> {
        let (worker, source) = self.position.pass.failures.pop()?;
        if self.position.pass.failures.is_empty() && self.position.pass.no_worker_left {
            self.end();
            self.abandon();
        }
        Some(Error::WorkerInit { worker, source })
    }

    /// Makes room for the next batch if the batches that the user keeps take all the memory.
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

    /// Returns what is delivered instead of a batch that has errors; `None` if nothing is
    /// delivered.
    #[cold]
    #[inline(never)]
    fn handle_errors(&mut self, lease: Lease<P>) -> Option<Result<Lease<P>, Error>> {
        let outcome = self.statistics.bad_samples.handle_errors(lease, &mut self.statistics.consumer);
        match &outcome {
            Some(Ok(lease)) if !self.position.pass.numbered => self.count_stream(lease.tag().rows),
            // Only the batches of a dataset with indices keep their numbers when one is skipped.
            None if !self.position.pass.numbered => {
                self.position.pass.delivered -= 1;
            }
            _ => {}
        }
        outcome
    }
}
