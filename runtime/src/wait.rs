//! How threads wait: the strategies of the builder, and under them the system's futex.

#[cfg(not(shuttle))]
mod futex;

use std::fmt;
use std::time::Duration;

use slotline_core::wait::{Backoff, Deadline, Park, Spin, Wait};

#[cfg(not(shuttle))]
use self::futex::SystemFutex;
use crate::sync::Instant;
#[cfg(shuttle)]
use crate::sync::{SystemFutex, is_late};

/// How the consumer waits for a batch, and workers for a free slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Spin a few microseconds, give way to other threads for about a tenth of a millisecond, then sleep until woken.
    #[default]
    Park,
    /// Spin, then yield the time slice over and over: notices sooner than a sleeper, and keeps a core warm for it.
    Backoff,
    /// Spin: notices soonest, and takes a whole core for each waiting thread.
    Spin,
}

/// A [`WaitStrategy`] at work.
pub(crate) struct Waiter {
    strategy: WaitStrategy,
    park: Park<SystemFutex>,
}

impl Waiter {
    pub(crate) fn new(strategy: WaitStrategy) -> Self {
        Self { strategy, park: Park::new(SystemFutex::new()) }
    }
}

impl Wait for Waiter {
    fn wait_until(&self, deadline: &impl Deadline, ready: impl FnMut() -> bool) -> bool {
        match self.strategy {
            WaitStrategy::Park => self.park.wait_until(deadline, ready),
            WaitStrategy::Backoff => Backoff.wait_until(deadline, ready),
            WaitStrategy::Spin => Spin.wait_until(deadline, ready),
        }
    }

    #[inline]
    fn notify(&self, wanted: impl FnOnce() -> bool) {
        if self.strategy == WaitStrategy::Park {
            self.park.notify(wanted);
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.strategy.fmt(f)
    }
}

/// A moment by the system's monotonic clock, or never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until(Option<Instant>);

impl Until {
    /// So much later than now; never without a time, or if the clock cannot count so far.
    pub(crate) fn after(time: Option<Duration>) -> Self {
        Self(time.and_then(|time| Instant::now().checked_add(time)))
    }
}

impl Deadline for Until {
    #[inline]
    fn remaining(&self) -> Duration {
        #[cfg(shuttle)]
        if self.0.is_some() && is_late() {
            return Duration::ZERO;
        }
        self.0.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }
}
