//! Noticing that a process was forked.
//!
//! The child has the memory of its parent, and of its threads only the one that called `fork`. So what waits for another
//! thread there waits forever, a lock that another thread held stays locked, and what it was changing stays half changed.
//!
//! Nothing here waits for anybody: a child may be made at any moment.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Changes with each fork on the way from the first process to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that something was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This one.
    pub fn this() -> Self {
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        // Not a `Once`: a child whose parent was forked in the middle of it would wait forever. Two threads may register the
        // handler twice, and a fork then counts as two.
        if !REGISTERED.load(Ordering::Acquire) {
            // SAFETY: the handler does what may be done in a child: it counts.
            let failure = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            if failure != 0 {
                // It fails only without memory. A fork that nobody notices would end in a wait for threads that are gone.
                std::alloc::handle_alloc_error(std::alloc::Layout::new::<[usize; 4]>());
            }
            REGISTERED.store(true, Ordering::Release);
        }
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// A number above 0 that no process on the way from the first one to this one has in common with it.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.0) + 1
    }

    /// As of something that was made before a fork.
    #[cfg(test)]
    pub(crate) fn another() -> Self {
        Self(Self::this().0.wrapping_sub(1))
    }

    /// Whether it is still this one.
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
