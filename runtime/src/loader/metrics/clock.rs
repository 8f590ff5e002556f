//! When a loading thread reads the clock, and what it derives from that.
//!
//! A claim is a group of rows that a thread fills at once. Reading the clock costs about 25 ns, so
//! the [`ClaimSizer`](crate::loader::worker::claim_size::ClaimSizer) decides which claims are
//! timed, and limits the cost to 2 % of the time. All claims are timed unless they are very quick.
//! Of very quick claims one in many is timed, and its time also stands for the untimed claims
//! before it, but never for more than the time that has really passed.
//!
//! If the samples of a timed claim take 4 µs or more, they are timed one by one, with separate
//! times for reading and writing. So are the samples of some other timed claims, to learn how the
//! time divides into stages; this costs at most 0.25 % of the time. A claim that turns out to be
//! slow, and whose samples were not timed, is recorded as a whole in
//! [`Slowest`](crate::loader::metrics::counters::Slowest).

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use crate::dataset::reading::{self, STAGE_COUNT, Spent, Stage};
use crate::loader::metrics::activity::Activity;
use crate::loader::metrics::counters::{Counters, MANY, nanos};
use crate::sync::Instant;
use crate::sync::atomic::Ordering;

/// Samples that take at least this many clock reads on average, usually 4 µs, are timed one by one.
const SLOW: u64 = 160;
/// Claims that take at least this many clock reads, usually 10 µs, are all timed.
pub(crate) const LONG: u64 = 400;
/// The samples of another claim are timed one by one only if, for each clock read that this takes,
/// the time of this many clock reads has passed. This limits the cost to 1/400 of the time.
const PRICE: u64 = 400;
/// The number of such extra clock reads that a thread can afford at the start, and the maximum that
/// it can save up.
const SAVINGS: [u64; 2] = [1 << 12, 1 << 14];

/// The state that a thread keeps about the claims that it has timed.
#[derive(Debug)]
pub(crate) struct ClaimTimer {
    laps: Laps,
    /// Whether each sample of the current claim is timed.
    staged: bool,
    /// When the last timed claim ended.
    last: Option<Instant>,
    /// Whether the samples of the last timed claim took at least [`SLOW`] clock reads on average.
    slow: bool,
    /// The time that is available for timing quick samples one by one, and the time that this takes
    /// for another claim; both in clock reads.
    savings: u64,
    price: u64,
}

impl Default for ClaimTimer {
    fn default() -> Self {
        let savings = SAVINGS[0] * PRICE;
        Self { laps: Laps::default(), staged: false, last: None, slow: false, savings, price: 0 }
    }
}

impl ClaimTimer {
    /// The record in which the samples of the current claim are timed, if they are timed one by
    /// one.
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

    /// Records that a timed claim of `samples` samples took `took` ns and ended at `ended`, after
    /// `untimed` claims without timing. `always` says that the next claim is timed, too. Returns
    /// the time since the end of the last timed claim, in clock reads.
    pub(crate) fn stop(
        &mut self,
        activity: &Activity,
        (ended, took): (Instant, u64),
        samples: u64,
        untimed: u64,
        always: bool,
    ) -> u64 {
        let (counters, clock_read_ns) = (&activity.counters, clock_read_ns());
        let passed = self.last.map_or(took, |last| nanos(ended.saturating_duration_since(last)));
        let between = passed.saturating_sub(took);
        let others = if always { 0 } else { took.saturating_mul(MANY).checked_div(samples).unwrap_or(0) };
        counters.busy(took + took.saturating_mul(untimed).min(between), others);
        self.last = Some(ended);
        self.slow = took >= samples.saturating_mul(SLOW * clock_read_ns) && samples > 0;
        let passed = passed / clock_read_ns;
        self.savings = (self.savings.saturating_add(passed)).min(SAVINGS[1] * PRICE);
        counters.end_interval(ended);
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

/// The times of the samples of one claim, which are read and written one after the other.
#[derive(Debug, Default)]
pub(crate) struct Laps {
    /// When the last stage of a sample ended.
    last: Cell<Option<Instant>>,
    /// The record of an enclosing claim on the same thread, which is restored afterwards.
    outer: Cell<Option<Spent>>,
    /// The index of the sample that is being written, and how long reading it took. The index is
    /// `None` if samples are read in bulk or none is left.
    written: Cell<Option<(Option<usize>, u64)>>,
    /// The time of each stage.
    times: Cell<[u64; STAGE_COUNT]>,
    /// Whether many samples are read at once, so that no sample has a time of its own.
    bulk: Cell<bool>,
}

/// Reads the next sample with `$next`, and times it if `$laps` is given. This is a macro because a
/// function would cost each caller 50 instructions per sample.
macro_rules! next_timed {
    ($laps:expr, $activity:expr, $next:expr) => {{
        let (laps, activity): (Option<&$crate::loader::metrics::clock::Laps>, _) = ($laps, $activity);
        // Two branches, instead of one `$next` between two checks: without `laps`, the sample then
        // stays in registers.
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
        self.outer.set(reading::replace_timing(Some(fresh())));
        self.times.set([0; STAGE_COUNT]);
        self.bulk.set(false);
    }

    /// Records that many samples are read at once.
    pub(crate) fn start_bulk(&self) {
        self.bulk.set(true);
    }

    /// Records that the indices of the claim have been drawn.
    pub(crate) fn drawn(&self) {
        self.add(Stage::Drawing, self.since_last(Instant::now()));
    }

    /// Records that the next sample is about to be read, and that the previous one, if there was
    /// one, has been written.
    pub(crate) fn ask(&self, activity: &Activity) {
        let now = Instant::now();
        self.lap(now, &activity.counters);
        activity.counters.enter(Stage::Reading, now);
    }

    /// Records that a read returned: a sample or an error (`true`), or that no sample is left
    /// (`false`).
    #[inline]
    pub(crate) fn got(&self, activity: &Activity, sample: bool) {
        let now = Instant::now();
        let read = self.since_sample(now, Stage::Reading);
        activity.counters.enter(Stage::Writing, now);
        let index = sample.then(|| activity.index.load(Ordering::Relaxed));
        self.written.set(Some((index.filter(|_| !self.bulk.get()), read)));
    }

    fn lap(&self, now: Instant, counters: &Counters) {
        // The time before the first sample counts as writing: a collate function may do anything
        // there.
        let time = self.since_sample(now, Stage::Writing);
        let Some((index, read)) = self.written.take() else { return };
        if let Some(index) = index {
            counters.slowest.note(index, 1, read + time);
        }
    }

    fn stop(&self, now: Instant, counters: &Counters) {
        self.lap(now, counters);
        reading::replace_timing(self.outer.take());
        counters.stages(self.times.get());
    }

    /// Returns the time since the last call. Adds it to the stages that user code recorded in
    /// between, and what remains to `stage`. The cost of the two clock reads for each recorded
    /// stage is subtracted.
    fn since_sample(&self, now: Instant, stage: Stage) -> u64 {
        let spent = reading::replace_timing(Some(fresh())).unwrap_or_default();
        let time = self.since_last(now).saturating_sub(2 * spent.calls * clock_read_ns());
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
        nanos(now.saturating_duration_since(last)).saturating_sub(clock_read_ns())
    }
}

/// Returns an empty record, for what user code does in the next sample.
fn fresh() -> Spent {
    Spent { clock_cost: clock_read_ns(), ..Spent::default() }
}

/// Returns the cost of reading the clock in nanoseconds: about 25, but far more on some machines.
pub(crate) fn clock_read_ns() -> u64 {
    // 0 until it is measured. This is not a `OnceLock`: a process forked in the middle of its
    // initialization would wait forever.
    static CLOCK_READ_NS: AtomicU64 = AtomicU64::new(0);
    match CLOCK_READ_NS.load(Ordering::Relaxed) {
        0 => measure(&CLOCK_READ_NS),
        known => known,
    }
}

#[cold]
fn measure(clock_read_ns: &AtomicU64) -> u64 {
    let reads: [Instant; 32] = std::array::from_fn(|_| Instant::now());
    let least = reads.windows(2).map(|pair| pair[1] - pair[0]).min();
    let known = least.map_or(0, nanos).clamp(10, 10_000);
    clock_read_ns.store(known, Ordering::Relaxed);
    known
}
