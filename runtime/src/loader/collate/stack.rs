//! Samples stacked along a new first dimension.

use crate::BoxError;
use crate::dataset::Loadable;
use crate::loader::collate::allocate::{MadeSlots, SlotRequest, stacked_slots};
use crate::loader::collate::batch::{Batch, BatchOf};
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::cell::Lease;
use crate::loader::collate::job::Job;
use crate::loader::collate::{Collate, Deliver, Fill, Output};
use crate::loader::error::build::BuildError;

/// Stacks samples along a new first dimension: each sample writes itself into its row of the batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stack;

impl<D: Loadable> Collate<D> for Stack {
    type Output = BatchOf<D>;
}

impl<D: Loadable> Fill<D> for Stack {
    type Payload = BatchBuffer;

    const STACKS: bool = true;

    #[inline(always)] // See `MapJob::next`.
    fn fill<J: Job<D>>(&self, region: &BatchBuffer, job: &mut J) -> Result<(), BoxError> {
        if job.reads_many() {
            return job.write_many(region);
        }
        while let Some(read) = job.next_timed()? {
            region.write(read)?;
        }
        Ok(())
    }

    unsafe fn leave_empty(region: &BatchBuffer, row: usize) {
        // SAFETY: the caller upholds the contract of `Fill::leave_empty`.
        unsafe { region.leave_empty(row) };
    }

    fn make_slots(&mut self, request: SlotRequest<'_>) -> Result<MadeSlots<BatchBuffer>, BuildError> {
        stacked_slots(request)
    }
}

impl<S> Output for Batch<S> {
    type Item = Self;
}

impl<S> Deliver for Batch<S> {
    type Delivered = Self;
    type Payload = BatchBuffer;

    #[inline]
    fn deliver(lease: Lease<BatchBuffer>) -> Self {
        Self::new(lease)
    }
}
