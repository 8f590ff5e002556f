//! What a loader does with packed samples that do not fit into their batch, and the count of them.

use crate::loader::collate::tag::Tag;
use crate::loader::error::warning::{Listener, Warning};
use crate::loader::trace;
use crate::sample::Columns;

/// What a loader does with a batch whose [packed](crate::sample::Packed) samples have more items than it has room for.
///
/// A dataset may let its samples spill for either ([`Fields::spill`](crate::sample::Fields::spill)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// Returns an error that names the first sample without room.
    #[default]
    Error,
    /// Moves the field's items to memory from the heap, for this batch only.
    ///
    /// The batch is read like any other. The heap memory is freed when the next batch is written into the same place,
    /// or when the loader and its batches are dropped. It is not part of the loader's
    /// [`memory_ceiling`](crate::loader::Loader::memory_ceiling), and
    /// [`pin_memory`](crate::loader::Builder::pin_memory) does not lock it. The first such batch is reported through
    /// `tracing`; all of them are [counted](crate::loader::Stats::spilled_batches).
    Spill,
}

/// What spilled in the delivered batches of one loader.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Spills {
    /// Whether fields may spill.
    pub(crate) allowed: bool,
    /// Batches with fields on the heap, and the bytes of these fields.
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
    listener: Listener,
}

impl Spills {
    pub(crate) fn new(allowed: bool, listener: &Listener) -> Self {
        Self { allowed, batches: 0, bytes: 0, listener: listener.clone() }
    }

    /// Counts what a batch has on the heap, and warns the first time.
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
            self.listener.hear(|| warning);
        }
    }
}
