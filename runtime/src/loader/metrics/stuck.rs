//! The samples that the watchdog has reported, for anybody to read.

use std::sync::PoisonError;

use crate::fork::Process;
use crate::loader::metrics::stats::Stuck;
use crate::sync::Mutex;

/// At most so many are kept.
const MOST: usize = 64;

/// The samples that the watchdog has reported.
#[derive(Debug, Default)]
pub(crate) struct StuckSamples {
    process: Process,
    list: Mutex<Vec<Stuck>>,
}

impl StuckSamples {
    /// Keeps one, if there is room.
    pub(crate) fn note(&self, stuck: Stuck) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MOST {
            list.push(stuck);
        }
    }

    /// Those so far; none in a process that was forked meanwhile, where the lock may be held by a thread that is gone.
    pub(crate) fn read(&self) -> Vec<Stuck> {
        if !self.process.is_this() {
            return Vec::new();
        }
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
