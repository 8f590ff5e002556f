//! What a loader does with packed samples that do not fit into their batch, and the count of such
//! batches.

use crate::loader::collate::tag::Tag;
use crate::loader::error::warning::{Listener, Warning};
use crate::loader::trace;
use crate::sample::Columns;

/// What a loader does with a batch whose [packed](crate::sample::Packed) samples have more items
/// than the batch has room for.
///
/// A dataset may itself allow its samples to spill
/// ([`Fields::spill`](crate::sample::Fields::spill)), whatever is set here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// Returns an error that names the first sample without room.
    #[default]
    Error,
    /// Moves the field's items to memory from the heap, for this batch only.
    ///
    /// The batch is read like any other. The heap memory is freed when the same memory is written
    /// with another batch, or when the loader and its batches are dropped. It does not count in the
    /// loader's [`memory_ceiling`](crate::loader::Loader::memory_ceiling), and
    /// [`pin_memory`](crate::loader::Builder::pin_memory) does not lock it. The first such batch is
    /// reported through `tracing`; all of them are
    /// [counted](crate::loader::Stats::spilled_batches).
    Spill,
}

/// The delivered batches of one loader that spilled.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Spills {
    /// Whether fields may spill.
    pub(crate) allowed: bool,
    /// The number of batches with fields on the heap, and the bytes of these fields.
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
    listener: Listener,
}

impl Spills {
    pub(crate) fn new(allowed: bool, listener: &Listener) -> Self {
        Self { allowed, batches: 0, bytes: 0, listener: listener.clone() }
    }

    /// Counts the bytes of a batch that are on the heap, and warns the first time.
    pub(crate) fn count(&mut self, tag: Tag, columns: Columns<'_>) {
        if !self.allowed {
            return;
        }
        let Some((field, items)) = columns.spilled().next() else { return };
        self.bytes += columns.spilled().map(|(field, items)| (items * field.item_bytes()) as u64).sum::<u64>();
        self.batches += 1;
        if self.batches == 1 {
            let room = items.div_ceil(tag.rows.max(1));
            let warning = Warning::Spilled { batch: tag.task, field: field.to_string(), items, room };
            trace::tell(|| tracing::warn!("{warning}"));
            self.listener.notify(|| warning);
        }
    }
}
