//! Time and sleep under shuttle: nothing there may depend on a real clock, or a schedule could not be replayed.

use std::ops::Sub;
use std::time::Duration;

use shuttle::current::context_switches;
use shuttle::rand::{Rng, thread_rng};
use slotline_core::wait::{Futex, Word};

use super::atomic::{Ordering, fence};
use super::{Condvar, Mutex, thread};

/// What a step of the schedule takes: a claim of a few steps is then a tiny one, and one of a hundred is not.
const STEP: Duration = Duration::from_nanos(10);
/// Of so many looks at a deadline one finds that it has passed.
const LATE: u32 = 12;

/// A moment, by the number of steps before it. (An atomic operation, a lock, or the like is a step.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(STEP * u32::try_from(context_switches()).expect("shuttle limits the steps"))
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now() - self
    }

    pub(crate) fn checked_add(self, time: Duration) -> Option<Self> {
        self.0.checked_add(time).map(Self)
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

/// Whether a deadline that is being looked at has passed: at any look it may.
pub(crate) fn is_late() -> bool {
    thread_rng().gen_ratio(1, LATE)
}

/// What waiters sleep through.
#[derive(Default)]
pub(crate) struct SystemFutex {
    lock: Mutex<()>,
    woken: Condvar,
}

impl SystemFutex {
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

impl Futex for SystemFutex {
    /// With an end it sleeps for a moment only. Without one it wakes when it is woken, so that a lost wake-up is a deadlock,
    /// which shuttle finds.
    fn wait(&self, word: &Word, expected: u32, timeout: Duration) {
        if timeout < Duration::MAX {
            return thread::yield_now();
        }
        let guard = self.lock.lock().expect("nobody panics with it");
        if word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(guard));
        }
    }

    fn wake_all(&self, _word: &Word) {
        drop(self.lock.lock().expect("nobody panics with it"));
        self.woken.notify_all();
    }

    fn light_fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn heavy_fence(&self) {
        fence(Ordering::SeqCst);
    }

    /// Each look is a step of the schedule, and so one before the first sleep is as good as many.
    fn spin(&self, _round: u32) -> bool {
        false
    }
}
