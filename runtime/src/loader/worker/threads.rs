//! The threads of a loader: how they start, and how they end.
//!
//! The thread that drops a loader waits for the loader's threads for a limited time. It never waits
//! for itself: user code that a worker runs may drop the loader. A thread counts as ended only when
//! the system says so, since the destructors of its thread-locals, which are user code too, run
//! after all code of the loader. A thread that does not end in time is abandoned: it owns
//! everything that it can still access (through `Arc`s), and frees that when it ends.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::fork::Process;
use crate::loader::error::guard::take_message;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard, wait_while};
use crate::wait::Until;

/// The time that dropping a loader waits, in all, for its threads to leave user code and to end,
/// unless [`close_timeout`](crate::loader::Builder::close_timeout) sets another time.
pub const GRACE: Duration = Duration::from_secs(5);

/// The function of a thread. It is boxed so that what starts threads is compiled once, instead of
/// for each type of dataset.
pub(crate) type ThreadMain = Box<dyn FnOnce() + Send>;

/// A group of threads, which are started and ended together.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    threads: Vec<JoinHandle<()>>,
    finished: Arc<FinishedThreads>,
    process: Process,
}

/// Records which threads have finished their function. Their thread-locals may not be destroyed
/// yet.
#[derive(Debug, Default)]
struct FinishedThreads {
    ended: Mutex<Vec<bool>>,
    changed: Condvar,
}

impl FinishedThreads {
    fn lock(&self) -> MutexGuard<'_, Vec<bool>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records that its thread has finished, when it is dropped.
struct FinishGuard(Arc<FinishedThreads>, usize);

impl Drop for FinishGuard {
    fn drop(&mut self) {
        self.0.lock()[self.1] = true;
        self.0.changed.notify_all();
    }
}

impl Threads {
    /// Makes a value with room for this many threads.
    pub(crate) fn with_capacity(threads: usize) -> Self {
        Self { threads: Vec::with_capacity(threads), ..Self::default() }
    }

    /// Starts another thread. Must not be called again after a failure.
    pub(crate) fn start(&mut self, name: String, thread_main: ThreadMain) -> io::Result<()> {
        let number = self.threads.len();
        self.finished.lock().push(false);
        let guard = FinishGuard(self.finished.clone(), number);
        let guarded_main = move || {
            let _guard = guard;
            // This also catches a panic in dropping what the closure owns, for example the dataset.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(thread_main)) {
                take_message(panic);
            }
        };
        self.threads.push(thread::Builder::new().name(name).spawn(guarded_main)?);
        Ok(())
    }

    /// The number of threads.
    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether this process started the threads, and was not forked from the one that did.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// Whether this process was forked from the one that has the threads.
    pub(crate) fn is_lost(&self) -> bool {
        !self.is_here() && !self.threads.is_empty()
    }

    /// Leaks the handles of threads that do not exist in this forked process. Dropping the handles
    /// would be unsound: the system may have given the threads' IDs to other threads.
    #[cold]
    pub(crate) fn forget(&mut self) {
        self.threads.drain(..).for_each(std::mem::forget);
    }

    /// Waits until all threads except the calling one have ended. Abandons those that have not by
    /// the deadline, and returns their number.
    pub(crate) fn end(&mut self, deadline: &Until) -> usize {
        if self.is_lost() {
            self.forget();
            return 0;
        }
        // Wake workers that are napping.
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        let own = self.threads.iter().position(is_current);
        let others = |ended: &[bool]| {
            let mut threads = ended.iter().take(self.threads.len()).enumerate();
            threads.any(|(number, ended)| Some(number) != own && !ended)
        };
        let FinishedThreads { ended, changed } = &*self.finished;
        let ended = wait_while((ended, changed), self.finished.lock(), deadline, |ended| others(ended)).clone();
        let mut stuck = 0;
        for (number, (thread, ended)) in self.threads.drain(..).zip(ended).enumerate() {
            if Some(number) != own && !(ended && join(thread, deadline)) {
                stuck += 1;
            }
        }
        stuck
    }
}

/// Waits for the end of a thread that has recorded that it finished. Returns whether it
/// ended by the deadline.
#[cfg(all(target_os = "linux", not(shuttle)))]
fn join(thread: JoinHandle<()>, deadline: &Until) -> bool {
    use std::os::unix::thread::JoinHandleExt;
    use std::time::Duration;

    use slotline_core::wait::Deadline;

    let (thread, mut looks) = (thread.into_pthread_t(), 0_u32);
    loop {
        // SAFETY: this was the only handle, so the thread is neither joined nor detached yet.
        match unsafe { libc::pthread_tryjoin_np(thread, std::ptr::null_mut()) } {
            0 => return true,
            libc::EBUSY if !deadline.remaining().is_zero() => {}
            _ => break,
        }
        // A thread usually ends within tens of microseconds, unless the destructors of
        // thread-locals are slow.
        match looks {
            0..64 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(100)),
        }
        looks += 1;
    }
    // SAFETY: this was the only handle, and the thread was not joined.
    unsafe { libc::pthread_detach(thread) };
    false
}

/// Joins the thread. Under shuttle there are no thread-locals with slow destructors.
#[cfg(shuttle)]
fn join(thread: JoinHandle<()>, _: &Until) -> bool {
    thread.join().is_ok()
}

/// Detaches the thread, since other systems cannot wait for the very end of a thread with a
/// timeout. The thread owns nothing of the loader any more.
#[cfg(not(any(target_os = "linux", shuttle)))]
fn join(thread: JoinHandle<()>, _: &Until) -> bool {
    drop(thread);
    true
}

/// Whether this is the calling thread. (std cannot tell while its thread-locals are being
/// destroyed.)
#[cfg(all(unix, not(shuttle)))]
fn is_current(thread: &JoinHandle<()>) -> bool {
    use std::os::unix::thread::JoinHandleExt;

    // SAFETY: the thread is neither joined nor detached, so no other thread has its ID.
    unsafe { libc::pthread_equal(libc::pthread_self(), thread.as_pthread_t()) != 0 }
}

#[cfg(any(not(unix), shuttle))]
fn is_current(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == thread::current().id()
}
