//! The initial memory of a loader's batches.

use std::fmt;
use std::sync::Arc;

use crate::arena::{Memory, may_be_missing_after_fork};
use crate::loader::collate::storage::Storage;
use crate::sample::{Field, Layout};

/// The initial memory of a loader's batches, and their layout.
pub(crate) struct BatchMemory {
    layout: Arc<Layout>,
    arena: Arc<dyn Memory>,
}

impl BatchMemory {
    /// Returns the memory that these batches are in; `None` if a collate function makes them.
    pub(crate) fn of(payloads: &[impl Storage]) -> Option<Self> {
        let region = payloads.first()?.region()?;
        Some(Self { layout: region.layout().clone(), arena: region.arena().clone() })
    }

    pub(crate) fn fields(&self) -> impl ExactSizeIterator<Item = &Field> {
        self.layout.columns.iter().map(|column| &column.field)
    }

    pub(crate) fn memory(&self) -> &dyn Memory {
        &*self.arena
    }

    /// Whether the memory is from [`Builder::memory`](crate::loader::Builder::memory). A forked
    /// process may lack it.
    pub(crate) fn may_be_missing_after_fork(&self) -> bool {
        may_be_missing_after_fork(&*self.arena)
    }

    /// The maximum of [`Columns::bytes`](crate::sample::Columns::bytes) for a batch.
    pub(crate) fn batch_bytes(&self) -> usize {
        self.layout.columns.first().map_or(0, |first| self.layout.size - first.offset)
    }
}

impl fmt::Debug for BatchMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchMemory").field("arena", &self.arena).finish_non_exhaustive()
    }
}
