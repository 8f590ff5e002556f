//! What a loop that waits costs others: the CPU time and the wake-ups of the whole process, with the images of `small-images`.
//!
//! A slow loop takes a millisecond for each batch, asleep, so that its loader has always finished; an idle one takes a batch and
//! then none for half a second.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::images::Images;
use super::small_images::{self, BATCH};
use super::{Plan, Source};
use crate::peer::ours::{self, Crew};
use crate::peer::rust_peers;
use crate::record::{Kind, Section, Unit};
use crate::rounds::{Contender, Entry, Heat, Pass, Recorder};

/// The time that the slow loop takes for a batch.
const STEP: Duration = Duration::from_millis(1);
/// The time until the workers have filled their queues, and the time without a batch after that.
const FILLED: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_millis(500);

/// What the process has used so far: seconds of CPU time, and how often a thread gave up its core to wait.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    seconds: f64,
    waits: f64,
}

impl Used {
    fn now() -> Self {
        // SAFETY: all bytes of the struct may be zero.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is that of a live struct.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        Self { seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime), waits: usage.ru_nvcsw as f64 }
    }

    /// What was used since then.
    fn since(self) -> Self {
        let now = Self::now();
        Self { seconds: now.seconds - self.seconds, waits: now.waits - self.waits }
    }
}

thread_local! {
    /// What the idle loop of this thread used while it was idle, since the pass began; `None` before the first batch.
    static IDLED: Cell<Option<Used>> = const { Cell::new(None) };
}

/// What a loop does between two batches.
trait Step: Copy + Send + Sync + 'static {
    fn step();
}

#[derive(Clone, Copy, Debug)]
struct Slow;

impl Step for Slow {
    fn step() {
        std::thread::sleep(STEP);
    }
}

#[derive(Clone, Copy, Debug)]
struct Idle;

impl Step for Idle {
    fn step() {
        if IDLED.get().is_none() {
            std::thread::sleep(FILLED);
            let before = Used::now();
            std::thread::sleep(IDLE);
            IDLED.set(Some(before.since()));
        }
    }
}

/// Images whose loop takes a step after each batch.
#[derive(Clone, Copy, Debug)]
struct Stepped<S>(Images, PhantomData<S>);

impl<S: Step> Source for Stepped<S> {
    type Item = <Images as Source>::Item;
    type Batch = <Images as Source>::Batch;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> Self::Item {
        self.0.get(index)
    }

    fn collate(&self, items: impl ExactSizeIterator<Item = Self::Item>) -> Self::Batch {
        self.0.collate(items)
    }

    fn check(batch: &Self::Batch) -> u64 {
        S::step();
        Images::check(batch)
    }

    fn verify(&self, batch: &Self::Batch) -> Result<()> {
        self.0.verify(batch)
    }

    fn total(&self) -> u64 {
        self.0.total()
    }
}

/// Measures what the process uses in the passes of another contender.
struct Metered {
    contender: Box<dyn Contender>,
    section: Section,
}

impl Contender for Metered {
    fn pass(&mut self) -> Result<Pass> {
        IDLED.set(None);
        let before = Used::now();
        let Pass { batches, .. } = self.contender.pass()?;
        let whole = before.since();
        let (used, batches) = IDLED.get().map_or((whole, batches), |idled| (idled, 1.0));
        ensure!(used.seconds > 0.0, "no CPU time was used, not even by the loop itself");
        // Each loop wakes up at least once for itself.
        let value = if self.section == Section::Wakes { used.waits.max(1.0) } else { used.seconds };
        Ok(Pass { batches, seconds: value })
    }
}

/// The loop without a loader.
fn alone<S: Step>(batches: f64) -> Entry {
    let pass = move || {
        (0..batches.ceil() as usize).for_each(|_| S::step());
        Ok(Pass { batches, seconds: 1.0 })
    };
    Entry::new("the loop alone", Kind::Limit, Ok(pass))
}

fn entries<S: Step>(plan: &Plan) -> Vec<Entry> {
    let images = Images::small();
    let ours = |crew| small_images::ours_stepping(images, plan, crew, S::step);
    let mut entries = vec![ours::entry(ours(Crew::Default))];
    entries.extend(rust_peers(&Stepped(images, PhantomData::<S>), plan));
    entries.push(ours::variant("workers alone", ours(Crew::Alone)));
    entries.push(alone::<S>(plan.batches(images.len())));
    entries
}

/// Runs the heats of [`Section::Cpu`] or [`Section::Wakes`].
pub fn run(section: Section, recorder: &mut Recorder) {
    let unit = if section == Section::Wakes { Unit::WakesPerBatch } else { Unit::MicrosPerBatch };
    let workers = 2;
    let plan = Plan::new(BATCH, workers).shuffled();
    for (case, entries) in [("slow loop", entries::<Slow>(&plan)), ("idle loop", entries::<Idle>(&plan))] {
        let metered = |entry: Entry| {
            let contender =
                entry.contender.map(|contender| Box::new(Metered { contender, section }) as Box<dyn Contender>);
            Entry { contender, ..entry }
        };
        let entries = entries.into_iter().map(metered).collect();
        recorder.heat(Heat { case: case.into(), workers, unit, entries });
    }
}
