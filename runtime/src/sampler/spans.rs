//! Batches of different sizes: which positions of a drawn order belong to which batch.

use std::ops::Range;
use std::sync::Arc;

/// The batches of a pass, for a sampler that decides on them ([`Sampler::spans`](super::Sampler::spans)).
///
/// All replicas have the same list of batches, one after another in the order, and each takes its own. Positions are
/// those of the order, so that a sample has the same position, and the same random numbers, for any number of replicas.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    /// Where each batch of the list ends.
    pub(super) ends: Arc<Vec<u32>>,
    /// The number of batches of this replica's pass.
    pub(super) len: usize,
    /// The number of replicas, and which this one is.
    pub(super) replicas: usize,
    pub(super) rank: usize,
    /// How much of the list was given out before it was given to these replicas.
    pub(super) deal: Deal,
}

/// How far a pass was when its rest was given to another number of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deal {
    /// The number of this replica's first batch of the rest.
    pub(super) position: usize,
    /// The number of batches of the list that were given out before.
    pub(super) dealt: usize,
}

impl Spans {
    /// Returns the number of batches of the pass.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no batches.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the positions of batch `task`; none if there is no such batch, or it was delivered before the pass was
    /// resumed by another number of replicas.
    pub fn of(&self, task: usize) -> Range<usize> {
        let Some(place) = task.checked_sub(self.deal.position).filter(|_| task < self.len) else { return 0..0 };
        // At the end, the batches from the start of the list come again.
        let batch = (self.deal.dealt + self.rank + place * self.replicas) % self.ends.len();
        let start = batch.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[batch] as usize
    }

    /// Returns the number of samples of the pass, or of the rest that was resumed.
    pub fn samples(&self) -> usize {
        (self.deal.position..self.len).map(|task| self.of(task).len()).sum()
    }
}
