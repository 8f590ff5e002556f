//! The public type of a batch, which gives access to its memory as tensors.

use std::fmt;
use std::marker::PhantomData;

use crate::dataset::Loadable;
use crate::dtype::Element;
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::cell::Lease;
use crate::sample::{Columns, Dynamic, Schema};

/// A batch, in the memory that workers wrote it into. Dropping it, on any thread and in any order,
/// releases that memory.
///
/// A batch does not change for as long as it is kept, except by [`field_mut`](Self::field_mut), and
/// may outlive the pass and the loader. If more batches are kept than the loader's
/// [`hold`](crate::loader::Builder::hold), the loader
/// [takes more memory, waits or fails](crate::loader::OnHeld) when it is asked for the next one.
/// `S` is the [schema](Schema) of the samples, for example `(u8, i64)` for byte images with a label
/// each.
pub struct Batch<S> {
    lease: Lease<BatchBuffer>,
    schema: PhantomData<fn() -> S>,
}

/// The type of a dataset's batches, for code that is generic over the dataset.
pub type BatchOf<D> = Batch<<D as Loadable>::Schema>;

impl<S> Batch<S> {
    #[inline]
    pub(crate) fn new(lease: Lease<BatchBuffer>) -> Self {
        Self { lease, schema: PhantomData }
    }

    /// Returns the batch as tensors, arranged as in the samples' type. For samples `(&[u8], i64)`
    /// this is a pair of tensors with shapes `[len, …]` and `[len]`, or with
    /// [`batch_size(None)`](crate::loader::Builder::batch_size) `[…]` and `[]`.
    ///
    /// # Panics
    ///
    /// Panics if the batch has no sample and its fields are not those of the samples' type. This is
    /// possible only if the dataset's `fields` returned other ones, or if it returned `None` and
    /// the dataset was empty when the loader was built. Panics in a forked process if the memory is
    /// from [`Builder::memory`](crate::loader::Builder::memory).
    #[inline(always)] // A call would pass the columns through memory (30 instructions).
    pub fn tensors(&self) -> S::Tensors<'_>
    where
        S: Schema,
    {
        S::tensors(&mut self.columns())
    }

    /// Erases the type of the samples; the batch is then read by its [columns](Self::columns). For
    /// code that stores batches of several loaders.
    pub fn untyped(self) -> Batch<Dynamic> {
        Batch { lease: self.lease, schema: PhantomData }
    }

    /// Returns the fields of the batch, for any type of samples.
    ///
    /// # Panics
    ///
    /// Panics in a forked process if the memory is from
    /// [`Builder::memory`](crate::loader::Builder::memory).
    #[inline]
    pub fn columns(&self) -> Columns<'_> {
        // SAFETY: all bytes of a cell are initialised, and valid for their fields, from the start;
        // the tag has at most as many rows as the layout; and no thread writes while the batch
        // exists.
        unsafe { self.lease.payload().columns(self.lease.tag()) }
    }

    /// Returns the elements of field `i`, to be changed in place, for example to mix the samples of
    /// the batch. The elements are in C order, with the shape that the field has in
    /// [`columns`](Self::columns). Returns `None` if there is no field `i`, or if its elements are
    /// not of type `T`.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::TensorDataset;
    ///
    /// let mut loader = Loader::builder(TensorDataset::new(vec![1.0_f32, 2.0, 3.0])?).batch_size(3).build()?;
    /// let mut batch = loader.epoch()?.next().expect("a batch")?;
    /// batch.field_mut::<f32>(0).expect("one field of f32").reverse();
    /// assert_eq!(batch.tensors().as_slice(), [3.0, 2.0, 1.0]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics in a forked process like [`columns`](Self::columns).
    pub fn field_mut<T: Element>(&mut self, i: usize) -> Option<&mut [T]> {
        let columns = self.columns();
        if columns.field(i)?.dtype() != T::DTYPE {
            return None;
        }
        let (_, bytes) = columns.raw(i)?;
        // SAFETY: `raw` returns the field's memory, which may be written until the batch is dropped
        // while nothing else reads it: the batch is borrowed exclusively, and no one else has its
        // lease. The elements are `T`, valid and aligned, and remain so.
        Some(unsafe { std::slice::from_raw_parts_mut(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) })
    }

    /// The number of samples in the batch: the batch size, or less for the last batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.lease.tag().rows
    }

    /// Whether the batch has no sample. A batch sampler may return an empty list; and with
    /// [`ranks`](crate::loader::Builder::ranks), all samples of a batch may have been skipped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset index of each sample.
    #[inline]
    pub fn indices(&self) -> &[i64] {
        self.columns().indices()
    }

    /// The batch's number in the pass, from 0. The batches of an iterable dataset are numbered as
    /// they are delivered.
    #[inline]
    pub fn batch_index(&self) -> usize {
        self.lease.tag().task
    }

    /// The number of the batch's pass, from 0.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.lease.tag().epoch
    }
}

/// Copies the batch into ordinary memory, even if the loader's memory is page-locked or from
/// [`Builder::memory`](crate::loader::Builder::memory). The copy does not count towards
/// [`hold`](crate::loader::Builder::hold) or the [statistics](crate::loader::Stats). A batch can be
/// kept without copying it. Copy it if it is kept for long and the loader should not take more
/// memory meanwhile.
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
/// Panics if there is no memory for the copy, and in a forked process like
/// [`columns`](Batch::columns).
impl<S> Clone for Batch<S> {
    fn clone(&self) -> Self {
        let tag = self.lease.tag();
        // SAFETY: no thread writes the batch, as explained in `Batch::columns`.
        let copy = unsafe { self.lease.payload().copy() };
        Self::new(Lease::apart(copy, tag))
    }
}

impl<S> fmt::Debug for Batch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("task", &self.batch_index())
            .field("epoch", &self.epoch())
            .field("len", &self.len())
            .field("columns", &self.columns())
            .finish()
    }
}
