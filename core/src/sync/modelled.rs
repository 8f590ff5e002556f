//! The system's futex and fences under a model checker, implemented with the checker's lock and
//! condition variable.

use core::time::Duration;

#[cfg(loom)]
use loom::{
    sync::{Condvar, Mutex},
    thread,
};
#[cfg(shuttle)]
use shuttle::{
    sync::{Condvar, Mutex},
    thread,
};

use super::{Ordering, fence};
use crate::wait::{Futex, Word};

/// Sleeping and waking under a model checker, which has no clock.
#[derive(Debug, Default)]
pub struct SystemFutex {
    lock: Mutex<()>,
    woken: Condvar,
}

#[allow(missing_docs)]
impl SystemFutex {
    pub fn new() -> Self {
        Self::default()
    }

    /// Does the same as `new`: without a clock, no thread can wake up by itself.
    pub fn with_alarm() -> Self {
        Self::default()
    }
}

impl Futex for SystemFutex {
    /// Sleeps until it is woken, so that a lost wake-up is a deadlock, which the model checker
    /// detects. With a timeout it only yields.
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
        light_fence();
    }

    fn heavy_fence(&self) {
        heavy_fence();
    }

    /// Always returns that it is time to sleep: one check before the first sleep is enough, as the
    /// model checker explores when it happens.
    fn spin(&self, _round: u32) -> bool {
        false
    }
}

/// Executes the model checker's fence in place of the system's light fence.
pub fn light_fence() {
    fence(Ordering::SeqCst);
}

/// Executes the model checker's fence in place of the system's heavy fence.
pub fn heavy_fence() -> bool {
    fence(Ordering::SeqCst);
    true
}

/// Returns whether a deadline has passed. The result is random: `true` in one of twelve calls.
#[cfg(shuttle)]
pub fn is_late() -> bool {
    use shuttle::rand::{Rng, thread_rng};

    thread_rng().gen_ratio(1, 12)
}
