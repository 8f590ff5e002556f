//! The memory of a loader's batches as a whole.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::arena::{Heap, Memory, Pages};
use crate::loader::collate::Storage;
use crate::sample::{Field, Layout};

/// What all batches of a loader are in.
pub(crate) struct Block {
    layout: Arc<Layout>,
    arena: Arc<dyn Memory>,
}

impl Block {
    /// What these batches are in, if it is the loader's.
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

    /// Whether it is memory of which only [`Builder::memory`](crate::loader::Builder::memory) knows what a forked process has.
    pub(crate) fn is_given(&self) -> bool {
        is_given(&*self.arena)
    }

    /// The most bytes that [`Columns::bytes`](crate::sample::Columns::bytes) of a batch can have.
    pub(crate) fn batch_bytes(&self) -> usize {
        self.layout.columns.first().map_or(0, |first| self.layout.size - first.offset)
    }
}

/// Whether a forked process may lack this memory, or share it with its parent. It has a copy of what is a loader's own.
pub(crate) fn is_given(memory: &dyn Memory) -> bool {
    let memory: &dyn Any = memory;
    !memory.is::<Pages>() && !memory.is::<Heap>()
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("arena", &self.arena).finish_non_exhaustive()
    }
}
