//! A thread that loads in place of the loop's, which meanwhile looks for signals.
//!
//! Python handles signals, such as that of Ctrl-C, in the main thread, and nothing can stop what that loads. So where
//! loading takes long, another thread does it. It is asked for 50 ms at a time, and works as the loop's thread would: the
//! batches are the same. What it has loaded for a loop that was interrupted meanwhile, it keeps for the next one.
//!
//! Asking costs about 20 µs, which may be more than a batch. So a share of the time that long loads take is saved, and the
//! thread is asked as long as that can be afforded; for files in a network, always.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::engine::Seat;
use super::pass::Next;

/// What asking the thread costs, and the most that is saved.
const PRICE: u64 = 20_000;
const MOST: u64 = 64 * PRICE;
/// Of the time of a load that takes longer than this, one part in so many is saved.
const LONG: Duration = Duration::from_millis(1);
const SHARE: u64 = 64;

/// The thread, which is started when it is first asked.
pub(crate) struct Aide {
    desk: Arc<Desk>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Nanoseconds.
    savings: AtomicU64,
    is_always_due: bool,
    /// Whether loads may take long at all.
    pub(crate) is_needed: bool,
}

#[derive(Default)]
struct Desk {
    work: Mutex<Work>,
    changed: Condvar,
    /// Whether there is work, or a result.
    is_used: AtomicBool,
}

#[derive(Default)]
enum Work {
    #[default]
    None,
    Asked(Arc<Seat>, Duration),
    /// The thread is at it.
    Begun,
    /// The result.
    Done(Next),
    /// There will be no more.
    Closed,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, work: &mut MutexGuard<'_, Work>, new: Work) -> Work {
        self.is_used.store(matches!(new, Work::Asked(..) | Work::Begun | Work::Done(_)), Ordering::Relaxed);
        self.changed.notify_all();
        std::mem::replace(work, new)
    }

    /// Does what it is asked for, until there will be no more.
    fn serve(&self) {
        loop {
            let mut work = self.lock();
            let (seat, patience) = loop {
                match std::mem::replace(&mut *work, Work::Begun) {
                    Work::Asked(seat, patience) => break (seat, patience),
                    Work::Closed => return,
                    other => *work = other,
                }
                work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
            };
            drop(work);
            let next = seat.load_ahead(patience);
            let mut work = self.lock();
            // Otherwise the loop has left.
            if let Work::Begun = *work {
                self.put(&mut work, Work::Done(next));
            }
            drop(work);
            // It may be the last one who has it.
            drop(seat);
        }
    }
}

impl Aide {
    /// `is_needed`: whether loads may take long, of which it then does the first ones; `is_always_due`: whether any may.
    pub(crate) fn new(is_needed: bool, is_always_due: bool) -> Self {
        let savings = AtomicU64::new(MOST / 4);
        Self { desk: Arc::default(), thread: Mutex::default(), savings, is_always_due, is_needed }
    }

    /// Whether it is at work, or has a result.
    pub(crate) fn is_used(&self) -> bool {
        self.desk.is_used.load(Ordering::Relaxed)
    }

    /// Whether the next load is worth asking it, which is then paid for.
    pub(crate) fn is_due(&self) -> bool {
        let pay = |savings: u64| savings.checked_sub(PRICE);
        self.is_always_due || self.savings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok()
    }

    /// Saves for later loads after one that took so long.
    pub(crate) fn save(&self, took: Duration) {
        if took >= LONG {
            let share = took.as_nanos() as u64 / SHARE;
            let save = |savings: u64| Some(savings.saturating_add(share).min(MOST));
            _ = self.savings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, save);
        }
    }

    /// Returns the result, and asks for it first if nobody has: `None` if it takes longer than `patience`, or if there can
    /// be no thread.
    pub(crate) fn load(&self, seat: &Arc<Seat>, patience: Duration) -> Option<Next> {
        if !self.is_running() {
            return Some(seat.lock().loader.help_within(patience));
        }
        let mut work = self.desk.lock();
        if let Work::None = *work {
            self.desk.put(&mut work, Work::Asked(seat.clone(), patience));
        }
        let waits = |work: &mut Work| matches!(work, Work::Asked(..) | Work::Begun);
        let waited = self.desk.changed.wait_timeout_while(work, patience, waits);
        let (mut work, _) = waited.unwrap_or_else(PoisonError::into_inner);
        // Another thread may have taken it.
        let Work::Done(_) = *work else { return None };
        seat.forget_kept();
        match self.desk.put(&mut work, Work::None) {
            Work::Done(next) => Some(next),
            _ => None,
        }
    }

    /// Starts the thread, if there is none.
    fn is_running(&self) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let desk = self.desk.clone();
            let builder = std::thread::Builder::new().name("slotline-aide".to_owned());
            *thread = builder.spawn(move || desk.serve()).ok();
        }
        thread.is_some()
    }

    /// Drops the work or the result. Returns whether it is at work, which it does not interrupt.
    pub(crate) fn leave(&self) -> bool {
        let mut work = self.desk.lock();
        let is_at_work = matches!(*work, Work::Begun);
        let left = self.desk.put(&mut work, Work::None);
        drop(work);
        drop(left);
        is_at_work
    }

    /// Ends the thread, which has nothing to do: it would keep the seat. `is_here`: whether this process has it.
    pub(crate) fn end(&mut self, is_here: bool) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        if !is_here {
            return std::mem::forget(thread);
        }
        let left = self.desk.put(&mut self.desk.lock(), Work::Closed);
        drop(left);
        // It may be the one who drops the seat.
        if thread.thread().id() != std::thread::current().id() {
            _ = thread.join();
        }
    }
}
