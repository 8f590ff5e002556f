//! How a side of a ring waits for the other one.
//!
//! A ring holds two waiters, one for each direction, and uses each through two calls: [`Wait::wait_until`] returns
//! once a condition holds, and [`Wait::notify`] is called after each change that may make it hold. [`Spin`] and
//! [`Backoff`] poll, so their `notify` is nothing at all. [`Park`] puts the thread to sleep through a [`Futex`] that
//! the caller brings (core has no operating system).
//!
//! # Why no wake-up is lost
//!
//! `Park` is an event count. The one who waits (W) and the one who notifies (N) run
//!
//! ```text
//! W1  sleepers += 1                        N1  make the change
//! W2  heavy fence                          N2  light fence
//! W3  e = epoch                            N3  if sleepers == 0: return
//! W4  if the condition holds: done         N4  if nobody wants it: return
//! W5  sleep while epoch == e               N5  epoch += 1; wake every sleeper
//! ```
//!
//! The two fences pair (both are `fence(SeqCst)`, or a [`Futex`] may use an asymmetric pair with the same
//! guarantee). Either N2 comes before W2, and then W4 sees the change; or W2 comes before N2, and then N3 sees the
//! sleeper. In the second case N5 moves the epoch: if W3 read the new epoch, then W4 comes after the change (N5
//! releases, W3 acquires); if it read the old one, then W5 either finds the epoch moved and returns, or sleeps before
//! N5's wake, which ends the sleep. N4 may say no only if the waiter that is asleep could not go on because of this
//! change alone, and something else will notify it; each ring says at its call why that holds.

use core::fmt;
use core::time::Duration;

use crate::sync::{AtomicU32, Ordering, const_unless_modelled, spin_hint};

/// When to stop waiting.
pub trait Deadline {
    /// How much time is left; zero once it has passed, [`Duration::MAX`] if there is no end.
    fn remaining(&self) -> Duration;
}

/// No deadline: wait for as long as it takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Never;

impl Deadline for Never {
    #[inline]
    fn remaining(&self) -> Duration {
        Duration::MAX
    }
}

/// A way of waiting for a condition that another thread makes true.
pub trait Wait {
    /// Returns `true` once `ready` does, or `false` if the deadline passed first.
    ///
    /// `ready` is called many times and must be cheap; it must not wait itself.
    fn wait_until(&self, deadline: &impl Deadline, ready: impl FnMut() -> bool) -> bool;

    /// Says that something changed which the waiting side may be waiting for.
    ///
    /// `wanted` is asked only if somebody sleeps, and may decline the wake-up.
    fn notify(&self, wanted: impl FnOnce() -> bool);
}

/// Several rings with one way to wait, so that a side of them all is woken by any.
#[cfg(feature = "alloc")]
impl<W: Wait> Wait for alloc::sync::Arc<W> {
    fn wait_until(&self, deadline: &impl Deadline, ready: impl FnMut() -> bool) -> bool {
        (**self).wait_until(deadline, ready)
    }

    #[inline]
    fn notify(&self, wanted: impl FnOnce() -> bool) {
        (**self).notify(wanted);
    }
}

/// Waits in a busy loop. The quickest to notice, and it takes the whole core while it waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spin;

impl Wait for Spin {
    fn wait_until(&self, deadline: &impl Deadline, mut ready: impl FnMut() -> bool) -> bool {
        loop {
            if ready() {
                return true;
            }
            if deadline.remaining().is_zero() {
                return false;
            }
            spin_hint();
        }
    }

    #[inline]
    fn notify(&self, _wanted: impl FnOnce() -> bool) {}
}

/// Waits in a loop that backs off: a few spins, longer and longer, then (with the `std` feature of
/// crossbeam-utils anywhere in the build) yields of the thread's time slice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff;

impl Wait for Backoff {
    fn wait_until(&self, deadline: &impl Deadline, mut ready: impl FnMut() -> bool) -> bool {
        let backoff = crossbeam_utils::Backoff::new();
        loop {
            if ready() {
                return true;
            }
            if deadline.remaining().is_zero() {
                return false;
            }
            // A model checker must be told of the wait; crossbeam's spins mean nothing to it.
            #[cfg(any(loom, shuttle))]
            spin_hint();
            backoff.snooze();
        }
    }

    #[inline]
    fn notify(&self, _wanted: impl FnOnce() -> bool) {}
}

/// What [`Park`] needs of an operating system: sleep on a word, wake, and a pair of fences.
///
/// The runtime brings Linux's futex and membarrier; a kernel or an RTOS would bring its own.
pub trait Futex {
    /// Sleeps while `*word == expected`, until woken, `timeout` passes, or for no reason at all.
    ///
    /// The comparison and the going to sleep must be one step with respect to [`wake_all`](Self::wake_all).
    fn wait(&self, word: &Word, expected: u32, timeout: Duration);

    /// Wakes every thread that sleeps on `word`. Called after `*word` was changed.
    fn wake_all(&self, word: &Word);

    /// The notifier's fence (N2 in the [module's proof](self)), on the hot path.
    fn light_fence(&self);

    /// The waiter's fence (W2), before going to sleep. It must order against [`light_fence`](Self::light_fence) as
    /// two `fence(SeqCst)` do.
    fn heavy_fence(&self);

    /// Called between two looks at the condition before the first sleep; `round` counts from 0. Returns `false`
    /// when it is time to sleep.
    fn spin(&self, round: u32) -> bool;
}

/// The word that [`Futex`] sleeps on.
pub type Word = AtomicU32;

/// Waits by spinning a little and then sleeping: an event count over a [`Futex`], with no lost wake-up
/// (see the [module](self)).
#[derive(Default)]
pub struct Park<F> {
    epoch: Word,
    sleepers: AtomicU32,
    futex: F,
}

impl<F> Park<F> {
    const_unless_modelled! {
        /// An event count that sleeps through `futex`.
        pub fn new(futex: F) -> Self {
            Self { epoch: Word::new(0), sleepers: AtomicU32::new(0), futex }
        }
    }
}

impl<F: Futex> Wait for Park<F> {
    fn wait_until(&self, deadline: &impl Deadline, mut ready: impl FnMut() -> bool) -> bool {
        let mut round = 0;
        loop {
            if ready() {
                return true;
            }
            if !self.futex.spin(round) {
                break;
            }
            round += 1;
        }
        // Relaxed, for the fences order it: a notifier that sees the sleeper and not its wishes (for `wanted`) has N2 before
        // W2, so the sleeper sees the change.
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        self.futex.heavy_fence();
        let outcome = loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            if ready() {
                break true;
            }
            let remaining = deadline.remaining();
            if remaining.is_zero() {
                break false;
            }
            self.futex.wait(&self.epoch, epoch, remaining);
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    #[inline]
    fn notify(&self, wanted: impl FnOnce() -> bool) {
        self.futex.light_fence();
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake(wanted);
        }
    }
}

impl<F: Futex> Park<F> {
    #[cold]
    fn wake(&self, wanted: impl FnOnce() -> bool) {
        if wanted() {
            self.epoch.fetch_add(1, Ordering::Release);
            self.futex.wake_all(&self.epoch);
        }
    }
}

impl<F> fmt::Debug for Park<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Park").field("sleepers", &self.sleepers).finish_non_exhaustive()
    }
}
