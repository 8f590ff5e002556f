//! The threads of a loader: how they start, and how they end.
//!
//! The thread that drops a loader waits for the loader's threads for a limited time, and never for itself: user code
//! that a worker runs may be what drops the loader. A thread has ended when the system says so, since the destructors
//! of thread-locals, which are also user code, run after all code of the loader. A thread that has not ended in time is
//! abandoned: it owns everything that it can still access (through `Arc`s), and frees it when it ends.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::fork::Process;
use crate::loader::error::guard::take_message;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard, wait_while};
use crate::wait::Until;

/// The time for which a dropped loader waits for its threads, in all, to leave user code and to end, unless
/// [`close_timeout`](crate::loader::Builder::close_timeout) sets another.
pub const GRACE: Duration = Duration::from_secs(5);

/// Threads that are ended together.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    threads: Vec<JoinHandle<()>>,
    roll: Arc<Roll>,
    process: Process,
}

/// Records which threads have ended, except for their thread-locals.
#[derive(Debug, Default)]
struct Roll {
    ended: Mutex<Vec<bool>>,
    changed: Condvar,
}

impl Roll {
    fn lock(&self) -> MutexGuard<'_, Vec<bool>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records the end of its thread in the roll when it is dropped.
struct Signature(Arc<Roll>, usize);

impl Drop for Signature {
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
    pub(crate) fn start(&mut self, name: String, life: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let place = self.threads.len();
        self.roll.lock().push(false);
        let signature = Signature(self.roll.clone(), place);
        let life = move || {
            let _signature = signature;
            // Guards dropping what the closure owns, too: the dataset, for example, may panic when it is dropped.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(life)) {
                take_message(panic);
            }
        };
        self.threads.push(thread::Builder::new().name(name).spawn(life)?);
        Ok(())
    }

    /// The number of threads.
    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether this is the process in which the threads were started, not one that was forked from it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// Whether this process was forked from the one with the threads.
    pub(crate) fn is_lost(&self) -> bool {
        !self.is_here() && !self.threads.is_empty()
    }

    /// Leaks the handles of threads that were lost in a fork. Dropping the handles would not be safe: the system may
    /// have given their IDs to other threads.
    #[cold]
    pub(crate) fn forget(&mut self) {
        self.threads.drain(..).for_each(std::mem::forget);
    }

    /// Waits until all threads except the calling one have ended, and leaves behind those that have not by the
    /// deadline. Returns their number.
    pub(crate) fn end(&mut self, deadline: &Until) -> usize {
        if self.is_lost() {
            self.forget();
            return 0;
        }
        // Wakes workers that sleep to back off.
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        let own = self.threads.iter().position(is_current);
        let others = |ended: &[bool]| {
            let mut threads = ended.iter().take(self.threads.len()).enumerate();
            threads.any(|(place, ended)| Some(place) != own && !ended)
        };
        let Roll { ended, changed } = &*self.roll;
        let ended = wait_while((ended, changed), self.roll.lock(), deadline, |ended| others(ended)).clone();
        let mut stuck = 0;
        for (place, (thread, ended)) in self.threads.drain(..).zip(ended).enumerate() {
            if Some(place) != own && !(ended && join(thread, deadline)) {
                stuck += 1;
            }
        }
        stuck
    }
}

/// Waits for the end of a thread that has recorded its end in the roll. Returns whether it ended by the deadline.
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
        // This takes some tens of microseconds, unless the destructors of thread-locals are slow.
        match looks {
            0..64 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(100)),
        }
        looks += 1;
    }
    // SAFETY: as above, and the thread was not joined.
    unsafe { libc::pthread_detach(thread) };
    false
}

/// Under shuttle there are no thread-locals with slow destructors.
#[cfg(shuttle)]
fn join(thread: JoinHandle<()>, _: &Until) -> bool {
    thread.join().is_ok()
}

/// Other systems have no way to wait for the very end of a thread with a timeout. So the thread is left to end by
/// itself; it no longer owns anything of the loader.
#[cfg(not(any(target_os = "linux", shuttle)))]
fn join(thread: JoinHandle<()>, _: &Until) -> bool {
    drop(thread);
    true
}

/// Whether this is the calling thread. (std cannot tell once its own thread-locals are destroyed.)
#[cfg(all(unix, not(shuttle)))]
fn is_current(thread: &JoinHandle<()>) -> bool {
    use std::os::unix::thread::JoinHandleExt;

    // SAFETY: the thread is neither joined nor detached, so its ID is not used for another one.
    unsafe { libc::pthread_equal(libc::pthread_self(), thread.as_pthread_t()) != 0 }
}

#[cfg(any(not(unix), shuttle))]
fn is_current(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == thread::current().id()
}
