//! Read-ahead: fetching the bytes of samples long before they are read.
//!
//! The order of a pass is known when it begins. Threads walk through it ahead of the loader, and
//! ask the system for the bytes of each sample, so that a disk has many requests at a time. They
//! stay ahead of the samples that were read ([`ReadCounters`]) by at most a number of bytes, which
//! is estimated from the mean size of a sample. While they are that far ahead, one of them checks
//! every [`LOOK`] whether they still are.
//!
//! Asking for bytes that are in memory already is wasted work. So after [`RESIDENT_RUN`] samples in
//! a row whose bytes are in memory, the threads ask for only one sample in [`SAMPLED_EVERY`], until
//! they find one whose bytes are not.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use slotline::arena::{Memory, Pages};
use slotline::dataset::Upcoming;
use slotline::fork::Process;

const RESIDENT_RUN: usize = 256;
const SAMPLED_EVERY: usize = 16;
const LOOK: Duration = Duration::from_millis(2);

/// The number of samples that are asked for before their requests are sent. The ranges of
/// neighbours are then sent as one request.
const SENT_TOGETHER: usize = 64;

/// The result of asking for the bytes of a sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Readiness {
    /// The number of bytes of the sample.
    pub(crate) bytes: u64,
    /// Whether the bytes were in memory before they were asked for.
    pub(crate) resident: bool,
}

/// The number of samples that a thread reads before it adds them to the count that all threads
/// share.
const TOGETHER: u64 = 16;

/// Counters of the samples that were read in the latest pass, in memory that worker processes
/// share.
pub(crate) struct ReadCounters(Pages);

#[derive(Debug, Default)]
struct Counters {
    samples: AtomicU64,
    /// The time that reading and decoding took, for the samples that were timed, in nanoseconds.
    nanos: AtomicU64,
    /// The part of `nanos` in which files were read.
    reading: AtomicU64,
}

impl ReadCounters {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Pages::shared(size_of::<Counters>())?))
    }

    fn counters(&self) -> &Counters {
        // SAFETY: the pages are aligned, longer than the counters, hold nothing else, and are zeros
        // at first, which are valid counters.
        unsafe { self.0.start().cast().as_ref() }
    }

    /// Returns the number of samples that were read.
    pub(crate) fn samples(&self) -> u64 {
        self.counters().samples.load(Ordering::Relaxed)
    }

    /// Resets the counters for a new pass.
    pub(crate) fn begin(&self) {
        let Counters { samples, nanos, reading } = self.counters();
        for counter in [samples, nanos, reading] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a sample that was read. `own` is the number of samples that this thread has not yet
    /// added to the shared count. Returns whether it added them now; the caller should then time
    /// this sample.
    #[inline]
    pub(crate) fn count(&self, own: &mut u64) -> bool {
        *own += 1;
        let adds = *own == TOGETHER;
        if adds {
            self.counters().samples.fetch_add(std::mem::take(own), Ordering::Relaxed);
        }
        adds
    }

    /// Counts samples that were read together.
    pub(crate) fn count_many(&self, samples: usize) {
        self.counters().samples.fetch_add(samples as u64, Ordering::Relaxed);
    }

    /// Measures the time of a sample until the result is dropped.
    pub(crate) fn time_samples(&self) -> Timer<'_> {
        Timer(&self.counters().nanos, Instant::now())
    }

    /// Measures the time of reading files until the result is dropped.
    pub(crate) fn time_reading(&self) -> Timer<'_> {
        Timer(&self.counters().reading, Instant::now())
    }

    /// Returns the fraction of the time in which files were read, or `None` if no sample was timed
    /// yet.
    pub(crate) fn reading_share(&self) -> Option<f64> {
        let Counters { nanos, reading, .. } = self.counters();
        let nanos = nanos.load(Ordering::Relaxed);
        (nanos > 0).then(|| (reading.load(Ordering::Relaxed) as f64 / nanos as f64).min(1.0))
    }
}

/// A guard that adds the time until it is dropped to a counter.
pub(crate) struct Timer<'a>(&'a AtomicU64, Instant);

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(self.1.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// The threads with which a dataset reads ahead. They end soon after this is dropped. They are not
/// joined, since a forked process does not have them.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    /// The process that started the threads.
    process: Process,
}

struct Shared {
    /// Asks for the bytes of a sample, given its index.
    request: Box<dyn Fn(usize) -> Readiness + Send + Sync>,
    /// Sends the requests for the bytes that were asked for.
    send: Box<dyn Fn() + Send + Sync>,
    budget: u64,
    pass: Mutex<Option<Arc<Pass>>>,
    begun: Condvar,
    closed: AtomicBool,
    /// How long a thread that has reached the maximum distance sleeps.
    pause: Duration,
    read: Arc<ReadCounters>,
}

/// A pass in which the threads read ahead.
struct Pass {
    upcoming: Upcoming,
    /// The next position of the pass to ask for.
    next: AtomicUsize,
    /// The number of samples that were asked for or skipped.
    taken: AtomicU64,
    /// The number of samples that were asked for.
    asked: AtomicU64,
    /// The number of bytes of the samples in `asked`.
    bytes: AtomicU64,
    /// How many samples in a row had their bytes in memory.
    resident_run: AtomicUsize,
}

impl Ahead {
    /// Starts threads that stay at most `budget` bytes ahead of the samples that were read.
    /// `request` asks for the bytes of a sample by its index, and `send` sends these requests.
    pub(crate) fn start(
        threads: usize,
        budget: u64,
        read: Arc<ReadCounters>,
        request: impl Fn(usize) -> Readiness + Send + Sync + 'static,
        send: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            request: Box::new(request),
            send: Box::new(send),
            budget,
            pass: Mutex::default(),
            begun: Condvar::new(),
            closed: AtomicBool::new(false),
            pause: LOOK * threads as u32,
            read,
        });
        let ahead = Self { shared, process: Process::this() };
        for number in 0..threads {
            let shared = ahead.shared.clone();
            thread::Builder::new().name(format!("slotline-ahead-{number}")).spawn(move || shared.run())?;
        }
        Ok(ahead)
    }

    /// Begins to read ahead in a new pass, in place of the previous one. The caller must call
    /// [`ReadCounters::begin`] first. In a forked process nothing is read ahead: it lacks the
    /// threads, and one of them may have held the lock at the fork.
    pub(crate) fn begin(&self, upcoming: Upcoming) {
        if !self.process.is_this() {
            return;
        }
        let next = AtomicUsize::new(upcoming.positions().start);
        let (taken, asked, bytes, resident_run) = Default::default();
        *self.shared.pass() = Some(Arc::new(Pass { upcoming, next, taken, asked, bytes, resident_run }));
        self.shared.begun.notify_all();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.shared.begun.notify_all();
    }
}

impl Shared {
    fn pass(&self) -> MutexGuard<'_, Option<Arc<Pass>>> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main function of a thread.
    fn run(&self) {
        let mut not_sent = 0;
        while !self.closed.load(Ordering::Relaxed) {
            let pass = self.pass().clone();
            match pass {
                Some(pass) if not_sent < SENT_TOGETHER && self.may_go_on(&pass) => {
                    not_sent += 1;
                    if !self.step(&pass) {
                        self.end(&pass);
                    }
                }
                _ if not_sent > 0 => {
                    (self.send)();
                    not_sent = 0;
                }
                Some(_) => thread::sleep(self.pause),
                None => {
                    // The timeout is needed because the notification may come before the wait.
                    let wait = self.begun.wait_timeout_while(self.pass(), LOOK * 50, |pass| pass.is_none());
                    drop(wait.unwrap_or_else(PoisonError::into_inner));
                }
            }
        }
    }

    /// Whether the bytes that were asked for and not read yet are fewer than `budget`.
    fn may_go_on(&self, pass: &Pass) -> bool {
        let ahead = pass.taken.load(Ordering::Relaxed).saturating_sub(self.read.samples());
        let mean = pass.bytes.load(Ordering::Relaxed) / pass.asked.load(Ordering::Relaxed).max(1);
        ahead.saturating_mul(mean) < self.budget
    }

    /// Asks for the next sample of a pass, unless it is skipped. Returns false at the end of the
    /// pass.
    fn step(&self, pass: &Pass) -> bool {
        let position = pass.next.fetch_add(1, Ordering::Relaxed);
        if position >= pass.upcoming.positions().end {
            return false;
        }
        let Some(index) = pass.upcoming.index(position) else { return true };
        // A sample that was read already need not be asked for.
        let is_late = pass.taken.fetch_add(1, Ordering::Relaxed) < self.read.samples();
        if is_late
            || (pass.resident_run.load(Ordering::Relaxed) >= RESIDENT_RUN && !position.is_multiple_of(SAMPLED_EVERY))
        {
            return true;
        }
        let Readiness { bytes, resident } = (self.request)(index);
        pass.bytes.fetch_add(bytes, Ordering::Relaxed);
        pass.asked.fetch_add(1, Ordering::Relaxed);
        match resident {
            true => pass.resident_run.fetch_add(1, Ordering::Relaxed),
            false => pass.resident_run.swap(0, Ordering::Relaxed),
        };
        true
    }

    /// Ends a pass, unless the next one has begun.
    fn end(&self, pass: &Arc<Pass>) {
        let mut current = self.pass();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, pass)) {
            *current = None;
        }
    }
}

impl fmt::Debug for ReadCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadCounters").field(self.counters()).finish()
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("budget", &self.shared.budget).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads ahead in samples of 100 bytes. Returns the list to which their indices are added.
    fn recorded(budget: u64, resident: bool) -> (Ahead, Arc<Mutex<Vec<usize>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let recorded = asked.clone();
        let request = move |index| {
            recorded.lock().unwrap().push(index);
            Readiness { bytes: 100, resident }
        };
        (Ahead::start(1, budget, Arc::new(ReadCounters::new().unwrap()), request, || {}).unwrap(), asked)
    }

    /// Waits until `count` samples were asked for, and a while longer in case of more. Returns
    /// their indices.
    fn wait(asked: &Mutex<Vec<usize>>, count: usize) -> Vec<usize> {
        let begun = Instant::now();
        while asked.lock().unwrap().len() < count {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", asked.lock().unwrap());
            thread::sleep(LOOK);
        }
        thread::sleep(LOOK * 5);
        asked.lock().unwrap().clone()
    }

    #[test]
    fn samples_are_asked_for_in_order_within_the_budget() {
        let (ahead, asked) = recorded(1_000, false);
        let indices = |position: usize| (!position.is_multiple_of(3)).then_some(7 * position);
        ahead.begin(Upcoming::new(60, indices));
        let all: Vec<_> = (0..60).filter_map(indices).collect();
        assert_eq!(wait(&asked, 10), all[..10]);
        ahead.shared.read.counters().samples.fetch_add(5, Ordering::Relaxed);
        assert_eq!(wait(&asked, 15), all[..15]);
        // Samples that were read before they were asked for are skipped.
        ahead.shared.read.counters().samples.fetch_add(25, Ordering::Relaxed);
        assert_eq!(wait(&asked, 25), [&all[..15], &all[30..]].concat());
        // The next pass begins at once, even if the previous one is not at its end.
        for _ in 0..2 {
            asked.lock().unwrap().clear();
            ahead.shared.read.begin();
            ahead.begin(Upcoming::new(1_000, Some));
            assert_eq!(wait(&asked, 10), (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn few_samples_are_looked_at_where_all_are_in_memory() {
        let (ahead, asked) = recorded(u64::MAX, true);
        ahead.begin(Upcoming::new(RESIDENT_RUN + 100 * SAMPLED_EVERY, Some));
        let looked_at = wait(&asked, RESIDENT_RUN + 100);
        assert_eq!(looked_at.len(), RESIDENT_RUN + 100);
        assert!(looked_at[RESIDENT_RUN..].iter().all(|index| index.is_multiple_of(SAMPLED_EVERY)));
    }

    #[test]
    fn dropping_it_ends_the_threads() {
        let (ahead, asked) = recorded(1_000, false);
        ahead.begin(Upcoming::new(60, Some));
        wait(&asked, 10);
        let shared = Arc::downgrade(&ahead.shared);
        drop(ahead);
        let begun = Instant::now();
        while shared.upgrade().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            thread::sleep(LOOK);
        }
    }
}
