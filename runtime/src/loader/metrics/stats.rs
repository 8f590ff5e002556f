//! The public statistics of a loader.

use std::time::Duration;

use crate::loader::error::run::By;
use crate::loader::metrics::activity::Activity;
use crate::loader::metrics::bad_samples::BadSample;
use crate::loader::metrics::counters::Unfinished;
use crate::loader::metrics::verdict::Verdict;

/// What a loader has done since it was built: [`Loader::stats`](crate::loader::Loader::stats).
///
/// Statistics are always on. Counting takes a few instructions for each batch, and the clock is
/// read so rarely that it costs about one percent of the time. Therefore some figures are measured
/// and some estimated:
///
/// - Counts of batches, samples, bytes and errors are exact; so are `elapsed`, `starting`,
///   `waiting` and `held`.
/// - A claim is the samples that a thread fills at once: those of a batch, or of a part of a batch.
///   A claim is timed if reading the clock takes no more than 2 % of its time. So all claims of
///   about 3 µs or more are timed, including what comes between them. Of quicker claims, a thread
///   times its first 1000, and thousands after each slow claim. Of the others it times one in up to
///   512 (a worker: one in 33), whose time stands for the rest.
/// - Samples that take 4 µs or more are timed one by one, with separate times for reading and
///   writing. So are some of the quicker samples, and all time is divided into stages in the
///   proportion found there. If samples that were not timed one by one take long, all samples of
///   the claim become one entry of [`slowest`](Self::slowest), and the next claims are timed sample
///   by sample.
/// - Samples read by [`get_many`](crate::Dataset::get_many) have no separate times.
/// - Work that has not ended counts with its time so far. A sample that hangs is also in
///   [`unfinished`](Self::unfinished), and counts as reading unless its thread is known to write
///   it.
///
/// With the feature `serde`, this type implements `Serialize`, with times in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Passes begun.
    pub passes: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Samples in the delivered batches.
    pub samples: u64,
    /// Bytes of the delivered samples, without their indices. Padding counts; unused room of packed
    /// fields does not. With a [collate function](crate::loader::Builder::collate) the size is
    /// unknown, and this is 0.
    pub bytes: u64,
    /// Errors delivered instead of batches.
    pub errors: u64,
    /// Samples that were skipped or replaced.
    pub bad_samples: u64,
    /// The indices of the bad samples, each once; in an iterable dataset, their numbers in the
    /// worker's stream, each once per worker. If there are more than 1,000, these are the first
    /// 1,000, and up to 1,000 of the others, chosen at random.
    pub bad_indices: Vec<usize>,
    /// The last bad samples with their causes, at most 8, the newest last.
    pub bad_causes: Vec<BadSample>,
    /// Batches whose packed samples did not fit into the batch, so that memory from the heap was
    /// taken.
    pub spilled_batches: u64,
    /// Bytes taken from the heap for packed samples that did not fit into their batches.
    pub spilled_bytes: u64,
    /// The number of batches for which memory was added to the initial memory, because
    /// [too many were kept](crate::loader::Builder::on_held).
    pub extra_batches: u64,
    /// Bytes of the memory that was added because too many batches were kept.
    pub extra_bytes: u64,
    /// The time within passes: from the call of `epoch` until the pass ended or was dropped.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub elapsed: Duration,
    /// The part of `elapsed` spent in `epoch`, until the previous pass had ended, the workers had
    /// run their `worker_init`, and the order was drawn.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub starting: Duration,
    /// The part of `elapsed` for which the consumer waited for batches.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub waiting: Duration,
    /// The part of `elapsed` for which the consumer waited until another thread dropped batches.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub held: Duration,
    /// The average number of finished batches that the consumer found when it asked for one.
    pub ready: f64,
    /// The number of batches that fit into the loader's initial memory.
    pub depth: usize,
    /// Whether batches come in order.
    pub in_order: bool,
    /// Whether each worker makes its own batches, which no other worker can take over:
    /// [in turn](crate::loader::Builder::round_robin), or from an iterable dataset.
    pub round_robin: bool,
    /// The number of cores that the process may use.
    pub cores: usize,
    /// The statistics of each worker.
    pub workers: Vec<WorkerStats>,
    /// The loading that the consumer's thread did: without workers all of it, otherwise what it did
    /// instead of waiting.
    pub consumer: WorkerStats,
    /// The slowest samples, the slowest first, each once; at most 8.
    pub slowest: Vec<Slow>,
    /// The samples that threads have been working on for a millisecond or longer, with the time so
    /// far; the longest first. `samples` is 0 while a worker begins its pass over an iterable
    /// dataset.
    pub unfinished: Vec<Slow>,
    /// The samples that the [watchdog](crate::loader::Builder::watchdog) reported, in the order of
    /// the reports; at most 64.
    pub stuck: Vec<Stuck>,
}

/// The statistics of one thread that loads.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WorkerStats {
    /// Samples that the thread started, including those that failed.
    pub samples: u64,
    /// How long the thread ran code of a sampler that draws during the pass (for example an
    /// iterator of indices), or waited for another thread that did.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub drawing: Duration,
    /// How long the thread ran the dataset's code, without what that code does inside
    /// [`writing`](crate::dataset::writing()) or [`decoding`](crate::dataset::decoding()).
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub reading: Duration,
    /// The part of `reading` in which files were read, as far as the dataset does so inside
    /// [`fetching`](crate::dataset::fetching()). (A mapped file is read wherever its bytes are
    /// accessed.)
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub fetching: Duration,
    /// The part of `reading` in which the thread waited for a network, as far as the dataset does
    /// so inside [`downloading`](crate::dataset::downloading()).
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub downloading: Duration,
    /// How long the thread decoded or transformed samples, as far as that is done inside
    /// [`decoding`](crate::dataset::decoding()).
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub decoding: Duration,
    /// How long the thread wrote samples into their rows, or ran the collate function, without
    /// `decoding`.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub writing: Duration,
    /// How long the thread waited for a free slot, within a pass, because everything that may be
    /// loaded ahead was loaded.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub waiting: Duration,
    /// How long the thread left batches to the consumer, which made them faster than they could be
    /// passed between cores.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub resting: Duration,
    /// How long the thread was ready to run but waited for a core, as far as the system reports it.
    /// This time is also contained in the other times.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub starved: Duration,
    /// The ID of the worker's [process](crate::loader::Builder::processes), if the worker is a
    /// process that runs.
    pub process: Option<u32>,
    /// The memory of the worker's process in bytes, as far as the system reports it, without
    /// batches and mapped files. At first it is the memory that the process has in common with the
    /// program; it grows by what the dataset's code allocates.
    pub process_memory: Option<u64>,
}

/// A slow sample, or a group of samples with a slow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Slow {
    /// The sample's index; in an iterable dataset, its number in the worker's stream.
    pub index: usize,
    /// The number of samples that the time is for. If it is more than 1, the samples were read
    /// together and not timed one by one, and `index` is the last of them.
    pub samples: u64,
    /// The time to read and write the sample or samples.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub time: Duration,
    /// The thread that read the sample.
    pub by: By,
}

/// A sample on which a thread spent longer than the [watchdog](crate::loader::Builder::watchdog)
/// allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stuck {
    /// The sample's index; in an iterable dataset, its number in the worker's stream.
    pub index: usize,
    /// The number of the sample's batch, from 0; with an iterable dataset, the number of the
    /// consumer's request for that batch.
    pub batch: usize,
    /// The thread that is, or was, reading the sample.
    pub by: By,
    /// How long the thread had spent on the sample when the watchdog noticed.
    #[cfg_attr(feature = "serde", serde(serialize_with = "seconds"))]
    pub time: Duration,
}

impl Stats {
    /// Returns what limited the loop, derived from these statistics.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self)
    }

    /// How long the consumer's own thread made batches.
    pub fn loading(&self) -> Duration {
        self.consumer.busy()
    }
}

impl WorkerStats {
    /// How long the thread drew indices, or read, decoded or wrote samples.
    pub fn busy(&self) -> Duration {
        self.drawing + self.reading + self.decoding + self.writing
    }

    /// Returns the statistics of a thread, including work that is not finished.
    pub(crate) fn of(activity: &Activity, unfinished: Option<Unfinished>) -> Self {
        let counters = &activity.counters;
        // The current sample counts for its own stage. The rest is divided like the time that was
        // measured.
        let (rest, of_sample) = unfinished.map_or((0, 0), |now| (now.time - now.of_sample, now.of_sample));
        let busy = counters.busy_time() + Duration::from_nanos(rest);
        let mut times = counters.shares().map(|share| busy.mul_f64(share));
        if let Some(Unfinished { stage, .. }) = unfinished {
            times[stage as usize] += Duration::from_nanos(of_sample);
        }
        let [drawing, reading, writing, decoding, fetching, downloading] = times;
        Self {
            samples: counters.samples(),
            drawing,
            reading: reading + fetching + downloading + counters.starting(),
            fetching,
            downloading,
            decoding,
            writing,
            waiting: counters.waiting(),
            resting: counters.resting(),
            starved: activity.starved(),
            process: activity.process(),
            process_memory: activity.process().and_then(process_memory),
        }
    }
}

/// Returns the memory of a process in bytes that is neither of a file nor deliberately shared.
fn process_memory(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(feature = "serde")]
fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
