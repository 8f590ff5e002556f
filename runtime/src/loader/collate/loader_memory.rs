//! The memory of a loader, with its limits.

use crate::loader::collate::batch_memory::BatchMemory;
use crate::loader::collate::cell_pool::CellPool;
use crate::loader::collate::on_held::OnHeld;

/// The memory of a loader, with its limits.
pub(crate) struct LoaderMemory<P> {
    pub(crate) cell_pool: CellPool<P>,
    /// `None` if a collate function makes the batches.
    pub(crate) block: Option<BatchMemory>,
    /// The bytes of the loader's initial memory, and the maximum that it may take in total.
    pub(crate) ceiling: usize,
    pub(crate) limit: Option<usize>,
    pub(crate) on_held: OnHeld,
}
