//! The progress of the current pass.

use crate::BoxError;

/// The progress of the current pass.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The number of the pass.
    pub(crate) epoch: u32,
    /// The number of batches; `None` while it is not known.
    pub(crate) tasks: Option<usize>,
    pub(crate) delivered: usize,
    /// The number of samples delivered in this pass, for an iterable dataset.
    pub(crate) samples: usize,
    /// The length of an iterable dataset; `None` once more samples were delivered.
    pub(crate) declared_len: Option<usize>,
    /// The number of batches that were discarded when the pass was abandoned.
    pub(crate) discarded: usize,
    /// Whether a batch has the number under which it was requested. Otherwise batches are numbered
    /// as they are delivered.
    pub(crate) numbered: bool,
    /// Whether batches may be delivered out of order, so that recording how many of them were
    /// delivered is not enough.
    pub(crate) gaps: bool,
    /// Whether the pass has begun and has not been found to have ended.
    pub(crate) running: bool,
    /// Whether the user can still take batches of the pass.
    pub(crate) open: bool,
    /// The workers whose `worker_init` failed, each with its error, as far as that is not reported
    /// yet; in descending order.
    pub(crate) failures: Vec<(usize, BoxError)>,
    /// Whether no worker is left that could load.
    pub(crate) no_worker_left: bool,
}

impl Progress {
    /// Whether the pass may have more batches.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.running && self.tasks != Some(self.delivered + self.discarded)
    }
}
