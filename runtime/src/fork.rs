//! Detects that the process was forked.
//!
//! After a fork, the child has a copy of its parent's memory, but only the thread that called
//! `fork`. So code in the child that waits for another thread waits forever, a lock that another
//! thread held stays locked, and data that it was changing stays half changed.
//!
//! Nothing in this module waits: a fork may happen at any moment.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The number of forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Identifies the process that something was made in, by the number of forks before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// Returns the current process.
    pub fn this() -> Self {
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        // This is not a `Once`: a child whose parent was forked in the middle of it would wait forever. If two threads
        // register the handler at the same time, a fork counts twice, which does no harm.
        if !REGISTERED.load(Ordering::Acquire) {
            // SAFETY: the handler only increments an atomic, which is allowed in a forked child.
            let failure = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            if failure != 0 {
                // Registering fails only for lack of memory. A child that does not detect the fork would wait
                // for threads that don't exist.
                std::alloc::handle_alloc_error(std::alloc::Layout::new::<[usize; 4]>());
            }
            REGISTERED.store(true, Ordering::Release);
        }
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns a number above 0 that differs from the numbers of the processes from which this one was forked.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.0) + 1
    }

    /// Returns the identity that this process's parent has.
    #[cfg(test)]
    pub(crate) fn another() -> Self {
        Self(Self::this().0.wrapping_sub(1))
    }

    /// Returns whether this is the current process.
    #[inline]
    pub fn is_this(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::this()
    }
}

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
