//! The positions of an order that belong to each batch, for batches of different sizes.

use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use super::SamplerError;
use crate::BoxError;

/// The batches of a pass, for a sampler that plans them
/// ([`SampledBatches::planned`](super::SampledBatches::planned)). A batch is a range of consecutive
/// positions of the order.
///
/// All replicas have the same order and the same list of batches, and each replica takes its share
/// of the list. So a sample has the same position, and the same random numbers, for any number of
/// replicas.
///
/// ```
/// use slotline::sampler::Spans;
///
/// let mut batches = Spans::new(vec![2, 3, 7]);
/// assert!((0..batches.len()).map(|task| batches.of(task)).eq([0..2, 2..3, 3..7]));
/// // The second of two replicas has batches 1, 3, 5, … of the list, which begins again at its end.
/// batches = batches.replicas(2.try_into()?, 1, false);
/// assert!((0..batches.len()).map(|task| batches.of(task)).eq([2..3, 0..2]));
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spans {
    /// The position after the last one of each batch in the list.
    ends: Arc<Vec<u32>>,
    /// The number of batches in this replica's pass.
    len: usize,
    /// The number of replicas. `rank` is the number of this replica, and `drop_last` says whether
    /// batches at the end of the list are dropped if their number isn't divisible by `replicas`.
    replicas: NonZero<usize>,
    rank: usize,
    drop_last: bool,
    /// The number of this replica's first batch after a pass was resumed. `distributed` is the number of
    /// batches of the list that were distributed before.
    position: usize,
    distributed: usize,
}

impl Default for Spans {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Spans {
    /// Makes a list of batches from their ends: each batch begins where the previous one ends, the
    /// first at position 0, and ends before its entry of `ends`. All batches belong to one replica.
    pub fn new(ends: Vec<u32>) -> Self {
        let (len, replicas) = (ends.len(), NonZero::<usize>::MIN);
        Self { ends: Arc::new(ends), len, replicas, rank: 0, drop_last: false, position: 0, distributed: 0 }
    }

    /// Restricts the batches to those of replica `rank`: `rank`, `rank + replicas`, and so on. All
    /// replicas get the same number of batches. If the length of the list isn't divisible by
    /// `replicas`, batches from its start are repeated, or with `drop_last` some at its end are
    /// dropped.
    #[must_use]
    pub fn replicas(mut self, replicas: NonZero<usize>, rank: usize, drop_last: bool) -> Self {
        (self.replicas, self.rank, self.drop_last) = (replicas, rank, drop_last);
        self.counted()
    }

    /// Restricts the batches to the rest of a pass that is resumed, possibly with another number of
    /// replicas. Each replica had `position` batches before, and `distributed` batches of the list were
    /// distributed in all. The numbers of the remaining batches continue from `position`.
    #[must_use]
    pub fn after(mut self, position: usize, distributed: usize) -> Self {
        (self.position, self.distributed) = (position, distributed);
        self.counted()
    }

    fn counted(mut self) -> Self {
        let left = self.ends.len().saturating_sub(self.distributed);
        let share = if self.drop_last { left / self.replicas } else { left.div_ceil(self.replicas.get()) };
        self.len = self.position + share;
        self
    }

    /// Returns the ends of the batches, so that their memory can be reused. Returns an empty vector
    /// if a clone of these batches exists.
    pub fn into_ends(self) -> Vec<u32> {
        Arc::into_inner(self.ends).unwrap_or_default()
    }

    /// Returns the number of batches in this replica's pass.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no batches.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the positions of batch `task`. The range is empty if there is no such batch, or it
    /// was delivered before the pass was [resumed](Self::after).
    pub fn of(&self, task: usize) -> Range<usize> {
        let Some(nth) = task.checked_sub(self.position).filter(|_| task < self.len) else { return 0..0 };
        // After the end of the list, its batches are repeated from the start.
        let batch = (self.distributed + self.rank + nth * self.replicas.get()) % self.ends.len();
        let start = batch.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[batch] as usize
    }

    /// Returns the number of samples in the pass, or in the rest of a resumed one. Fails if a batch
    /// has no positions, more than `most`, or any that are not below `positions`.
    pub(crate) fn samples(&self, positions: usize, most: usize) -> Result<usize, SamplerError> {
        let mut samples = 0;
        for task in self.position..self.len {
            let batch = self.of(task);
            if batch.end > positions || !(1..=most).contains(&batch.len()) {
                let error = format!(
                    "batch {task} has the positions {batch:?} of an order of {positions}; a batch of this sampler must have 1 \
                     to {most} of them"
                );
                return Err(BoxError::from(error).into());
            }
            samples += batch.len();
        }
        Ok(samples)
    }
}
