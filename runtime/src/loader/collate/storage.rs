//! What a slot holds of one batch.

use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::overflow::Spills;
use crate::loader::collate::tag::Tag;

/// A slot's contents for one batch.
pub trait Storage: Send + Sync + 'static {
    /// Drops the contents of a batch that will not be delivered.
    fn discard(&self);

    /// Removes rows that were left empty, in ascending order, from a batch of `rows` rows.
    ///
    /// # Safety
    ///
    /// The caller must have exclusive access to the batch, which must have this many rows, each written or left empty.
    unsafe fn compact_rows(&self, empty: &[usize], rows: usize);

    /// The memory of the batch, unless a collate function makes it.
    fn region(&self) -> Option<&BatchBuffer> {
        None
    }

    /// The size of one sample's fields in bytes; `None` if samples differ in size, 0 if it is not known.
    fn sample_bytes(&self) -> Option<usize> {
        Some(0)
    }

    /// Returns the size of the batch in bytes, and counts the part on the heap.
    fn weigh(&self, _: Tag, _: &mut Spills) -> usize {
        0
    }
}
