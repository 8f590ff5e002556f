//! Stopping a loader from another thread.

use std::fmt;
use std::sync::Arc;

/// Stops a loader, from whatever thread: see [`Loader::stopper`](super::Loader::stopper).
///
/// It does not keep the loader: of one that is dropped it stops nothing.
#[derive(Clone)]
pub struct Stopper(Arc<dyn Fn() + Send + Sync>);

impl Stopper {
    pub(super) fn new(stop: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(stop))
    }

    /// Stops the loader, for ever, and returns at once.
    ///
    /// A `next` that waits says [`Error::Stopped`](super::Error::Stopped) at once, and so does every later one of this pass, but
    /// that after the first the pass is over; so does `epoch`. Workers, and a calling thread that loads, stop at their
    /// current sample: code of the dataset's is not interrupted. Batches in hand stay good. What was made ahead is not
    /// delivered, so that [`state`](super::Loader::state) says what was, and another loader can go on from there.
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
