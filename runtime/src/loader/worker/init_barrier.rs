//! The barrier at which the workers wait before each pass until all of them have run the user's
//! `worker_init`.
//!
//! The consumer begins a pass at the barrier after the workers have left the previous pass. Every
//! worker then arrives at the barrier, runs the user's code and waits. When all have done so, the
//! consumer opens the ring for the next pass, and then the barrier. So no worker claims anything
//! before it has run `worker_init`. Without a `worker_init` there is no barrier, and a worker
//! begins when it is first needed.
//!
//! A signal handler may close the barrier, so closing takes no lock, which the interrupted thread
//! may hold. For this reason threads wait on an event count. A condition variable could lose a
//! notification that is sent without the lock.

use std::fmt;
use std::sync::{Arc, PoisonError};

use slotline_core::wait::{Deadline, Never, Wait};

use crate::BoxError;
use crate::dataset::{WorkerInfo, set_worker_info};
use crate::loader::error::guard::{dispose_each, probe};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, fault_point};
use crate::wait::{Until, WaitStrategy, Waiter};

/// The user's `worker_init`, which each worker runs before it loads.
pub(crate) type Init = Box<dyn Fn(WorkerInfo) -> Result<(), BoxError> + Send + Sync>;

/// The user's `worker_init`, as one worker runs it.
#[derive(Clone)]
pub(crate) struct InitHook {
    init: Arc<Init>,
    /// Whether to run the code only once instead of before each pass.
    persistent: bool,
    /// Whether the code has run successfully.
    done: bool,
}

impl InitHook {
    pub(crate) fn new(init: Init, persistent: bool) -> Self {
        Self { init: Arc::new(init), persistent, done: false }
    }

    /// Runs the code in the worker's thread, unless it is persistent and has already run.
    pub(crate) fn run(&mut self, info: WorkerInfo) -> Result<(), BoxError> {
        set_worker_info(Some(info));
        if self.persistent && self.done {
            return Ok(());
        }
        let outcome = probe(|| (self.init)(info));
        self.done = outcome.is_ok();
        outcome
    }
}

pub(crate) struct InitBarrier {
    /// The user's `worker_init`, which each worker runs.
    start: InitHook,
    workers: usize,
    state: Mutex<Arrivals>,
    closed: AtomicBool,
    /// Notified of each change of `state` and `closed`.
    changed: Waiter,
}

#[derive(Default)]
struct Arrivals {
    /// The number of passes begun.
    passes: u64,
    /// The last pass for which the barrier was opened.
    open: u64,
    /// The base seed of the current pass.
    seed: u64,
    /// The number of workers that have finished the code in this pass, or have ended.
    arrived: usize,
    /// The number of workers that ended before the barrier was closed.
    ended: usize,
    /// The workers whose code failed, and their errors.
    failures: Vec<(usize, BoxError)>,
}

impl InitBarrier {
    pub(crate) fn new(start: InitHook, workers: usize) -> Self {
        let (closed, changed) = (AtomicBool::new(false), Waiter::new(WaitStrategy::Park));
        Self { start, workers, state: Mutex::default(), closed, changed }
    }

    /// Begins a pass, waits until every worker has run its code, and returns the failures, sorted
    /// by worker. Returns `None` if the deadline passed first, or if the barrier was closed.
    pub(crate) fn begin(&self, seed: u64, deadline: &Until) -> Option<Vec<(usize, BoxError)>> {
        // If the previous call did not wait until the end, workers may still run the code of the
        // last pass.
        let mut state = self.wait(deadline, |state| state.passes > 0 && state.arrived < self.workers)?;
        state.passes += 1;
        (state.seed, state.arrived) = (seed, state.ended);
        let unreported = std::mem::take(&mut state.failures);
        drop(state);
        self.changed.notify(|| true);
        // Drop these outside of the lock: they are user values, whose `drop` may run any code.
        dispose_each(unreported);
        let mut state = self.wait(deadline, |state| state.arrived < self.workers)?;
        let mut failures = std::mem::take(&mut state.failures);
        failures.sort_by_key(|&(worker, _)| worker);
        Some(failures)
    }

    /// Lets the workers that have run their code begin the pass.
    pub(crate) fn open(&self) {
        let mut state = self.lock();
        state.open = state.passes;
        drop(state);
        self.changed.notify(|| true);
    }

    /// Makes the workers end.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify(|| true);
    }

    /// Returns one worker's handle of the barrier.
    pub(crate) fn visitor(&self, worker: usize) -> Visitor<'_> {
        Visitor { barrier: self, worker, passes: 0, arrived: 0, ended: 0, ready: false, start: self.start.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Arrivals> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `waits` returns true. Once it has returned false, it must never return true
    /// again for this thread. Returns `None` if the deadline passed or the barrier was closed while
    /// it still returned true.
    fn wait(&self, deadline: &impl Deadline, waits: impl Fn(&Arrivals) -> bool) -> Option<MutexGuard<'_, Arrivals>> {
        self.changed.wait_until(deadline, || self.closed.load(Ordering::Acquire) || !waits(&self.lock()));
        let state = self.lock();
        (!waits(&state)).then_some(state)
    }
}

/// One worker's handle of the barrier.
pub(crate) struct Visitor<'a> {
    barrier: &'a InitBarrier,
    worker: usize,
    /// The number of passes that the worker has taken part in.
    passes: u64,
    /// The last pass in which the worker was counted as arrived.
    arrived: u64,
    /// The number of workers that have ended, as far as this worker knows.
    ended: usize,
    /// Whether the worker may take part in the pass.
    ready: bool,
    start: InitHook,
}

/// Records that the worker has ended, so that no thread waits for it.
impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        let mut state = self.barrier.lock();
        state.ended += 1;
        state.arrived += usize::from(self.arrived != state.passes);
        drop(state);
        self.barrier.changed.notify(|| true);
    }
}

impl Visitor<'_> {
    /// Waits for the next pass, runs the user's code, and waits until the barrier is open. Returns
    /// whether the worker may take part in the pass, or `None` if the loader was closed.
    ///
    /// If another worker ends while this one waits for the next pass, this returns the same answer
    /// for the current pass again: there may be claims of the ended worker to take over.
    pub(crate) fn next_pass(&mut self) -> Option<bool> {
        let barrier = self.barrier;
        let state = barrier.wait(&Never, |state| state.passes == self.passes && state.ended == self.ended)?;
        if barrier.closed.load(Ordering::Acquire) {
            return None;
        }
        self.ended = state.ended;
        if state.passes == self.passes {
            return Some(self.ready);
        }
        self.passes = state.passes;
        let info = WorkerInfo::new(self.worker, barrier.workers, state.seed);
        drop(state);
        fault_point();
        let outcome = self.start.run(info);
        self.ready = outcome.is_ok();
        let mut state = barrier.lock();
        state.failures.extend(outcome.err().map(|error| (self.worker, error)));
        state.arrived += 1;
        self.arrived = self.passes;
        drop(state);
        barrier.changed.notify(|| true);
        // The consumer may abandon the pass before it opens the barrier, and begin another one.
        let state = barrier.wait(&Never, |state| state.open < self.passes && state.passes == self.passes);
        self.ready &= state.is_some_and(|state| state.open == self.passes);
        Some(self.ready)
    }
}

impl fmt::Debug for InitBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitBarrier").field("persistent", &self.start.persistent).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn closing_takes_no_lock_and_wakes_everyone() {
        let barrier = InitBarrier::new(InitHook::new(Box::new(|_| Ok(())), false), 1);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| barrier.visitor(0).next_pass());
            let state = barrier.lock();
            barrier.close();
            drop(state);
            assert_eq!(worker.join().unwrap(), None);
        });
        assert!(barrier.begin(0, &Until::after(None)).is_some(), "the worker has ended, so none is waited for");
    }
}
