//! How samples become a batch: stacked in its memory, or by a function of the user's.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use super::batch::{Batch, BatchOf, Tag};
use super::block::is_given;
use super::job::{Job, Read};
use super::overflow::Spills;
use super::samples::Samples;
use super::slab::Lease;
use crate::BoxError;
use crate::arena::Memory;
use crate::dataset::Loadable;
use crate::fork::Process;
use crate::sample::{Columns, Layout, Row, Sample, close_up};
use crate::sync::Mutex;

/// How a loader makes batches: [`Stack`], or [`With`] a function of one's own. Sealed.
pub trait Collate<D: Loadable>: Send + Sync + sealed::Sealed + 'static {
    /// What a loader gives: [`Batch`] or [`Collated`].
    type Output: Output<Payload = Self::Payload>;
    /// What a slot holds.
    #[doc(hidden)]
    type Payload: Storage;

    #[doc(hidden)]
    fn fill<J: Job<D>>(&self, payload: &Self::Payload, job: &mut J) -> Result<(), BoxError>;

    /// Whether each sample is written into its row, and a failure is then that of a sample.
    #[doc(hidden)]
    const STACKS: bool;

    /// Leaves a row of the batch without a sample.
    ///
    /// # Safety
    ///
    /// The row must be the claim's own, and there must be one.
    #[doc(hidden)]
    unsafe fn leave_empty(payload: &Self::Payload, row: usize);
}

/// What a loader gives, by which its type is named: `Loader<Batch<S>>`, or `Loader<Collated<T>>`. Sealed.
pub trait Output: sealed::Sealed {
    /// What a pass gives: of [`Batch<S>`](Batch) itself, of [`Collated<T>`](Collated) the `T`.
    type Item;
    /// What a slot holds.
    #[doc(hidden)]
    type Payload: Storage;

    #[doc(hidden)]
    fn deliver(lease: Lease<Self::Payload>) -> Self::Item;
}

/// What a slot holds of a batch.
#[doc(hidden)]
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

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Stack {}
    impl<F, T> Sealed for super::With<F, T> {}
    impl<S> Sealed for super::Batch<S> {}
    impl<T> Sealed for super::Collated<T> {}
}

/// Stacks samples along a new first dimension: each writes itself into its row of the batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stack;

/// The memory of one batch.
#[doc(hidden)]
pub struct Region {
    start: NonNull<u8>,
    layout: Arc<Layout>,
    arena: Arc<dyn Memory>,
    /// Whether a process that is forked from this one must not touch it.
    given: bool,
    process: Process,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("size", &self.layout.size).finish_non_exhaustive()
    }
}

// SAFETY: the region owns its part of the arena, and what its packed fields have on the heap. Claims write disjoint rows of
// it, and a lease reads it alone, as the protocols of the ring and of the slab have it; rows of packed fields are all of one claim.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// # Safety
    ///
    /// From `start`, `layout.size` bytes of `arena` must be this region's alone, zeroed and aligned as fields are.
    pub(super) unsafe fn new(start: NonNull<u8>, layout: Arc<Layout>, arena: Arc<dyn Memory>) -> Self {
        let given = is_given(&*arena);
        Self { start, layout, arena, given, process: Process::this() }
    }

    pub(super) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    pub(super) fn arena(&self) -> &Arc<dyn Memory> {
        &self.arena
    }

    /// The batch that `tag` describes.
    ///
    /// # Panics
    ///
    /// In a forked process, if the memory is not [`Pages`](crate::arena::Pages).
    ///
    /// # Safety
    ///
    /// Its rows must have been written, and nobody may write them while the columns are used.
    #[inline]
    pub(super) unsafe fn columns(&self, tag: Tag) -> Columns<'_> {
        if self.given && !self.process.is_this() {
            no_such_memory();
        }
        let start = self.start.as_ptr();
        // SAFETY: the caller's word, and `new`'s. A single sample has one row.
        unsafe {
            if tag.single { Columns::single(&self.layout, start) } else { Columns::new(&self.layout, start, tag.rows) }
        }
    }
}

#[cold]
#[inline(never)]
fn no_such_memory() -> ! {
    panic!("this process was forked, and the memory of its parent's batches is not in it: load again here, or spawn")
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The memory may not be there, be the parent's as well, or have been written to by a thread that is gone: what
            // spilled stays where it is, and so does the memory.
            return std::mem::forget(self.arena.clone());
        }
        // SAFETY: the region has this part of the arena alone, and nobody else has the region.
        unsafe { self.layout.free_spills(self.start.as_ptr()) };
    }
}

impl Region {
    /// Writes a sample into its row.
    #[inline(always)] // As `MapJob::next`.
    fn write<D: Loadable>(&self, read: Read<'_, D>) -> Result<(), BoxError> {
        // SAFETY: the claim behind the job has the row to itself (see `Job`).
        let mut row = unsafe { Row::new(&self.layout, self.start.as_ptr(), read.row) };
        row.set_index(read.index as i64);
        read.sample.write(&mut row)?;
        Ok(row.finish()?)
    }
}

impl<D: Loadable> Collate<D> for Stack {
    type Output = BatchOf<D>;
    type Payload = Region;

    #[inline(always)] // As `MapJob::next`.
    fn fill<J: Job<D>>(&self, region: &Region, job: &mut J) -> Result<(), BoxError> {
        if job.reads_many() {
            return job.for_each(&mut |read| region.write(read));
        }
        while let Some(read) = job.next_timed()? {
            region.write(read)?;
        }
        Ok(())
    }

    const STACKS: bool = true;

    unsafe fn leave_empty(region: &Region, row: usize) {
        // SAFETY: the caller's word.
        unsafe { Row::new(&region.layout, region.start.as_ptr(), row) }.leave_empty();
    }
}

impl Storage for Region {
    fn discard(&self) {}

    unsafe fn close_up(&self, empty: &[usize], rows: usize) {
        // SAFETY: the caller's word.
        unsafe { close_up(&self.layout, self.start.as_ptr(), empty, rows) };
    }

    fn region(&self) -> Option<&Region> {
        Some(self)
    }

    fn sample_bytes(&self) -> Option<usize> {
        let columns = self.layout.columns.iter();
        (!self.layout.is_sequential()).then(|| columns.map(|column| column.stride).sum())
    }

    #[cold]
    fn weigh(&self, tag: Tag, spills: &mut Spills) -> usize {
        // SAFETY: as of `Batch::columns`.
        let columns = unsafe { self.columns(tag) };
        spills.count(tag, columns);
        (0..columns.len()).filter_map(|i| columns.get(i)).map(|field| field.bytes().len()).sum()
    }
}

impl<S> Output for Batch<S> {
    type Item = Self;
    type Payload = Region;

    #[inline]
    fn deliver(lease: Lease<Region>) -> Self {
        Self::new(lease)
    }
}

/// A function of the user's, from the samples of a batch to a `T`.
pub struct With<F, T> {
    collate: F,
    /// What `pin_memory` does to a batch.
    pub(super) pin: Option<Pin<T>>,
}

/// Makes a batch's memory page-locked.
pub(super) type Pin<T> = Box<dyn Fn(&mut T) -> Result<(), BoxError> + Send + Sync>;

impl<F, T> With<F, T> {
    pub(super) fn new(collate: F) -> Self {
        Self { collate, pin: None }
    }
}

impl<F, T> fmt::Debug for With<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("With").finish_non_exhaustive()
    }
}

impl<D, F, T> Collate<D> for With<F, T>
where
    D: Loadable,
    T: Send + 'static,
    F: Fn(&mut Samples<'_, D>) -> Result<T, BoxError> + Send + Sync + 'static,
{
    type Output = Collated<T>;
    // The ring makes the lock superfluous; uncontended, it is cheaper than a proof.
    type Payload = Mutex<Option<T>>;

    fn fill<J: Job<D>>(&self, slot: &Mutex<Option<T>>, job: &mut J) -> Result<(), BoxError> {
        if job.is_abandoned() {
            return Ok(());
        }
        let mut batch = (self.collate)(&mut Samples::new(job))?;
        if let Some(pin) = &self.pin {
            pin(&mut batch)?;
        }
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(batch);
        Ok(())
    }

    const STACKS: bool = false;

    /// The function has not seen the sample.
    unsafe fn leave_empty(_: &Self::Payload, _: usize) {}
}

/// Names a loader whose batches a [collate function](super::Builder::collate) makes: `Loader<Collated<T>>` gives `T`. There
/// are no values of it.
pub struct Collated<T>(PhantomData<fn() -> T>, Infallible);

impl<T> fmt::Debug for Collated<T> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {}
    }
}

impl<T: Send + 'static> Output for Collated<T> {
    type Item = T;
    type Payload = Mutex<Option<T>>;

    #[inline]
    fn deliver(lease: Lease<Self::Payload>) -> T {
        let batch = lease.payload().lock().unwrap_or_else(PoisonError::into_inner).take();
        batch.expect("a published slot without a failure has a batch")
    }
}

impl<T: Send + 'static> Storage for Mutex<Option<T>> {
    fn discard(&self) {
        drop(self.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    unsafe fn close_up(&self, _: &[usize], _: usize) {}
}
