//! What one thread has done, in counters that it alone writes and anybody may read at any time.
//!
//! So a count is a load and a store, and no thread waits for another one. Readers see each figure as it was a moment ago,
//! and not all of them at the same moment.

use std::time::Duration;

use crate::fork::Process;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Instant, thread};

/// How many of the slowest samples are kept.
pub(crate) const SLOWEST: usize = 8;
/// So many samples' time is kept as one, as that of a sample may be less than a nanosecond.
pub(crate) const MANY: u64 = 1024;

/// One thread's counters. Times are in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// That it took on.
    samples: AtomicU64,
    /// What samples took, and how many are in that; and what [`MANY`] of the others are taken to take.
    busy: AtomicU64,
    accounted: AtomicU64,
    others: AtomicU64,
    /// What it took to begin streams, apart from claims.
    starting: AtomicU64,
    /// What samples took that were timed stage by stage.
    drawing: AtomicU64,
    reading: AtomicU64,
    writing: AtomicU64,
    /// Without anything to do: no slot, or only batches that are better made by the consumer.
    waiting: AtomicU64,
    resting: AtomicU64,
    /// The consumer's: when the pass began, after `base`, plus 1.
    pass: AtomicU64,
    base: Base,
    pub(crate) slowest: Slowest,
}

impl Counters {
    #[inline]
    pub(crate) fn claimed(&self, samples: usize) {
        add(&self.samples, samples as u64);
    }

    /// Adds the time of all that it took on and that had no time yet, and says what [`MANY`] of the next samples are taken to
    /// take until they have one.
    pub(crate) fn busy(&self, time: u64, others: u64) {
        add(&self.busy, time);
        self.accounted.store(self.samples(), Ordering::Relaxed);
        self.others.store(others, Ordering::Relaxed);
    }

    /// Adds the time of samples that were timed stage by stage.
    pub(crate) fn stages(&self, Stages { drawing, reading, writing }: Stages) {
        add(&self.drawing, drawing);
        add(&self.reading, reading);
        add(&self.writing, writing);
    }

    pub(crate) fn started(&self, time: Duration) {
        add(&self.starting, nanos(time));
    }

    pub(crate) fn waited(&self, time: Duration) {
        add(&self.waiting, nanos(time));
    }

    pub(crate) fn rested(&self, time: Duration) {
        add(&self.resting, nanos(time));
    }

    /// Says that a pass begins.
    pub(crate) fn begin_pass(&self, now: Instant) {
        self.pass.store(nanos(now.saturating_duration_since(self.base.0)).saturating_add(1), Ordering::Relaxed);
    }

    /// When the last pass began.
    pub(crate) fn pass_begun(&self) -> Option<Instant> {
        let after = self.pass.load(Ordering::Relaxed).checked_sub(1)?;
        self.base.0.checked_add(Duration::from_nanos(after))
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// What all samples took. On average would say too much: before quick ones there may have been a slow one, and the one
    /// that is being filled may have just begun.
    pub(crate) fn busy_time(&self) -> Duration {
        let counters = [&self.busy, &self.accounted, &self.others];
        let [busy, accounted, others] = counters.map(|figure| figure.load(Ordering::Relaxed));
        let left = self.samples().saturating_sub(accounted).saturating_mul(others) / MANY;
        Duration::from_nanos(busy.saturating_add(left))
    }

    /// The shares of that which are drawing indices and reading, as far as it was looked at; the rest is writing.
    pub(crate) fn shares(&self) -> [f64; 2] {
        let counters = [&self.drawing, &self.reading, &self.writing];
        let [drawing, reading, writing] = counters.map(|figure| figure.load(Ordering::Relaxed) as f64);
        let all = drawing + reading + writing;
        if all > 0.0 { [drawing / all, reading / all] } else { [0.0, 1.0] }
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

/// What the samples of a claim took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stages {
    /// Waiting for their indices, or drawing them.
    pub(crate) drawing: u64,
    pub(crate) reading: u64,
    pub(crate) writing: u64,
}

/// Adds to a figure; for its only writer.
#[inline]
pub(crate) fn add(figure: &AtomicU64, more: u64) {
    figure.store(figure.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// A moment to count from.
#[derive(Debug)]
pub(crate) struct Base(pub(crate) Instant);

impl Default for Base {
    fn default() -> Self {
        Self(Instant::now())
    }
}

/// As many nanoseconds as 64 bits can count, which are 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The samples that took longest, each once.
///
/// Behind a version, which is odd while they are being changed: who reads them and finds it odd, or another one after than
/// before, reads again. In a forked process it takes what there is: the only writer may have been lost in between.
#[derive(Debug, Default)]
pub(crate) struct Slowest {
    process: Process,
    version: AtomicUsize,
    /// Index, samples, and time, which is 0 where there is none.
    entries: [(AtomicUsize, AtomicU64, AtomicU64); SLOWEST],
    /// The least of the times.
    least: AtomicU64,
}

impl Slowest {
    /// Keeps a sample if it is one of the slowest, or so many samples of which it is the last. For the only writer.
    #[inline]
    pub(crate) fn note(&self, index: usize, samples: u64, time: u64) {
        if time > self.least.load(Ordering::Relaxed) {
            self.keep(index, samples, time);
        }
    }

    #[cold]
    fn keep(&self, index: usize, samples: u64, time: u64) {
        let times = || self.entries.iter().map(|(_, _, time)| time.load(Ordering::Relaxed));
        let known = self.entries.iter().zip(times()).position(|(entry, time)| {
            let same = entry.0.load(Ordering::Relaxed) == index && entry.1.load(Ordering::Relaxed) == samples;
            time > 0 && same // Of another pass, as a rule.
        });
        let least = || times().enumerate().min_by_key(|&(_, time)| time).map_or(0, |(place, _)| place);
        let entry = &self.entries[known.unwrap_or_else(least)];
        if time <= entry.2.load(Ordering::Relaxed) {
            return;
        }
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Whoever sees one of the stores below sees the odd version, too.
        fence(Ordering::Release);
        entry.0.store(index, Ordering::Relaxed);
        entry.1.store(samples, Ordering::Relaxed);
        entry.2.store(time, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
        self.least.store(times().min().unwrap_or_default(), Ordering::Relaxed);
    }

    /// Indices, how many samples, and times, in no order.
    pub(crate) fn read(&self) -> Vec<(usize, u64, Duration)> {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let entries: Vec<_> = self
                .entries
                .iter()
                .map(|(index, samples, time)| {
                    let [samples, time] = [samples, time].map(|figure| figure.load(Ordering::Relaxed));
                    (index.load(Ordering::Relaxed), samples, Duration::from_nanos(time))
                })
                .filter(|(_, _, time)| !time.is_zero())
                .collect();
            fence(Ordering::Acquire);
            let is_whole = before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before;
            if is_whole || !self.process.is_this() {
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
    fn samples_without_a_time_are_taken_for_as_long_as_was_said_last() {
        let counters = Counters::default();
        assert_eq!((counters.busy_time(), counters.shares()), (Duration::ZERO, [0.0, 1.0]));
        (0..4).for_each(|_| counters.claimed(2));
        counters.busy(3000, 25 * MANY);
        (0..2).for_each(|_| counters.claimed(2));
        counters.stages(Stages { drawing: 50, reading: 100, writing: 250 });
        assert_eq!(counters.samples(), 12);
        assert_eq!((counters.busy_time(), counters.shares()), (Duration::from_nanos(3100), [0.125, 0.25]));
        counters.busy(10, 0);
        assert_eq!(counters.busy_time(), Duration::from_nanos(3010));
    }

    #[test]
    fn the_slowest_samples_are_kept_once_each() {
        let slowest = Slowest::default();
        for time in 1..=20 {
            slowest.note(time as usize % 12, 1, time);
            // Again, in a later pass and quicker.
            slowest.note(time as usize % 12, 1, time - 1);
        }
        let mut kept = slowest.read();
        kept.sort_by_key(|&(_, _, time)| time);
        assert!(kept.iter().map(|&(_, _, time)| nanos(time)).eq(13..=20), "{kept:?}");
        assert!(kept.iter().all(|&(index, _, time)| index as u64 == nanos(time) % 12), "{kept:?}");
    }

    #[test]
    fn a_forked_process_does_not_wait_for_a_writer_that_it_has_lost() {
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
