//! Waits for the device by polling.
//!
//! The driver's own wait functions have no timeout, and may keep a core busy.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;

use crate::error::DriverError;

/// The time for which a thread yields between two queries, before it sleeps between them. It is
/// about the duration of a copy of a few megabytes.
const AWAKE: Duration = Duration::from_micros(500);
/// The duration of a sleep between two queries.
const NAP: Duration = Duration::from_micros(50);

/// Calls `done` until it returns `true` or an error, or until `limit` has passed. Returns the last
/// answer.
pub(crate) fn poll(
    limit: Option<Duration>,
    mut done: impl FnMut() -> Result<bool, DriverError>,
) -> Result<bool, DriverError> {
    let (start, backoff) = (Instant::now(), Backoff::new());
    loop {
        if done()? {
            return Ok(true);
        }
        let waited = start.elapsed();
        if limit.is_some_and(|limit| waited >= limit) {
            return Ok(false);
        }
        if waited < AWAKE { backoff.snooze() } else { thread::sleep(NAP) }
    }
}

/// A time limit for waiting while resources are freed.
#[derive(Debug)]
pub(crate) struct GracePeriod {
    start: Instant,
    limit: Duration,
}

/// The reason why the end of an operation was not observed.
#[derive(Clone, Debug)]
pub(crate) enum Unsettled {
    Driver(DriverError),
    /// The operation did not end within this time.
    Late(Duration),
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(error) => error.fmt(f),
            Self::Late(limit) => write!(f, "the device was still using it after {limit:?}"),
        }
    }
}

impl GracePeriod {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { start: Instant::now(), limit }
    }

    /// Waits until `done` returns `true`, for at most the time that is left.
    pub(crate) fn poll(&self, mut done: impl FnMut() -> Result<bool, DriverError>) -> Result<(), Unsettled> {
        let done = || done().or_else(|error| if error.is_passing() { Ok(false) } else { Err(error) });
        match poll(Some(self.limit.saturating_sub(self.start.elapsed())), done) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Unsettled::Late(self.limit)),
            Err(error) => Err(Unsettled::Driver(error)),
        }
    }
}
