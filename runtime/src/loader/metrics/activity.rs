//! What each loading thread is doing at the moment, readable by all threads.

use crate::loader::metrics::counters::{Counters, Unfinished, nanos};
use crate::sync::Instant;
use crate::sync::atomic::{AtomicUsize, Ordering};
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// The value of [`Activity::row`] while a worker begins its pass over an iterable dataset.
pub(crate) const STARTING: usize = usize::MAX;

/// The current work of one loading thread, for the message of a timeout and for the watchdog, and
/// its counters.
#[derive(Debug, Default)]
#[repr(C)] // Worker processes share it.
pub(crate) struct Activity {
    /// The batch that the thread fills, plus 1; 0 if it fills none.
    task: AtomicUsize,
    /// The index that the thread reads, or is about to read.
    pub(crate) index: AtomicUsize,
    /// The row of the batch that the sample with this index is written into.
    pub(crate) row: AtomicUsize,
    /// The ID of the worker process that the thread is in; 0 if it is not in a worker process.
    process: AtomicU32,
    /// How often a worker process has looked for something to claim.
    claim_attempts: AtomicU32,
    /// The system's ID of the thread; how long the thread had waited for a core before it began
    /// this work, in nanoseconds; and how long earlier threads that did this work waited for a
    /// core.
    thread: AtomicU32,
    before: AtomicU64,
    starved: AtomicU64,
    pub(crate) counters: Counters,
}

/// Returns the system's ID of the current thread, or 0 if it is unknown.
fn thread_number() -> u32 {
    #[cfg(target_os = "linux")]
    // SAFETY: `gettid` has no preconditions.
    return unsafe { libc::gettid() }.cast_unsigned();
    #[cfg(not(target_os = "linux"))]
    0
}

/// Returns how long a thread, or the main thread of a process, has waited for a core since it
/// began; 0 if the system does not say.
fn run_delay(thread: u32) -> Duration {
    // Use buffers of fixed size: a worker may begin when batches are already delivered, and nothing
    // may be allocated then.
    let (mut path, mut text) = (heapless::String::<32>::new(), [0; 96]);
    let read = write!(path, "/proc/{thread}/schedstat").is_ok()
        && File::open(&*path).and_then(|mut file| file.read(&mut text)).is_ok();
    let fields = str::from_utf8(&text).ok().filter(|_| read);
    let waited = fields.and_then(|fields| fields.split([' ', '\n']).nth(1)?.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

impl Activity {
    /// Records that the thread begins to fill rows of batch `task`, the first of them `row` with
    /// the sample `index`.
    #[inline]
    pub(crate) fn begin(&self, task: usize, index: usize, row: usize) {
        self.index.store(index, Ordering::Relaxed);
        self.row.store(row, Ordering::Relaxed);
        self.task.store(task.wrapping_add(1), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn end(&self) {
        self.task.store(0, Ordering::Relaxed);
    }

    /// Ends a batch after a panic that interrupted the timing of its claim.
    #[cold]
    pub(crate) fn abandon(&self) {
        self.end();
        self.counters.end_interval(Instant::now());
    }

    /// Returns the work of the thread since its counters were last updated.
    pub(crate) fn unfinished(&self, pass: Option<Instant>, now: Instant) -> Option<Unfinished> {
        self.counters.unfinished(self.task().is_some(), pass, now)
    }

    /// Records that from now on the current thread does the work that this activity describes.
    pub(crate) fn enter_thread(&self) {
        let thread = thread_number();
        if self.thread.load(Ordering::Relaxed) != thread {
            self.starved.store(nanos(self.starved()), Ordering::Relaxed);
            self.before.store(nanos(run_delay(thread)), Ordering::Relaxed);
            self.thread.store(thread, Ordering::Relaxed);
        }
    }

    /// Records that the thread ends, or does other work.
    pub(crate) fn leave_thread(&self) {
        self.starved.store(nanos(self.starved()), Ordering::Relaxed);
        self.thread.store(0, Ordering::Relaxed);
    }

    /// Returns how long the threads that did the work of this activity have waited for a core.
    pub(crate) fn starved(&self) -> Duration {
        let [starved, before] = [&self.starved, &self.before].map(|figure| figure.load(Ordering::Relaxed));
        let now = match (self.process(), self.thread.load(Ordering::Relaxed)) {
            (Some(process), _) => nanos(run_delay(process)),
            (None, 0) => 0,
            (None, thread) => nanos(run_delay(thread)).saturating_sub(before),
        };
        Duration::from_nanos(starved + now)
    }

    /// Records the worker's process; `None` when it has ended.
    #[cfg(processes)]
    pub(crate) fn set_process(&self, process: Option<u32>) {
        self.process.store(process.unwrap_or(0), Ordering::Relaxed);
    }

    /// The ID of the worker's process, if the worker is a process that runs.
    pub(crate) fn process(&self) -> Option<u32> {
        Some(self.process.load(Ordering::Relaxed)).filter(|&process| process != 0)
    }

    /// Records that the worker looks for something to claim, and so has no claim. A thread that
    /// reads the new number by [`claim_attempts`](Self::claim_attempts) also sees everything that
    /// the worker did in its last claim.
    #[cfg(processes)]
    #[inline]
    pub(crate) fn record_claim_attempt(&self) {
        self.claim_attempts.store(self.claim_attempts.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    #[cfg(processes)]
    #[inline]
    pub(crate) fn claim_attempts(&self) -> u32 {
        self.claim_attempts.load(Ordering::Acquire)
    }

    /// Returns the sample at which a worker process was when it ended, and prepares for the process
    /// that replaces it. If the process was killed because a sample took too long, `late` is that
    /// sample and the time that it took.
    #[cfg(processes)]
    pub(crate) fn reap(&self, late: Option<(At, Duration)>) -> Option<At> {
        self.counters.slowest.mend();
        match late {
            Some((At { row: STARTING, .. }, time)) => self.counters.started(time),
            Some((At { index, .. }, time)) => self.counters.lost(index, time),
            None => {}
        }
        let at = self.at();
        self.abandon();
        self.set_process(None);
        at
    }

    /// The batch that the thread fills, if any.
    pub(crate) fn task(&self) -> Option<usize> {
        self.task.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The sample that the thread reads or writes, if any.
    pub(crate) fn at(&self) -> Option<At> {
        let (index, row) = (self.index.load(Ordering::Relaxed), self.row.load(Ordering::Relaxed));
        Some(At { task: self.task()?, row, index, taken_on: self.counters.samples() })
    }

    /// The index that the thread reads, if it fills batch `task`.
    pub(crate) fn reading(&self, task: usize) -> Option<usize> {
        let at_it = self.task.load(Ordering::Relaxed) == task.wrapping_add(1);
        at_it.then(|| self.index.load(Ordering::Relaxed))
    }
}

/// Identifies one attempt of a thread to read a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) task: usize,
    pub(crate) row: usize,
    pub(crate) index: usize,
    /// The number of samples that the thread had started, including this one.
    pub(crate) taken_on: u64,
}
