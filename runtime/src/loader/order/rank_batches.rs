//! Divides a user's iterator of batches among ranks.

use crate::BoxError;
use crate::loader::order::plan::Batches;
use crate::ranks::Ranks;

/// The batches of one rank. The user's batches are divided into groups of one batch per rank, and
/// the rank takes one batch of each group. All ranks read all batches, so all of them end, or fail,
/// at the same batch.
pub(crate) struct RankBatches {
    batches: Box<dyn Batches>,
    ranks: Ranks,
    /// Whether an incomplete last group is dropped. Otherwise the ranks without a batch repeat the
    /// first batch of the group.
    drop_last: bool,
    /// A buffer for the batches of other ranks.
    other: Vec<usize>,
}

impl RankBatches {
    pub(crate) fn new(batches: Box<dyn Batches>, ranks: Ranks, drop_last: bool) -> Self {
        Self { batches, ranks, drop_last, other: Vec::new() }
    }
}

impl Batches for RankBatches {
    fn next(&mut self, list: &mut Vec<usize>) -> Result<bool, BoxError> {
        if !self.batches.next(list)? {
            return Ok(false);
        }
        for rank in 1..self.ranks.world_size() {
            self.other.clear();
            if !self.batches.next(&mut self.other)? {
                return Ok(!self.drop_last);
            }
            if rank == self.ranks.rank() {
                list.clear();
                list.extend_from_slice(&self.other);
            }
        }
        Ok(true)
    }
}
