//! Records which workers have ended with a panic.
//!
//! The work on a claim or a request is guarded, and a panic there becomes the error of that batch.
//! Only a panic in the loop around that work ends the worker. It is caused by a defect of slotline,
//! or by a system that forbids `membarrier` after the loader was built (see the tables of failures
//! in [`loader`](crate::loader)). No thread may wait for such a worker, so the worker records its
//! end here before it drops anything.

use std::sync::PoisonError;

use crate::loader::error::run::Error;
use crate::sync::{Mutex, MutexGuard};

/// The number of workers that are alive, and how the first one ended.
#[derive(Debug)]
pub(crate) struct WorkerLiveness(Mutex<Living>);

#[derive(Debug)]
struct Living {
    /// The number of living workers.
    alive: usize,
    /// The number of living workers that take part in the current pass.
    active: usize,
    /// The first worker that ended, and the message of its panic.
    first: Option<(usize, String)>,
}

impl WorkerLiveness {
    pub(crate) fn new(workers: usize) -> Self {
        Self(Mutex::new(Living { alive: workers, active: workers, first: None }))
    }

    /// Records that a worker ends with a panic. Returns whether this leaves no worker that takes
    /// part in the pass.
    #[cold]
    pub(crate) fn ends(&self, worker: usize, message: String) -> bool {
        let mut state = self.lock();
        state.alive -= 1;
        state.active = state.active.saturating_sub(1);
        state.first.get_or_insert((worker, message));
        state.active == 0
    }

    /// Begins a pass in which `idle` of the living workers take no part. Returns whether no worker
    /// is left that takes part.
    pub(crate) fn begin(&self, idle: usize) -> bool {
        let mut state = self.lock();
        state.active = state.alive.saturating_sub(idle);
        state.active == 0
    }

    /// Whether no worker is left that takes part in the current pass.
    pub(crate) fn none_is_left(&self) -> bool {
        self.lock().active == 0
    }

    /// Returns the error to report if a worker has ended.
    #[cold]
    pub(crate) fn error(&self) -> Option<Error> {
        let first = self.lock().first.clone();
        first.map(|(worker, message)| Error::WorkerDied { worker, message })
    }

    fn lock(&self) -> MutexGuard<'_, Living> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
