//! The memory of one batch.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::BoxError;
use crate::arena::{Heap, Memory, has_room};
use crate::dataset::Loadable;
use crate::fork::Process;
use crate::loader::collate::Storage;
use crate::loader::collate::batch::Tag;
use crate::loader::collate::block::is_given;
use crate::loader::collate::job::Read;
use crate::loader::collate::overflow::Spills;
use crate::sample::{Columns, Layout, Row, Sample, close_up};

/// The memory of one batch.
#[doc(hidden)]
pub struct Region {
    start: NonNull<u8>,
    layout: Arc<Layout>,
    arena: Arc<dyn Memory>,
    /// Whether a process that is forked from this one must not touch it.
    given: bool,
    process: Process,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("size", &self.layout.size).finish_non_exhaustive()
    }
}

// SAFETY: the region owns its part of the arena, and what its packed fields have on the heap. Claims write disjoint rows of
// it, and a lease reads it alone, as the protocols of the ring and of the slab have it; rows of packed fields are all of one claim.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// # Safety
    ///
    /// From `start`, `layout.size` bytes of `arena` must be this region's alone, zeroed and aligned as fields are.
    pub(crate) unsafe fn new(start: NonNull<u8>, layout: Arc<Layout>, arena: Arc<dyn Memory>) -> Self {
        let given = is_given(&*arena);
        Self { start, layout, arena, given, process: Process::this() }
    }

    pub(crate) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    pub(crate) fn arena(&self) -> &Arc<dyn Memory> {
        &self.arena
    }

    /// A copy in new memory.
    ///
    /// # Panics
    ///
    /// As [`columns`](Self::columns), and if the system has no memory for it.
    ///
    /// # Safety
    ///
    /// Nobody may write the batch meanwhile.
    pub(crate) unsafe fn copy(&self) -> Self {
        self.check_process();
        let size = self.layout.size;
        let memory = if has_room(size) { Heap::new(size) } else { Err(std::io::ErrorKind::OutOfMemory.into()) };
        let memory = memory.unwrap_or_else(|error| panic!("a batch of {size} bytes cannot be copied: {error}"));
        let start = memory.start();
        // SAFETY: the memory is new, and as many bytes as the layout has.
        let copy = unsafe { Self::new(start, self.layout.clone(), Arc::new(memory)) };
        // SAFETY: this one has such a layout, too, and nobody writes it.
        unsafe { self.layout.copy(self.start.as_ptr(), start.as_ptr()) };
        copy
    }

    #[inline]
    fn check_process(&self) {
        if self.given && !self.process.is_this() {
            no_such_memory();
        }
    }

    /// The batch that `tag` describes.
    ///
    /// # Panics
    ///
    /// In a forked process, if the memory is not [`Pages`](crate::arena::Pages).
    ///
    /// # Safety
    ///
    /// Its rows must have been written, and nobody may write them while the columns are used.
    #[inline]
    pub(crate) unsafe fn columns(&self, tag: Tag) -> Columns<'_> {
        self.check_process();
        let start = self.start.as_ptr();
        // SAFETY: the caller's word, and `new`'s. A single sample has one row.
        unsafe {
            if tag.single { Columns::single(&self.layout, start) } else { Columns::new(&self.layout, start, tag.rows) }
        }
    }
}

#[cold]
#[inline(never)]
fn no_such_memory() -> ! {
    panic!("this process was forked, and the memory of its parent's batches is not in it: load again here, or spawn")
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The memory may not be there, be the parent's as well, or have been written to by a thread that is gone: what
            // spilled stays where it is, and so does the memory.
            return std::mem::forget(self.arena.clone());
        }
        // SAFETY: the region has this part of the arena alone, and nobody else has the region.
        unsafe { self.layout.free_spills(self.start.as_ptr()) };
    }
}

impl Region {
    /// Leaves a row without a sample.
    ///
    /// # Safety
    ///
    /// The row must be the caller's own, and there must be one.
    pub(crate) unsafe fn leave_empty(&self, row: usize) {
        // SAFETY: the caller's word.
        unsafe { Row::new(&self.layout, self.start.as_ptr(), row) }.leave_empty();
    }

    /// Writes a sample into its row.
    #[inline(always)] // As `MapJob::next`.
    pub(crate) fn write<D: Loadable>(&self, read: Read<'_, D>) -> Result<(), BoxError> {
        // SAFETY: the claim behind the job has the row to itself (see `Job`).
        let mut row = unsafe { Row::new(&self.layout, self.start.as_ptr(), read.row) };
        row.set_index(read.index as i64);
        read.sample.write(&mut row)?;
        Ok(row.finish()?)
    }
}

impl Storage for Region {
    fn discard(&self) {}

    unsafe fn close_up(&self, empty: &[usize], rows: usize) {
        // SAFETY: the caller's word.
        unsafe { close_up(&self.layout, self.start.as_ptr(), empty, rows) };
    }

    fn region(&self) -> Option<&Region> {
        Some(self)
    }

    fn sample_bytes(&self) -> Option<usize> {
        let columns = self.layout.columns.iter();
        (!self.layout.is_sequential()).then(|| columns.map(|column| column.stride).sum())
    }

    #[cold]
    fn weigh(&self, tag: Tag, spills: &mut Spills) -> usize {
        // SAFETY: as of `Batch::columns`.
        let columns = unsafe { self.columns(tag) };
        spills.count(tag, columns);
        (0..columns.len()).filter_map(|i| columns.get(i)).map(|field| field.bytes().len()).sum()
    }
}
