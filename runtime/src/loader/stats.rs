//! What a loader has done and what it waited for, in figures.

use std::collections::BTreeSet;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use serde::{Serialize, Serializer};

use super::batch::Tag;
use super::collate::Storage;
use super::crew::usable_cores;
use super::error::By;
use super::figures::SLOWEST;
use super::job::Activity;
use super::on_error::Ledger;
use super::overflow::Spills;
use super::verdict::Verdict;
use crate::sync::Instant;

/// What a loader has done since it was built: [`Loader::stats`](super::Loader::stats).
///
/// Always on: counting is a few instructions for each batch, and the clock is looked at only where that is about one percent
/// of what is timed. So some of it is measured and some estimated:
///
/// - Counts of batches, samples, bytes and errors are exact; so are `elapsed`, `starting`, `waiting` and `held`.
/// - Threads time what they fill if it takes 10 µs and more. Of quicker claims they time the first ones, and later one in
///   up to 512 (a worker: one in 33), which stands for the others.
/// - Samples that take 4 µs and more are timed one by one, reading and writing apart. Of quicker ones some are, and the
///   whole is divided into reading and writing as these are. So a slow sample among quick ones may be missed in `slowest`.
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
    /// Batches that had more than their room, and the bytes that were taken for them.
    pub spilled_batches: u64,
    /// Bytes taken for batches that had more than their room.
    pub spilled_bytes: u64,
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
    /// How many batches there can be at once.
    pub depth: usize,
    /// Whether batches come in order.
    pub in_order: bool,
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

/// A sample that took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Slow {
    /// Its index; of an iterable dataset its number in what the worker reads.
    pub index: usize,
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
    /// How long it had samples to read or to write.
    pub fn busy(&self) -> Duration {
        self.reading + self.writing
    }

    fn of(activity: &Activity) -> Self {
        let figures = &activity.figures;
        let busy = figures.busy_time();
        let reading = busy.mul_f64(figures.reading_share());
        Self {
            samples: figures.samples(),
            reading: reading + figures.starting(),
            writing: busy.saturating_sub(reading),
            waiting: figures.waiting(),
            resting: figures.resting(),
        }
    }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// What the consumer counts and times.
#[derive(Debug, Default)]
pub(super) struct Tally {
    passes: u64,
    /// Batches of ended passes, those among them for which there was an error, and samples.
    delivered: usize,
    pub(super) failed: u64,
    /// Batches that had nothing left but bad samples.
    pub(super) empty: u64,
    samples: usize,
    /// The bytes of a sample; 0 if they differ in that, and then each batch is to be weighed.
    sample_bytes: usize,
    weighs: bool,
    /// Bytes of batches whose samples differ, and what of them found no room.
    bytes: u64,
    spills: Spills,
    /// When the pass began that is not over, and what of it was delivered before.
    begun: Option<Instant>,
    before: usize,
    elapsed: Duration,
    starting: Duration,
    waiting: Duration,
    held: Duration,
    /// How many batches will be delivered in this pass when it is time to look at one.
    pub(super) look: usize,
    /// What these looks stand for: batches, and the finished ones found.
    looked: usize,
    found: usize,
}

/// What of its figures only the loader knows.
pub(super) struct Known<'a> {
    pub(super) activities: &'a [CachePadded<Activity>],
    pub(super) ledger: &'a Ledger,
    pub(super) stuck: Vec<Stuck>,
    pub(super) depth: usize,
    pub(super) in_order: bool,
    /// Batches and errors of this pass.
    pub(super) delivered: usize,
}

impl Tally {
    pub(super) fn new(sample_bytes: Option<usize>, spills: Spills) -> Self {
        let weighs = sample_bytes.is_none();
        Self { sample_bytes: sample_bytes.unwrap_or_default(), weighs, spills, ..Self::default() }
    }

    /// A pass has begun that was asked for at `begun`, with so many batches and errors delivered before, by another loader
    /// perhaps.
    pub(super) fn begin(&mut self, begun: Instant, before: usize) {
        self.passes += 1;
        self.before = before;
        self.begun = Some(begun);
        self.starting += begun.elapsed();
        self.look = 0;
    }

    /// A pass is over, if one was there, after so many batches and errors.
    pub(super) fn end(&mut self, delivered: usize) {
        if let Some(begun) = self.begun.take() {
            self.elapsed += begun.elapsed();
            self.delivered += delivered - self.before;
        }
    }

    /// Notes how many finished batches there are when so many were delivered in this pass. It is asked for before each of
    /// the first ones, and later the less often the more there were.
    pub(super) fn found(&mut self, ready: usize, delivered: usize) {
        let next = 1 + (delivered / 4).min(255);
        self.look = delivered + next;
        self.looked += next;
        self.found += ready * next;
    }

    /// Counts a batch that is delivered.
    #[inline]
    pub(super) fn count(&mut self, payload: &impl Storage, tag: Tag) {
        self.samples += tag.rows;
        if self.weighs {
            self.bytes += payload.weigh(tag, &mut self.spills) as u64;
        }
    }

    /// Times a wait for a batch.
    pub(super) fn waiting<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        time(&mut self.waiting, wait)
    }

    /// Times a wait for a batch to be given back.
    pub(super) fn held<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        time(&mut self.held, wait)
    }

    pub(super) fn stats(&self, known: Known<'_>) -> Stats {
        let Known { activities, ledger, stuck, depth, in_order, delivered } = known;
        let running = self.begun.map(|begun| (begun.elapsed(), delivered - self.before)).unwrap_or_default();
        let (consumer, workers) = activities.split_last().expect("the consumer has one");
        let mut slowest: Vec<_> = activities
            .iter()
            .enumerate()
            .flat_map(|(place, activity)| {
                let by = if place < workers.len() { By::Worker(place) } else { By::Consumer };
                activity.figures.slowest.read().into_iter().map(move |(index, time)| Slow { index, time, by })
            })
            .collect();
        slowest.sort_by_key(|slow| (std::cmp::Reverse(slow.time), slow.index));
        // Once each, whoever was slowest at it; but numbers in a replica are that worker's own.
        let mut seen = BTreeSet::new();
        slowest.retain(|slow| ledger.replicas() || seen.insert(slow.index));
        slowest.truncate(SLOWEST);
        Stats {
            passes: self.passes,
            batches: (self.delivered + running.1) as u64 - self.failed - self.empty,
            samples: self.samples as u64,
            bytes: self.bytes + (self.sample_bytes * self.samples) as u64,
            errors: self.failed,
            bad_samples: ledger.total() as u64,
            bad_indices: ledger.indices().collect(),
            spilled_batches: self.spills.batches,
            spilled_bytes: self.spills.bytes,
            elapsed: self.elapsed + running.0,
            starting: self.starting,
            waiting: self.waiting,
            held: self.held,
            ready: self.found as f64 / self.looked.max(1) as f64,
            depth,
            in_order,
            cores: usable_cores(),
            workers: workers.iter().map(|worker| WorkerStats::of(worker)).collect(),
            consumer: WorkerStats::of(consumer),
            slowest,
            stuck,
        }
    }
}

fn time<T>(sum: &mut Duration, wait: impl FnOnce() -> T) -> T {
    let _span = super::spans::wait();
    let begun = Instant::now();
    let outcome = wait();
    *sum += begun.elapsed();
    outcome
}
