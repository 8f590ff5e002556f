//! Counters of what one thread has done. Only that thread writes them, and any thread may read them
//! at any time.
//!
//! Since there is a single writer, counting is a load and a store, and no thread waits for another.
//! A reader sees each figure as it was a moment ago, but not all figures as they were at the same
//! moment.

use std::time::Duration;

use crate::dataset::reading::{STAGE_COUNT, STAGES, Stage};
use crate::fork::Process;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Instant, origin, thread};

/// The number of slowest samples that are kept.
pub(crate) const SLOWEST: usize = 8;
/// How often a reader tries to read consistent entries. A writer that is a process may have died in
/// the middle of a change.
const MAX_TRIES: usize = 10_000;
/// Averages are stored as the time of this many samples, since one sample may take less than a
/// nanosecond.
pub(crate) const MANY: u64 = 1024;

/// The counters of one thread. Times are in nanoseconds.
#[derive(Debug, Default)]
#[repr(C)] // Worker processes share it.
pub(crate) struct Counters {
    /// The number of samples that the thread has started.
    samples: AtomicU64,
    /// The time of samples; the number of samples whose time this is; and the estimated time of
    /// [`MANY`] of the samples started since then.
    busy: AtomicU64,
    accounted: AtomicU64,
    others: AtomicU64,
    /// The time to begin passes over an iterable dataset, outside of claims.
    starting: AtomicU64,
    /// The time of samples that were timed stage by stage, by [`Stage`].
    stages: [AtomicU64; STAGE_COUNT],
    /// The time without a free slot; and the time without work because the consumer makes batches
    /// faster than they could be passed between cores.
    waiting: AtomicU64,
    resting: AtomicU64,
    /// The moment until which all time of the thread is in the counters above. Stored as twice the
    /// nanoseconds after the [origin], plus 1 if a claim that is being timed began at that moment.
    since: AtomicU64,
    /// The current stage of the sample that is being timed (its number plus 1, or 0 for none), and
    /// when it began, in nanoseconds after the [origin].
    stage: AtomicUsize,
    entered: AtomicU64,
    /// Only used by the consumer: when the current pass began, in nanoseconds after the [origin],
    /// plus 1; 0 before the first pass. (Not an `Instant`, since not every bit pattern that another
    /// process may have written is valid for that.)
    pass: AtomicU64,
    pub(crate) slowest: Slowest,
}

impl Counters {
    #[inline]
    pub(crate) fn claimed(&self, samples: usize) {
        add(&self.samples, samples as u64);
    }

    /// Adds `time` for all samples started so far that had no time yet. Sets the estimated time of
    /// [`MANY`] of the following samples to `others`, until they are timed.
    pub(crate) fn busy(&self, time: u64, others: u64) {
        add(&self.busy, time);
        self.accounted.store(self.samples(), Ordering::Relaxed);
        self.others.store(others, Ordering::Relaxed);
    }

    /// Adds the time of samples that were timed stage by stage.
    pub(crate) fn stages(&self, times: [u64; STAGE_COUNT]) {
        self.stages.iter().zip(times).for_each(|(stage, time)| add(stage, time));
    }

    /// Records that a claim begins that is timed.
    pub(crate) fn begin_claim(&self, now: Instant) {
        self.stage.store(0, Ordering::Relaxed);
        self.since.store(moment(now) << 1 | 1, Ordering::Relaxed);
    }

    /// Records that a claim or a wait has ended, so that all time of the thread until `now` is in
    /// the counters.
    pub(crate) fn end_interval(&self, now: Instant) {
        self.since.store(moment(now) << 1, Ordering::Relaxed);
    }

    /// Records that a stage of a timed sample begins.
    #[inline]
    pub(crate) fn enter(&self, stage: Stage, now: Instant) {
        self.entered.store(moment(now), Ordering::Relaxed);
        self.stage.store(stage as usize + 1, Ordering::Relaxed);
    }

    /// Returns the work since the counters were last updated, if the thread works on a claim.
    /// `is_busy` is whether the thread fills a batch, and `pass` is when the pass began.
    pub(crate) fn unfinished(&self, is_busy: bool, pass: Option<Instant>, now: Instant) -> Option<Unfinished> {
        let now = moment(now);
        let [since, entered] = [&self.since, &self.entered].map(|figure| figure.load(Ordering::Relaxed));
        let (begun, is_timed) = (since >> 1, since & 1 == 1);
        let time = now.saturating_sub(begun.max(pass.map_or(0, moment)));
        // A claim that is not timed normally takes some microseconds, so it counts only once it is
        // slow.
        if !is_timed && (!is_busy || time < NOTABLE) {
            return None;
        }
        let stage = STAGES.get(self.stage.load(Ordering::Relaxed).wrapping_sub(1)).filter(|_| is_timed);
        let of_sample = stage.map_or(time, |_| time.min(now.saturating_sub(entered)));
        Some(Unfinished { time, of_sample, stage: stage.copied().unwrap_or(Stage::Reading) })
    }

    /// Adds the time of a sample whose reading was never finished, because the worker process
    /// ended.
    #[cfg(processes)]
    pub(crate) fn lost(&self, index: usize, time: Duration) {
        let time = nanos(time);
        add(&self.busy, time);
        add(&self.stages[Stage::Reading as usize], time);
        self.slowest.note(index, 1, time);
    }

    pub(crate) fn started(&self, time: Duration) {
        add(&self.starting, nanos(time));
    }

    /// Adds a wait that began at `begun` and ends now.
    pub(crate) fn waited(&self, begun: Instant) {
        let now = Instant::now();
        add(&self.waiting, nanos(now.saturating_duration_since(begun)));
        self.end_interval(now);
    }

    pub(crate) fn rested(&self, time: Duration) {
        if !time.is_zero() {
            add(&self.resting, nanos(time));
            self.end_interval(Instant::now());
        }
    }

    /// Records that a pass begins.
    pub(crate) fn begin_pass(&self, now: Instant) {
        self.pass.store(moment(now).saturating_add(1), Ordering::Relaxed);
    }

    /// When the last pass began, if one has begun.
    pub(crate) fn pass_begun(&self) -> Option<Instant> {
        let after = self.pass.load(Ordering::Relaxed).checked_sub(1)?;
        origin().checked_add(Duration::from_nanos(after))
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Returns the time of all samples. For samples not timed yet it uses the estimate instead of
    /// the average of all, which would be too high if one slow sample was followed by quick ones,
    /// or if the current sample has just begun.
    pub(crate) fn busy_time(&self) -> Duration {
        let counters = [&self.busy, &self.accounted, &self.others];
        let [busy, accounted, others] = counters.map(|figure| figure.load(Ordering::Relaxed));
        let left = self.samples().saturating_sub(accounted).saturating_mul(others) / MANY;
        Duration::from_nanos(busy.saturating_add(left))
    }

    /// Returns the share of each stage in the time of all samples, as far as it was measured.
    pub(crate) fn shares(&self) -> [f64; STAGE_COUNT] {
        let times: [f64; STAGE_COUNT] = std::array::from_fn(|stage| self.stages[stage].load(Ordering::Relaxed) as f64);
        let all: f64 = times.iter().sum();
        if all > 0.0 { times.map(|time| time / all) } else { STAGES.map(|stage| f64::from(stage == Stage::Reading)) }
    }

    pub(crate) fn starting(&self) -> Duration {
        Duration::from_nanos(self.starting.load(Ordering::Relaxed))
    }

    pub(crate) fn waiting(&self) -> Duration {
        Duration::from_nanos(self.waiting.load(Ordering::Relaxed))
    }

    pub(crate) fn resting(&self) -> Duration {
        Duration::from_nanos(self.resting.load(Ordering::Relaxed))
    }
}

/// The work of a thread since its counters were last updated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfinished {
    /// The time of all unfinished work, and that of the current sample, in nanoseconds.
    pub(crate) time: u64,
    pub(crate) of_sample: u64,
    /// The current stage of the current sample.
    pub(crate) stage: Stage,
}

/// Unfinished work that takes at least this many nanoseconds is reported: 1 ms.
pub(crate) const NOTABLE: u64 = 1_000_000;

/// Returns the nanoseconds from the [origin] to a moment.
pub(crate) fn moment(now: Instant) -> u64 {
    nanos(now.saturating_duration_since(origin()))
}

/// Adds to a counter. Only the thread that writes this counter may call this.
#[inline]
pub(crate) fn add(figure: &AtomicU64, more: u64) {
    figure.store(figure.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// A moment from which times are counted.
#[derive(Debug)]
pub(crate) struct Base(pub(crate) Instant);

impl Default for Base {
    fn default() -> Self {
        Self(Instant::now())
    }
}

/// Converts a duration to nanoseconds, at most `u64::MAX`, which is 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The slowest samples, each of them once.
///
/// A version guards the entries. It is odd while the writer changes them. A reader that finds an
/// odd version, or another version after reading than before, reads again. In a forked process the
/// reader does not repeat, because the only writer may have been lost in the middle of a change.
#[derive(Debug, Default)]
#[repr(C)] // Worker processes share it.
pub(crate) struct Slowest {
    process: Process,
    version: AtomicUsize,
    /// For each entry the index of a sample, the number of samples that the time is for, and the
    /// time, which is 0 for an unused entry.
    entries: [Entry; SLOWEST],
    /// The least time of all entries.
    least: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Entry(AtomicUsize, AtomicU64, AtomicU64);

impl Slowest {
    /// Records a sample, or a group of `samples` samples of which `index` is the last, if it is one
    /// of the slowest. Only the single writer may call this.
    #[inline]
    pub(crate) fn note(&self, index: usize, samples: u64, time: u64) {
        if time > self.least.load(Ordering::Relaxed) {
            self.keep(index, samples, time);
        }
    }

    /// Makes the version even again after the writer died in the middle of a change. Only the next
    /// writer may call this.
    pub(crate) fn mend(&self) {
        let version = self.version.load(Ordering::Relaxed);
        if !version.is_multiple_of(2) {
            self.version.store(version.wrapping_add(1), Ordering::Release);
        }
    }

    #[cold]
    fn keep(&self, index: usize, samples: u64, time: u64) {
        let times = || self.entries.iter().map(|Entry(_, _, time)| time.load(Ordering::Relaxed));
        let known = self.entries.iter().zip(times()).position(|(entry, time)| {
            let same = entry.0.load(Ordering::Relaxed) == index && entry.1.load(Ordering::Relaxed) == samples;
            time > 0 && same // Usually from an earlier pass.
        });
        let least = || times().enumerate().min_by_key(|&(_, time)| time).map_or(0, |(stage, _)| stage);
        let entry = &self.entries[known.unwrap_or_else(least)];
        if time <= entry.2.load(Ordering::Relaxed) {
            return;
        }
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // With this fence, a reader that sees one of the stores below also sees the odd version.
        fence(Ordering::Release);
        entry.0.store(index, Ordering::Relaxed);
        entry.1.store(samples, Ordering::Relaxed);
        entry.2.store(time, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
        self.least.store(times().min().unwrap_or_default(), Ordering::Relaxed);
    }

    /// Returns index, number of samples, and time of each entry, in any order.
    pub(crate) fn read(&self) -> Vec<(usize, u64, Duration)> {
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.version.load(Ordering::Acquire);
            let entries: Vec<_> = self
                .entries
                .iter()
                .map(|Entry(index, samples, time)| {
                    let [samples, time] = [samples, time].map(|figure| figure.load(Ordering::Relaxed));
                    (index.load(Ordering::Relaxed), samples, Duration::from_nanos(time))
                })
                .filter(|(_, _, time)| !time.is_zero())
                .collect();
            fence(Ordering::Acquire);
            let is_whole = before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before;
            if is_whole || tries == MAX_TRIES || !self.process.is_this() {
                return entries;
            }
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untimed_samples_use_the_last_estimate() {
        let counters = Counters::default();
        let shares = || counters.shares()[..3].to_vec();
        assert_eq!((counters.busy_time(), shares()), (Duration::ZERO, vec![0.0, 1.0, 0.0]));
        (0..4).for_each(|_| counters.claimed(2));
        counters.busy(3000, 25 * MANY);
        (0..2).for_each(|_| counters.claimed(2));
        counters.stages([50, 100, 250, 0, 0, 0]);
        assert_eq!(counters.samples(), 12);
        assert_eq!((counters.busy_time(), shares()), (Duration::from_nanos(3100), vec![0.125, 0.25, 0.625]));
        counters.busy(10, 0);
        assert_eq!(counters.busy_time(), Duration::from_nanos(3010));
    }

    #[test]
    fn what_has_not_ended_counts_from_the_last_record() {
        let (counters, begun) = (Counters::default(), Instant::now());
        let after = |time| begun + Duration::from_millis(time);
        let seen = |is_busy, pass, now| {
            let seen = counters.unfinished(is_busy, pass, after(now))?;
            Some([seen.time, seen.of_sample].map(|time| time / NOTABLE)).map(|times| (times, seen.stage))
        };
        counters.end_interval(after(10));
        assert_eq!(seen(false, None, 90), None, "it does nothing");
        assert_eq!(seen(true, None, 10), None, "a quick claim may not be timed");
        assert_eq!(seen(true, None, 90), Some(([80, 80], Stage::Reading)));
        assert_eq!(seen(true, Some(after(50)), 90), Some(([40, 40], Stage::Reading)), "it rested between passes");
        counters.begin_claim(after(100));
        assert_eq!(seen(false, None, 130), Some(([30, 30], Stage::Reading)));
        counters.enter(Stage::Writing, after(120));
        assert_eq!(seen(true, None, 130), Some(([30, 10], Stage::Writing)));
        counters.end_interval(after(140));
        assert_eq!(seen(false, None, 150), None);
    }

    #[test]
    fn the_slowest_samples_are_kept_once_each() {
        let slowest = Slowest::default();
        for time in 1..=20 {
            slowest.note(time as usize % 12, 1, time);
            // Record the same sample again, a bit quicker, as a later pass may.
            slowest.note(time as usize % 12, 1, time - 1);
        }
        let mut kept = slowest.read();
        kept.sort_by_key(|&(_, _, time)| time);
        assert!(kept.iter().map(|&(_, _, time)| nanos(time)).eq(13..=20), "{kept:?}");
        assert!(kept.iter().all(|&(index, _, time)| index as u64 == nanos(time) % 12), "{kept:?}");
    }

    #[test]
    fn a_forked_process_does_not_wait_for_a_lost_writer() {
        let slowest = Slowest { process: Process::another(), ..Slowest::default() };
        slowest.note(3, 1, 7);
        slowest.version.store(1, Ordering::Relaxed);
        assert_eq!(slowest.read(), [(3, 1, Duration::from_nanos(7))]);
    }

    #[test]
    fn a_sample_is_never_read_with_the_time_of_another() {
        let slowest = Slowest::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (1..=20_000_u64).for_each(|time| slowest.note(time as usize, time, time)));
            while !writer.is_finished() {
                assert!(
                    slowest.read().iter().all(|&(index, samples, time)| [index as u64, samples] == [nanos(time); 2])
                );
            }
        });
        assert_eq!(slowest.read().len(), SLOWEST);
    }
}
