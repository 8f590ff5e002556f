//! The width of rows that are padded to the longest row of their batch.

use super::layout::Column;
use crate::dtype::Element;

/// The state of a column that is padded to the longest row: the common width of the rows that were
/// written so far, and how they are padded.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RowWidth {
    /// The distance from one row to the next, in elements.
    pub(crate) width: i64,
    /// The number that the width is a multiple of.
    pub(crate) unit: i64,
    /// The number of rows, from the first one on, whose lengths `width` takes into account.
    pub(crate) written: i64,
    padding: [u8; 16],
}

/// The width of the rows before the row that is written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WidthBefore {
    /// The current distance from one row to the next, in elements.
    pub(super) stride: usize,
    /// The distance that these rows need, which is the length of the longest one, rounded up. It is
    /// smaller than `stride` if they were widened for a row that was then not written.
    pub(super) needed: usize,
}

impl RowWidth {
    pub(super) fn new<T: Element>(width: usize, unit: usize, written: usize, padding: T) -> Self {
        let mut bytes = [0; 16];
        bytes[..size_of::<T>()].copy_from_slice(crate::dtype::bytes_of(std::slice::from_ref(&padding)));
        Self { width: width as i64, unit: unit as i64, written: written as i64, padding: bytes }
    }

    /// Returns a pointer to the `RowWidth` of a column.
    ///
    /// # Safety
    ///
    /// The column must be padded to the longest row, and `cell` must be the start of a cell of its
    /// layout, which has this many rows.
    #[inline]
    pub(crate) unsafe fn of(column: &Column, cell: *mut u8, rows: usize) -> *mut Self {
        // SAFETY: `Layout::new` placed the `RowWidth` after the lengths, which have the same alignment.
        unsafe { cell.add(column.ends).cast::<i64>().add(rows).cast() }
    }

    /// Returns the padding that the last row was written with, as an element of type `T`. Zeros if
    /// no row was written yet.
    pub(super) fn padding<T: Element>(&self) -> T {
        let bytes = &self.padding[..size_of::<T>()];
        let valid = crate::dtype::from_bytes(bytes).or_else(|| crate::dtype::from_bytes(&[0; 16][..size_of::<T>()]));
        valid.and_then(|padding| padding.first().copied()).expect("zeros are an element")
    }

    /// Returns the width of the rows before `row`, which have these lengths. If this
    /// `RowWidth` has values that no row can have written (another process may have overwritten it),
    /// the returned width is too large for any batch.
    #[inline]
    pub(super) fn before(&self, row: usize, lengths: &[i64]) -> WidthBefore {
        if row == 0 {
            return WidthBefore { stride: 0, needed: 0 };
        }
        let stride = usize::try_from(self.width).unwrap_or(usize::MAX);
        // A row that failed may have widened the rows.
        let needed = if self.written == row as i64 { stride } else { self.needed(lengths) };
        WidthBefore { stride, needed }
    }

    #[cold]
    fn needed(&self, lengths: &[i64]) -> usize {
        let longest = usize::try_from(lengths.iter().copied().max().unwrap_or(0)).unwrap_or(usize::MAX);
        let unit = usize::try_from(self.unit).unwrap_or(1).max(1);
        longest.checked_next_multiple_of(unit).unwrap_or(usize::MAX)
    }

    /// Records that `row`, which may have been written already, is left empty. Returns the width of
    /// the rows before it.
    pub(super) fn leave_empty(&mut self, row: usize, lengths: &[i64]) -> WidthBefore {
        let was = self.before(row, lengths);
        if row == 0 {
            *self = Self::default();
        }
        (self.width, self.written) = (was.needed as i64, row as i64 + 1);
        was
    }
}
