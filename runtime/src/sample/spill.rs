//! Memory from the heap for the items of a packed column that find no room in the slot.
//!
//! A slot whose packed columns may spill has a [`Spill`] for each of them behind everything else. Zeros, as the slot
//! begins, say that the items are in the column. Whoever writes the slot's rows may move them to the heap, and has to
//! free that memory before the next batch; whoever reads the rows finds them by it; and who gives up the slot frees it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::layout::FIELD_ALIGN;
use crate::arena::has_room;

/// Where the items of a packed column are, if they are not in the column.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Spill {
    /// Aligned as columns are; null, of which zeros are a value, if they are in the column.
    start: Option<NonNull<u8>>,
    /// How many bytes there are, all initialised; a multiple of the alignment.
    bytes: usize,
}

impl Spill {
    /// The memory, and how many bytes it has; `None` if the items are in the column.
    #[inline]
    pub(crate) fn memory(&self) -> Option<(*mut u8, usize)> {
        Some((self.start?.as_ptr(), self.bytes))
    }

    /// Takes memory for `needed` bytes and half as many again, and copies the first `kept` ones from where they are now.
    /// `None` if it cannot be had; then all stays as it is.
    ///
    /// # Safety
    ///
    /// At `from` there must be `kept` readable bytes, at most `needed`: the column's, or this memory's own.
    #[cold]
    pub(crate) unsafe fn grow(&mut self, from: *const u8, kept: usize, needed: usize) -> Option<*mut u8> {
        let bytes = needed.checked_add(needed / 2)?.max(1).checked_next_multiple_of(FIELD_ALIGN)?;
        let new = Self::new(bytes)?;
        let (start, _) = new.memory()?;
        // SAFETY: the caller's word, and new memory overlaps nothing.
        unsafe { std::ptr::copy_nonoverlapping(from, start, kept) };
        self.free();
        *self = new;
        Some(start)
    }

    /// So many zeroed bytes, a multiple of the alignment and not 0; `None` if they cannot be had.
    fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, FIELD_ALIGN).ok()?;
        // SAFETY: there are some bytes.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start: Some(start), bytes })
    }

    /// A copy in memory of its own; `None` if that cannot be had.
    pub(crate) fn copy(&self) -> Option<Self> {
        let Some((from, bytes)) = self.memory() else { return Some(Self::default()) };
        let copy = if has_room(bytes) { Self::new(bytes)? } else { return None };
        // SAFETY: both have so many bytes, initialised, and new memory overlaps nothing.
        unsafe { std::ptr::copy_nonoverlapping(from, copy.start?.as_ptr(), bytes) };
        Some(copy)
    }

    /// Gives the memory back, if there is some, and says whether there was.
    pub(crate) fn free(&mut self) -> bool {
        let Some(start) = self.start.take() else { return false };
        // SAFETY: `new` found this layout to be one, and got the memory by it; only this value has it.
        unsafe { dealloc(start.as_ptr(), Layout::from_size_align_unchecked(self.bytes, FIELD_ALIGN)) };
        true
    }
}
