//! The watchdog: says which samples threads are stuck at, and stops nothing.

use std::sync::{Arc, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use crossbeam_utils::CachePadded;

use crate::loader::error::run::By;
use crate::loader::metrics::activity::{Activity, At};
use crate::loader::metrics::stats::Stuck;
use crate::loader::metrics::stuck::StuckSamples;
use crate::loader::spans;
use crate::loader::worker::pool::grace;
use crate::loader::worker::threads::Threads;
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, wait_while};
use crate::wait::Until;

/// How often it looks in the time that it grants.
const LOOKS: u32 = 4;
/// It looks no more often than this.
const LEAST: Duration = Duration::from_millis(1);

/// A thread that looks after the others. It holds nothing but what they say of themselves, and ends with this.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    threads: Threads,
}

#[derive(Default)]
struct Shared {
    is_closed: Mutex<bool>,
    closed: Condvar,
    stuck: Arc<StuckSamples>,
}

impl Watchdog {
    /// Starts the thread, which says what takes longer than `patience`.
    pub(crate) fn start(patience: Duration, activities: Arc<[CachePadded<Activity>]>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let looking = shared.clone();
        let life = move || looking.look_after(&activities, patience);
        let mut threads = Threads::default();
        threads.start("slotline-watch".to_owned(), life)?;
        Ok(Self { shared, threads })
    }

    /// What it reports.
    pub(crate) fn stuck(&self) -> &Arc<StuckSamples> {
        &self.shared.stuck
    }

    /// Ends the thread, and waits for that until the deadline.
    pub(crate) fn end(&mut self, deadline: &Until) {
        if self.threads.is_lost() {
            return self.threads.forget();
        }
        *self.shared.lock() = true;
        self.shared.closed.notify_all();
        self.threads.end(deadline);
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

    fn look_after(&self, activities: &[CachePadded<Activity>], patience: Duration) {
        let mut seen: Vec<_> = activities.iter().map(|_| Sight::default()).collect();
        loop {
            let pause = Until::after(Some((patience / LOOKS).max(LEAST)));
            if *wait_while((&self.is_closed, &self.closed), self.lock(), &pause, |closed| !*closed) {
                return;
            }
            for (place, (activity, seen)) in activities.iter().zip(&mut seen).enumerate() {
                let by = if place + 1 < activities.len() { By::Worker(place) } else { By::Consumer };
                let Some((at, time)) = seen.look(activity.at(), Instant::now(), patience) else { continue };
                let stuck = Stuck { index: at.index, batch: at.task, by, time };
                spans::tell(|| {
                    tracing::warn!(
                        index = at.index,
                        batch = at.task,
                        "{by} has been at sample {} of batch {} for {time:.1?}",
                        at.index,
                        at.task
                    );
                });
                self.stuck.note(stuck);
            }
        }
    }
}

/// What a thread was seen at.
#[derive(Debug, Default)]
struct Sight {
    at: Option<(At, Instant)>,
    told: bool,
}

impl Sight {
    /// What to report of a thread that is at `at` now, and for how long it has been: once for each occasion.
    fn look(&mut self, at: Option<At>, now: Instant, patience: Duration) -> Option<(At, Duration)> {
        match (self.at, at) {
            (Some((before, since)), Some(at)) if before == at => {
                let time = now.saturating_duration_since(since);
                let report = !self.told && time >= patience;
                self.told |= report;
                report.then_some((at, time))
            }
            (_, at) => {
                *self = Self { at: at.map(|at| (at, now)), told: false };
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
    fn a_sample_is_told_once_for_each_time_that_it_takes_too_long() {
        let (start, patience) = (Instant::now(), Duration::from_secs(4));
        let at = |taken_on, row| Some(At { task: 7, row, index: 3, taken_on });
        let mut sight = Sight::default();
        let mut look = |at, second| sight.look(at, start + Duration::from_secs(second), patience).map(|(_, time)| time);
        let told = Some(patience);
        for (at, second, want) in [
            (at(1, 0), 0, None),
            (at(1, 0), 3, None),
            (at(1, 0), 4, told),
            (at(1, 0), 9, None),
            // The same index in another row, and in the same row of another pass.
            (at(1, 1), 10, None),
            (at(2, 1), 14, None),
            (at(2, 1), 18, told),
            (None, 19, None),
            (at(2, 1), 20, None),
            (None, 30, None),
        ] {
            assert_eq!(look(at, second), want, "at {second} s");
        }
    }
}
