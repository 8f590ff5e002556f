//! A running worker process, as the supervisor sees it.

use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::loader::backend::processes::child::{Child, End};
use crate::loader::metrics::activity::{Activity, At};
use crate::loader::worker::watchdog::Sight;

/// How often a thread looks within the time limit of a sample.
pub(crate) const LOOKS: u32 = 8;

/// A worker process that runs.
pub(crate) struct Running {
    pub(crate) worker: usize,
    pub(crate) child: Child,
    /// What it was last seen to read.
    pub(crate) sight: Sight,
    /// The limit, if it was killed since a sample took longer.
    late: Option<Duration>,
}

impl Running {
    /// Looks after a process that was started for a worker. `activities` are those of all workers.
    pub(crate) fn new(worker: usize, child: Child, activities: &[CachePadded<Activity>]) -> Self {
        activities[worker].set_process(Some(child.id));
        Self { worker, child, sight: Sight::default(), late: None }
    }

    /// Kills the process if it has read one sample for longer than `limit`, if there is one.
    pub(crate) fn kill_if_late(&mut self, activities: &[CachePadded<Activity>], limit: Option<Duration>) {
        if let Some(limit) = limit
            && self.sight.look(activities[self.worker].at(), Instant::now(), limit).is_some()
        {
            self.late = Some(limit);
            self.child.kill();
        }
    }

    /// Waits until the process has ended, and returns how, and what it was reading.
    pub(crate) fn reap(&self, activities: &[CachePadded<Activity>]) -> (End, Option<At>) {
        let end = match (self.child.reap(), self.late) {
            (End::Signal(libc::SIGKILL) | End::Unknown, Some(limit)) => End::Late(limit),
            (end, _) => end,
        };
        (end, activities[self.worker].reap(self.sight.seen().filter(|_| matches!(end, End::Late(_)))))
    }
}
