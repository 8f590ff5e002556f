//! Simulated time for shuttle tests. It must not depend on a real clock, or schedules could not be
//! replayed.

use std::ops::Sub;
use std::time::Duration;

use shuttle::current::context_switches;
use slotline_core::wait::{Deadline, is_late};

/// The duration of one step of the schedule, chosen so that reading claimed rows in a few steps counts as taking little
/// time, and reading them in a hundred steps does not.
const STEP: Duration = Duration::from_nanos(10);

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

impl Deadline for Instant {
    fn remaining(&self) -> Duration {
        if is_late() { Duration::ZERO } else { self.saturating_duration_since(Self::now()) }
    }
}
