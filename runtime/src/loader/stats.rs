//! What a loader has done and what it waited for, in figures.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use serde::{Serialize, Serializer};

use super::batch::Tag;
use super::collate::Storage;
use super::crew::usable_cores;
use super::error::By;
use super::figures::{Base, SLOWEST, add, nanos};
use super::job::Activity;
use super::on_error::{BadSample, Ledger, Report};
use super::overflow::Spills;
use super::slab::Lease;
use super::verdict::Verdict;
use super::watch::{Reports, Watchdog};
use crate::sync::Instant;
use crate::sync::atomic::{AtomicU64, Ordering};

/// What a loader has done since it was built: [`Loader::stats`](super::Loader::stats).
///
/// Always on: counting is a few instructions for each batch, and the clock is looked at only where that is about one percent
/// of what is timed. So some of it is measured and some estimated:
///
/// - Counts of batches, samples, bytes and errors are exact; so are `elapsed`, `starting`, `waiting` and `held`.
/// - A thread times each claim (the samples of a batch, or a part of it, that it fills at once) if looking at the clock takes no
///   more than 2 % of the time, and thus all claims that take about 3 µs or more with what comes between them. Of the claims of
///   loops that are quicker than that, it times the first 1000, and thousands after each slow one; of the others, one in up to
///   512 (a worker: one in 33), which stands for the others.
/// - Samples that take 4 µs and more are timed one by one, reading and writing apart. Of quicker ones some are, and the
///   whole is divided into the stages as these are. If samples that were not timed one by one take long, all those of the
///   claim are an entry of [`slowest`](Self::slowest) together, and the next claims are timed sample by sample.
/// - With [`get_many`](crate::Dataset::get_many) no sample has a time of its own.
/// - A thread's figures are there when it has finished what it fills: a sample that is stuck is not in them; for that there
///   is the [watchdog](super::Builder::watchdog).
///
/// Times are serialised as seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Passes begun.
    pub passes: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes of these, without indices: padding counts, room that packed fields leave does not. With a
    /// [collate function](super::Builder::collate) nobody knows, and it is 0.
    pub bytes: u64,
    /// Batches in whose place there was an error.
    pub errors: u64,
    /// Samples that were skipped or replaced.
    pub bad_samples: u64,
    /// Their indices, each once; of an iterable dataset their numbers in what a worker reads, for each worker.
    pub bad_indices: Vec<usize>,
    /// The last ones of them, at most 8, the newest last, with what was wrong with them.
    pub bad_causes: Vec<BadSample>,
    /// Batches that had more than their room, and the bytes that were taken for them.
    pub spilled_batches: u64,
    /// Bytes taken for batches that had more than their room.
    pub spilled_bytes: u64,
    /// How many batches there is memory for beyond those that the loader was made for, as
    /// [more were kept](super::Builder::on_held).
    pub extra_batches: u64,
    /// Bytes that were taken for them.
    pub extra_bytes: u64,
    /// Within passes: from the call of `epoch` to their end, or until they were dropped.
    #[serde(serialize_with = "seconds")]
    pub elapsed: Duration,
    /// Of `elapsed`, in `epoch`: until the pass before was at its end, the workers had run their `worker_init`, and the
    /// order was drawn.
    #[serde(serialize_with = "seconds")]
    pub starting: Duration,
    /// Of `elapsed`, how long the consumer waited for batches.
    #[serde(serialize_with = "seconds")]
    pub waiting: Duration,
    /// Of `elapsed`, how long it waited until another thread gave batches back.
    #[serde(serialize_with = "seconds")]
    pub held: Duration,
    /// How many finished batches the consumer found when it asked for one, on average.
    pub ready: f64,
    /// How many batches there can be at once in the memory that the loader began with.
    pub depth: usize,
    /// Whether batches come in order.
    pub in_order: bool,
    /// Whether each worker makes batches of its own, as of an iterable dataset, so that no other one can take
    /// them over.
    pub dealt: bool,
    /// How many cores the process may use.
    pub cores: usize,
    /// What each worker did.
    pub workers: Vec<WorkerStats>,
    /// What the consumer did of that: all of it without workers, and what it did while it would have waited.
    pub consumer: WorkerStats,
    /// The slowest samples, the slowest first, each once; at most 8.
    pub slowest: Vec<Slow>,
    /// What the [watchdog](super::Builder::watchdog) reported, the first ones first; at most 64.
    pub stuck: Vec<Stuck>,
}

/// What one thread did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Samples that it took on, those that failed among them.
    pub samples: u64,
    /// How long it was in the code of a sampler that draws as the pass goes (an iterator of indices, say), or waited for
    /// another thread that was.
    #[serde(serialize_with = "seconds")]
    pub drawing: Duration,
    /// How long it was in the dataset's code.
    #[serde(serialize_with = "seconds")]
    pub reading: Duration,
    /// How long it wrote samples into their rows, or was in the collate function's code.
    #[serde(serialize_with = "seconds")]
    pub writing: Duration,
    /// How long it waited for a slot, in a pass: everything that may be loaded ahead was.
    #[serde(serialize_with = "seconds")]
    pub waiting: Duration,
    /// How long it left batches to the consumer, which made them faster than they could have been passed on.
    #[serde(serialize_with = "seconds")]
    pub resting: Duration,
}

/// A sample that took long, or several of which one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Slow {
    /// Its index; of an iterable dataset its number in what the worker reads.
    pub index: usize,
    /// 1, or how many samples the time is of, if they were not timed one by one. They were read together, and `index` is the
    /// last one of them.
    pub samples: u64,
    /// What reading and writing it took.
    #[serde(serialize_with = "seconds")]
    pub time: Duration,
    /// Who read it.
    pub by: By,
}

/// A sample that a thread was found at for longer than the [watchdog](super::Builder::watchdog) minds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stuck {
    /// Its index; of an iterable dataset its number in what the worker reads.
    pub index: usize,
    /// Its batch, as the thread counts them.
    pub batch: usize,
    /// Who is, or was, at it.
    pub by: By,
    /// For how long, when it was found out.
    #[serde(serialize_with = "seconds")]
    pub time: Duration,
}

impl Stats {
    /// What held the loop back, from these figures.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self)
    }

    /// How long the consumer made batches itself.
    pub fn loading(&self) -> Duration {
        self.consumer.busy()
    }
}

impl WorkerStats {
    /// How long it had samples to read or to write, or indices to draw.
    pub fn busy(&self) -> Duration {
        self.drawing + self.reading + self.writing
    }

    fn of(activity: &Activity) -> Self {
        let figures = &activity.figures;
        let busy = figures.busy_time();
        let [drawing, reading] = figures.shares().map(|share| busy.mul_f64(share));
        Self {
            samples: figures.samples(),
            drawing,
            reading: reading + figures.starting(),
            writing: busy.saturating_sub(drawing + reading),
            waiting: figures.waiting(),
            resting: figures.resting(),
        }
    }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// Reads what a loader has done, from any thread and at any time: see [`Loader::stats_reader`](super::Loader::stats_reader).
///
/// It keeps the figures, but not the loader: of one that is dropped it says what was.
#[derive(Clone)]
pub struct StatsReader {
    counted: Arc<Counted>,
    activities: Arc<[CachePadded<Activity>]>,
    bad: Arc<Report>,
    stuck: Option<Reports>,
    replicas: bool,
    depth: usize,
    in_order: bool,
    dealt: bool,
}

/// What of its figures only the loader knows.
pub(super) struct Known<'a> {
    pub(super) activities: &'a Arc<[CachePadded<Activity>]>,
    pub(super) ledger: &'a Ledger,
    pub(super) watchdog: Option<&'a Watchdog>,
    pub(super) depth: usize,
    pub(super) in_order: bool,
    pub(super) dealt: bool,
}

impl StatsReader {
    /// What the loader has done so far. Each figure is as it was a moment ago, and not all of them at the same moment.
    pub fn stats(&self) -> Stats {
        let (counted, now) = (&*self.counted, Instant::now());
        let (consumer, workers) = self.activities.split_last().expect("the consumer has one");
        let mut slowest: Vec<_> = self
            .activities
            .iter()
            .enumerate()
            .flat_map(|(place, activity)| {
                let by = if place < workers.len() { By::Worker(place) } else { By::Consumer };
                let slow = move |(index, samples, time)| Slow { index, samples, time, by };
                activity.figures.slowest.read().into_iter().map(slow)
            })
            .collect();
        slowest.sort_by_key(|slow| (std::cmp::Reverse(slow.time), slow.index));
        // Once each, whoever was slowest at it; but numbers in a replica are that worker's own.
        let mut seen = BTreeSet::new();
        slowest.retain(|slow| self.replicas || seen.insert((slow.index, slow.samples)));
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
            dealt: self.dealt,
            cores: usable_cores(),
            workers: workers.iter().map(|worker| WorkerStats::of(worker)).collect(),
            consumer: WorkerStats::of(consumer),
            slowest,
            stuck: self.stuck.as_ref().map(Reports::stuck).unwrap_or_default(),
        }
    }
}

impl fmt::Debug for StatsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsReader").finish_non_exhaustive()
    }
}

/// What the consumer counts and times.
#[derive(Debug)]
pub(super) struct Tally {
    counted: Arc<Counted>,
    /// Whether samples differ in their bytes, so that each batch is to be weighed.
    weighs: bool,
    spills: Spills,
    /// When the pass began that is not over.
    begun: Option<Instant>,
    elapsed: Duration,
    waiting: Duration,
    held: Duration,
    /// How many batches will be delivered in this pass when it is time to look at one.
    pub(super) look: usize,
}

/// What the consumer alone writes, and anybody may read.
#[derive(Debug, Default)]
struct Counted {
    /// The bytes of a sample; 0 if they differ in that.
    sample_bytes: u64,
    passes: AtomicU64,
    /// Batches delivered, those for which there was an error, and samples.
    batches: AtomicU64,
    failed: AtomicU64,
    samples: AtomicU64,
    /// Bytes of batches whose samples differ, and what of them found no room.
    bytes: AtomicU64,
    spilled_batches: AtomicU64,
    spilled_bytes: AtomicU64,
    /// Memory taken for batches that were kept.
    extra_batches: AtomicU64,
    extra_bytes: AtomicU64,
    base: Base,
    elapsed: Stopwatch,
    waiting: Stopwatch,
    held: Stopwatch,
    /// In nanoseconds.
    starting: AtomicU64,
    /// What looks at what is ready stand for: batches, and the finished ones found.
    looked: AtomicU64,
    found: AtomicU64,
}

/// A time that stands still or runs, in one word: so whoever reads it finds it as it was at one moment.
///
/// The lowest bit says whether it runs. The others are the nanoseconds when it stands still, and when it runs the moment at
/// which it would have been 0, in nanoseconds after the base, modulo 2^63.
#[derive(Debug, Default)]
struct Stopwatch(AtomicU64);

impl Stopwatch {
    fn stands(&self, time: Duration) {
        self.0.store(nanos(time) << 1, Ordering::Relaxed);
    }

    /// Runs since `begun`, with so much time before that.
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
        // As a signed number: the clock may have gone back.
        let time = now.wrapping_sub(word & !1).cast_signed() >> 1;
        Duration::from_nanos(time.max(0).cast_unsigned())
    }
}

impl Tally {
    pub(super) fn new(sample_bytes: Option<usize>, spills: Spills) -> Self {
        let counted = Counted { sample_bytes: sample_bytes.unwrap_or_default() as u64, ..Counted::default() };
        let (elapsed, waiting, held) = Default::default();
        let (counted, weighs) = (Arc::new(counted), sample_bytes.is_none());
        Self { counted, weighs, spills, begun: None, elapsed, waiting, held, look: 0 }
    }

    /// A pass has begun that was asked for at `begun`.
    pub(super) fn begin(&mut self, begun: Instant) {
        let counted = &*self.counted;
        add(&counted.passes, 1);
        self.begun = Some(begun);
        add(&counted.starting, nanos(begun.elapsed()));
        counted.elapsed.runs(begun, self.elapsed, &counted.base);
        self.look = 0;
    }

    /// A pass is over, if one was there.
    pub(super) fn end(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.elapsed += begun.elapsed();
            self.counted.elapsed.stands(self.elapsed);
        }
    }

    /// Notes how many finished batches there are when so many were delivered in this pass. It is asked for before each of
    /// the first ones, and later the less often the more there were.
    pub(super) fn found(&mut self, ready: usize, delivered: usize) {
        let next = 1 + (delivered / 4).min(255);
        self.look = delivered + next;
        add(&self.counted.looked, next as u64);
        add(&self.counted.found, (ready * next) as u64);
    }

    /// Counts a batch that is delivered.
    #[inline]
    pub(super) fn count(&mut self, lease: &Lease<impl Storage>, rows: usize) {
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

    /// Counts memory that was taken for one more batch; `true` the first time.
    pub(super) fn grew(&self, bytes: usize) -> bool {
        add(&self.counted.extra_batches, 1);
        add(&self.counted.extra_bytes, bytes as u64);
        self.counted.extra_batches.load(Ordering::Relaxed) == 1
    }

    pub(super) fn extra_bytes(&self) -> u64 {
        self.counted.extra_bytes.load(Ordering::Relaxed)
    }

    /// Counts an error in the place of a batch.
    pub(super) fn fail(&self) {
        add(&self.counted.failed, 1);
    }

    /// Times a wait for a batch.
    pub(super) fn waiting<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        self.counted.waiting.time(&mut self.waiting, &self.counted.base, wait)
    }

    /// Times a wait for a batch to be given back.
    pub(super) fn held<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        self.counted.held.time(&mut self.held, &self.counted.base, wait)
    }

    /// What anybody can read the figures by.
    pub(super) fn reader(&self, known: Known<'_>) -> StatsReader {
        let Known { activities, ledger, watchdog, depth, in_order, dealt } = known;
        StatsReader {
            counted: self.counted.clone(),
            activities: activities.clone(),
            bad: ledger.report().clone(),
            stuck: watchdog.map(Watchdog::reports),
            replicas: ledger.replicas(),
            depth,
            in_order,
            dealt,
        }
    }
}

impl Stopwatch {
    fn time<T>(&self, sum: &mut Duration, base: &Base, wait: impl FnOnce() -> T) -> T {
        let _span = super::spans::wait();
        let begun = Instant::now();
        self.runs(begun, *sum, base);
        let outcome = wait();
        *sum += begun.elapsed();
        self.stands(*sum);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopwatch_says_what_has_passed_and_no_negative_times() {
        let (watch, base) = (Stopwatch::default(), Base::default());
        let at = |second| base.0 + Duration::from_secs(second);
        let read = |second| watch.read(at(second), &base).as_secs();
        assert_eq!(read(7), 0);
        watch.runs(at(10), Duration::ZERO, &base);
        assert_eq!([read(10), read(13), read(9)], [0, 3, 0]);
        watch.stands(Duration::from_secs(5));
        assert_eq!(read(100), 5);
        // More before it than the base is old.
        watch.runs(at(2), Duration::from_secs(5), &base);
        assert_eq!([read(2), read(4), read(0)], [5, 7, 3]);
    }
}
