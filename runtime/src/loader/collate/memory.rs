//! The memory of all batches, as the loader has it.

use crate::loader::collate::block::Block;
use crate::loader::collate::on_held::OnHeld;
use crate::loader::collate::slab::Slab;

/// The memory of all batches.
pub(crate) struct BatchMemory<P> {
    pub(crate) slab: Slab<P>,
    /// `None` if a collate function makes the batches.
    pub(crate) block: Option<Block>,
    /// The bytes of the loader's initial memory, and how many it may take.
    pub(crate) ceiling: usize,
    pub(crate) limit: Option<usize>,
    pub(crate) on_held: OnHeld,
}
