//! Heap memory for the items of a column that do not fit in the cell. A cell is the memory of one
//! batch, and a column is the memory of one field in it.
//!
//! If the columns of a cell may spill, the cell ends with a [`Spill`] for each column that is
//! packed or padded to the longest sample. A zeroed spill, as in a new cell, means that the items
//! are in the column. Code that writes rows may move the items to the heap, and must free that
//! memory before the next batch. Code that reads rows finds the items through the spill. The owner
//! of the cell frees the heap memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::layout::FIELD_ALIGN;
use crate::arena::has_room;

/// The location of a column's items, if they are not in the column.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Spill {
    /// The start of the heap memory, aligned like columns. `None`, which is all zeros, if the items
    /// are in the column.
    start: Option<NonNull<u8>>,
    /// The size of the memory, in bytes, which are all initialised. A multiple of the alignment.
    bytes: usize,
}

impl Spill {
    /// Returns the memory and its size in bytes; `None` if the items are in the column.
    #[inline]
    pub(crate) fn memory(&self) -> Option<(*mut u8, usize)> {
        Some((self.start?.as_ptr(), self.bytes))
    }

    /// Allocates memory for `needed` bytes plus half as many, and copies the first `kept` bytes of
    /// the items there. Returns `None` if the memory cannot be allocated, and then changes nothing.
    ///
    /// # Safety
    ///
    /// At `from` there must be `kept` readable bytes, at most `needed`, in the column or in this
    /// spill's memory.
    #[cold]
    pub(crate) unsafe fn grow(&mut self, from: *const u8, kept: usize, needed: usize) -> Option<*mut u8> {
        let bytes = needed.checked_add(needed / 2)?.max(1).checked_next_multiple_of(FIELD_ALIGN)?;
        let new = Self::new(bytes)?;
        let (start, _) = new.memory()?;
        // SAFETY: the caller guarantees `kept` readable bytes at `from`, and new memory overlaps nothing.
        unsafe { std::ptr::copy_nonoverlapping(from, start, kept) };
        self.free();
        *self = new;
        Some(start)
    }

    /// Allocates zeroed bytes. `bytes` must be a multiple of the alignment and not 0. Returns
    /// `None` if the allocation fails.
    fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, FIELD_ALIGN).ok()?;
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start: Some(start), bytes })
    }

    /// Copies the memory. Returns `None` if the allocation fails.
    pub(crate) fn copy(&self) -> Option<Self> {
        let Some((from, bytes)) = self.memory() else { return Some(Self::default()) };
        let copy = if has_room(bytes) { Self::new(bytes)? } else { return None };
        // SAFETY: both memories have this many initialised bytes, and the new one does not overlap
        // the other.
        unsafe { std::ptr::copy_nonoverlapping(from, copy.start?.as_ptr(), bytes) };
        Some(copy)
    }

    /// Frees the memory, if there is any, and returns whether there was.
    pub(crate) fn free(&mut self) -> bool {
        let Some(start) = self.start.take() else { return false };
        // SAFETY: `new` has checked this layout and allocated the memory with it, and only this
        // value owns the memory.
        unsafe { dealloc(start.as_ptr(), Layout::from_size_align_unchecked(self.bytes, FIELD_ALIGN)) };
        true
    }
}
