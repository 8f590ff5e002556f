//! Locks, atomics, threads and the clock, which tests can replace. No other module selects an
//! implementation of them.
//!
//! In a normal build they are std's. With `--cfg shuttle` they are those of shuttle, which runs the
//! tests in `tests/schedules` with random schedules, and time is counted in steps of the schedule.
//! With `--cfg delays` each atomic operation comes after a random delay (see
//! `slotline_core::sync`).

#[cfg(shuttle)]
mod steps;

#[cfg(not(shuttle))]
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::time::Duration;
#[cfg(not(shuttle))]
pub(crate) use std::time::Instant;

use slotline_core::wait::Deadline;

#[cfg(shuttle)]
pub(crate) use self::steps::{Instant, origin};

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

/// Atomics and memory fences.
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

/// Returns the moment from which this process counts time. On Linux it is the zero of the monotonic
/// clock, about when the system started, so that times that processes share have the same origin in
/// all of them.
#[cfg(not(shuttle))]
pub(crate) fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(|| {
        let now = Instant::now();
        now.checked_sub(clock()).unwrap_or(now)
    })
}

/// Returns the time of the system's monotonic clock.
#[cfg(all(target_os = "linux", not(shuttle)))]
fn clock() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the struct that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(not(any(target_os = "linux", shuttle)))]
fn clock() -> Duration {
    Duration::ZERO
}

/// Waits while `condition` holds, or until the deadline. `guard` is a guard of `lock`, and `changed` is notified when
/// the data behind `lock` changes.
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

/// Yields instead of waiting, since a timed wait never times out under shuttle.
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

/// A function that a test sets, and that workers call between two claims. It may panic, to simulate
/// a bug in this crate.
#[cfg(shuttle)]
#[doc(hidden)]
pub static FAULT_HOOK: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

/// Marks the point between two claims or requests of a worker. In a shuttle test, the worker may
/// panic here.
#[inline(always)]
pub(crate) fn fault_point() {
    #[cfg(shuttle)]
    if let Some(fault_point) = FAULT_HOOK.get() {
        fault_point();
    }
}

/// Sleeps for `time`, or until this thread is unparked.
pub(crate) fn nap(time: Duration) {
    #[cfg(not(shuttle))]
    thread::park_timeout(time);
    #[cfg(shuttle)]
    let _ = (time, thread::yield_now());
}
