//! What a loader takes in memory as a function of its size, and the size that fits below a limit.

use std::fmt;

use super::error::BuildError;
use crate::arena::ALIGN;

/// What decides how much memory a loader takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) workers: usize,
    /// Batches ahead for each of them.
    pub(super) prefetch: usize,
    /// Rows of a whole batch.
    pub(super) rows: usize,
}

impl Size {
    /// Slots that are there to be filled while the caller holds its own.
    pub(super) fn ahead(self) -> usize {
        self.prefetch.saturating_mul(self.workers).max(1)
    }
}

/// Bytes from slot to slot in the arena, if batches have so many rows; `usize::MAX` if that is no number.
pub(super) type BatchBytes<'a> = &'a dyn Fn(usize) -> usize;

/// The memory of a loader, item by item.
pub(super) struct Bill<'a> {
    /// How many slots there are.
    pub(super) slots: &'a dyn Fn(Size) -> usize,
    /// Bytes of all but the arena, with so many slots.
    pub(super) beside: &'a dyn Fn(Size, usize) -> usize,
}

impl Bill<'_> {
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
    pub(super) fn prefetch(
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

/// What would fit below a [memory limit](super::Builder::memory_limit): the greatest that does, with all other options as
/// they are but for [`prefetch_factor`](super::Builder::prefetch_factor), which is left to the builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fits {
    /// This prefetch factor.
    PrefetchFactor(usize),
    /// So many workers.
    NumWorkers(usize),
    /// Smaller batches.
    BatchSize {
        /// Samples in a batch.
        batch_size: usize,
        /// With so many workers.
        workers: usize,
    },
    /// None of these.
    Nothing,
}

impl fmt::Display for Fits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrefetchFactor(batches) => write!(f, "prefetch_factor = {batches} would fit"),
            Self::NumWorkers(workers) => write!(f, "num_workers = {workers} would fit, with no prefetch_factor given"),
            Self::BatchSize { batch_size, workers } => write!(
                f,
                "batch_size = {batch_size} would fit, with num_workers = {workers} and no prefetch_factor given"
            ),
            Self::Nothing => f.write_str("no smaller batches would fit either; raise it"),
        }
    }
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
