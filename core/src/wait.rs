//! How one side of a ring waits for the other side.
//!
//! A ring has two waiters, one for each direction, and uses each through two methods:
//! [`Wait::wait_until`] returns once a condition holds, and [`Wait::notify`] is called after each
//! change that may make the condition hold. [`Spin`] and [`Backoff`] poll, so their `notify` does
//! nothing. [`Park`] puts the thread to sleep through a [`Futex`]: that of the operating system
//! with the feature `std`, otherwise one that the caller provides.
//!
//! # Why no wake-up is lost
//!
//! `Park` is an event count. The waiter (W) and the notifier (N) run
//!
//! ```text
//! W1  sleepers += 1                        N1  make the change
//! W2  heavy fence                          N2  light fence
//! W3  e = epoch                            N3  if sleepers == 0: return
//! W4  if the condition holds: done         N4  if wanted() is false: return
//! W5  sleep while epoch == e               N5  epoch += 1; wake every sleeper
//! ```
//!
//! The two fences work as a pair: both are `fence(SeqCst)`, or a [`Futex`] may use an asymmetric
//! pair with the same guarantee. There are two cases:
//!
//! - N2 comes before W2. Then W4 sees the change.
//! - W2 comes before N2. Then N3 sees the sleeper, and N5 changes the epoch. If W3 read the new
//!   epoch, then W4 comes after the change, since N5 releases and W3 acquires. If W3 read the old
//!   epoch, then W5 either finds that the epoch has changed and returns, or goes to sleep before N5
//!   wakes the sleepers, which ends that sleep.
//!
//! At N4, `wanted` may return `false` only if the sleeping waiter could not continue because of
//! this change alone, and something else will notify it. Each ring explains at its call of `notify`
//! why that holds.

use core::fmt;
use core::time::Duration;

#[cfg(all(feature = "std", target_os = "linux", not(any(loom, shuttle))))]
pub use crate::sync::futex::SharedFutex;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub use crate::sync::futex::{SystemFutex, heavy_fence, light_fence};
#[cfg(all(feature = "std", shuttle))]
#[doc(hidden)]
pub use crate::sync::modelled::is_late;
#[cfg(all(feature = "std", any(loom, shuttle)))]
pub use crate::sync::modelled::{SystemFutex, heavy_fence, light_fence};
use crate::sync::{AtomicU32, Ordering, const_unless_modelled, spin_hint};

/// A limit on how long to wait.
pub trait Deadline {
    /// Returns how much time is left: zero once the deadline has passed, [`Duration::MAX`] if there
    /// is no deadline.
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

/// The moment at which a wait ends. Under shuttle, which has no clock, it passes at random.
#[cfg(all(feature = "std", not(loom)))]
impl Deadline for std::time::Instant {
    #[inline]
    fn remaining(&self) -> Duration {
        #[cfg(shuttle)]
        return if is_late() { Duration::ZERO } else { Duration::from_secs(1) };
        #[cfg(not(shuttle))]
        self.saturating_duration_since(Self::now())
    }
}

/// A deadline, or none.
impl<D: Deadline> Deadline for Option<D> {
    #[inline]
    fn remaining(&self) -> Duration {
        self.as_ref().map_or(Duration::MAX, D::remaining)
    }
}

/// A way of waiting for a condition that another thread makes true.
pub trait Wait {
    /// Returns `true` once `ready` does, or `false` if the deadline passed first.
    ///
    /// `ready` is called many times and must be cheap; it must not wait itself.
    fn wait_until(&self, deadline: &impl Deadline, ready: impl FnMut() -> bool) -> bool;

    /// Reports a change that the waiting side may be waiting for.
    ///
    /// `wanted` is called only if a thread is asleep. If it returns `false`, no thread is woken.
    fn notify(&self, wanted: impl FnOnce() -> bool);
}

/// Lets several rings share one waiter, so that a thread that serves all of them is woken by any of
/// them.
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

/// A way of waiting: a busy loop. It notices a change the fastest, but keeps the whole core busy
/// while it waits. If the other side needs that core, each wait lasts until the system's scheduler
/// switches threads.
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

/// A way of waiting: a loop that backs off. It spins a few times, longer each time, and then yields
/// the thread's time slice. Without the feature `std` nothing can be yielded, so it continues to
/// spin.
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
            // A model checker must be notified of the wait; it does not see crossbeam's spins.
            #[cfg(any(loom, shuttle))]
            spin_hint();
            if cfg!(feature = "std") { backoff.snooze() } else { backoff.spin() }
        }
    }

    #[inline]
    fn notify(&self, _wanted: impl FnOnce() -> bool) {}
}

/// The functions of an operating system that [`Park`] needs: sleeping on a word, waking, and a pair
/// of fences.
///
/// `SystemFutex` (feature `std`) implements them for the operating system that the program runs on.
/// A kernel or an RTOS provides its own implementation.
pub trait Futex {
    /// Sleeps while `*word == expected`, until it is woken or `timeout` passes. It may also return
    /// spuriously.
    ///
    /// Comparing the word and going to sleep must be one atomic step with respect to
    /// [`wake_all`](Self::wake_all).
    fn wait(&self, word: &Word, expected: u32, timeout: Duration);

    /// Wakes every thread that sleeps on `word`. Called after `*word` was changed.
    fn wake_all(&self, word: &Word);

    /// The notifier's fence (N2 in the [module's proof](self)), on the hot path.
    fn light_fence(&self);

    /// The waiter's fence (W2), called before going to sleep. Together with
    /// [`light_fence`](Self::light_fence) it must order memory accesses as two `fence(SeqCst)` do.
    fn heavy_fence(&self);

    /// Called between two checks of the condition before the first sleep; `round` counts from 0.
    /// Returns `false` when it is time to sleep.
    fn spin(&self, round: u32) -> bool;
}

/// The word that a [`Futex`] sleeps on.
pub type Word = AtomicU32;

/// A way of waiting: spinning briefly and then sleeping. This is an event count over a [`Futex`]
/// that loses no wake-ups (see the [module's proof](self)).
#[derive(Default)]
#[repr(C)] // It may lie in memory that processes share.
pub struct Park<F> {
    epoch: Word,
    sleepers: AtomicU32,
    futex: F,
}

impl<F> Park<F> {
    const_unless_modelled! {
        /// Creates an event count that sleeps through `futex`.
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
            // If several threads compete for the cores, a round may take as long as another
            // thread's time slice, so the deadline is checked after each round.
            if !self.futex.spin(round) || deadline.remaining().is_zero() {
                break;
            }
            round += 1;
        }
        // Relaxed is enough, since the fences order the increment. If a notifier sees the sleeper
        // but not yet what the sleeper waits for (which `wanted` may read), then N2 comes before
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use core::cell::Cell;

    use super::*;

    /// A futex of a busy system, where a round before the first sleep takes as long as another
    /// thread's time slice.
    struct Busy;

    impl Futex for Busy {
        fn wait(&self, _: &Word, _: u32, _: Duration) {}
        fn wake_all(&self, _: &Word) {}
        fn light_fence(&self) {}
        fn heavy_fence(&self) {}
        fn spin(&self, _: u32) -> bool {
            true
        }
    }

    /// A deadline that passes after a number of checks.
    struct Looks(Cell<u32>);

    impl Deadline for Looks {
        fn remaining(&self) -> Duration {
            self.0.set(self.0.get().saturating_sub(1));
            Duration::from_secs(self.0.get().into())
        }
    }

    #[test]
    fn a_deadline_also_ends_the_wait_before_the_first_sleep() {
        let rounds = Cell::new(0);
        let wait = |until| {
            Park::new(Busy).wait_until(&Looks(Cell::new(10)), || {
                rounds.set(rounds.get() + 1);
                rounds.get() == until
            })
        };
        assert!(wait(3));
        assert!(!wait(1000));
        assert!(rounds.get() < 20);
    }
}
