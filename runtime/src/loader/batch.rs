//! A batch: the lease on a slot, read as tensors.

use std::fmt;
use std::marker::PhantomData;

use super::collate::Region;
use super::engine::Lease;
use crate::dataset::Dataset;
use crate::sample::{Columns, Sample};

/// A batch, in the slot's memory; dropping it, on any thread and in any order, frees the slot.
///
/// It may outlive the pass and the loader.
pub struct Batch<D> {
    lease: Lease<Region>,
    rows: usize,
    epoch: u32,
    /// What its samples are is known from the dataset's type; there is no dataset in it.
    dataset: PhantomData<fn() -> D>,
}

impl<D: Dataset> Batch<D> {
    #[inline]
    pub(super) fn new(lease: Lease<Region>, rows: usize, epoch: u32) -> Self {
        Self { lease, rows, epoch, dataset: PhantomData }
    }

    /// The batch as its samples' type has it: for samples `(&[u8], i64)` a pair of tensors.
    #[inline]
    pub fn tensors(&self) -> <D::Sample<'_> as Sample>::Tensors<'_> {
        <D::Sample<'_> as Sample>::tensors(&mut self.columns())
    }
}

impl<D> Batch<D> {
    /// The batch field by field, whatever its samples' type.
    #[inline]
    pub fn columns(&self) -> Columns<'_> {
        // SAFETY: the batch was published with its first `rows` rows written, and while it is leased nobody writes.
        unsafe { self.lease.payload.columns(self.rows) }
    }

    /// How many samples it has: the batch size, or less for the last batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether it has no sample; never.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The dataset index of each sample.
    #[inline]
    pub fn indices(&self) -> &[i64] {
        self.columns().indices()
    }

    /// Its number in the pass, from 0.
    #[inline]
    pub fn task(&self) -> usize {
        self.lease.ticket()
    }

    /// The number of its pass, from 0.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl<D> fmt::Debug for Batch<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("task", &self.task())
            .field("epoch", &self.epoch)
            .field("len", &self.rows)
            .field("columns", &self.columns())
            .finish()
    }
}
