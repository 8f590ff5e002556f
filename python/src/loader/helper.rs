//! A thread that loads batches in place of the loop's thread, which meanwhile checks for signals.
//!
//! Python handles signals, such as Ctrl-C's, in the main thread, but loading in that thread cannot
//! be interrupted. So where loading takes long, another thread does it. The loop's thread waits for
//! it in steps of 50 ms. The batches are the same as if the loop's thread had loaded them. A batch
//! that is finished after the loop was interrupted is kept for the next request.
//!
//! Handing a load to this thread costs about 20 µs, which may be more than the load itself. So
//! handovers have a time budget, to which loads that take long add a share of their time. Loads of
//! files on a network are always handed over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::engine::PassSlot;
use super::pass::Next;

/// The cost of one handover to the thread, and the largest budget for handovers, in nanoseconds.
const HANDOVER: u64 = 20_000;
const MAX_BUDGET: u64 = 64 * HANDOVER;
/// A load that takes at least this long adds `1 / SHARE` of its time to the budget.
const LONG: Duration = Duration::from_millis(1);
const SHARE: u64 = 64;

/// The helper thread, which is started on the first handover.
pub(crate) struct HelperThread {
    mailbox: Arc<Mailbox>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The budget for handovers, in nanoseconds.
    budget: AtomicU64,
    is_always_due: bool,
    /// Whether loads may take long at all; otherwise the thread is never used.
    pub(crate) is_needed: bool,
}

#[derive(Default)]
struct Mailbox {
    job: Mutex<Job>,
    changed: Condvar,
    /// Whether there is work or a result.
    is_used: AtomicBool,
}

#[derive(Default)]
enum Job {
    #[default]
    None,
    Asked(Arc<PassSlot>, Duration),
    /// The thread is working.
    Begun,
    /// The result of the work.
    Done(Next),
    /// The thread has to end.
    Closed,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Job> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, work: &mut MutexGuard<'_, Job>, new: Job) -> Job {
        self.is_used.store(matches!(new, Job::Asked(..) | Job::Begun | Job::Done(_)), Ordering::Relaxed);
        self.changed.notify_all();
        std::mem::replace(work, new)
    }

    /// Does the work it is given, until it has to end.
    fn serve(&self) {
        loop {
            let mut work = self.lock();
            let (slot, patience) = loop {
                match std::mem::replace(&mut *work, Job::Begun) {
                    Job::Asked(slot, patience) => break (slot, patience),
                    Job::Closed => return,
                    other => *work = other,
                }
                work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
            };
            drop(work);
            let next = slot.load_ahead(patience);
            let mut work = self.lock();
            // If the state is another one, the loop has abandoned the work.
            if let Job::Begun = *work {
                self.put(&mut work, Job::Done(next));
            }
            drop(work);
            // This may be the last reference to the slot.
            drop(slot);
        }
    }
}

impl HelperThread {
    /// `is_needed`: whether loads may take long, so that the first ones are handed over.
    /// `is_always_due`: whether every load is handed over.
    pub(crate) fn new(is_needed: bool, is_always_due: bool) -> Self {
        let budget = AtomicU64::new(MAX_BUDGET / 4);
        Self { mailbox: Arc::default(), thread: Mutex::default(), budget, is_always_due, is_needed }
    }

    /// Returns whether the thread is working or has a result.
    pub(crate) fn is_used(&self) -> bool {
        self.mailbox.is_used.load(Ordering::Relaxed)
    }

    /// Returns whether the budget allows to hand over the next load, and subtracts the cost of a
    /// handover.
    pub(crate) fn is_due(&self) -> bool {
        let pay = |budget: u64| budget.checked_sub(HANDOVER);
        self.is_always_due || self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok()
    }

    /// Adds to the budget after a load that took this long.
    pub(crate) fn add_to_budget(&self, took: Duration) {
        if took >= LONG {
            let share = took.as_nanos() as u64 / SHARE;
            let save = |budget: u64| Some(budget.saturating_add(share).min(MAX_BUDGET));
            _ = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, save);
        }
    }

    /// Returns the result of the current work, and starts that work if necessary. Returns `None` if
    /// it takes longer than `patience`. If `over` is set, the pass has ended, and the result
    /// belongs to the next pass.
    pub(crate) fn load(&self, slot: &Arc<PassSlot>, patience: Duration, over: &AtomicBool) -> Option<Next> {
        let is_over = || over.load(Ordering::Relaxed);
        if !self.is_running() {
            // The thread cannot be started, so load here.
            let mut engine = slot.lock();
            return Some(if is_over() { None } else { engine.loader.help_within(patience) });
        }
        let mut work = self.mailbox.lock();
        if is_over() {
            return Some(None);
        }
        if let Job::None = *work {
            self.mailbox.put(&mut work, Job::Asked(slot.clone(), patience));
        }
        let waits = |work: &mut Job| matches!(work, Job::Asked(..) | Job::Begun);
        let waited = self.mailbox.changed.wait_timeout_while(work, patience, waits);
        let (mut work, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if is_over() {
            return Some(None);
        }
        // Another thread may have taken the result.
        let Job::Done(_) = *work else { return None };
        slot.forget_kept();
        match self.mailbox.put(&mut work, Job::None) {
            Job::Done(next) => Some(next),
            _ => None,
        }
    }

    /// Starts the thread if it is not running. Returns whether it is running.
    fn is_running(&self) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let mailbox = self.mailbox.clone();
            let builder = std::thread::Builder::new().name("slotline-helper".to_owned());
            *thread = builder.spawn(move || mailbox.serve()).ok();
        }
        thread.is_some()
    }

    /// Drops the work or the result. Returns whether the thread is still working, which is not
    /// interrupted.
    pub(crate) fn leave(&self) -> bool {
        let mut work = self.mailbox.lock();
        let is_at_work = matches!(*work, Job::Begun);
        let left = self.mailbox.put(&mut work, Job::None);
        drop(work);
        drop(left);
        is_at_work
    }

    /// Returns whether this is the thread.
    pub(crate) fn is_current(&mut self) -> bool {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }

    /// Ends the idle thread, since it would keep the slot alive. `is_here`: whether the thread
    /// belongs to this process.
    pub(crate) fn end(&mut self, is_here: bool) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        if !is_here {
            return std::mem::forget(thread);
        }
        let left = self.mailbox.put(&mut self.mailbox.lock(), Job::Closed);
        drop(left);
        // The slot may be dropped by the thread itself, which cannot join itself.
        if thread.thread().id() != std::thread::current().id() {
            _ = thread.join();
        }
    }
}
