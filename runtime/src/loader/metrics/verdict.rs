//! Derives what limited a loop from a loader's counters.

use std::fmt;
use std::time::Duration;

use crate::loader::metrics::stats::{Slow, Stats, WorkerStats};

/// What limited a loop: [`Stats::verdict`]. Shares are of the time within passes, from 0 to 1.
///
/// It is derived from counters alone. What it says about more workers assumes that each of them gets a core.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Verdict {
    /// No batch was delivered, and none is being made.
    Nothing,
    /// A sample that has not ended, and takes more than half of the time: [`Stats::unfinished`].
    Stuck(Slow),
    /// The loop: the loader kept up.
    Loop {
        /// How much of the time the consumer was inside the loader.
        lost: f64,
    },
    /// Reading samples: the dataset's code, or a part of it that is not known.
    Reading(Bound),
    /// The part of reading that reads files ([`WorkerStats::fetching`]).
    Disk(Bound),
    /// The part of reading that waits for a network ([`WorkerStats::downloading`]).
    Network(Bound),
    /// Decoding or transforming samples ([`WorkerStats::decoding`]).
    Decoding(Bound),
    /// Writing samples into their rows, or collating them.
    Writing(Bound),
    /// Too few cores for all threads and programs that run: those that load could run, but waited for a core.
    Starved {
        /// The share of the time for which they did.
        share: f64,
        /// The number of workers.
        workers: usize,
        /// The number of cores.
        cores: usize,
    },
    /// Handing over batches from workers, which are so small that this takes longer than making them.
    SmallBatches {
        /// The share of the time for which the consumer waited for a batch.
        waited: f64,
        /// The average time from batch to batch.
        each: Duration,
    },
    /// A sampler that draws during the pass, such as an iterator of indices.
    Sampler {
        /// The average share of the time for which loading threads ran it or waited for it.
        busy: f64,
    },
    /// One of the workers that have their own batches ([`Stats::round_robin`]), because it has more work than the
    /// others.
    Uneven {
        /// The worker's number.
        worker: usize,
        /// How busy it was.
        busy: f64,
        /// How busy the others were, on average.
        others: f64,
    },
    /// Batches that take longer than others: the consumer waits for one of them while everything that may be loaded
    /// ahead is loaded.
    SlowSamples {
        /// The share of the time for which the consumer waited for a batch.
        waited: f64,
        /// The average share of the time for which workers had no slot to fill.
        idle: f64,
    },
    /// One sample, the [slowest](Stats::slowest), that alone takes most of the time.
    OneSample {
        /// The sample's index; in an iterable dataset, its number in the worker's stream.
        index: usize,
        /// The share of the time that it took.
        share: f64,
    },
    /// Batches that are held elsewhere.
    Held {
        /// The share of the time for which the consumer waited until one was dropped.
        waited: f64,
    },
    /// Beginning passes.
    Starting {
        /// The share of the time that this took.
        share: f64,
    },
    /// No single cause.
    Mixed {
        /// The share of the time for which the consumer waited for a batch.
        waited: f64,
        /// How busy workers were, on average.
        busy: f64,
    },
}

/// The loading threads, and whether more of them would help.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Bound {
    /// The number of workers.
    pub workers: usize,
    /// Whether most of the loading was done in the loop's own thread.
    pub own: bool,
    /// How busy that thread was, or the workers on average.
    pub busy: f64,
    /// The average share of the time for which workers left batches to the loop's thread, because it made them faster
    /// than they could have been passed between cores.
    pub resting: f64,
    /// The number of workers with which loading would be no slower than the loop, but at most the number of cores.
    pub enough: usize,
    /// The number of cores.
    pub cores: usize,
    /// Whether the time is spent waiting for a disk or a network, so that more workers than cores would help, too.
    pub waits: bool,
}

/// If the share of the time inside the loader is below this, the loop is the limit.
const KEPT_UP: f64 = 0.1;
/// Workers count as busy from this share on.
const BUSY: f64 = 0.6;
/// Workers without a slot count as idle from this share on.
const IDLE: f64 = 0.2;
/// If workers were busy or idle for at least this share, their time is explained.
const EXPLAINED: f64 = 0.8;
/// There are too few cores if threads wait for one for this share of the time.
const STARVED: f64 = 0.5;
/// Batches are small if there is one so often.
const SMALL: Duration = Duration::from_micros(100);
/// Workers are uneven if the others are busy for less than this share of the busiest one's time.
const EVEN: f64 = 0.5;

impl Verdict {
    pub(crate) fn of(stats: &Stats) -> Self {
        let all = stats.elapsed.as_secs_f64();
        let everyone = || stats.workers.iter().chain([&stats.consumer]);
        let is_made = stats.errors == 0 && everyone().any(|thread| !thread.busy().is_zero());
        if all == 0.0 || (stats.batches == 0 && !is_made && stats.unfinished.is_empty()) {
            return Self::Nothing;
        }
        let share = |time: Duration| (time.as_secs_f64() / all).min(1.0);
        let (starting, waited, held) = (share(stats.starting), share(stats.waiting), share(stats.held));
        let loaded = share(stats.loading());
        let lost = (starting + waited + held + loaded).min(1.0);
        let workers = &stats.workers;
        let mean = |time: fn(&WorkerStats) -> Duration| {
            let sum = workers.iter().fold(0.0, |sum, worker| sum + share(time(worker)));
            sum / workers.len().max(1) as f64
        };
        let (busy, idle) = (mean(WorkerStats::busy), mean(|worker| worker.waiting));
        let most = lost / 2.0;
        if lost < KEPT_UP {
            return Self::Loop { lost };
        }
        if held > most {
            return Self::Held { waited: held };
        }
        if starting > most {
            return Self::Starting { share: starting };
        }
        if let Some(longest) = stats.unfinished.first()
            && share(longest.time) > 0.5
            && loaded + waited > most
        {
            return Self::Stuck(*longest);
        }
        let own = workers.is_empty() || (loaded > waited && busy < BUSY);
        let starved = if own { share(stats.consumer.starved) } else { mean(|worker| worker.starved) };
        if starved >= STARVED {
            return Self::Starved { share: starved, workers: workers.len(), cores: stats.cores };
        }
        if let Some(one) = Self::one_sample(stats, share).filter(|_| loaded + waited > most) {
            return one;
        }
        if stats.round_robin
            && waited > most
            && let Some(uneven) = Self::uneven(workers, share)
        {
            return uneven;
        }
        if !own && busy < BUSY {
            // Otherwise workers were neither busy nor idle for much of the time.
            let explained = busy + idle >= EXPLAINED;
            // While the consumer waits for a slow sample, some worker is busy with it; otherwise it waits for a batch
            // to be handed over.
            let slow = busy * workers.len() as f64 >= EXPLAINED * waited;
            if stats.in_order && idle >= IDLE && explained && slow && waited > most {
                return Self::SlowSamples { waited, idle };
            }
            let each = stats.elapsed / u32::try_from(stats.batches.max(1)).unwrap_or(u32::MAX);
            return match each < SMALL {
                true => Self::SmallBatches { waited, each },
                false => Self::Mixed { waited, busy },
            };
        }
        let sum = |time: fn(&WorkerStats) -> Duration| everyone().map(time).sum::<Duration>();
        // The work to do in parallel in the time that the loop itself needs.
        let work = sum(WorkerStats::busy).as_secs_f64() / all;
        let enough = (work / (1.0 - lost)).ceil();
        let busy = if own { loaded } else { busy };
        let [drawing, reading, decoding, writing, fetching, downloading] = [
            sum(|worker| worker.drawing),
            sum(|worker| worker.reading),
            sum(|worker| worker.decoding),
            sum(|worker| worker.writing),
            sum(|worker| worker.fetching),
            sum(|worker| worker.downloading),
        ];
        if drawing > reading.max(decoding).max(writing) {
            return Self::Sampler { busy: busy * drawing.as_secs_f64() / sum(WorkerStats::busy).as_secs_f64() };
        }
        let resting = mean(|worker| worker.resting);
        let bound = |waits| {
            // Twice as many workers are a step that can be judged by the next verdict.
            let most = if waits { (2 * workers.len()).max(stats.cores) } else { stats.cores };
            let enough = enough.min(most as f64) as usize;
            Bound { workers: workers.len(), own, busy, resting, enough, cores: stats.cores, waits }
        };
        let other = reading.saturating_sub(fetching + downloading);
        if decoding > reading && decoding > writing {
            Self::Decoding(bound(false))
        } else if writing > reading {
            Self::Writing(bound(false))
        } else if downloading > fetching && downloading > other {
            Self::Network(bound(true))
        } else if fetching > other {
            Self::Disk(bound(true))
        } else {
            Self::Reading(bound(false))
        }
    }

    /// Whether one sample takes most of the time, and no other takes half as long.
    fn one_sample(stats: &Stats, share: impl Fn(Duration) -> f64) -> Option<Self> {
        let (first, second) = (stats.slowest.first()?, stats.slowest.get(1).map_or(Duration::ZERO, |slow| slow.time));
        let one = share(first.time) > 0.5 && second < first.time / 2 && stats.samples > first.samples;
        one.then_some(Self::OneSample { index: first.index, share: share(first.time) })
    }

    /// Whether one worker is busy all the time while the others are not.
    fn uneven(workers: &[WorkerStats], share: impl Fn(Duration) -> f64) -> Option<Self> {
        let each = || workers.iter().map(|worker| share(worker.busy()));
        let (worker, busy) = each().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let others = (each().sum::<f64>() - busy) / (workers.len() - 1).max(1) as f64;
        let uneven = workers.len() > 1 && busy >= EXPLAINED && others < EVEN * busy;
        uneven.then_some(Self::Uneven { worker, busy, others })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        match self {
            Self::Nothing => f.write_str("no batch was delivered"),
            Self::Loop { lost } => write!(
                f,
                "bound by the loop: it was inside the loader for {:.1} % of the time; the loader kept up",
                percent(*lost)
            ),
            Self::Stuck(Slow { index, samples, time, by }) => {
                let at = if *samples > 0 { format!("at sample {index}") } else { "beginning its stream".to_owned() };
                write!(
                    f,
                    "held up by a sample that has not ended: {by} has been {at} for {time:.1?}, more than half of the \
                     time"
                )
            }
            Self::Reading(bound) => write!(f, "bound by reading: {bound}"),
            Self::Disk(bound) => write!(f, "bound by reading files: {bound}"),
            Self::Network(bound) => write!(f, "bound by the network: {bound}"),
            Self::Decoding(bound) => write!(f, "bound by decoding: {bound}"),
            Self::Writing(bound) => write!(f, "bound by writing samples into batches: {bound}"),
            Self::Starved { share, workers, cores } => {
                let fewer = if workers > cores { "fewer workers, or " } else { "" };
                write!(
                    f,
                    "starved of cores: loading could run, but waited {:.0} % of the time for one of {cores} cores; \
                     {fewer}fewer other threads and programs would help",
                    percent(*share)
                )
            }
            Self::SmallBatches { waited, each } => write!(
                f,
                "bound by handing over small batches: there is one every {each:.1?}, and the loop waited {:.0} % of the \
                 time; a greater batch_size would help",
                percent(*waited)
            ),
            Self::Sampler { busy } => write!(
                f,
                "bound by the sampler: loading threads ran it or waited for it {:.0} % of the time; only one thread at a \
                 time draws from it, so more workers would not help",
                percent(*busy)
            ),
            Self::Uneven { worker, busy, others } => write!(
                f,
                "held up by worker {worker}: it was busy {:.0} % of the time, and the others {:.0} % on average; its share \
                 of the samples takes longer than theirs",
                percent(*busy),
                percent(*others)
            ),
            Self::OneSample { index, share } => write!(
                f,
                "held up by one sample: sample {index}, or one that was read just before it, alone took {:.0} % of \
                 the time; no option makes it faster",
                percent(*share)
            ),
            Self::SlowSamples { waited, idle } => write!(
                f,
                "held up by slow samples: the loop waited {:.0} % of the time for the next batch, while workers were idle \
                 {:.0} % of it because everything that may be loaded ahead was; a greater prefetch_factor would help, or \
                 in_order(false)",
                percent(*waited),
                percent(*idle)
            ),
            Self::Held { waited } => write!(
                f,
                "held up by held batches: the loop waited {:.0} % of the time for one to be dropped; drop them sooner, or \
                 raise hold, or let on_held take more memory",
                percent(*waited)
            ),
            Self::Starting { share } => write!(
                f,
                "held up by beginning passes: {:.0} % of the time went into worker_init, drawing the order, and ending \
                 the previous pass",
                percent(*share)
            ),
            Self::Mixed { waited, busy } => write!(
                f,
                "bound by loading, but by no single part of it: the loop waited {:.0} % of the time, and workers were busy \
                 {:.0} % of it",
                percent(*waited),
                percent(*busy)
            ),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, own, busy, resting, enough, cores, waits } = *self;
        let busy = 100.0 * busy;
        match (own, workers) {
            (true, 0) => write!(f, "the loop's own thread loads everything, {busy:.0} % of the time; ")?,
            (true, _) if resting < IDLE => {
                write!(f, "the loop's own thread did most of it while it would have waited, {busy:.0} % of the time; ")?
            }
            (true, _) => {
                return write!(
                    f,
                    "the loop's own thread did most of it, {busy:.0} % of the time: batches are made faster than \
                     workers could pass them on"
                );
            }
            (false, _) => write!(f, "{workers} of {workers} workers busy {busy:.0} %; ")?,
        }
        if waits && enough > workers {
            write!(
                f,
                "more workers would help, such as {enough}, even beyond the {cores} cores: they wait most of the time"
            )
        } else if workers >= cores {
            write!(
                f,
                "there are {workers} for {cores} cores: more would help only if samples spend their time waiting, for \
                 example for a network"
            )
        } else if enough <= workers {
            write!(f, "on average that is enough: a greater prefetch_factor may help")
        } else if workers == 0 {
            write!(f, "workers would help, up to {enough} ({cores} cores), or more if samples spend their time waiting")
        } else {
            write!(f, "more workers would help, up to {enough} ({cores} cores)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::error::run::By;

    fn percent(share: u64) -> Duration {
        Duration::from_millis(10 * share)
    }

    /// A second on four cores, with these shares of it in percent: the consumer's waiting and loading, and each
    /// worker's reading, writing and waiting.
    fn stats<const N: usize>(waiting: u64, loading: u64, workers: [[u64; 3]; N]) -> Stats {
        let worker = |[reading, writing, waiting]: [u64; 3]| {
            let [reading, writing, waiting] = [reading, writing, waiting].map(percent);
            WorkerStats { reading, writing, waiting, ..WorkerStats::default() }
        };
        Stats {
            batches: 10,
            elapsed: percent(100),
            waiting: percent(waiting),
            in_order: true,
            cores: 4,
            workers: workers.map(worker).into(),
            consumer: WorkerStats { reading: percent(loading), ..WorkerStats::default() },
            ..Stats::default()
        }
    }

    #[track_caller]
    fn says(stats: &Stats, words: &[&str]) {
        let text = stats.verdict().to_string();
        assert!(words.iter().all(|words| text.contains(words)), "{text}");
    }

    #[test]
    fn a_loop_that_hardly_waits_is_the_limit() {
        says(&stats(2, 3, [[40, 0, 50]]), &["bound by the loop", "5.0 %"]);
        says(&stats(0, 4, []), &["bound by the loop"]);
        says(&Stats::default(), &["no batch"]);
        // All of them may have been errors.
        says(&Stats { batches: 0, errors: 9, ..stats(90, 0, []) }, &["no batch was delivered"]);
    }

    #[test]
    fn busy_workers_are_the_limit_and_more_are_suggested() {
        // Work of 1.9 s must be done in the half second that the loop takes for itself.
        let busy = stats(50, 0, [[90, 5, 0], [90, 5, 0]]);
        says(&busy, &["bound by reading: 2 of 2 workers busy 95 %", "would help, up to 4 (4 cores)"]);
        assert!(matches!(busy.verdict(), Verdict::Reading(Bound { workers: 2, own: false, enough: 4, .. })));
        says(&stats(30, 0, [[0, 95, 0], [0, 95, 0]]), &["bound by writing", "would help, up to 3"]);
        says(&stats(99, 0, [[90, 5, 0]; 2]), &["would help, up to 4 (4 cores)"]);
        says(&stats(90, 0, [[95, 0, 0]; 4]), &["4 for 4 cores"]);
        says(&stats(90, 0, [[95, 0, 0]; 6]), &["6 for 4 cores"]);
        says(&stats(15, 0, [[60, 5, 30]; 2]), &["2 of 2 workers busy 65 %", "on average that is enough"]);
    }

    #[test]
    fn the_loop_loads_without_workers_or_while_they_rest() {
        says(&stats(0, 90, []), &["the loop's own thread loads everything, 90 %", "would help, up to 4"]);
        let Verdict::Reading(bound) = stats(0, 40, []).verdict() else { panic!("nothing else took time") };
        assert!(bound.resting.is_sign_positive(), "it is printed");
        says(&stats(0, 40, []), &["bound by reading", "would help, up to 1 "]);
        let mut helped = stats(5, 80, [[15, 0, 0]; 2]);
        says(&helped, &["the loop's own thread did most of it while it would have waited, 80 %", "up to 4"]);
        helped.workers.iter_mut().for_each(|worker| worker.resting = percent(70));
        says(&helped, &["the loop's own thread did most of it, 80 %", "faster than workers could"]);
    }

    #[test]
    fn a_slow_sampler_and_an_overloaded_worker_are_named() {
        let mut drawn = stats(90, 0, [[5, 5, 0]; 2]);
        drawn.workers.iter_mut().for_each(|worker| worker.drawing = percent(80));
        says(&drawn, &["bound by the sampler", "80 %"]);
        let uneven = stats(90, 0, [[10, 0, 80], [90, 5, 0]]);
        says(&Stats { round_robin: true, ..uneven.clone() }, &["held up by worker 1", "95 %", "10 %"]);
        says(&uneven, &["held up by slow samples"]);
        let even = stats(90, 0, [[80, 0, 10], [90, 5, 0]]);
        says(&Stats { round_robin: true, ..even }, &["bound by reading"]);
        says(&Stats { round_robin: true, ..stats(90, 0, [[90, 5, 0]]) }, &["bound by reading"]);
    }

    #[test]
    fn idle_workers_reveal_what_holds_up_the_ring() {
        let slow = stats(60, 0, [[50, 0, 45], [40, 0, 55]]);
        says(&slow, &["held up by slow samples", "60 %", "50 %", "prefetch_factor", "in_order(false)"]);
        let unordered = Stats { in_order: false, ..slow };
        says(&unordered, &["no single part", "60 %", "45 %"]);
        says(&stats(60, 0, [[20, 0, 5]; 2]), &["no single part"]);
        // The loop waits while workers are neither busy nor idle for long: handing over takes the time.
        let small = |stats| Stats { batches: 1_000_000, ..stats };
        says(&small(stats(30, 0, [[5, 0, 90]])), &["small batches", "1.0µs", "30 %", "batch_size"]);
        says(&small(stats(40, 0, [[10, 0, 85]; 2])), &["small batches"]);
        says(&stats(30, 0, [[5, 0, 90]]), &["no single part", "30 %", "5 %"]);
        says(&stats(40, 0, [[10, 0, 85]; 4]), &["held up by slow samples"]);
        says(
            &Stats { held: percent(50), ..stats(10, 0, [[5, 0, 90]]) },
            &["held up by held batches", "50 %", "raise hold"],
        );
        says(&Stats { starting: percent(60), ..stats(10, 0, [[5, 0, 5]]) }, &["held up by beginning passes: 60 %"]);
    }

    #[test]
    fn the_parts_of_reading_and_decoding_are_told_apart() {
        let shares = |fetching, downloading, decoding| {
            let mut stats = stats(90, 0, [[60, 10, 0]; 2]);
            for worker in &mut stats.workers {
                worker.decoding = percent(decoding);
                (worker.fetching, worker.downloading) = (percent(fetching), percent(downloading));
            }
            stats
        };
        says(&shares(20, 10, 10), &["bound by reading: 2 of 2 workers"]);
        says(&shares(10, 45, 10), &["bound by the network", "such as 4, even beyond the 4 cores"]);
        says(&shares(45, 10, 10), &["bound by reading files", "they wait"]);
        says(&shares(30, 30, 65), &["bound by decoding: 2 of 2 workers", "up to 4 (4 cores)"]);
        let mut six = Stats { workers: vec![shares(10, 45, 10).workers[0].clone(); 6], ..shares(0, 0, 0) };
        says(&six, &["bound by the network", "such as 12"]);
        six.workers.iter_mut().for_each(|worker| worker.starved = percent(55));
        says(&six, &["starved of cores", "55 %", "4 cores", "fewer workers"]);
    }

    #[test]
    fn a_sample_that_has_not_ended_is_named() {
        let slow = |samples, time| Slow { index: 7, samples, time: percent(time), by: By::Worker(1) };
        let hangs = |unfinished| Stats { unfinished: vec![unfinished], ..stats(90, 0, [[0, 0, 90], [95, 0, 0]]) };
        says(&hangs(slow(1, 80)), &["has not ended", "worker 1", "at sample 7 for 800.0ms"]);
        says(&Stats { batches: 0, ..hangs(slow(0, 80)) }, &["worker 1 has been beginning its stream"]);
        says(&hangs(slow(1, 20)), &["held up by slow samples"]);
        says(&Stats { waiting: Duration::ZERO, ..hangs(slow(1, 80)) }, &["bound by the loop"]);
    }
}
