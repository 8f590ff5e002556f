//! Computes the memory that a loader takes, and the largest options that fit below a limit.

use crate::arena::ALIGN;
use crate::loader::collate::allocate::BatchBytes;
use crate::loader::error::build::{BuildError, Fits};

/// The options that decide how much memory a loader takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) workers: usize,
    /// The number of batches that are loaded ahead for each worker.
    pub(crate) prefetch: usize,
    /// The number of rows of a full batch.
    pub(crate) rows: usize,
}

impl Size {
    /// The number of slots that can be filled while the caller holds its own batches.
    pub(crate) fn ahead(self) -> usize {
        self.prefetch.saturating_mul(self.workers).max(1)
    }
}

/// The functions that compute the memory of one kind of loader.
pub(crate) struct MemoryBudget<'a> {
    /// Returns the number of slots of a loader of this size.
    pub(crate) slots: &'a dyn Fn(Size) -> usize,
    /// Returns the bytes of everything except the arena, for this number of slots.
    pub(crate) overhead: &'a dyn Fn(Size, usize) -> usize,
    /// The least number of workers that this kind of loader can have.
    pub(crate) fewest: usize,
}

impl MemoryBudget<'_> {
    /// Returns the total number of bytes. Without `batch`, a function that returns the bytes of a
    /// batch, the arena is not counted.
    fn total(&self, size: Size, batch: Option<BatchBytes<'_>>) -> usize {
        let slots = (self.slots)(size);
        let arena = batch.map_or(0, |bytes| {
            let bytes = bytes(size.rows).saturating_mul(slots).max(1);
            bytes.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX)
        });
        (self.overhead)(size, slots).saturating_add(arena)
    }

    /// Returns the greatest prefetch factor, up to that of `size`, with which the loader takes no
    /// more than `limit` bytes. If `must` is set, only the prefetch factor of `size` itself is
    /// accepted. `needs_worker` says whether other options require a worker.
    pub(crate) fn prefetch(
        &self,
        limit: usize,
        size: Size,
        must: bool,
        needs_worker: bool,
        batch: Option<BatchBytes<'_>>,
    ) -> Result<usize, BuildError> {
        let fewest = self.fewest.max(usize::from(needs_worker));
        let fits = |size| self.total(size, batch) <= limit;
        if fits(size) {
            return Ok(size.prefetch);
        }
        let least = Size { prefetch: 1, ..size };
        let smaller = greatest(1..size.prefetch, |prefetch| fits(Size { prefetch, ..size }));
        if let Some(prefetch) = smaller.filter(|_| !must) {
            return Ok(prefetch);
        }
        let batch_size = |workers| {
            let batch_size = greatest(1..size.rows, |rows| fits(Size { rows, workers, ..least }))?;
            Some(Fits::BatchSize { batch_size, workers })
        };
        let workers = || greatest(fewest..size.workers, |workers| fits(Size { workers, ..least }));
        let advice = smaller.filter(|_| size.workers > 0).map(Fits::PrefetchFactor);
        let advice = advice.or_else(|| workers().map(Fits::NumWorkers));
        let advice = advice.or_else(|| batch_size(size.workers)).or_else(|| batch_size(fewest));
        let asked = if must { size } else { least };
        Err(BuildError::MemoryLimit {
            limit,
            needed: self.total(asked, batch),
            overhead: (self.overhead)(asked, (self.slots)(asked)),
            fits: advice.unwrap_or(Fits::Nothing),
        })
    }
}

/// Returns the greatest number in a range that fits, provided that every number below one that fits
/// also fits.
fn greatest(range: std::ops::Range<usize>, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut low, mut high) = (range.start, range.end);
    if low >= high || !fits(low) {
        return None;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        *(if fits(middle) { &mut low } else { &mut high }) = middle;
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greatest_finds_the_largest_number_that_fits() {
        for end in 0..20 {
            for most in 0..25 {
                let expected = (3..end).rfind(|&n| n <= most);
                assert_eq!(greatest(3..end, |n| n <= most), expected, "up to {most} of 3..{end}");
            }
        }
        assert_eq!(greatest(1..usize::MAX, |_| true), Some(usize::MAX - 1));
    }
}
