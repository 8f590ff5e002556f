//! Time and sleep under shuttle. Nothing here may depend on a real clock, or schedules could not be replayed.

use std::ops::Sub;
use std::time::Duration;

use shuttle::current::context_switches;
use shuttle::rand::{Rng, thread_rng};
use slotline_core::wait::{Futex, Word};

use super::atomic::{Ordering, fence};
use super::{Condvar, Mutex, thread};

/// The duration of one step of the schedule, chosen so that a claim of a few steps counts as tiny, and one of a hundred
/// does not.
const STEP: Duration = Duration::from_nanos(10);
/// One in this many looks at a deadline finds that it has passed.
const LATE: u32 = 12;

/// A moment, as the number of steps before it. (An atomic operation or a lock operation is one step.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

/// Returns the beginning of the schedule.
pub(crate) fn origin() -> Instant {
    Instant(Duration::ZERO)
}

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

/// Whether a deadline has passed, decided at random at each look.
pub(crate) fn is_late() -> bool {
    thread_rng().gen_ratio(1, LATE)
}

/// Works like the system's fence, for a thread that does something often.
pub(crate) fn light_fence() {
    fence(Ordering::SeqCst);
}

/// Works like the system's fence, for a thread that does something seldom.
pub(crate) fn heavy_fence() -> bool {
    fence(Ordering::SeqCst);
    true
}

/// A futex made of shuttle's lock and condition variable.
#[derive(Default)]
pub(crate) struct SystemFutex {
    lock: Mutex<()>,
    woken: Condvar,
}

impl SystemFutex {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with_alarm() -> Self {
        Self::default()
    }
}

impl Futex for SystemFutex {
    /// With a timeout it only yields. Without one it sleeps until it is woken, so that a lost wake-up is a deadlock,
    /// which shuttle detects.
    fn wait(&self, word: &Word, expected: u32, timeout: Duration) {
        if timeout < Duration::MAX {
            return thread::yield_now();
        }
        let guard = self.lock.lock().expect("no thread panics while holding it");
        if word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(guard));
        }
    }

    fn wake_all(&self, _word: &Word) {
        drop(self.lock.lock().expect("no thread panics while holding it"));
        self.woken.notify_all();
    }

    fn light_fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn heavy_fence(&self) {
        fence(Ordering::SeqCst);
    }

    /// Each look is a step of the schedule, so one before the first sleep is as good as many.
    fn spin(&self, _round: u32) -> bool {
        false
    }
}
