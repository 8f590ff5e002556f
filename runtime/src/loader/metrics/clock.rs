//! When a thread reads the clock, and what it derives from that.
//!
//! Reading the clock costs about 25 ns. So the [`ClaimSizer`](crate::loader::worker::claim_size::ClaimSizer) decides
//! which claims are timed: as many as 2 % of the time pays for, which is all of them unless they are very quick. Of
//! very quick claims one in many is timed. Its time is used for the claims since the previous timed one, but never for
//! more than the time that has really passed.
//!
//! If the samples of a timed claim take 4 µs or more, they are timed one by one, with reading and writing separately.
//! So are those of some other timed claims, as many as 0.25 % of the time pays for, to see how the time divides into
//! stages. A claim that turns out to be slow, and whose samples were not timed, is
//! [noted](crate::loader::metrics::counters::Slowest) as a whole.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use crate::dataset::reading::{self, STAGE_COUNT, Spent, Stage};
use crate::loader::metrics::activity::Activity;
use crate::loader::metrics::counters::{Counters, MANY, nanos};
use crate::sync::Instant;
use crate::sync::atomic::Ordering;

/// Samples that take as long as this many clock reads, usually 4 µs, are timed one by one.
const SLOW: u64 = 160;
/// Claims that take as long as this many clock reads, usually 10 µs, are all timed.
pub(crate) const LONG: u64 = 400;
/// In other timed claims, the samples are timed one by one if this many times the cost of a clock read has passed for
/// each read.
const PRICE: u64 = 400;
/// The number of these clock reads that each thread can afford at the start, and the maximum that it saves.
const SAVINGS: [u64; 2] = [1 << 12, 1 << 14];

/// What a thread remembers of the claims that it timed.
#[derive(Debug)]
pub(crate) struct Watch {
    laps: Laps,
    /// Whether each sample of the current claim is timed.
    staged: bool,
    /// When the last claim ended.
    last: Option<Instant>,
    /// Whether the samples of the last claim were slow.
    slow: bool,
    /// The time that was not yet spent on timing quick samples, and the price of timing those of another claim.
    savings: u64,
    price: u64,
}

impl Default for Watch {
    fn default() -> Self {
        let savings = SAVINGS[0] * PRICE;
        Self { laps: Laps::default(), staged: false, last: None, slow: false, savings, price: 0 }
    }
}

impl Watch {
    /// Where the samples of the current claim are timed, if they are.
    pub(crate) fn laps(&self) -> Option<&Laps> {
        self.staged.then_some(&self.laps)
    }

    /// Starts to time a claim.
    pub(crate) fn start(&mut self, counters: &Counters) -> Instant {
        self.staged = self.slow || self.savings >= self.price;
        let now = Instant::now();
        counters.begin_claim(now);
        if self.staged {
            self.laps.start(now);
        }
        now
    }

    /// Records that a claim of `samples` samples took this long, after `untimed` claims that were not timed. `always`
    /// says that the next claim will be timed, too. Returns the time since the end of the last timed claim, in clock
    /// reads.
    pub(crate) fn stop(
        &mut self,
        activity: &Activity,
        (ended, took): (Instant, u64),
        samples: u64,
        untimed: u64,
        always: bool,
    ) -> u64 {
        let (counters, look) = (&activity.counters, look());
        let passed = self.last.map_or(took, |last| nanos(ended.saturating_duration_since(last)));
        let between = passed.saturating_sub(took);
        let others = if always { 0 } else { took.saturating_mul(MANY).checked_div(samples).unwrap_or(0) };
        counters.busy(took + took.saturating_mul(untimed).min(between), others);
        self.last = Some(ended);
        self.slow = took >= samples.saturating_mul(SLOW * look) && samples > 0;
        let passed = passed / look;
        self.savings = (self.savings.saturating_add(passed)).min(SAVINGS[1] * PRICE);
        counters.settle(ended);
        if self.staged {
            self.laps.stop(ended, counters);
            self.savings = self.savings.saturating_sub(self.price);
        } else if self.slow {
            counters.slowest.note(activity.index.load(Ordering::Relaxed), samples, took);
        }
        self.price = samples.saturating_mul(2 * PRICE);
        passed
    }
}

/// The times of the samples of one claim, which are read and written sequentially.
#[derive(Debug, Default)]
pub(crate) struct Laps {
    /// When the last stage of a sample ended.
    last: Cell<Option<Instant>>,
    /// What the thread has recorded in an enclosing claim.
    outer: Cell<Option<Spent>>,
    /// The sample that is being written (`None` after the last one), and how long it took to read.
    written: Cell<Option<(Option<usize>, u64)>>,
    /// The time of each stage.
    times: Cell<[u64; STAGE_COUNT]>,
    /// Whether samples are read many at once, so that no sample has a separate time.
    bulk: Cell<bool>,
}

/// Reads the next sample with `$next`, and times it if `$laps` is given. It is a macro because a function costs a job's
/// caller 50 instructions for each sample.
macro_rules! next_timed {
    ($laps:expr, $activity:expr, $next:expr) => {{
        let (laps, activity): (Option<&$crate::loader::metrics::clock::Laps>, _) = ($laps, $activity);
        // Not `inspect` before and after: without laps, the sample then stays in registers.
        match laps {
            None => $next,
            Some(laps) => {
                laps.ask(activity);
                let read = $next;
                laps.got(activity, !matches!(read, Ok(None)));
                read
            }
        }
    }};
}
pub(crate) use next_timed;

impl Laps {
    fn start(&self, now: Instant) {
        self.last.set(Some(now));
        self.written.set(None);
        self.outer.set(reading::watch(Some(fresh())));
        self.times.set([0; STAGE_COUNT]);
        self.bulk.set(false);
    }

    /// Records that samples are read many at once.
    pub(crate) fn start_bulk(&self) {
        self.bulk.set(true);
    }

    /// Records that the indices of the claim were drawn.
    pub(crate) fn drawn(&self) {
        self.add(Stage::Drawing, self.since_last(Instant::now()));
    }

    /// Records that the next sample is asked for, so the previous one, if there was one, is written.
    pub(crate) fn ask(&self, activity: &Activity) {
        let now = Instant::now();
        self.lap(now, &activity.counters);
        activity.counters.enter(Stage::Reading, now);
    }

    /// Records that a read returned, with a sample or an error, or (`false`) that no sample is left.
    #[inline]
    pub(crate) fn got(&self, activity: &Activity, sample: bool) {
        let now = Instant::now();
        let read = self.since_sample(now, Stage::Reading);
        activity.counters.enter(Stage::Writing, now);
        let index = sample.then(|| activity.index.load(Ordering::Relaxed));
        self.written.set(Some((index.filter(|_| !self.bulk.get()), read)));
    }

    fn lap(&self, now: Instant, counters: &Counters) {
        // Before the first sample, a collate function may do anything.
        let time = self.since_sample(now, Stage::Writing);
        let Some((index, read)) = self.written.take() else { return };
        if let Some(index) = index {
            counters.slowest.note(index, 1, read + time);
        }
    }

    fn stop(&self, now: Instant, counters: &Counters) {
        self.lap(now, counters);
        reading::watch(self.outer.take());
        counters.stages(self.times.get());
    }

    /// Returns the time since the last call, and adds it to the stages that were recorded in it; all other time belongs
    /// to `stage`. Each recorded call has read the clock twice.
    fn since_sample(&self, now: Instant, stage: Stage) -> u64 {
        let spent = reading::watch(Some(fresh())).unwrap_or_default();
        let time = self.since_last(now).saturating_sub(2 * spent.calls * look());
        let (mut times, mut left) = (self.times.get(), time);
        if spent.calls > 0 {
            for (sum, recorded) in times.iter_mut().zip(spent.times) {
                let recorded = recorded.min(left);
                *sum += recorded;
                left -= recorded;
            }
        }
        times[stage as usize] += left;
        self.times.set(times);
        time
    }

    fn add(&self, stage: Stage, time: u64) {
        let mut times = self.times.get();
        times[stage as usize] += time;
        self.times.set(times);
    }

    /// Returns the time since the last call, minus the cost of reading the clock.
    fn since_last(&self, now: Instant) -> u64 {
        let last = self.last.replace(Some(now)).unwrap_or(now);
        nanos(now.saturating_duration_since(last)).saturating_sub(look())
    }
}

/// Returns the record of a sample that begins.
fn fresh() -> Spent {
    Spent { look: look(), ..Spent::default() }
}

/// The cost of reading the clock, in nanoseconds: about 25, but far more on some machines.
pub(crate) fn look() -> u64 {
    // 0 until it is known. Not a `OnceLock`: a child forked in the middle of its initialization would wait forever.
    static LOOK: AtomicU64 = AtomicU64::new(0);
    match LOOK.load(Ordering::Relaxed) {
        0 => measure(&LOOK),
        known => known,
    }
}

#[cold]
fn measure(look: &AtomicU64) -> u64 {
    let looks: [Instant; 32] = std::array::from_fn(|_| Instant::now());
    let least = looks.windows(2).map(|pair| pair[1] - pair[0]).min();
    let known = least.map_or(0, nanos).clamp(10, 10_000);
    look.store(known, Ordering::Relaxed);
    known
}
