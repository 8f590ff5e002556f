//! How threads wait: the strategies that the builder offers.

use std::fmt;
use std::time::Duration;

use slotline_core::wait::{Backoff, Deadline, Park, Spin, SystemFutex, Wait};

use crate::sync::Instant;

/// How the consumer waits for a batch, and how workers wait for a free slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Spins for a few microseconds, then yields for about a tenth of a millisecond (less if recent
    /// waits took longer than that), and then sleeps until woken. If the loop takes batches at a
    /// steady pace, a worker that loads 16 batches or more ahead wakes up by itself, so that the
    /// loop rarely spends time on waking it.
    #[default]
    Park,
    /// Spins, then yields its time slice repeatedly. Reacts sooner than a sleeping thread, but keeps a core busy.
    Backoff,
    /// Spins. Reacts soonest, but occupies a whole core for each waiting thread.
    Spin,
}

/// The number of slots from which the workers of a ring wake up by themselves.
const DEEP: usize = 16;

/// A [`WaitStrategy`] with its state.
pub(crate) struct Waiter {
    strategy: WaitStrategy,
    park: Park<SystemFutex>,
}

impl Waiter {
    pub(crate) fn new(strategy: WaitStrategy) -> Self {
        Self { strategy, park: Park::new(SystemFutex::new()) }
    }

    /// Makes a waiter for workers that wait for free slots in a ring of `depth` slots.
    pub(crate) fn for_room(strategy: WaitStrategy, depth: usize) -> Self {
        // In a smaller ring, a worker that wakes up early finds too few free slots.
        let futex = if depth < DEEP { SystemFutex::new() } else { SystemFutex::with_alarm() };
        Self { strategy, park: Park::new(futex) }
    }
}

impl Wait for Waiter {
    fn wait_until(&self, deadline: &impl Deadline, ready: impl FnMut() -> bool) -> bool {
        self.strategy.wait_until(&self.park, deadline, ready)
    }

    #[inline]
    fn notify(&self, wanted: impl FnOnce() -> bool) {
        self.strategy.notify(&self.park, wanted);
    }
}

impl WaitStrategy {
    /// Waits with this strategy. Only `Park` uses the argument `park`.
    pub(crate) fn wait_until(self, park: &impl Wait, deadline: &impl Deadline, ready: impl FnMut() -> bool) -> bool {
        match self {
            Self::Park => park.wait_until(deadline, ready),
            Self::Backoff => Backoff.wait_until(deadline, ready),
            Self::Spin => Spin.wait_until(deadline, ready),
        }
    }

    /// Wakes the threads that wait with this strategy.
    #[inline]
    pub(crate) fn notify(self, park: &impl Wait, wanted: impl FnOnce() -> bool) {
        if self == Self::Park {
            park.notify(wanted);
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.strategy.fmt(f)
    }
}

/// A point in time on the system's monotonic clock, or never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until(Option<Instant>);

impl Until {
    /// Returns the point `time` from now, or never if `time` is `None` or the clock cannot
    /// represent it.
    pub(crate) fn after(time: Option<Duration>) -> Self {
        Self(time.and_then(|time| Instant::now().checked_add(time)))
    }
}

impl Deadline for Until {
    #[inline]
    fn remaining(&self) -> Duration {
        self.0.remaining()
    }
}
