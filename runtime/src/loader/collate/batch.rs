//! A batch: the hold on its memory, read as tensors.

use std::fmt;
use std::marker::PhantomData;

use crate::dataset::Loadable;
use crate::loader::collate::region::Region;
use crate::loader::collate::slab::Lease;
use crate::sample::{Columns, Dynamic, Schema};

/// A batch, in the memory that workers wrote it into; dropping it, on any thread and in any order, gives that back.
///
/// It stays as it is for as long as it is kept, and may outlive the pass and the loader. A loader that is asked for another batch
/// while more are kept than its [`hold`](crate::loader::Builder::hold) says [takes memory](crate::loader::OnHeld) for one more. `S` is the [schema](Schema) of its samples: `(u8, i64)` for images of bytes with a
/// label each.
pub struct Batch<S> {
    lease: Lease<Region>,
    schema: PhantomData<fn() -> S>,
}

/// The batches of a dataset, for code that takes any dataset.
pub type BatchOf<D> = Batch<<D as Loadable>::Schema>;

/// What is known of a batch beside its contents.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    /// Its number in the pass.
    pub(crate) task: usize,
    pub(crate) rows: usize,
    /// It is a sample and no batch: tensors lack the first dimension.
    pub(crate) single: bool,
    pub(crate) epoch: u32,
}

impl<S> Batch<S> {
    #[inline]
    pub(crate) fn new(lease: Lease<Region>) -> Self {
        Self { lease, schema: PhantomData }
    }

    /// The batch as its samples' type has it: for samples `(&[u8], i64)` a pair of tensors, `[len, …]` and `[len]`; where
    /// there are no batches ([`batch_size(None)`](crate::loader::Builder::batch_size)), `[…]` and `[]`.
    ///
    /// # Panics
    ///
    /// If the batch has no sample, and the fields are not those of the samples' type: the dataset's `fields` said others, or
    /// none were known, since it said none and was empty when the loader was built. In a forked process, if the memory was
    /// [given](crate::loader::Builder::memory).
    #[inline(always)] // As a call, the columns went through memory: 30 instructions.
    pub fn tensors(&self) -> S::Tensors<'_>
    where
        S: Schema,
    {
        S::tensors(&mut self.columns())
    }

    /// The batch without the type of its samples, to be read by its [columns](Self::columns): for code that keeps batches of
    /// any loader.
    pub fn untyped(self) -> Batch<Dynamic> {
        Batch { lease: self.lease, schema: PhantomData }
    }

    /// The batch field by field, whatever its samples' type.
    ///
    /// # Panics
    ///
    /// In a forked process, if the memory was [given](crate::loader::Builder::memory).
    #[inline]
    pub fn columns(&self) -> Columns<'_> {
        // SAFETY: all bytes of a cell are initialised, and valid for their fields, from the start on; there are at most as many
        // rows as the layout has; and while the batch is there nobody writes.
        unsafe { self.lease.payload().columns(self.lease.tag()) }
    }

    /// How many samples it has: the batch size, or less for the last batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.lease.tag().rows
    }

    /// Whether it has no sample, as only a batch sampler's empty list makes one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset index of each sample.
    #[inline]
    pub fn indices(&self) -> &[i64] {
        self.columns().indices()
    }

    /// Its number in the pass, from 0; of an iterable dataset, in the order in which they come.
    #[inline]
    pub fn task(&self) -> usize {
        self.lease.tag().task
    }

    /// The number of its pass, from 0.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.lease.tag().epoch
    }
}

/// A copy in ordinary memory of its own, also where the loader's is page-locked or [given](crate::loader::Builder::memory). It
/// counts nowhere: not for [`hold`](crate::loader::Builder::hold), not for the [statistics](crate::loader::Stats). A batch that is
/// kept needs none; it is for one that is kept for long, when the loader should not take more memory.
///
/// ```
/// use slotline::Loader;
/// use slotline::dataset::TensorDataset;
///
/// let mut loader = Loader::builder(TensorDataset::new(vec![1_i64, 2, 3])?).batch_size(2).build()?;
/// let first = loader.epoch()?.next().expect("a batch")?.to_owned();
/// drop(loader);
/// assert_eq!(first.tensors().as_slice(), [1, 2]);
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// # Panics
///
/// If there is no memory for it; in a forked process as [`columns`](Batch::columns).
impl<S> Clone for Batch<S> {
    fn clone(&self) -> Self {
        let tag = self.lease.tag();
        // SAFETY: as of `columns`.
        let copy = unsafe { self.lease.payload().copy() };
        Self::new(Lease::apart(copy, tag))
    }
}

impl<S> fmt::Debug for Batch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("task", &self.task())
            .field("epoch", &self.epoch())
            .field("len", &self.len())
            .field("columns", &self.columns())
            .finish()
    }
}
