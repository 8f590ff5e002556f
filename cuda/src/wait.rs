//! Waiting for the device.
//!
//! The driver's own waits have no limit in time, and may or may not keep a core busy. So the host asks from time to time.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;
use slotline::loader::GRACE;

use crate::error::DriverError;

/// How long a thread asks again and again, letting others run between: about what a copy of some megabytes takes.
const AWAKE: Duration = Duration::from_micros(500);
/// How long it sleeps between two questions after that.
const NAP: Duration = Duration::from_micros(50);

/// Asks until the answer is yes, or `limit` has passed; the answer, or what the driver said.
pub(crate) fn poll(
    limit: Option<Duration>,
    mut done: impl FnMut() -> Result<bool, DriverError>,
) -> Result<bool, DriverError> {
    let (begun, backoff) = (Instant::now(), Backoff::new());
    loop {
        if done()? {
            return Ok(true);
        }
        let waited = begun.elapsed();
        if limit.is_some_and(|limit| waited >= limit) {
            return Ok(false);
        }
        if waited < AWAKE { backoff.snooze() } else { thread::sleep(NAP) }
    }
}

/// The time that giving things up may take.
#[derive(Debug)]
pub(crate) struct Grace(Instant);

/// Why something was not seen to end.
#[derive(Clone, Debug)]
pub(crate) enum Unsettled {
    Driver(DriverError),
    Late,
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(error) => error.fmt(f),
            Self::Late => write!(f, "the device was not done with it within {} seconds", GRACE.as_secs()),
        }
    }
}

impl Grace {
    pub(crate) fn new() -> Self {
        Self(Instant::now() + GRACE)
    }

    /// Waits until the answer is yes, within the time that is left.
    pub(crate) fn poll(&self, mut done: impl FnMut() -> Result<bool, DriverError>) -> Result<(), Unsettled> {
        let done = || done().or_else(|error| if error.is_passing() { Ok(false) } else { Err(error) });
        match poll(Some(self.0.saturating_duration_since(Instant::now())), done) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Unsettled::Late),
            Err(error) => Err(Unsettled::Driver(error)),
        }
    }
}
