//! Code that the models share: how they are explored, and the futex on which they sleep.

use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{Ordering, fence};
use slotline_core::sync::mutants;
use slotline_core::wait::{Deadline, Futex, Park, SystemFutex, Wait, Word};

/// Explores `model` with at most `preemptions` preemptions (`LOOM_MAX_PREEMPTIONS` overrides).
pub(crate) fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

/// The futex under loom, with fences that a mutant may weaken or leave out.
#[derive(Debug, Default)]
pub(crate) struct LoomFutex(SystemFutex);

impl Futex for LoomFutex {
    fn wait(&self, word: &Word, expected: u32, timeout: Duration) {
        self.0.wait(word, expected, timeout);
    }

    fn wake_all(&self, word: &Word) {
        self.0.wake_all(word);
    }

    fn light_fence(&self) {
        mutable_fence("light fence");
    }

    fn heavy_fence(&self) {
        mutable_fence("heavy fence");
    }

    fn spin(&self, round: u32) -> bool {
        self.0.spin(round)
    }
}

/// Executes a fence that a mutant may weaken or leave out.
#[track_caller]
fn mutable_fence(name: &str) {
    if !mutants::leaves_out(name, Location::caller()) {
        fence(mutants::weaken(name, Ordering::SeqCst, Location::caller()));
    }
}

/// [`Park`] with calls of `notify` that a mutant may leave out.
#[derive(Debug, Default)]
pub(crate) struct Parking(Park<LoomFutex>);

impl Wait for Parking {
    fn wait_until(&self, deadline: &impl Deadline, ready: impl FnMut() -> bool) -> bool {
        self.0.wait_until(deadline, ready)
    }

    #[track_caller]
    fn notify(&self, wanted: impl FnOnce() -> bool) {
        if !mutants::leaves_out("notify", Location::caller()) {
            self.0.notify(wanted);
        }
    }
}

/// Data that is written outside of the ring. Loom reports a thread that reads it without being
/// synchronised with the write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note(Arc<UnsafeCell<usize>>);

// SAFETY: a note exists to be shared, and loom reports racing accesses.
unsafe impl Send for Note {}
// SAFETY: loom reports racing accesses.
unsafe impl Sync for Note {}

impl Note {
    pub(crate) fn write(&self, value: usize) {
        // SAFETY: loom reports racing accesses, which is the purpose of this type.
        self.0.with_mut(|note| unsafe { *note = value });
    }

    pub(crate) fn read(&self) -> usize {
        // SAFETY: as in `write`.
        self.0.with(|note| unsafe { *note })
    }
}

/// A deadline that passes after this many checks of the remaining time.
#[derive(Debug)]
pub(crate) struct Looks(pub(crate) Cell<u32>);

impl Deadline for Looks {
    fn remaining(&self) -> Duration {
        self.0.set(self.0.get().saturating_sub(1));
        if self.0.get() == 0 { Duration::ZERO } else { Duration::from_secs(1) }
    }
}
