//! How a pass is given up, and a loader stopped.

use std::fmt;
use std::sync::Arc;

use crate::sync::atomic::{AtomicU8, Ordering};

/// Stops a loader, from whatever thread: see [`Loader::stopper`](crate::loader::Loader::stopper).
///
/// It does not keep the loader: of one that is dropped it stops nothing.
#[derive(Clone)]
pub struct Stopper(Arc<dyn Fn() + Send + Sync>);

impl Stopper {
    pub(crate) fn new(stop: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(stop))
    }

    /// Stops the loader, for ever, and returns at once.
    ///
    /// A `next` that waits says [`Error::Stopped`](crate::loader::Error::Stopped) at once, and so does every later one of this pass, but
    /// that after the first the pass is over; so does `epoch`. Workers, and a calling thread that loads, stop at their
    /// current sample: code of the dataset's is not interrupted. Batches in hand stay good. What was made ahead is not
    /// delivered, so that [`state`](crate::loader::Loader::state) says what was, and another loader can go on from there.
    ///
    /// What was done before this call happens before `Error::Stopped` is returned. The loader may be dropped before this
    /// call returns; then this thread may be the one that drops the dataset and the memory of batches.
    pub fn stop(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopper").finish_non_exhaustive()
    }
}

/// Whether a pass is given up: whatever is still being filled will be thrown away.
///
/// One word for both reasons: a thread that sees it and leaves rows out publishes them after that, so that whoever takes
/// these rows sees it, too.
#[derive(Debug, Default)]
pub(crate) struct CancelFlag(AtomicU8);

/// The consumer wants no more of this pass.
const GIVEN_UP: u8 = 1;

/// The loader was stopped, for ever.
const STOPPED: u8 = 1 << 1;

impl CancelFlag {
    #[inline]
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Gives the pass up, or begins one.
    pub(crate) fn set(&self, cancel: bool) {
        if cancel {
            self.0.fetch_or(GIVEN_UP, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!GIVEN_UP, Ordering::Relaxed);
        }
    }

    /// Gives up this pass and all that could come after it. Whoever is told of it sees what was before it.
    pub(crate) fn stop(&self) {
        self.0.fetch_or(STOPPED, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire) & STOPPED != 0
    }
}
