//! How one batch is stored.

use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::overflow::Spills;
use crate::loader::collate::tag::Tag;

/// The storage of one batch: its memory, or the result of a collate function.
pub trait Storage: Send + Sync + 'static {
    /// Drops the contents of a batch that will not be delivered.
    fn discard(&self);

    /// Removes the rows `empty`, in ascending order, which have no sample, from a batch of `rows`
    /// rows.
    ///
    /// # Safety
    ///
    /// The caller must have exclusive access to the batch, which must have `rows` rows, each
    /// written or left empty.
    unsafe fn compact_rows(&self, empty: &[usize], rows: usize);

    /// The memory of the batch; `None` if a collate function makes the batch.
    fn region(&self) -> Option<&BatchBuffer> {
        None
    }

    /// The bytes of one sample's fields. `None` if samples differ in size, and 0 if the size is not
    /// known.
    fn sample_bytes(&self) -> Option<usize> {
        Some(0)
    }

    /// Returns the bytes of the batch, and counts those that spilled to the heap.
    fn weigh(&self, _: Tag, _: &mut Spills) -> usize {
        0
    }
}
