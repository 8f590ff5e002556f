//! The threads of a loader: how they start, and how they end, whatever thread ends them.
//!
//! Whoever drops a loader waits for its threads, but at most so long, and never for itself: code of the user's that a worker
//! runs may be what drops it. A thread counts as over when the system says so, since the destructors of thread-locals, which
//! are the user's code as well, run when all of ours is done. One that is not over in time is left behind: it owns what it
//! can still touch (by `Arc`s), and frees it when it ends.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::fork::Process;
use crate::loader::error::guard::last_words;
use crate::loader::spans;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard, wait_while};
use crate::wait::Until;

/// How long a dropped loader waits, in all, for its threads to come out of user code and to end.
pub const GRACE: Duration = Duration::from_secs(5);

/// Threads that end together.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    threads: Vec<JoinHandle<()>>,
    roll: Arc<Roll>,
    process: Process,
}

/// Which threads are at their end, but for their thread-locals.
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

/// Signs the roll when its thread ends, in whatever way.
struct Signature(Arc<Roll>, usize);

impl Drop for Signature {
    fn drop(&mut self) {
        self.0.lock()[self.1] = true;
        self.0.changed.notify_all();
    }
}

impl Threads {
    /// Room for so many.
    pub(crate) fn with_capacity(threads: usize) -> Self {
        Self { threads: Vec::with_capacity(threads), ..Self::default() }
    }

    /// Starts one more, unless one could not be started before.
    pub(crate) fn start(&mut self, name: String, life: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let place = self.threads.len();
        self.roll.lock().push(false);
        let signature = Signature(self.roll.clone(), place);
        let life = move || {
            let _signature = signature;
            // With all that it owns: of that the dataset and the like may panic when they are dropped.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(life)) {
                last_words(panic);
            }
        };
        self.threads.push(thread::Builder::new().name(name).spawn(life)?);
        Ok(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether this is the process that they were started in, and none that was forked from it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// Whether this process was forked from the one with the threads.
    pub(crate) fn is_lost(&self) -> bool {
        !self.is_here() && !self.threads.is_empty()
    }

    /// Leaves threads alone that were lost. Even to let go of them would not do: the system may have given their place to
    /// other ones.
    #[cold]
    pub(crate) fn forget(&mut self) {
        self.threads.drain(..).for_each(std::mem::forget);
    }

    /// Waits until the threads are over, but for the calling one, and leaves behind those that are not by the deadline.
    pub(crate) fn end(&mut self, deadline: &Until) {
        if self.is_lost() {
            return self.forget();
        }
        // Some may nap.
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
        if stuck > 0 {
            spans::tell(|| tracing::warn!(stuck, "workers are stuck in a dataset's code and are left behind"));
        }
    }
}

/// Waits until a thread that has signed the roll is over; whether it was by the deadline.
#[cfg(all(target_os = "linux", not(shuttle)))]
fn join(thread: JoinHandle<()>, deadline: &Until) -> bool {
    use std::os::unix::thread::JoinHandleExt;
    use std::time::Duration;

    use slotline_core::wait::Deadline;

    let (thread, mut looks) = (thread.into_pthread_t(), 0_u32);
    loop {
        // SAFETY: the handle was the only one, and so the thread is neither joined nor detached yet.
        match unsafe { libc::pthread_tryjoin_np(thread, std::ptr::null_mut()) } {
            0 => return true,
            libc::EBUSY if !deadline.remaining().is_zero() => {}
            _ => break,
        }
        // It takes some tens of microseconds, unless there are thread-locals that take their time.
        match looks {
            0..64 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(100)),
        }
        looks += 1;
    }
    // SAFETY: as above.
    unsafe { libc::pthread_detach(thread) };
    false
}

/// Under shuttle there are no thread-locals that could take their time.
#[cfg(shuttle)]
fn join(thread: JoinHandle<()>, _: &Until) -> bool {
    thread.join().is_ok()
}

/// Other systems have no way to wait for a thread's very end that can be given up. So it is left to come to that by itself, with
/// nothing of the loader's in its hands.
#[cfg(not(any(target_os = "linux", shuttle)))]
fn join(thread: JoinHandle<()>, _: &Until) -> bool {
    drop(thread);
    true
}

/// Whether it is the calling thread. (std cannot say which one that is once its own thread-locals are gone.)
#[cfg(all(unix, not(shuttle)))]
fn is_current(thread: &JoinHandle<()>) -> bool {
    use std::os::unix::thread::JoinHandleExt;

    // SAFETY: the thread is neither joined nor detached, so that its id is its own.
    unsafe { libc::pthread_equal(libc::pthread_self(), thread.as_pthread_t()) != 0 }
}

#[cfg(any(not(unix), shuttle))]
fn is_current(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == thread::current().id()
}
