//! The sections `cpu` and `wakes`: the CPU time and the wake-ups of the whole process while the
//! loop does not need batches, with the images of `small-images`.
//!
//! A slow loop sleeps for a millisecond after each batch, so that its loader has always finished.
//! An idle loop takes a batch, and then none for half a second.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::images::Images;
use super::{Plan, Source};
use crate::peer::ours::{self, WorkerKind};
use crate::peer::rust_peers;
use crate::record::Unit;
use crate::rounds::{Contender, Entry, Pass, Recorder};

/// The time for which the slow loop sleeps after a batch.
const STEP: Duration = Duration::from_millis(1);
/// The time in which the workers fill their queues, and the time without a batch after that.
const FILLED: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_millis(500);

/// The resources that the process has used so far: the CPU time in seconds, and how often a thread
/// gave up its core to wait.
#[derive(Clone, Copy, Debug)]
struct Used {
    seconds: f64,
    waits: f64,
}

impl Used {
    fn now() -> Self {
        // SAFETY: a struct of zero bytes is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live struct.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        Self { seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime), waits: usage.ru_nvcsw as f64 }
    }

    /// Returns the resources that were used since `self` was measured.
    fn since(self) -> Self {
        let now = Self::now();
        Self { seconds: now.seconds - self.seconds, waits: now.waits - self.waits }
    }
}

thread_local! {
    /// The resources that were used while the idle loop of this thread was idle, since the pass
    /// began. `None` before the first batch.
    static IDLED: Cell<Option<Used>> = const { Cell::new(None) };
}

fn slow() {
    std::thread::sleep(STEP);
}

fn idle() {
    if IDLED.get().is_none() {
        std::thread::sleep(FILLED);
        let before = Used::now();
        std::thread::sleep(IDLE);
        IDLED.set(Some(before.since()));
    }
}

/// Wraps a contender to measure the resources that the process uses in its passes.
fn metered(mut contender: Contender, unit: Unit) -> Contender {
    Box::new(move || {
        IDLED.set(None);
        let before = Used::now();
        let Pass { batches, .. } = contender()?;
        let whole = before.since();
        let (used, batches) = IDLED.get().map_or((whole, batches), |idled| (idled, 1.0));
        ensure!(used.seconds > 0.0, "no CPU time was used, not even by the loop itself");
        // The loop itself wakes up at least once.
        let value = if unit == Unit::WakesPerBatch { used.waits.max(1.0) } else { used.seconds };
        Ok(Pass { batches, seconds: value })
    })
}

/// Measures the CPU time or the wake-ups, depending on `unit`.
pub fn run(to: &mut Recorder, unit: Unit) -> Result<()> {
    // The resources of a pass are measured, not its duration, so a pass need not be repeated.
    to.least = 0.0;
    let plan = Plan::new(64, 2).shuffled();
    for (case, step) in [("slow loop", slow as fn()), ("idle loop", idle)] {
        let source = Images::small().stepping(step);
        let batches = plan.batches(source.len());
        let mut entries = vec![ours::entry(ours::contender(&source, &plan, WorkerKind::Default))];
        entries.extend(rust_peers(&source, &plan));
        entries.push(ours::variant("workers alone", ours::contender(&source, &plan, WorkerKind::Alone)));
        entries.push(Entry::limit("the loop alone", move || {
            (0..batches.ceil() as usize).for_each(|_| step());
            Ok(Pass { batches, seconds: 1.0 })
        }));
        let metered = |entry: Entry| Entry { contender: entry.contender.map(|it| metered(it, unit)), ..entry };
        to.compare(case, plan.workers, unit, entries.into_iter().map(metered).collect());
    }
    Ok(())
}
