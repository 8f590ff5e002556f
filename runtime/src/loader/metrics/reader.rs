//! The consumer's counts and times, and the public reader of all statistics.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::loader::collate::cell::Lease;
use crate::loader::collate::overflow::Spills;
use crate::loader::collate::storage::Storage;
use crate::loader::collate::tag::Tag;
use crate::loader::cores::usable_cores;
use crate::loader::error::run::By;
use crate::loader::metrics::activity::{Activity, STARTING};
use crate::loader::metrics::bad_samples::BadSampleReport;
use crate::loader::metrics::counters::{Base, NOTABLE, SLOWEST, add, nanos};
use crate::loader::metrics::stats::{Slow, Stats, WorkerStats};
use crate::loader::metrics::stuck::StuckSamples;
use crate::placed::Placed;
use crate::sync::Instant;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The consumer's counts and times.
#[derive(Debug)]
pub(crate) struct ConsumerStats {
    counted: Arc<Counted>,
    /// Whether samples differ in size, so that the bytes of each batch must be counted.
    weighs: bool,
    spills: Spills,
    /// When the current pass began, if one is running.
    begun: Option<Instant>,
    elapsed: Duration,
    waiting: Duration,
    held: Duration,
    /// The ready batches are counted next when this many batches of the pass were delivered.
    pub(crate) look: usize,
}

/// The counters that only the consumer writes, and that any thread may read.
#[derive(Debug, Default)]
struct Counted {
    /// The size of a sample in bytes; 0 if samples differ in size.
    sample_bytes: u64,
    passes: AtomicU64,
    /// The numbers of batches delivered, of errors delivered instead of batches, and of samples.
    batches: AtomicU64,
    failed: AtomicU64,
    samples: AtomicU64,
    /// The bytes of batches whose samples differ in size; the number of batches that spilled, and
    /// their spilled bytes.
    bytes: AtomicU64,
    spilled_batches: AtomicU64,
    spilled_bytes: AtomicU64,
    /// The number of batches for which memory was added because too many were kept, and that memory
    /// in bytes.
    extra_batches: AtomicU64,
    extra_bytes: AtomicU64,
    base: Base,
    elapsed: Stopwatch,
    waiting: Stopwatch,
    held: Stopwatch,
    /// The time in `epoch`, in nanoseconds.
    starting: AtomicU64,
    /// The number of batches that the counts of ready batches stand for, and the weighted sum of
    /// these counts.
    looked: AtomicU64,
    found: AtomicU64,
}

/// A stopwatch in one word, so that a reader always gets a consistent value.
///
/// The lowest bit says whether it runs. While it is stopped, the other bits are the time in
/// nanoseconds. While it runs, they are the moment at which the time would have been 0, in
/// nanoseconds after a [`Base`], modulo 2^63.
#[derive(Debug, Default)]
struct Stopwatch(AtomicU64);

impl Stopwatch {
    fn stands(&self, time: Duration) {
        self.0.store(nanos(time) << 1, Ordering::Relaxed);
    }

    /// Makes the stopwatch run since `begun`, starting with the time `before`.
    fn runs(&self, begun: Instant, before: Duration, base: &Base) {
        let zero = nanos(begun.saturating_duration_since(base.0)).wrapping_sub(nanos(before));
        self.0.store(zero << 1 | 1, Ordering::Relaxed);
    }

    fn read(&self, now: Instant, base: &Base) -> Duration {
        let word = self.0.load(Ordering::Relaxed);
        if word & 1 == 0 {
            return Duration::from_nanos(word >> 1);
        }
        let now = nanos(now.saturating_duration_since(base.0)) << 1;
        // Read the difference as a signed number: the clock may have been set back.
        let time = now.wrapping_sub(word & !1).cast_signed() >> 1;
        Duration::from_nanos(time.max(0).cast_unsigned())
    }
}

impl ConsumerStats {
    pub(crate) fn new(sample_bytes: Option<usize>, spills: Spills) -> Self {
        let counted = Counted { sample_bytes: sample_bytes.unwrap_or_default() as u64, ..Counted::default() };
        let (elapsed, waiting, held) = Default::default();
        let (counted, weighs) = (Arc::new(counted), sample_bytes.is_none());
        Self { counted, weighs, spills, begun: None, elapsed, waiting, held, look: 0 }
    }

    /// Records that a pass has begun; `begun` is when it was asked for.
    pub(crate) fn begin(&mut self, begun: Instant) {
        let counted = &*self.counted;
        add(&counted.passes, 1);
        self.begun = Some(begun);
        add(&counted.starting, nanos(begun.elapsed()));
        counted.elapsed.runs(begun, self.elapsed, &counted.base);
        self.look = 0;
    }

    /// Records the end of the pass, if one is running.
    pub(crate) fn end(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.elapsed += begun.elapsed();
            self.counted.elapsed.stands(self.elapsed);
        }
    }

    /// Records how many finished batches were waiting after `delivered` batches of this pass. The
    /// consumer calls this before each of the first batches, and less often later in the pass.
    pub(crate) fn found(&mut self, ready: usize, delivered: usize) {
        let next = 1 + (delivered / 4).min(255);
        self.look = delivered + next;
        add(&self.counted.looked, next as u64);
        add(&self.counted.found, (ready * next) as u64);
    }

    /// Counts a batch that is delivered.
    #[inline]
    pub(crate) fn count(&mut self, lease: &Lease<impl Storage>, rows: usize) {
        add(&self.counted.batches, 1);
        add(&self.counted.samples, rows as u64);
        if self.weighs {
            self.weigh(lease.payload(), lease.tag());
        }
    }

    fn weigh(&mut self, payload: &impl Storage, tag: Tag) {
        let counted = &*self.counted;
        add(&counted.bytes, payload.weigh(tag, &mut self.spills) as u64);
        counted.spilled_batches.store(self.spills.batches, Ordering::Relaxed);
        counted.spilled_bytes.store(self.spills.bytes, Ordering::Relaxed);
    }

    /// The number of samples that were delivered.
    pub(crate) fn samples(&self) -> u64 {
        self.counted.samples.load(Ordering::Relaxed)
    }

    /// Counts memory that was added for one more batch. Returns `true` the first time.
    pub(crate) fn grew(&self, bytes: usize) -> bool {
        add(&self.counted.extra_batches, 1);
        add(&self.counted.extra_bytes, bytes as u64);
        self.counted.extra_batches.load(Ordering::Relaxed) == 1
    }

    pub(crate) fn extra_bytes(&self) -> u64 {
        self.counted.extra_bytes.load(Ordering::Relaxed)
    }

    /// Counts an error that is returned instead of a batch.
    pub(crate) fn fail(&self) {
        add(&self.counted.failed, 1);
    }

    /// Times a wait for a batch.
    pub(crate) fn waiting<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        self.counted.waiting.time(&mut self.waiting, &self.counted.base, wait)
    }

    /// Times a wait until a batch is released.
    pub(crate) fn held<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        self.counted.held.time(&mut self.held, &self.counted.base, wait)
    }

    /// Returns a reader of the counters for any thread.
    pub(crate) fn reader(&self, known: Known<'_>) -> StatsReader {
        let Known { activities, bad, own_passes, stuck, depth, in_order, round_robin } = known;
        StatsReader {
            counted: self.counted.clone(),
            activities: activities.clone(),
            bad: bad.clone(),
            stuck: stuck.cloned(),
            own_passes,
            depth,
            in_order,
            round_robin,
        }
    }
}

impl Stopwatch {
    fn time<T>(&self, sum: &mut Duration, base: &Base, wait: impl FnOnce() -> T) -> T {
        let _span = crate::loader::trace::wait();
        let begun = Instant::now();
        self.runs(begun, *sum, base);
        let outcome = wait();
        *sum += begun.elapsed();
        self.stands(*sum);
        outcome
    }
}

/// Reads the statistics of a loader, from any thread and at any time: see
/// [`Loader::stats_reader`](crate::loader::Loader::stats_reader).
///
/// A reader keeps the counters alive but not the loader. After the loader is dropped, it returns
/// the final figures.
#[derive(Clone)]
pub struct StatsReader {
    counted: Arc<Counted>,
    activities: Placed<[CachePadded<Activity>]>,
    bad: Arc<BadSampleReport>,
    stuck: Option<Arc<StuckSamples>>,
    own_passes: bool,
    depth: usize,
    in_order: bool,
    round_robin: bool,
}

/// The arguments of [`ConsumerStats::reader`]: what the reader takes from the loader.
pub(crate) struct Known<'a> {
    pub(crate) activities: &'a Placed<[CachePadded<Activity>]>,
    pub(crate) bad: &'a Arc<BadSampleReport>,
    /// Whether each worker reads its own part of an iterable dataset. If so, the index of a sample
    /// is its number in its worker's part.
    pub(crate) own_passes: bool,
    pub(crate) stuck: Option<&'a Arc<StuckSamples>>,
    pub(crate) depth: usize,
    pub(crate) in_order: bool,
    pub(crate) round_robin: bool,
}

impl StatsReader {
    /// Returns the statistics so far. Each figure is as it was a moment ago, but not all of them
    /// are from the same moment.
    pub fn stats(&self) -> Stats {
        let (counted, now) = (&*self.counted, Instant::now());
        let (consumer, workers) = self.activities.split_last().expect("the consumer has an activity");
        let pass = consumer.counters.pass_begun();
        let by = |number| if number < workers.len() { By::Worker(number) } else { By::Consumer };
        let (mut times, mut unfinished) = (Vec::with_capacity(workers.len() + 1), Vec::new());
        for (number, activity) in self.activities.iter().enumerate() {
            let at_it = activity.unfinished(pass, now);
            times.push(WorkerStats::of(activity, at_it));
            if let Some(now) = at_it.filter(|now| now.of_sample >= NOTABLE) {
                let row = activity.row.load(Ordering::Relaxed);
                let (index, samples) = (activity.index.load(Ordering::Relaxed), u64::from(row != STARTING));
                unfinished.push(Slow { index, samples, time: Duration::from_nanos(now.of_sample), by: by(number) });
            }
        }
        unfinished.sort_by_key(|slow| std::cmp::Reverse(slow.time));
        let consumer = times.pop().expect("the consumer has an activity");
        let mut slowest: Vec<_> = self
            .activities
            .iter()
            .enumerate()
            .flat_map(|(number, activity)| {
                let by = by(number);
                let slow = move |(index, samples, time)| Slow { index, samples, time, by };
                activity.counters.slowest.read().into_iter().map(slow)
            })
            .collect();
        slowest.sort_by_key(|slow| (std::cmp::Reverse(slow.time), slow.index));
        // Keep each index once, with the thread that was slowest. If each worker reads its own part
        // of a dataset, equal indices of two workers are different samples, so keep both.
        let mut seen = BTreeSet::new();
        slowest.retain(|slow| self.own_passes || seen.insert((slow.index, slow.samples)));
        slowest.truncate(SLOWEST);
        let [waiting, held] = [&counted.waiting, &counted.held].map(|watch| watch.read(now, &counted.base));
        let bad = self.bad.read();
        let count = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        Stats {
            passes: count(&counted.passes),
            batches: count(&counted.batches),
            samples: count(&counted.samples),
            bytes: count(&counted.bytes) + counted.sample_bytes * count(&counted.samples),
            errors: count(&counted.failed),
            bad_samples: bad.total as u64,
            bad_indices: bad.indices().collect(),
            bad_causes: bad.last.iter().cloned().collect(),
            spilled_batches: count(&counted.spilled_batches),
            spilled_bytes: count(&counted.spilled_bytes),
            extra_batches: count(&counted.extra_batches),
            extra_bytes: count(&counted.extra_bytes),
            elapsed: counted.elapsed.read(now, &counted.base),
            starting: Duration::from_nanos(count(&counted.starting)),
            waiting,
            held,
            ready: count(&counted.found) as f64 / count(&counted.looked).max(1) as f64,
            depth: self.depth,
            in_order: self.in_order,
            round_robin: self.round_robin,
            cores: usable_cores(),
            workers: times,
            consumer,
            slowest,
            unfinished,
            stuck: self.stuck.as_ref().map(|stuck| stuck.read()).unwrap_or_default(),
        }
    }
}

impl fmt::Debug for StatsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsReader").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopwatch_never_reads_a_negative_time() {
        let (watch, base) = (Stopwatch::default(), Base::default());
        let at = |second| base.0 + Duration::from_secs(second);
        let read = |second| watch.read(at(second), &base).as_secs();
        assert_eq!(read(7), 0);
        watch.runs(at(10), Duration::ZERO, &base);
        assert_eq!([read(10), read(13), read(9)], [0, 3, 0]);
        watch.stands(Duration::from_secs(5));
        assert_eq!(read(100), 5);
        // The time before the start is longer than the age of the base.
        watch.runs(at(2), Duration::from_secs(5), &base);
        assert_eq!([read(2), read(4), read(0)], [5, 7, 3]);
    }
}
