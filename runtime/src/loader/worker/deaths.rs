//! Workers that ended before they were sent home.
//!
//! What a worker does with a claim or a request is guarded, and a panic there is the error of that batch. Only a panic in the
//! loop around it ends the worker: a defect of this crate, or a system that takes back what it had granted (see `membarrier` in
//! [the table](super)). Nobody must wait for such a worker, so it says here that it ends before anything of it is gone.

use std::sync::PoisonError;

use crate::loader::error::run::Error;
use crate::sync::{Mutex, MutexGuard};

/// What became of a loader's workers.
#[derive(Debug)]
pub(crate) struct Deaths(Mutex<Living>);

#[derive(Debug)]
struct Living {
    /// Workers that live.
    alive: usize,
    /// Those of them that take part in the pass.
    active: usize,
    /// The first one that ended, and what it said.
    first: Option<(usize, String)>,
}

impl Deaths {
    pub(crate) fn new(workers: usize) -> Self {
        Self(Mutex::new(Living { alive: workers, active: workers, first: None }))
    }

    /// Notes that a worker ends with a panic; whether nobody is left who takes part in the pass.
    #[cold]
    pub(crate) fn ends(&self, worker: usize, message: String) -> bool {
        let mut state = self.lock();
        state.alive -= 1;
        state.active = state.active.saturating_sub(1);
        state.first.get_or_insert((worker, message));
        state.active == 0
    }

    /// Begins a pass in which so many of the workers that live take no part; whether nobody is left who does.
    pub(crate) fn begin(&self, idle: usize) -> bool {
        let mut state = self.lock();
        state.active = state.alive.saturating_sub(idle);
        state.active == 0
    }

    /// The error for it, if a worker has ended.
    #[cold]
    pub(crate) fn error(&self) -> Option<Error> {
        let first = self.lock().first.clone();
        first.map(|(worker, message)| Error::WorkerDied { worker, message })
    }

    fn lock(&self) -> MutexGuard<'_, Living> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
