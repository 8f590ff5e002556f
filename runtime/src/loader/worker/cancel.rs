//! Flags by which a pass is abandoned, or a loader is stopped.

use std::fmt;
use std::sync::Arc;

use crate::sync::atomic::{AtomicU8, Ordering};

/// Stops a loader from any thread: see [`Loader::stopper`](crate::loader::Loader::stopper).
///
/// A stopper does not keep the loader alive, and has no effect once the loader was dropped.
#[derive(Clone)]
pub struct Stopper(Arc<dyn Fn() + Send + Sync>);

impl Stopper {
    pub(crate) fn new(stop: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(stop))
    }

    /// Stops the loader permanently, and returns at once.
    ///
    /// A call of `next` that is waiting returns [`Error::Stopped`](crate::loader::Error::Stopped)
    /// at once, and otherwise the next call in this pass does; after that error the pass has ended.
    /// Every later `epoch` returns the same error. Workers, and a calling thread that loads, stop
    /// after their current sample: code of the dataset is not interrupted. Batches already
    /// delivered stay valid. Batches that were made ahead are not delivered and do not count in
    /// [`state`](crate::loader::Loader::state), from which another loader can resume.
    ///
    /// Everything before this call happens before `Error::Stopped` is returned. The loader may be
    /// dropped before this call returns; then this thread may be the one that drops the dataset and
    /// the memory of batches.
    ///
    /// On Linux a signal handler may call this at any time, provided that the loader is not dropped
    /// before the handler returns: it then takes no lock, and neither allocates nor frees memory.
    pub fn stop(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopper").finish_non_exhaustive()
    }
}

/// Whether the pass is abandoned, so that all rows that are still being filled will be discarded.
///
/// Abandoning a pass and stopping the loader share one word. A thread that sees the flag and leaves
/// rows unfilled publishes those rows after that, so the thread that takes them sees the flag, too.
#[derive(Debug, Default)]
pub(crate) struct CancelFlag(AtomicU8);

/// The consumer has abandoned this pass.
const ABANDONED: u8 = 1;

/// The loader was stopped permanently.
const STOPPED: u8 = 1 << 1;

impl CancelFlag {
    #[inline]
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Abandons the pass, or resets the flag for the next pass.
    pub(crate) fn set(&self, cancel: bool) {
        if cancel {
            self.0.fetch_or(ABANDONED, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!ABANDONED, Ordering::Relaxed);
        }
    }

    /// Stops this pass and all later ones. A thread that sees the flag also sees everything that
    /// happened before this call.
    pub(crate) fn stop(&self) {
        self.0.fetch_or(STOPPED, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire) & STOPPED != 0
    }
}
