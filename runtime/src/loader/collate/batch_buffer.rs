//! The memory of one stacked batch.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::BoxError;
use crate::arena::{ALIGN, Heap, Memory, has_room, may_be_missing_after_fork};
use crate::dataset::Loadable;
use crate::fork::Process;
use crate::loader::collate::job::Read;
use crate::loader::collate::overflow::Spills;
use crate::loader::collate::storage::Storage;
use crate::loader::collate::tag::Tag;
use crate::sample::{Columns, FIELD_ALIGN, Layout, Row, RowsMut, Sample, compact_rows};

/// The memory of one stacked batch: a part of an arena, and heap memory for packed fields that
/// spilled.
#[doc(hidden)]
pub struct BatchBuffer {
    start: NonNull<u8>,
    layout: Arc<Layout>,
    arena: Arc<dyn Memory>,
    /// Whether the memory is from [`Builder::memory`](crate::loader::Builder::memory), which a
    /// forked process must not touch.
    given: bool,
    process: Process,
}

impl fmt::Debug for BatchBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchBuffer").field("size", &self.layout.size).finish_non_exhaustive()
    }
}

// SAFETY: the buffer owns its part of the arena, and the heap memory of its packed fields. The ring
// and the pool of cells ensure that claims write disjoint rows, and that the holder of a lease
// reads exclusively. All rows of packed fields belong to one claim.
unsafe impl Send for BatchBuffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for BatchBuffer {}

impl BatchBuffer {
    /// # Safety
    ///
    /// The `layout.size` bytes of `arena` from `start` must belong to this buffer alone, and be
    /// zeroed and aligned as fields are.
    pub(crate) unsafe fn new(start: NonNull<u8>, layout: Arc<Layout>, arena: Arc<dyn Memory>) -> Self {
        let given = may_be_missing_after_fork(&*arena);
        Self { start, layout, arena, given, process: Process::this() }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Returns the number of this buffer among the buffers of its arena.
    pub(crate) fn number(&self) -> usize {
        (self.start.as_ptr().addr() - self.arena.start().as_ptr().addr()) / slot_size(self.layout.size)
    }

    pub(crate) fn arena(&self) -> &Arc<dyn Memory> {
        &self.arena
    }

    /// Returns a copy in new memory.
    ///
    /// # Panics
    ///
    /// Panics if the system has no memory for the copy, and like [`columns`](Self::columns).
    ///
    /// # Safety
    ///
    /// No thread may write the batch during the call.
    pub(crate) unsafe fn copy(&self) -> Self {
        self.check_process();
        let size = self.layout.size;
        let memory = if has_room(size) { Heap::new(size) } else { Err(std::io::ErrorKind::OutOfMemory.into()) };
        let memory = memory.unwrap_or_else(|error| panic!("a batch of {size} bytes cannot be copied: {error}"));
        let start = memory.start();
        // SAFETY: the memory is new, and as large as the layout.
        let copy = unsafe { Self::new(start, self.layout.clone(), Arc::new(memory)) };
        // SAFETY: this buffer has the same layout, and no thread writes it (this function's safety
        // contract).
        unsafe { self.layout.copy(self.start.as_ptr(), start.as_ptr()) };
        copy
    }

    #[inline]
    fn check_process(&self) {
        if self.given && !self.process.is_this() {
            no_such_memory();
        }
    }

    /// Returns the fields of the batch that `tag` describes.
    ///
    /// # Panics
    ///
    /// Panics in a forked process if the memory is from
    /// [`Builder::memory`](crate::loader::Builder::memory).
    ///
    /// # Safety
    ///
    /// The rows of `tag` must have been written, and no thread may write them while the columns are
    /// used.
    #[inline]
    pub(crate) unsafe fn columns(&self, tag: Tag) -> Columns<'_> {
        self.check_process();
        let start = self.start.as_ptr();
        // SAFETY: the caller upholds that the rows are written and stay unchanged, and the caller
        // of `new` upheld that the memory fits the layout. A single sample has one row.
        unsafe {
            if tag.single { Columns::single(&self.layout, start) } else { Columns::new(&self.layout, start, tag.rows) }
        }
    }
}

#[cold]
#[inline(never)]
fn no_such_memory() -> ! {
    panic!(
        "this process was forked and lacks the memory of its parent's batches; load them again here, or spawn a process instead"
    )
}

impl Drop for BatchBuffer {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The memory may be absent or shared with the parent, or a thread that exists only in
            // the parent may have written only a part of it. So leak the memory, and the heap
            // memory of packed fields that spilled.
            return std::mem::forget(self.arena.clone());
        }
        // SAFETY: this part of the arena belongs to the buffer alone, and no one else has the
        // buffer.
        unsafe { self.layout.free_spills(self.start.as_ptr()) };
    }
}

impl BatchBuffer {
    /// Marks a row as having no sample.
    ///
    /// # Safety
    ///
    /// The row must exist and belong to the caller's claim.
    pub(crate) unsafe fn leave_empty(&self, row: usize) {
        // SAFETY: the caller upholds that the row exists and is its own.
        unsafe { Row::new(&self.layout, self.start.as_ptr(), row) }.leave_empty();
    }

    /// Whether the first `rows` rows can be read safely, whatever bytes were written there.
    ///
    /// # Safety
    ///
    /// No thread may write the batch during the call.
    #[cfg(processes)]
    pub(crate) unsafe fn is_valid(&self, rows: usize) -> bool {
        // With a collate function, the batch has one row for any number of samples.
        let rows = rows.min(self.layout.rows);
        // SAFETY: the caller upholds the contract. Nothing spills here, since workers are
        // processes.
        unsafe { self.layout.is_valid(self.start.as_ptr(), rows) }
    }

    /// Writes a sample into its row.
    #[inline(always)] // See `MapJob::next`.
    pub(crate) fn write<D: Loadable>(&self, read: Read<'_, D>) -> Result<(), BoxError> {
        // SAFETY: the row belongs to the claim behind the job (see `Job`).
        unsafe { self.write_row(read.row, read.index, read.sample) }
    }

    /// Returns a writer for the rows from `next` on, one for each index of a sample; see
    /// [`RowsMut::new`].
    ///
    /// # Safety
    ///
    /// The rows must exist and belong to the caller's claim.
    pub(crate) unsafe fn rows<'a>(
        &'a self,
        next: &'a mut usize,
        indices: &'a [usize],
        watch: Option<&'a dyn Fn(bool)>,
    ) -> RowsMut<'a> {
        // SAFETY: the caller upholds that the rows exist and are its own.
        unsafe { RowsMut::new(&self.layout, self.start.as_ptr(), next, indices, watch) }
    }

    /// Writes a sample into a row.
    ///
    /// # Safety
    ///
    /// The row must exist and belong to the caller's claim.
    #[inline(always)] // See `write`.
    pub(crate) unsafe fn write_row(&self, row: usize, index: usize, sample: impl Sample) -> Result<(), BoxError> {
        // SAFETY: the caller upholds the contract.
        let mut row = unsafe { Row::new(&self.layout, self.start.as_ptr(), row) };
        row.set_index(index as i64);
        sample.write(&mut row)?;
        Ok(row.finish()?)
    }
}

impl Storage for BatchBuffer {
    fn discard(&self) {}

    unsafe fn compact_rows(&self, empty: &[usize], rows: usize) {
        if rows > self.layout.rows {
            // A collate function has made one row of the good samples.
            return;
        }
        // SAFETY: the caller upholds the contract of `Storage::compact_rows`: exclusive access, and
        // rows that are written or empty.
        unsafe { compact_rows(&self.layout, self.start.as_ptr(), empty, rows) };
    }

    fn region(&self) -> Option<&BatchBuffer> {
        Some(self)
    }

    fn sample_bytes(&self) -> Option<usize> {
        let columns = self.layout.columns.iter();
        (!self.layout.is_sequential()).then(|| columns.map(|column| column.stride).sum())
    }

    #[cold]
    fn weigh(&self, tag: Tag, spills: &mut Spills) -> usize {
        // SAFETY: as in `Batch::columns`.
        let columns = unsafe { self.columns(tag) };
        spills.count(tag, columns);
        (0..columns.len()).filter_map(|i| columns.get(i)).map(|field| field.bytes().len()).sum()
    }
}

/// The bytes from one slot to the next: whole pages, or for a batch smaller than a page, a multiple
/// of the field alignment.
pub(crate) fn slot_size(layout: usize) -> usize {
    layout.max(1).next_multiple_of(if layout < ALIGN { FIELD_ALIGN } else { ALIGN })
}
