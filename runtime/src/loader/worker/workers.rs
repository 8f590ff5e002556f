//! The threads of a loader, and the state that they share with the consumer.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::dataset::StopToken;
use crate::loader::error::build::BuildError;
use crate::loader::error::warning::{Listener, Warning};
use crate::loader::metrics::activity::Activity;
use crate::loader::worker::liveness::WorkerLiveness;
use crate::loader::worker::pool::WorkerPool;
use crate::loader::worker::watchdog::Watchdog;
use crate::placed::Placed;
use crate::wait::Until;

/// The threads of a loader, and the state that they share with the consumer.
pub(crate) struct Workers {
    pub(crate) pool: WorkerPool,
    pub(crate) cancel: StopToken,
    /// The activity of each worker, followed by that of the consumer.
    pub(crate) activities: Placed<[CachePadded<Activity>]>,
    pub(crate) liveness: Arc<WorkerLiveness>,
    pub(crate) watchdog: Option<Watchdog>,
    /// How long dropping the loader waits for its threads.
    pub(crate) close_timeout: Duration,
}

impl Workers {
    /// Prepares the state for worker threads that will be started: one for each activity but the
    /// last. Starts the watchdog if there is a time limit.
    pub(crate) fn new(
        cancel: StopToken,
        activities: Placed<[CachePadded<Activity>]>,
        (time_limit, listener): (Option<Duration>, &Listener),
        close_timeout: Duration,
    ) -> Result<Self, BuildError> {
        let start = |time_limit| Watchdog::start(time_limit, activities.clone(), listener.clone());
        let watchdog = time_limit.map(start).transpose().map_err(|source| BuildError::Watchdog { source })?;
        let liveness = Arc::new(WorkerLiveness::new(activities.len() - 1));
        Ok(Self { pool: WorkerPool::default(), cancel, activities, liveness, watchdog, close_timeout })
    }

    /// Waits for the threads to end, until the deadline. Returns a warning if some of them have not
    /// ended.
    pub(crate) fn end(&mut self, deadline: &Until) -> Option<Warning> {
        let workers = self.pool.len();
        let mut threads = self.pool.end(deadline);
        if let Some(watchdog) = &mut self.watchdog {
            threads += watchdog.end(deadline);
        }
        if threads == 0 {
            return None;
        }
        let reading = |worker: &Activity| worker.reading(worker.task()?);
        let workers = self.activities[..workers].iter().enumerate();
        let busy = workers.filter_map(|(id, worker)| Some((id, reading(worker)?))).collect();
        Some(Warning::LeftBehind { threads, busy })
    }
}
