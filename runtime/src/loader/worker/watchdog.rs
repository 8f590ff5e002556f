//! The watchdog, a thread that reports samples on which other threads spend too long. It stops
//! nothing.

use std::sync::{Arc, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use crossbeam_utils::CachePadded;

use crate::loader::error::run::By;
use crate::loader::error::warning::{Listener, Warning};
use crate::loader::metrics::activity::{Activity, At};
use crate::loader::metrics::stats::Stuck;
use crate::loader::metrics::stuck::StuckSamples;
use crate::loader::trace;
use crate::loader::worker::pool::grace;
use crate::loader::worker::threads::Threads;
use crate::placed::Placed;
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, wait_while};
use crate::wait::Until;

/// The number of checks within the time limit.
const CHECKS: u32 = 4;
/// The minimum time between two checks.
const MIN: Duration = Duration::from_millis(1);

/// The watchdog's thread. It accesses only the activities of the other threads, and ends when this
/// value is dropped.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    threads: Threads,
}

#[derive(Default)]
struct Shared {
    is_closed: Mutex<bool>,
    closed: Condvar,
    stuck: Arc<StuckSamples>,
    listener: Listener,
}

impl Watchdog {
    /// Starts the thread, which reports samples that take longer than `patience`.
    pub(crate) fn start(
        patience: Duration,
        activities: Placed<[CachePadded<Activity>]>,
        listener: Listener,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { listener, ..Shared::default() });
        let watching = shared.clone();
        let thread_main = Box::new(move || watching.watch(&activities, patience));
        let mut threads = Threads::default();
        threads.start("slotline-watch".to_owned(), thread_main)?;
        Ok(Self { shared, threads })
    }

    /// The samples that were reported so far.
    pub(crate) fn stuck(&self) -> &Arc<StuckSamples> {
        &self.shared.stuck
    }

    /// Makes the thread end, and waits for that until the deadline. Returns 1 if it has not ended,
    /// and 0 if it has.
    pub(crate) fn end(&mut self, deadline: &Until) -> usize {
        if self.threads.is_lost() {
            self.threads.forget();
            return 0;
        }
        *self.shared.lock() = true;
        self.shared.closed.notify_all();
        self.threads.end(deadline)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end(&grace());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, activities: &[CachePadded<Activity>], patience: Duration) {
        let mut seen: Vec<_> = activities.iter().map(|_| LastSeen::default()).collect();
        loop {
            let pause = Until::after(Some((patience / CHECKS).max(MIN)));
            if *wait_while((&self.is_closed, &self.closed), self.lock(), &pause, |closed| !*closed) {
                return;
            }
            for (number, (activity, seen)) in activities.iter().zip(&mut seen).enumerate() {
                let by = if number + 1 < activities.len() { By::Worker(number) } else { By::Consumer };
                let Some((at, time)) = seen.update(activity.at(), Instant::now(), patience) else { continue };
                let stuck = Stuck { index: at.index, batch: at.task, by, time };
                trace::tell(|| {
                    tracing::warn!(
                        index = at.index,
                        batch = at.task,
                        "{by} has been working on sample {} of batch {} for {time:.1?}",
                        at.index,
                        at.task
                    );
                });
                self.stuck.note(stuck);
                self.listener.notify(|| Warning::Stuck { index: at.index, batch: at.task, by, time });
            }
        }
    }
}

/// The sample at which a thread was last seen, since when, and whether that was reported.
#[derive(Debug, Default)]
pub(crate) struct LastSeen {
    at: Option<(At, Instant)>,
    reported: bool,
}

impl LastSeen {
    /// Whether the thread was last seen at this sample.
    #[cfg(processes)]
    pub(crate) fn is_at(&self, at: &At) -> bool {
        self.at.is_some_and(|(seen, _)| seen == *at)
    }

    /// Returns the sample at which the thread was last seen, and for how long it has been there.
    #[cfg(processes)]
    pub(crate) fn seen(&self) -> Option<(At, Duration)> {
        self.at.map(|(at, since)| (at, since.elapsed()))
    }

    /// Updates the record of a thread that is at sample `at` now. Returns the sample and the time
    /// if they are to be reported, which happens once for each attempt to read a sample.
    pub(crate) fn update(&mut self, at: Option<At>, now: Instant, patience: Duration) -> Option<(At, Duration)> {
        match (self.at, at) {
            (Some((before, since)), Some(at)) if before == at => {
                let time = now.saturating_duration_since(since);
                let report = !self.reported && time >= patience;
                self.reported |= report;
                report.then_some((at, time))
            }
            (_, at) => {
                *self = Self { at: at.map(|at| (at, now)), reported: false };
                None
            }
        }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_sample_is_reported_once_per_occasion() {
        let (start, patience) = (Instant::now(), Duration::from_secs(4));
        let at = |taken_on, row| Some(At { task: 7, row, index: 3, taken_on });
        let mut last_seen = LastSeen::default();
        let mut update =
            |at, second| last_seen.update(at, start + Duration::from_secs(second), patience).map(|(_, time)| time);
        let reported = Some(patience);
        for (at, second, want) in [
            (at(1, 0), 0, None),
            (at(1, 0), 3, None),
            (at(1, 0), 4, reported),
            (at(1, 0), 9, None),
            // The same index in another row, and then in the same row of another batch.
            (at(1, 1), 10, None),
            (at(2, 1), 14, None),
            (at(2, 1), 18, reported),
            (None, 19, None),
            (at(2, 1), 20, None),
            (None, 30, None),
        ] {
            assert_eq!(update(at, second), want, "at {second} s");
        }
    }
}
