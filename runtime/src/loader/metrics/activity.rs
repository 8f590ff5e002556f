//! What each thread is doing, readable by all threads.

use crate::loader::metrics::counters::{Counters, Unfinished, nanos};
use crate::sync::Instant;
use crate::sync::atomic::{AtomicUsize, Ordering};
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// The row while a worker begins its pass over an iterable dataset.
pub(crate) const STARTING: usize = usize::MAX;

/// What a thread is doing now, for the timeout's message and the watchdog, and what it has done so far.
#[derive(Debug, Default)]
#[repr(C)] // Processes share it.
pub(crate) struct Activity {
    /// The batch that it fills, plus 1; 0 if it fills none.
    task: AtomicUsize,
    /// The index that it reads, or is about to read.
    pub(crate) index: AtomicUsize,
    /// The row of the batch for which it reads that index.
    pub(crate) row: AtomicUsize,
    /// The process that the thread is in, if it is a worker process; otherwise 0.
    process: AtomicU32,
    /// How often a worker process has looked for something to claim.
    looks: AtomicU32,
    /// The thread, as the system numbers it; how long it had waited for a core before, and other threads in its place.
    thread: AtomicU32,
    before: AtomicU64,
    starved: AtomicU64,
    pub(crate) counters: Counters,
}

/// The number of the current thread, 0 if it is not known.
fn thread_number() -> u32 {
    #[cfg(target_os = "linux")]
    // SAFETY: it has no preconditions.
    return unsafe { libc::gettid() }.cast_unsigned();
    #[cfg(not(target_os = "linux"))]
    0
}

/// How long a thread, or the first one of a process, has waited for a core since it began; 0 if the system does not know.
fn run_delay(thread: u32) -> Duration {
    // A worker may begin after the first batches, when nothing may be allocated.
    let (mut path, mut text) = (heapless::String::<32>::new(), [0; 96]);
    let read = write!(path, "/proc/{thread}/schedstat").is_ok()
        && File::open(&*path).and_then(|mut file| file.read(&mut text)).is_ok();
    let fields = str::from_utf8(&text).ok().filter(|_| read);
    let waited = fields.and_then(|fields| fields.split([' ', '\n']).nth(1)?.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

impl Activity {
    /// Begins a batch, or some rows of one, with this index for this row.
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

    /// Ends a batch after a panic in code that nothing else guards, so that the timing of its claim has no end.
    #[cold]
    pub(crate) fn abandon(&self) {
        self.end();
        self.counters.settle(Instant::now());
    }

    /// What the thread does now that no counter has yet.
    pub(crate) fn unfinished(&self, pass: Option<Instant>, now: Instant) -> Option<Unfinished> {
        self.counters.unfinished(self.task().is_some(), pass, now)
    }

    /// Records that the current thread is the one whose activity this is, from now on.
    pub(crate) fn enter_thread(&self) {
        let thread = thread_number();
        if self.thread.load(Ordering::Relaxed) != thread {
            self.starved.store(nanos(self.starved()), Ordering::Relaxed);
            self.before.store(nanos(run_delay(thread)), Ordering::Relaxed);
            self.thread.store(thread, Ordering::Relaxed);
        }
    }

    /// Records that the thread ends, or does something else.
    pub(crate) fn leave_thread(&self) {
        self.starved.store(nanos(self.starved()), Ordering::Relaxed);
        self.thread.store(0, Ordering::Relaxed);
    }

    /// How long the thread has waited for a core.
    pub(crate) fn starved(&self) -> Duration {
        let [starved, before] = [&self.starved, &self.before].map(|figure| figure.load(Ordering::Relaxed));
        let now = match (self.process(), self.thread.load(Ordering::Relaxed)) {
            (Some(process), _) => nanos(run_delay(process)),
            (None, 0) => 0,
            (None, thread) => nanos(run_delay(thread)).saturating_sub(before),
        };
        Duration::from_nanos(starved + now)
    }

    /// Records the worker's process, or that it has ended.
    #[cfg(processes)]
    pub(crate) fn set_process(&self, process: Option<u32>) {
        self.process.store(process.unwrap_or(0), Ordering::Relaxed);
    }

    /// The worker's process, if it is one that runs.
    pub(crate) fn process(&self) -> Option<u32> {
        Some(self.process.load(Ordering::Relaxed)).filter(|&process| process != 0)
    }

    /// Records that the worker looks for something to claim, so it has no claim: a thread that sees the new number also
    /// sees that the worker has finished its last one.
    #[cfg(processes)]
    #[inline]
    pub(crate) fn look(&self) {
        self.looks.store(self.looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    #[cfg(processes)]
    #[inline]
    pub(crate) fn looks(&self) -> u32 {
        self.looks.load(Ordering::Acquire)
    }

    /// Returns what a worker process was doing when it ended, and prepares for the next one. `late` is what took so long
    /// that it was killed, and how long.
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

    /// The batch that the thread fills.
    pub(crate) fn task(&self) -> Option<usize> {
        self.task.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The sample that the thread reads or writes.
    pub(crate) fn at(&self) -> Option<At> {
        let (index, row) = (self.index.load(Ordering::Relaxed), self.row.load(Ordering::Relaxed));
        Some(At { task: self.task()?, row, index, taken_on: self.counters.samples() })
    }

    /// The index that the thread reads for batch `task`, if it fills that batch.
    pub(crate) fn reading(&self, task: usize) -> Option<usize> {
        let at_it = self.task.load(Ordering::Relaxed) == task.wrapping_add(1);
        at_it.then(|| self.index.load(Ordering::Relaxed))
    }
}

/// Identifies one occasion of reading a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) task: usize,
    pub(crate) row: usize,
    pub(crate) index: usize,
    /// The number of samples that the thread had started, including this one.
    pub(crate) taken_on: u64,
}
