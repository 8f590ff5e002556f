//! Tracks how far a pass is.

use crate::BoxError;

/// How far the current pass is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The number of the pass.
    pub(crate) epoch: u32,
    /// The number of batches; `None` as long as it is not known.
    pub(crate) tasks: Option<usize>,
    pub(crate) delivered: usize,
    /// Samples in the delivered part, for an iterable dataset.
    pub(crate) samples: usize,
    /// The length of an iterable dataset, until it was exceeded.
    pub(crate) declared_len: Option<usize>,
    /// Batches that were discarded because the rest of the pass was not wanted.
    pub(crate) discarded: usize,
    /// Whether batches have the numbers that they were asked for with; otherwise they are counted as they come.
    pub(crate) numbered: bool,
    /// Whether batches may be delivered out of sequence, so that more than their number must be recorded.
    pub(crate) gaps: bool,
    /// Whether the pass has begun and its end has not been seen yet.
    pub(crate) running: bool,
    /// Whether the user can take more of it.
    pub(crate) open: bool,
    /// Workers that could not begin, in reverse order.
    pub(crate) failures: Vec<(usize, BoxError)>,
    /// Whether no worker is left that could load.
    pub(crate) no_worker_left: bool,
}

impl Progress {
    /// Whether there may be batches to come.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.running && self.tasks != Some(self.delivered + self.discarded)
    }
}
