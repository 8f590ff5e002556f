//! A running worker process, as the thread that started it sees it.

use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::loader::backend::processes::child::{Child, End};
use crate::loader::metrics::activity::{Activity, At};
use crate::loader::worker::watchdog::LastSeen;

/// The number of checks within the time limit of a sample.
pub(crate) const CHECKS: u32 = 8;

/// A worker process that runs.
pub(crate) struct Running {
    pub(crate) worker: usize,
    pub(crate) child: Child,
    /// The sample at which the worker was last seen.
    pub(crate) last_seen: LastSeen,
    /// The time limit, if the process was killed because a sample took longer.
    late: Option<Duration>,
}

impl Running {
    /// Records a process that was started for a worker. `activities` are those of all workers.
    pub(crate) fn new(worker: usize, child: Child, activities: &[CachePadded<Activity>]) -> Self {
        activities[worker].set_process(Some(child.id));
        Self { worker, child, last_seen: LastSeen::default(), late: None }
    }

    /// Kills the process if there is a limit and it has read one sample for longer.
    pub(crate) fn kill_if_late(&mut self, activities: &[CachePadded<Activity>], limit: Option<Duration>) {
        if let Some(limit) = limit
            && self.last_seen.update(activities[self.worker].at(), Instant::now(), limit).is_some()
        {
            self.late = Some(limit);
            self.child.kill();
        }
    }

    /// Waits until the process has ended. Returns how it ended, and the sample that it was reading,
    /// if any.
    pub(crate) fn reap(&self, activities: &[CachePadded<Activity>]) -> (End, Option<At>) {
        let end = match (self.child.reap(), self.late) {
            (End::Signal(libc::SIGKILL) | End::Unknown, Some(limit)) => End::Late(limit),
            (end, _) => end,
        };
        (end, activities[self.worker].reap(self.last_seen.seen().filter(|_| matches!(end, End::Late(_)))))
    }
}
