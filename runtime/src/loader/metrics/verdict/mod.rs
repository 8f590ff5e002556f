//! Derives from a loader's counters what limited the training loop.

#[cfg(test)]
mod tests;
mod text;

use std::time::Duration;

use crate::loader::metrics::stats::{Slow, Stats, WorkerStats};

/// What limited a training loop: [`Stats::verdict`]. Shares are of the time within passes, from 0
/// to 1.
///
/// A verdict is derived from counters alone. What it says about more workers assumes that each of
/// them gets a core.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Verdict {
    /// No batch was delivered, and none is being made.
    Nothing,
    /// One sample that is still being read and takes more than half of the time:
    /// [`Stats::unfinished`].
    Stuck(Slow),
    /// The loop itself: the loader kept up.
    Loop {
        /// The share of the time for which the consumer was inside the loader.
        lost: f64,
    },
    /// Reading samples: the dataset's code, as far as its time is not counted for `Disk`, `Network`
    /// or `Decoding`.
    Reading(Bound),
    /// The part of reading that reads files ([`WorkerStats::fetching`]).
    Disk(Bound),
    /// The part of reading that waits for a network ([`WorkerStats::downloading`]).
    Network(Bound),
    /// Decoding or transforming samples ([`WorkerStats::decoding`]).
    Decoding(Bound),
    /// Writing samples into their rows, or collating them.
    Writing(Bound),
    /// Too few cores for all running threads and programs: the threads that load were ready to run,
    /// but waited for a core.
    Starved {
        /// The average share of the time for which the threads that load waited for a core.
        share: f64,
        /// The number of workers.
        workers: usize,
        /// The number of cores.
        cores: usize,
    },
    /// Passing batches from workers to the consumer: the batches are so small that this takes
    /// longer than making them.
    SmallBatches {
        /// The share of the time for which the consumer waited for a batch.
        waited: f64,
        /// The average time from batch to batch.
        each: Duration,
    },
    /// A sampler that draws during the pass, such as an iterator of indices.
    Sampler {
        /// The average share of the time for which loading threads ran the sampler or waited for
        /// it.
        busy: f64,
    },
    /// One worker that has more work than the other workers, if they cannot take over its batches
    /// ([`Stats::round_robin`]).
    Uneven {
        /// The worker's number.
        worker: usize,
        /// The share of the time for which this worker was busy.
        busy: f64,
        /// The average share of the time for which the other workers were busy.
        others: f64,
    },
    /// Batches that take longer than others: the consumer waits for one of them while everything
    /// else that may be loaded ahead is loaded.
    SlowSamples {
        /// The share of the time for which the consumer waited for a batch.
        waited: f64,
        /// The average share of the time for which workers had no free slot to fill.
        idle: f64,
    },
    /// One sample, the [slowest](Stats::slowest), that takes most of the time by itself.
    OneSample {
        /// The sample's index; in an iterable dataset, its number in the worker's stream.
        index: usize,
        /// The share of the time that the sample took.
        share: f64,
    },
    /// Batches that are kept elsewhere in the program.
    Held {
        /// The share of the time for which the consumer waited until a batch was dropped.
        waited: f64,
    },
    /// Beginning passes: what [`Stats::starting`] counts.
    Starting {
        /// The share of the time that beginning passes took.
        share: f64,
    },
    /// No single cause.
    Mixed {
        /// The share of the time for which the consumer waited for a batch.
        waited: f64,
        /// The average share of the time for which workers were busy.
        busy: f64,
    },
}

/// How busy the loading threads were, and whether more of them would help.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Bound {
    /// The number of workers.
    pub workers: usize,
    /// Whether most of the loading was done in the loop's own thread.
    pub own: bool,
    /// The share of the time for which the loop's thread was busy, if `own`; otherwise the average
    /// share of the workers.
    pub busy: f64,
    /// The average share of the time for which workers left batches to the loop's thread, because
    /// that thread made them faster than they could be passed between cores.
    pub resting: f64,
    /// The number of workers with which loading is no slower than the loop, but no more than the
    /// number of cores (or, if `waits`, than twice `workers`, if that is more).
    pub enough: usize,
    /// The number of cores.
    pub cores: usize,
    /// Whether the time is spent waiting for a disk or a network, so that more workers than cores
    /// would help, too.
    pub waits: bool,
}

/// If the share of the time inside the loader is less than this, the loop is the limit.
const KEPT_UP: f64 = 0.1;
/// Workers count as busy if they are busy for at least this share of the time.
const BUSY: f64 = 0.6;
/// Workers count as idle if they have no free slot for at least this share of the time.
const IDLE: f64 = 0.2;
/// The workers' time counts as explained if they are busy or idle for at least this share of it.
const EXPLAINED: f64 = 0.8;
/// There are too few cores if threads wait for one for at least this share of the time.
const STARVED: f64 = 0.5;
/// Batches count as small if the loop takes one at least this often.
const SMALL: Duration = Duration::from_micros(100);
/// Workers count as uneven if the others are busy for less than this share of the busiest one's
/// time.
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
            // If this is false, workers were neither busy nor idle for much of the time.
            let explained = busy + idle >= EXPLAINED;
            // While the consumer waits for a slow sample, some worker is busy with it. If no worker
            // is busy, the consumer waits for a batch to be passed to it.
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
        Self::stage(stats, own, if own { loaded } else { busy }, lost)
    }

    /// Returns the stage in which the loading threads spend most of their time. `busy` is the share
    /// for which they are busy, `own` whether that is mostly the loop's thread, and `lost` the
    /// share of the loop's time inside the loader.
    fn stage(stats: &Stats, own: bool, busy: f64, lost: f64) -> Self {
        let (all, workers) = (stats.elapsed.as_secs_f64(), &stats.workers);
        let everyone = || workers.iter().chain([&stats.consumer]);
        let sum = |time: fn(&WorkerStats) -> Duration| everyone().map(time).sum::<Duration>();
        // The work that workers must do in parallel while the loop does its own.
        let work = sum(WorkerStats::busy).as_secs_f64() / all;
        let enough = (work / (1.0 - lost)).ceil();
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
        let share = |time: Duration| (time.as_secs_f64() / all).min(1.0);
        // `sum` would return -0.0 without workers.
        let resting = workers.iter().fold(0.0, |sum, worker| sum + share(worker.resting)) / workers.len().max(1) as f64;
        let bound = |waits| {
            // Suggest at most twice as many workers; the next verdict can judge the effect.
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

    /// Returns [`Self::OneSample`] if one sample takes most of the time, and no other takes half as
    /// long.
    fn one_sample(stats: &Stats, share: impl Fn(Duration) -> f64) -> Option<Self> {
        let (first, second) = (stats.slowest.first()?, stats.slowest.get(1).map_or(Duration::ZERO, |slow| slow.time));
        let one = share(first.time) > 0.5 && second < first.time / 2 && stats.samples > first.samples;
        one.then_some(Self::OneSample { index: first.index, share: share(first.time) })
    }

    /// Returns [`Self::Uneven`] if one worker is busy all the time while the others are not.
    fn uneven(workers: &[WorkerStats], share: impl Fn(Duration) -> f64) -> Option<Self> {
        let each = || workers.iter().map(|worker| share(worker.busy()));
        let (worker, busy) = each().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let others = (each().sum::<f64>() - busy) / (workers.len() - 1).max(1) as f64;
        let uneven = workers.len() > 1 && busy >= EXPLAINED && others < EVEN * busy;
        uneven.then_some(Self::Uneven { worker, busy, others })
    }
}
