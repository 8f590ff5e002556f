//! A job: the samples of the rows that a thread has claimed, read one after the other.

use std::fmt;

use crate::BoxError;
use crate::dataset::Loadable;
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::error::failure::Cause;

/// The samples of some rows of one batch.
///
/// A sample is written to the row `Read::row`. So the rows must belong to the thread's claim and
/// be within the layout, and a row must be used for one sample at a time. This trait is not part of
/// the API; `MapJob`, `SkipJob` and `StreamJob` implement it.
#[doc(hidden)]
pub trait Job<D: Loadable> {
    /// Reads the next row's sample. Returns `None` after the last row, or once the batch is no
    /// longer wanted.
    fn next(&mut self) -> Result<Option<Read<'_, D>>, BoxError>;

    /// Works like [`next`](Self::next), and times the sample if this job times its samples one by
    /// one.
    fn next_timed(&mut self) -> Result<Option<Read<'_, D>>, BoxError>;

    /// Whether the job is for a single sample instead of a batch.
    fn is_single(&self) -> bool;

    /// Whether the batch is no longer wanted.
    fn is_cancelled(&self) -> bool;

    /// The maximum number of samples that are left.
    fn left(&self) -> usize;

    /// The index of the next sample, if one is certain to follow.
    fn index(&self) -> Option<usize>;

    /// The index of the next sample, or its number in an iterable dataset, whether or not there is
    /// such a sample.
    fn index_or_number(&self) -> usize;

    /// Whether to use [`for_each`](Self::for_each) or [`write_many`](Self::write_many) instead of
    /// `next`.
    fn reads_many(&self) -> bool;

    /// Declares that the last sample from `next` is bad. Fails if the whole batch fails because of
    /// it. Otherwise the next sample, or a substitute, takes its place.
    fn pass_over(&mut self, cause: Cause) -> Result<(), Cause>;

    /// Reads all samples that are left, with one call of the dataset if it supports that. A sample
    /// for which `put` fails is bad.
    fn for_each(&mut self, put: Put<'_, D>) -> Result<(), BoxError>;

    /// Writes all samples that are left into their rows, with one call of the dataset.
    fn write_many(&mut self, region: &BatchBuffer) -> Result<(), BoxError>;
}

/// Called with each sample of a bulk read.
pub(crate) type Put<'p, D> = &'p mut dyn for<'s> FnMut(Read<'s, D>) -> Result<(), BoxError>;

/// A sample, its index, and the row that it belongs to.
#[doc(hidden)]
pub struct Read<'a, D: Loadable> {
    pub(crate) row: usize,
    pub(crate) index: usize,
    pub(crate) sample: D::Item<'a>,
}

impl<D: Loadable> fmt::Debug for Read<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read").field("row", &self.row).field("index", &self.index).finish_non_exhaustive()
    }
}
