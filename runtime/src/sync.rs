//! The one place that swaps std's locks, atomics and threads for those of a model checker.
//!
//! In a plain build they are std's own. With `--cfg shuttle` they are shuttle's, whose random schedules `tests/schedules.rs`
//! explores, and time is counted in steps of the schedule; with `--cfg delays` each operation of an atomic comes after a
//! random delay (see `slotline_core::sync`).

#[cfg(shuttle)]
mod steps;

use std::sync::PoisonError;
use std::time::Duration;
#[cfg(not(shuttle))]
pub(crate) use std::time::Instant;

use slotline_core::wait::Deadline;

#[cfg(shuttle)]
pub(crate) use self::steps::{Instant, SystemFutex, is_late};

#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, mpsc},
    thread, thread_local,
};

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, mpsc},
    thread, thread_local,
};

/// Atomics, and the fence between them.
pub(crate) mod atomic {
    #[cfg(shuttle)]
    pub(crate) use shuttle::sync::atomic::fence;
    #[cfg(any(shuttle, delays))]
    pub(crate) use slotline_core::sync::watched::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
    #[cfg(not(shuttle))]
    pub(crate) use std::sync::atomic::fence;
    #[cfg(not(any(shuttle, delays)))]
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
}

/// Waits while `condition` holds, or until the deadline. `changed` is notified of changes behind `lock`, which `guard` holds.
pub(crate) fn wait_while<'a, T>(
    (lock, changed): (&'a Mutex<T>, &Condvar),
    mut guard: MutexGuard<'a, T>,
    deadline: &impl Deadline,
    condition: impl Fn(&T) -> bool,
) -> MutexGuard<'a, T> {
    while condition(&guard) {
        let left = deadline.remaining();
        if left.is_zero() {
            break;
        }
        guard = if left == Duration::MAX {
            changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
        } else {
            wait_timeout((lock, changed), guard, left)
        };
    }
    guard
}

#[cfg(not(shuttle))]
fn wait_timeout<'a, T>(
    (_, changed): (&'a Mutex<T>, &Condvar),
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> MutexGuard<'a, T> {
    changed.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
}

/// Of shuttle's own, the time never passes.
#[cfg(shuttle)]
fn wait_timeout<'a, T>(
    (lock, _): (&'a Mutex<T>, &Condvar),
    guard: MutexGuard<'a, T>,
    _: Duration,
) -> MutexGuard<'a, T> {
    drop(guard);
    thread::yield_now();
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a model has happen in a worker's own loop: it may panic, as a defect of this crate might.
#[cfg(shuttle)]
#[doc(hidden)]
pub static MISHAP: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

/// Where a worker is between two claims or requests. Under a model it may come to its end here.
#[inline(always)]
pub(crate) fn mishap() {
    #[cfg(shuttle)]
    if let Some(mishap) = MISHAP.get() {
        mishap();
    }
}

/// Sleeps so long, or until this thread is unparked.
pub(crate) fn nap(time: Duration) {
    #[cfg(not(shuttle))]
    thread::park_timeout(time);
    #[cfg(shuttle)]
    let _ = (time, thread::yield_now());
}
