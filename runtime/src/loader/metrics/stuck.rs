//! The samples that the watchdog has reported, readable by all threads.

use std::sync::PoisonError;

use crate::fork::Process;
use crate::loader::metrics::stats::Stuck;
use crate::sync::Mutex;

/// The maximum number of samples that are kept.
const MAX: usize = 64;

/// The samples that the watchdog has reported.
#[derive(Debug, Default)]
pub(crate) struct StuckSamples {
    process: Process,
    list: Mutex<Vec<Stuck>>,
}

impl StuckSamples {
    /// Keeps a sample, if there is room.
    pub(crate) fn note(&self, stuck: Stuck) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MAX {
            list.push(stuck);
        }
    }

    /// Returns the samples so far. Returns none in a forked process, where a thread of the parent
    /// may hold the lock.
    pub(crate) fn read(&self) -> Vec<Stuck> {
        if !self.process.is_this() {
            return Vec::new();
        }
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
