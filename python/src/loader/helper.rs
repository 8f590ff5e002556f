//! A thread that loads in place of the loop's, which meanwhile looks for signals.
//!
//! Python handles signals, such as that of Ctrl-C, in the main thread, and nothing can stop what that loads. So where
//! loading takes long, another thread does it. It is asked for 50 ms at a time, and works as the loop's thread would: the
//! batches are the same. What it has loaded for a loop that was interrupted meanwhile, it keeps for the next one.
//!
//! A handover to the thread costs about 20 µs, which may be more than a batch. So handovers have a time budget, to which long
//! loads add a share of their time; loads from files in a network are always handed over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::engine::PassSlot;
use super::pass::Next;

/// What one handover to the thread costs, in nanoseconds, and the largest budget for handovers.
const HANDOVER: u64 = 20_000;
const MAX_BUDGET: u64 = 64 * HANDOVER;
/// A load that takes longer than this adds this part of its time to the budget.
const LONG: Duration = Duration::from_millis(1);
const SHARE: u64 = 64;

/// The thread, which is started when it is first asked.
pub(crate) struct HelperThread {
    mailbox: Arc<Mailbox>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The budget for handovers, in nanoseconds.
    budget: AtomicU64,
    is_always_due: bool,
    /// Whether loads may take long at all.
    pub(crate) is_needed: bool,
}

#[derive(Default)]
struct Mailbox {
    job: Mutex<Job>,
    changed: Condvar,
    /// Whether there is work, or a result.
    is_used: AtomicBool,
}

#[derive(Default)]
enum Job {
    #[default]
    None,
    Asked(Arc<PassSlot>, Duration),
    /// The thread is at it.
    Begun,
    /// The result.
    Done(Next),
    /// There will be no more.
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

    /// Does what it is asked for, until there will be no more.
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
            // Otherwise the loop has left.
            if let Job::Begun = *work {
                self.put(&mut work, Job::Done(next));
            }
            drop(work);
            // It may be the last one who has it.
            drop(slot);
        }
    }
}

impl HelperThread {
    /// `is_needed`: whether loads may take long, of which it then does the first ones; `is_always_due`: whether any may.
    pub(crate) fn new(is_needed: bool, is_always_due: bool) -> Self {
        let budget = AtomicU64::new(MAX_BUDGET / 4);
        Self { mailbox: Arc::default(), thread: Mutex::default(), budget, is_always_due, is_needed }
    }

    /// Whether it is at work, or has a result.
    pub(crate) fn is_used(&self) -> bool {
        self.mailbox.is_used.load(Ordering::Relaxed)
    }

    /// Whether the budget allows to hand the next load over, which it then pays for.
    pub(crate) fn is_due(&self) -> bool {
        let pay = |budget: u64| budget.checked_sub(HANDOVER);
        self.is_always_due || self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok()
    }

    /// Adds to the budget after a load that took so long.
    pub(crate) fn add_to_budget(&self, took: Duration) {
        if took >= LONG {
            let share = took.as_nanos() as u64 / SHARE;
            let save = |budget: u64| Some(budget.saturating_add(share).min(MAX_BUDGET));
            _ = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, save);
        }
    }

    /// Returns the result, and asks for it first if nobody has: `None` if it takes longer than `patience`. The pass has ended if
    /// it is `over`: what is there then is for the next one.
    pub(crate) fn load(&self, slot: &Arc<PassSlot>, patience: Duration, over: &AtomicBool) -> Option<Next> {
        let is_over = || over.load(Ordering::Relaxed);
        if !self.is_running() {
            // There can be no thread.
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
        // Another thread may have taken it.
        let Job::Done(_) = *work else { return None };
        slot.forget_kept();
        match self.mailbox.put(&mut work, Job::None) {
            Job::Done(next) => Some(next),
            _ => None,
        }
    }

    /// Starts the thread, if there is none.
    fn is_running(&self) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let mailbox = self.mailbox.clone();
            let builder = std::thread::Builder::new().name("slotline-helper".to_owned());
            *thread = builder.spawn(move || mailbox.serve()).ok();
        }
        thread.is_some()
    }

    /// Drops the work or the result. Returns whether it is at work, which it does not interrupt.
    pub(crate) fn leave(&self) -> bool {
        let mut work = self.mailbox.lock();
        let is_at_work = matches!(*work, Job::Begun);
        let left = self.mailbox.put(&mut work, Job::None);
        drop(work);
        drop(left);
        is_at_work
    }

    /// Ends the thread, which has nothing to do: it would keep the slot. `is_here`: whether this process has it.
    pub(crate) fn end(&mut self, is_here: bool) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        if !is_here {
            return std::mem::forget(thread);
        }
        let left = self.mailbox.put(&mut self.mailbox.lock(), Job::Closed);
        drop(left);
        // It may be the one who drops the slot.
        if thread.thread().id() != std::thread::current().id() {
            _ = thread.join();
        }
    }
}
