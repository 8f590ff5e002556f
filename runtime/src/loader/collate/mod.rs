//! How samples become a batch: stacked in the batch's memory, or combined by a user's function.

pub(crate) mod allocate;
pub(crate) mod batch;
pub(crate) mod batch_buffer;
pub(crate) mod batch_memory;
pub(crate) mod batch_state;
pub(crate) mod cell;
pub(crate) mod cell_pool;
#[cfg(processes)]
pub(crate) mod in_place;
pub(crate) mod job;
pub(crate) mod loader_memory;
pub(crate) mod on_held;
pub(crate) mod overflow;
pub(crate) mod poison;
pub(crate) mod samples;
pub(crate) mod stack;
pub(crate) mod storage;
pub(crate) mod tag;
pub(crate) mod with;

use crate::BoxError;
use crate::dataset::Loadable;
use crate::loader::collate::allocate::{MadeSlots, SlotRequest};
use crate::loader::collate::cell::Lease;
use crate::loader::collate::job::Job;
use crate::loader::collate::storage::Storage;
use crate::loader::error::build::BuildError;

/// How a loader makes batches. Sealed: [`Stack`](crate::loader::Stack) stacks the samples, and
/// [`With`](crate::loader::With) calls a user's function.
pub trait Collate<D: Loadable>: Fill<D> {
    /// The loader's output: [`Batch`](crate::loader::Batch) or
    /// [`Collated`](crate::loader::Collated).
    type Output: Output<Payload = Self::Payload>;
}

/// The type of a loader's output, which is the parameter of `Loader<Batch<S>>` and
/// `Loader<Collated<T>>`. Sealed.
pub trait Output: Deliver<Delivered = <Self as Output>::Item> {
    /// The item of a pass: [`Batch<S>`](crate::loader::Batch) itself, or the `T` of
    /// [`Collated<T>`](crate::loader::Collated).
    type Item;
}

/// The sealed part of [`Collate`]: how batches are stored, and how workers fill them.
pub trait Fill<D: Loadable>: Send + Sync + 'static {
    /// The storage of one batch.
    type Payload: Storage;

    /// Whether each sample is written into its own row, so that a failure can be attributed to a
    /// sample.
    const STACKS: bool;

    /// Makes the batch, or the part of it that the job covers.
    fn fill<J: Job<D>>(&self, payload: &Self::Payload, job: &mut J) -> Result<(), BoxError>;

    /// Marks a row of the batch as having no sample.
    ///
    /// # Safety
    ///
    /// The row must exist and belong to the caller's claim.
    unsafe fn leave_empty(payload: &Self::Payload, row: usize);

    /// Makes the slots of a loader.
    fn make_slots(&mut self, request: SlotRequest<'_>) -> Result<MadeSlots<Self::Payload>, BuildError>;
}

/// The sealed part of [`Output`]: how a finished batch is converted for the user.
pub trait Deliver {
    /// The result: [`Output::Item`].
    type Delivered;
    /// The storage of one batch.
    type Payload: Storage;

    /// Converts the lease on a finished batch.
    fn deliver(lease: Lease<Self::Payload>) -> Self::Delivered;
}
