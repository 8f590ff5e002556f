//! How samples become a batch: stacked in the slot's memory, or by a function of the user's.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::batch::Batch;
use super::engine::{Job, Lease};
use crate::BoxError;
use crate::arena::Memory;
use crate::dataset::Dataset;
use crate::sample::{Columns, Layout, Row, Sample};

/// How a loader makes batches: [`Stack`], or [`With`] a function of one's own. Sealed.
pub trait Collate<D: Dataset>: Send + Sync + sealed::Sealed + 'static {
    /// What a pass gives.
    type Batch;
    /// What a slot holds.
    #[doc(hidden)]
    type Payload: Send + Sync + 'static;

    #[doc(hidden)]
    fn fill(&self, payload: &Self::Payload, job: &mut Job<'_, D>) -> Result<(), BoxError>;

    /// Drops what the slot holds of a batch that nobody will get.
    #[doc(hidden)]
    fn discard(payload: &Self::Payload);

    #[doc(hidden)]
    fn deliver(lease: Lease<Self::Payload>, rows: usize, epoch: u32) -> Self::Batch;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Stack {}
    impl<F, T> Sealed for super::With<F, T> {}
}

/// Stacks samples along a new first dimension: each writes itself into its row of the batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stack;

/// The memory of one slot.
#[doc(hidden)]
pub struct Region {
    start: NonNull<u8>,
    layout: Arc<Layout>,
    /// Keeps the memory.
    _arena: Arc<dyn Memory>,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("size", &self.layout.size).finish_non_exhaustive()
    }
}

// SAFETY: the region owns its part of the arena. Claims write disjoint rows of it, and a lease reads it alone, as the
// ring's protocol has it.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// # Safety
    ///
    /// From `start`, `layout.size` bytes of `arena` must be this region's alone, zeroed and aligned to a page.
    pub(super) unsafe fn new(start: NonNull<u8>, layout: Arc<Layout>, arena: Arc<dyn Memory>) -> Self {
        Self { start, layout, _arena: arena }
    }

    /// The first `rows` rows.
    ///
    /// # Safety
    ///
    /// They must have been written, and nobody may write them while the columns are used.
    #[inline]
    pub(super) unsafe fn columns(&self, rows: usize) -> Columns<'_> {
        // SAFETY: the caller's word, and `new`'s.
        unsafe { Columns::new(&self.layout, self.start.as_ptr(), rows) }
    }
}

impl<D: Dataset> Collate<D> for Stack {
    type Batch = Batch<D>;
    type Payload = Region;

    #[inline]
    fn fill(&self, region: &Region, job: &mut Job<'_, D>) -> Result<(), BoxError> {
        job.prefetch_first();
        for at in job.rows.clone() {
            if job.is_abandoned() {
                break;
            }
            job.prefetch_after(at);
            let index = job.index(at);
            let sample = job.read(at, index)?;
            // SAFETY: the claim behind this job has the row to itself.
            let mut row = unsafe { Row::new(&region.layout, region.start.as_ptr(), at) };
            row.set_index(index as i64);
            sample.write(&mut row)?;
            row.finish()?;
        }
        Ok(())
    }

    fn discard(_: &Region) {}

    #[inline]
    fn deliver(lease: Lease<Region>, rows: usize, epoch: u32) -> Batch<D> {
        Batch::new(lease, rows, epoch)
    }
}

/// A function of the user's, from the samples of a batch to a `T`.
pub struct With<F, T> {
    collate: F,
    output: PhantomData<fn() -> T>,
}

impl<F, T> With<F, T> {
    pub(super) fn new(collate: F) -> Self {
        Self { collate, output: PhantomData }
    }
}

impl<F, T> fmt::Debug for With<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("With").finish_non_exhaustive()
    }
}

impl<D, F, T> Collate<D> for With<F, T>
where
    D: Dataset,
    T: Send + 'static,
    F: Fn(&mut Samples<'_, '_, D>) -> Result<T, BoxError> + Send + Sync + 'static,
{
    type Batch = T;
    // The ring makes the lock superfluous; uncontended, it is cheaper than a proof.
    type Payload = Mutex<Option<T>>;

    fn fill(&self, slot: &Mutex<Option<T>>, job: &mut Job<'_, D>) -> Result<(), BoxError> {
        if job.is_abandoned() {
            return Ok(());
        }
        let next = job.rows.start;
        let batch = (self.collate)(&mut Samples { job, next })?;
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(batch);
        Ok(())
    }

    fn discard(slot: &Mutex<Option<T>>) {
        drop(slot.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn deliver(lease: Lease<Self::Payload>, _: usize, _: u32) -> T {
        let batch = lease.payload.lock().unwrap_or_else(PoisonError::into_inner).take();
        batch.expect("a published slot without a failure has a batch")
    }
}

/// The samples of one batch, one after the other, for a collate function.
///
/// Each sample is lent until the next one is asked for, since it may borrow from the reading thread's memory.
pub struct Samples<'s, 'j, D> {
    job: &'s mut Job<'j, D>,
    /// The row of the next sample.
    next: usize,
}

impl<D: Dataset> Samples<'_, '_, D> {
    /// How many samples are left.
    pub fn len(&self) -> usize {
        self.job.rows.end - self.next
    }

    /// Whether no sample is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset index of the next sample.
    pub fn index(&self) -> Option<usize> {
        (!self.is_empty()).then(|| self.job.index(self.next))
    }

    /// The next sample, or what kept it from being read.
    #[allow(clippy::should_implement_trait)] // It lends.
    pub fn next(&mut self) -> Option<Result<D::Sample<'_>, BoxError>> {
        let index = self.index()?;
        let row = self.next;
        self.next += 1;
        self.job.prefetch_after(row);
        Some(self.job.read(row, index))
    }
}

impl<D> fmt::Debug for Samples<'_, '_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples").field("job", &self.job).finish_non_exhaustive()
    }
}
