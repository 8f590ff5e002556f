//! Noticing that a process was forked.
//!
//! The child has the memory of its parent, and of its threads only the one that called `fork`. So what waits for another
//! thread there would wait for ever, and a lock that one held is never given back.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks there were on the way from the first process to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that something was made in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process(u32);

impl Process {
    /// This one.
    pub(super) fn this() -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: the handler does what may be done in a child: it counts. It fails only without memory, and then nothing
            // is noticed.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// As of something that was made before a fork.
    #[cfg(test)]
    pub(super) fn another() -> Self {
        Self(Self::this().0.wrapping_sub(1))
    }

    /// Whether it is still this one.
    #[inline]
    pub(super) fn is_this(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::this()
    }
}

unsafe extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
