//! What a loader takes in memory as a function of its size, and the size that fits below a limit.

use crate::arena::ALIGN;
use crate::loader::collate::allocate::BatchBytes;
use crate::loader::error::build::{BuildError, Fits};

/// What decides how much memory a loader takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) workers: usize,
    /// Batches ahead for each of them.
    pub(crate) prefetch: usize,
    /// Rows of a whole batch.
    pub(crate) rows: usize,
}

impl Size {
    /// Slots that are there to be filled while the caller holds its own.
    pub(crate) fn ahead(self) -> usize {
        self.prefetch.saturating_mul(self.workers).max(1)
    }
}

/// The memory of a loader, item by item.
pub(crate) struct MemoryBudget<'a> {
    /// How many slots there are.
    pub(crate) slots: &'a dyn Fn(Size) -> usize,
    /// Bytes of all but the arena, with so many slots.
    pub(crate) beside: &'a dyn Fn(Size, usize) -> usize,
}

impl MemoryBudget<'_> {
    /// Bytes of all; without an arena if the engine does not know what a batch takes.
    fn total(&self, size: Size, batch: Option<BatchBytes<'_>>) -> usize {
        let slots = (self.slots)(size);
        let arena = batch.map_or(0, |bytes| {
            let bytes = bytes(size.rows).saturating_mul(slots).max(1);
            bytes.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX)
        });
        (self.beside)(size, slots).saturating_add(arena)
    }

    /// The greatest prefetch factor with which no more than `limit` bytes are taken, up to the one that `size` has; or that
    /// one itself, if it `must` be it. `fewest` says how many workers the other options need.
    pub(crate) fn prefetch(
        &self,
        limit: usize,
        size: Size,
        must: bool,
        fewest: usize,
        batch: Option<BatchBytes<'_>>,
    ) -> Result<usize, BuildError> {
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
            beside: (self.beside)(asked, (self.slots)(asked)),
            fits: advice.unwrap_or(Fits::Nothing),
        })
    }
}

/// The greatest number in a range that fits, if all below one that fits do, too.
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
    fn the_greatest_number_that_fits_is_found_wherever_it_is() {
        for end in 0..20 {
            for most in 0..25 {
                let expected = (3..end).rfind(|&n| n <= most);
                assert_eq!(greatest(3..end, |n| n <= most), expected, "up to {most} of 3..{end}");
            }
        }
        assert_eq!(greatest(1..usize::MAX, |_| true), Some(usize::MAX - 1));
    }
}
