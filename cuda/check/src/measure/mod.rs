//! The measurements.

mod calls;
mod copy;
mod feed;
mod lock;
mod next;
mod step;

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::bench::Bench;
use crate::within::within;

/// The time limit for one measurement.
const PATIENCE: Duration = Duration::from_secs(300);

/// The results of all measurements. A measurement that failed is empty, and `failed` says why.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures {
    copy: Vec<copy::Copy>,
    lock: Vec<lock::Lock>,
    feed: Vec<feed::Feed>,
    step: Vec<step::Step>,
    next: Vec<next::Next>,
    /// The numbers of driver calls. Only the fake driver counts them.
    calls: Option<calls::Calls>,
    pub(crate) failed: Vec<String>,
}

/// Makes all measurements. If one fails, that is recorded, and the next one is made.
pub(crate) fn run(bench: &Bench) -> Figures {
    let mut figures = Figures::default();
    let failed = &mut figures.failed;
    figures.copy = part(bench, failed, "copy", copy::run).unwrap_or_default();
    figures.lock = part(bench, failed, "lock", lock::run).unwrap_or_default();
    figures.feed = part(bench, failed, "feed", feed::run).unwrap_or_default();
    figures.step = part(bench, failed, "step", step::run).unwrap_or_default();
    figures.next = part(bench, failed, "next", next::run).unwrap_or_default();
    figures.calls = part(bench, failed, "calls", calls::run).flatten();
    figures
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "copies of {:>13} bytes, GB/s: {}",
            "n",
            copy::KINDS.map(|(name, _)| name).join(" | ") + " | pageable"
        )?;
        for copies in self.copy.chunk_by(|a, b| a.bytes == b.bytes) {
            let all: Vec<_> = copies.iter().map(|copy| format!("{:.2}", copy.gb_per_s.median)).collect();
            writeln!(f, "{:>23}: {}", copies[0].bytes, all.join(" | "))?;
        }
        for lock in &self.lock {
            let (locking, freeing) = (lock.lock_s_per_gib.median, lock.free_s_per_gib.median);
            writeln!(f, "{}: {locking:.3} s to lock 1 GiB, {freeing:.3} s to free it", lock.memory)?;
        }
        for feed in &self.feed {
            let feed::Feed { dataset, batch_bytes, slots, gb_per_s, share, .. } = feed;
            let (rate, share) = (gb_per_s.median, 100.0 * share.median);
            writeln!(
                f,
                "feed ({dataset}), {batch_bytes} bytes, {slots} slots: {rate:.2} GB/s, {share:.1} % of the link"
            )?;
        }
        for step in &self.step {
            let step::Step { batch_bytes, slots, step_us, wait_share, floor_share, .. } = step;
            let (wait, floor) = (100.0 * wait_share.median, 100.0 * floor_share.median);
            write!(f, "steps of {step_us:.0} µs, {batch_bytes} bytes, {slots} slots: {wait:.2} % waiting ")?;
            writeln!(f, "({floor:.2} % without data)")?;
        }
        for next in &self.next {
            let next::Next { batch_bytes, median_us, p99_us, p999_us, late_us, late_busy_us, .. } = next;
            write!(f, "next, {batch_bytes} bytes: {median_us:.1} µs, p99 {p99_us:.1}, p99.9 {p999_us:.1}; ")?;
            writeln!(f, "the step ends {late_us:.1} µs late ({late_busy_us:.1} if the host is busy)")?;
        }
        if let Some(calls) = &self.calls {
            let (in_time, late) = (calls.in_time.all, calls.late.all);
            writeln!(f, "{in_time} driver calls for each batch whose copy is in time, {late} for late ones")?;
        }
        self.failed.iter().try_for_each(|failed| writeln!(f, "FAILED {failed}"))
    }
}

fn part<T: Send + 'static>(
    bench: &Bench,
    failed: &mut Vec<String>,
    name: &str,
    run: fn(&Bench) -> Result<T>,
) -> Option<T> {
    if !bench.only.is_empty() && !bench.only.iter().any(|only| only == name) {
        return None;
    }
    bench.say(format_args!("measuring: {name}"));
    let bench = bench.clone();
    let outcome = within(PATIENCE, move || run(&bench));
    outcome.inspect_err(|error| failed.push(format!("{name}: {error:#}"))).ok()
}
