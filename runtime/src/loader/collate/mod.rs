//! How samples become a batch: stacked in its memory, or by a function of the user's.

pub(crate) mod allocate;
pub(crate) mod batch;
pub(crate) mod block;
pub(crate) mod job;
pub(crate) mod on_held;
pub(crate) mod overflow;
pub(crate) mod region;
pub(crate) mod samples;
pub(crate) mod slab;
pub(crate) mod slot_state;
pub(crate) mod stack;
pub(crate) mod with;

use crate::BoxError;
use crate::dataset::Loadable;
use crate::loader::collate::batch::Tag;
use crate::loader::collate::job::Job;
use crate::loader::collate::overflow::Spills;
use crate::loader::collate::region::Region;
use crate::loader::collate::slab::Lease;

/// How a loader makes batches: [`Stack`](crate::loader::Stack), or [`With`](crate::loader::With) a function of one's own. Sealed.
pub trait Collate<D: Loadable>: Fill<D> {
    /// What a loader gives: [`Batch`](crate::loader::Batch) or [`Collated`](crate::loader::Collated).
    type Output: Output<Payload = Self::Payload>;
}

/// What a loader gives, by which its type is named: `Loader<Batch<S>>`, or `Loader<Collated<T>>`. Sealed.
pub trait Output: Deliver<Delivered = <Self as Output>::Item> {
    /// What a pass gives: of [`Batch<S>`](crate::loader::Batch) itself, of [`Collated<T>`](crate::loader::Collated) the `T`.
    type Item;
}

/// What the workers of a loader do with a [`Collate`].
pub trait Fill<D: Loadable>: Send + Sync + 'static {
    /// What a slot holds.
    type Payload: Storage;

    /// Whether each sample is written into its row, and a failure is then that of a sample.
    const STACKS: bool;

    /// Makes the batch, or the part of it that is the job's.
    fn fill<J: Job<D>>(&self, payload: &Self::Payload, job: &mut J) -> Result<(), BoxError>;

    /// Leaves a row of the batch without a sample.
    ///
    /// # Safety
    ///
    /// The row must be the claim's own, and there must be one.
    unsafe fn leave_empty(payload: &Self::Payload, row: usize);
}

/// What the consumer makes of a finished batch, for an [`Output`].
pub trait Deliver {
    /// What comes of it: [`Output::Item`].
    type Delivered;
    /// What a slot holds.
    type Payload: Storage;

    /// Makes it.
    fn deliver(lease: Lease<Self::Payload>) -> Self::Delivered;
}

/// What a slot holds of a batch.
pub trait Storage: Send + Sync + 'static {
    /// Drops what the slot holds of a batch that nobody will get.
    fn discard(&self);

    /// Takes rows that were left empty, in ascending order, out of a batch of `rows`.
    ///
    /// # Safety
    ///
    /// The batch must be the caller's alone, and have these rows, written or left empty.
    unsafe fn close_up(&self, empty: &[usize], rows: usize);

    /// The memory of the batch, if it is the loader's.
    fn region(&self) -> Option<&Region> {
        None
    }

    /// Bytes of one sample's fields; `None` if samples differ in that, 0 if it is not known.
    fn sample_bytes(&self) -> Option<usize> {
        Some(0)
    }

    /// Bytes of the batch; counts what of it is on the heap.
    fn weigh(&self, _: Tag, _: &mut Spills) -> usize {
        0
    }
}
