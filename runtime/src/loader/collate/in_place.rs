//! Batches of a collate function that are written into memory that processes share.

use std::fmt;
use std::marker::PhantomData;

use crate::BoxError;
use crate::dataset::Loadable;
use crate::loader::collate::allocate::{BatchBytes, MadeSlots, SlotRequest, stacked_slots};
use crate::loader::collate::batch::Batch;
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::job::Job;
use crate::loader::collate::samples::Samples;
use crate::loader::collate::{Collate, Fill};
use crate::loader::error::build::BuildError;
use crate::sample::Sample;

/// A collate function whose result is written into the batch's memory as a single sample.
#[doc(hidden)]
pub struct InPlace<F, T> {
    pub(crate) collate: F,
    result: PhantomData<fn() -> T>,
}

impl<F, T> InPlace<F, T> {
    pub(crate) fn new(collate: F) -> Self {
        Self { collate, result: PhantomData }
    }
}

impl<F, T> fmt::Debug for InPlace<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InPlace").finish_non_exhaustive()
    }
}

impl<D, F, T> Fill<D> for InPlace<F, T>
where
    D: Loadable,
    T: Sample + 'static,
    F: Fn(&mut Samples<'_, D>) -> Result<T, BoxError> + Send + Sync + 'static,
{
    type Payload = BatchBuffer;

    const STACKS: bool = false;

    fn fill<J: Job<D>>(&self, region: &BatchBuffer, job: &mut J) -> Result<(), BoxError> {
        if job.is_cancelled() {
            return Ok(());
        }
        let index = job.index_or_number();
        let batch = (self.collate)(&mut Samples::new(job))?;
        // SAFETY: the batch has one row, and it belongs to the claim behind the job.
        unsafe { region.write_row(0, index, batch) }
    }

    /// Does nothing, since the collate function was not given the bad sample.
    unsafe fn leave_empty(_: &BatchBuffer, _: usize) {}

    fn make_slots(&mut self, request: SlotRequest<'_>) -> Result<MadeSlots<BatchBuffer>, BuildError> {
        let SlotRequest { slots, .. } = request;
        let mut slots = |batch: Option<BatchBytes<'_>>| match batch {
            Some(bytes) => slots(Some(&|_| bytes(1))),
            None => slots(None),
        };
        let made = stacked_slots(SlotRequest { rows: 1, slots: &mut slots, ..request })?;
        Ok(MadeSlots { shared: false, ..made })
    }
}

impl<D, F, T> Collate<D> for InPlace<F, T>
where
    D: Loadable,
    T: Sample + 'static,
    F: Fn(&mut Samples<'_, D>) -> Result<T, BoxError> + Send + Sync + 'static,
{
    type Output = Batch<T::Schema>;
}
