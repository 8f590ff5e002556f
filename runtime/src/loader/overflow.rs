//! What becomes of packed samples that find no room in their batch, and the count of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::batch::Tag;
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
    /// batches are gone; it comes on top of the loader's [`memory_ceiling`](super::Loader::memory_ceiling), and
    /// [`pin_memory`](super::Builder::pin_memory) does not lock it. The first such batch is said through `tracing`, all are
    /// [counted](super::Loader::spilled_batches).
    Spill,
}

/// What spilled of the batches of one loader; nothing, if that is an error there.
#[derive(Clone, Debug, Default)]
pub(super) struct Spills(Option<Arc<Counts>>);

/// Written by whoever takes batches.
#[derive(Debug, Default)]
struct Counts {
    batches: AtomicU64,
    bytes: AtomicU64,
}

impl Spills {
    pub(super) fn new(overflow: Overflow) -> Self {
        Self((overflow == Overflow::Spill).then(Arc::default))
    }

    /// Whether fields may spill.
    #[inline]
    pub(super) fn are_allowed(&self) -> bool {
        self.0.is_some()
    }

    /// Batches that were taken and had fields on the heap.
    pub(super) fn batches(&self) -> u64 {
        self.0.as_ref().map_or(0, |counts| counts.batches.load(Ordering::Relaxed))
    }

    /// Bytes of these fields.
    pub(super) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |counts| counts.bytes.load(Ordering::Relaxed))
    }

    /// Counts what a batch has on the heap, and says so the first time.
    #[inline(never)]
    pub(super) fn count(&self, tag: Tag, columns: Columns<'_>) {
        let (Some(counts), Some((field, items))) = (&self.0, columns.spilled().next()) else { return };
        let bytes = columns.spilled().map(|(field, items)| items * field.item_bytes()).sum::<usize>();
        counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if counts.batches.fetch_add(1, Ordering::Relaxed) == 0 {
            let least = items.div_ceil(tag.rows.max(1));
            tracing::warn!(
                "field {field}: batch {} has {items} items and no room for so many, and so took memory for itself, as \
                 later ones will; declare room for {least} per sample to have it in the loader's own",
                tag.task
            );
        }
    }
}
