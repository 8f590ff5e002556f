//! What becomes of packed samples that find no room in their batch, and the count of them.

use crate::loader::collate::batch::Tag;
use crate::loader::spans;
use crate::sample::Columns;

/// What becomes of a batch whose [packed](crate::sample::Packed) samples have more items than it has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// An error that names the sample for which no room was left.
    #[default]
    Error,
    /// The field's items go to memory from the heap, for this batch only.
    ///
    /// It is read as any other. Its memory is freed when its place is filled with the next batch, or the loader and its
    /// batches are gone; it comes on top of the loader's [`memory_ceiling`](crate::loader::Loader::memory_ceiling), and
    /// [`pin_memory`](crate::loader::Builder::pin_memory) does not lock it. The first such batch is said through `tracing`, all are
    /// [counted](crate::loader::Stats::spilled_batches).
    Spill,
}

/// What spilled of the batches that were taken of one loader.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Spills {
    /// Whether fields may spill.
    pub(crate) allowed: bool,
    /// Batches with fields on the heap, and the bytes of these fields.
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
}

impl Spills {
    pub(crate) fn new(overflow: Overflow) -> Self {
        Self { allowed: overflow == Overflow::Spill, batches: 0, bytes: 0 }
    }

    /// Counts what a batch has on the heap, and says so the first time.
    pub(crate) fn count(&mut self, tag: Tag, columns: Columns<'_>) {
        if !self.allowed {
            return;
        }
        let Some((field, items)) = columns.spilled().next() else { return };
        self.bytes += columns.spilled().map(|(field, items)| (items * field.item_bytes()) as u64).sum::<u64>();
        self.batches += 1;
        if self.batches == 1 {
            let least = items.div_ceil(tag.rows.max(1));
            spans::tell(|| {
                tracing::warn!(
                    "field {field}: batch {} has {items} items and no room for so many, and so took memory for itself, \
                     as later ones will; declare room for {least} per sample to have it in the loader's own",
                    tag.task
                );
            });
        }
    }
}
