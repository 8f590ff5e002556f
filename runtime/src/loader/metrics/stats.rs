//! What a loader has done and what it waited for, in counters.

use std::time::Duration;

use crate::loader::error::run::By;
use crate::loader::metrics::activity::Activity;
use crate::loader::metrics::bad_samples::BadSample;
use crate::loader::metrics::verdict::Verdict;

/// What a loader has done since it was built: [`Loader::stats`](crate::loader::Loader::stats).
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
/// - A thread's counters are there when it has finished what it fills: a sample that is stuck is not in them; for that there
///   is the [watchdog](crate::loader::Builder::watchdog).
///
/// With the feature `serde` it implements `Serialize`, where times are seconds.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Passes begun.
    pub passes: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes of these, without indices: padding counts, room that packed fields leave does not. With a
    /// [collate function](crate::loader::Builder::collate) nobody knows, and it is 0.
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
    /// [more were kept](crate::loader::Builder::on_held).
    pub extra_batches: u64,
    /// Bytes that were taken for them.
    pub extra_bytes: u64,
    /// Within passes: from the call of `epoch` to their end, or until they were dropped.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub elapsed: Duration,
    /// Of `elapsed`, in `epoch`: until the pass before was at its end, the workers had run their `worker_init`, and the
    /// order was drawn.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub starting: Duration,
    /// Of `elapsed`, how long the consumer waited for batches.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub waiting: Duration,
    /// Of `elapsed`, how long it waited until another thread gave batches back.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub held: Duration,
    /// How many finished batches the consumer found when it asked for one, on average.
    pub ready: f64,
    /// How many batches there can be at once in the memory that the loader began with.
    pub depth: usize,
    /// Whether batches come in order.
    pub in_order: bool,
    /// Whether each worker makes batches of its own, which no other one can take over: [in turn](crate::loader::Builder::round_robin),
    /// or of an iterable dataset.
    pub round_robin: bool,
    /// How many cores the process may use.
    pub cores: usize,
    /// What each worker did.
    pub workers: Vec<WorkerStats>,
    /// What the consumer did of that: all of it without workers, and what it did while it would have waited.
    pub consumer: WorkerStats,
    /// The slowest samples, the slowest first, each once; at most 8.
    pub slowest: Vec<Slow>,
    /// What the [watchdog](crate::loader::Builder::watchdog) reported, the first ones first; at most 64.
    pub stuck: Vec<Stuck>,
}

/// What one thread did.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WorkerStats {
    /// Samples that it took on, those that failed among them.
    pub samples: u64,
    /// How long it was in the code of a sampler that draws as the pass goes (an iterator of indices, say), or waited for
    /// another thread that was.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub drawing: Duration,
    /// How long it was in the dataset's code.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub reading: Duration,
    /// How long it wrote samples into their rows, or was in the collate function's code.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub writing: Duration,
    /// How long it waited for a slot, in a pass: everything that may be loaded ahead was.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub waiting: Duration,
    /// How long it left batches to the consumer, which made them faster than they could have been passed on.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub resting: Duration,
}

/// A sample that took long, or several of which one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Slow {
    /// Its index; of an iterable dataset its number in what the worker reads.
    pub index: usize,
    /// 1, or how many samples the time is of, if they were not timed one by one. They were read together, and `index` is the
    /// last one of them.
    pub samples: u64,
    /// What reading and writing it took.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub time: Duration,
    /// Who read it.
    pub by: By,
}

/// A sample that a thread was found at for longer than the [watchdog](crate::loader::Builder::watchdog) minds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stuck {
    /// Its index; of an iterable dataset its number in what the worker reads.
    pub index: usize,
    /// Its batch, as the thread counts them.
    pub batch: usize,
    /// Who is, or was, at it.
    pub by: By,
    /// For how long, when it was found out.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub time: Duration,
}

impl Stats {
    /// What held the loop back, from these counters.
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

    pub(crate) fn of(activity: &Activity) -> Self {
        let counters = &activity.counters;
        let busy = counters.busy_time();
        let [drawing, reading] = counters.shares().map(|share| busy.mul_f64(share));
        Self {
            samples: counters.samples(),
            drawing,
            reading: reading + counters.starting(),
            writing: busy.saturating_sub(drawing + reading),
            waiting: counters.waiting(),
            resting: counters.resting(),
        }
    }
}

#[cfg(feature = "serde")]
fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
