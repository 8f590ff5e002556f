//! The samples of a batch, as passed to a collate function.

use std::fmt;

use crate::BoxError;
use crate::dataset::Loadable;
use crate::loader::collate::job::Job;

/// The samples of one batch, read sequentially by a collate function.
///
/// Each sample is lent until the next one is asked for, since it may borrow from the reading thread's memory.
pub struct Samples<'s, D: Loadable> {
    job: &'s mut dyn Job<D>,
}

impl<'s, D: Loadable> Samples<'s, D> {
    pub(crate) fn new(job: &'s mut dyn Job<D>) -> Self {
        Self { job }
    }

    /// The number of samples that are left; in an iterable dataset, and where [bad samples](crate::loader::OnError) are
    /// skipped, the maximum.
    pub fn len(&self) -> usize {
        self.job.left()
    }

    /// Whether this is a single sample instead of a batch, as with
    /// [`batch_size(None)`](crate::loader::Builder::batch_size).
    pub fn is_single(&self) -> bool {
        self.job.is_single()
    }

    /// Whether no sample is left. An iterable dataset may reach its end before this is true.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset index of the next sample. `None` if it has none, if no sample is left, or where
    /// [bad samples](crate::loader::OnError) are skipped, since the next good one is not known.
    pub fn index(&self) -> Option<usize> {
        self.job.index()
    }

    /// Returns the next sample, or the error of reading it.
    #[allow(clippy::should_implement_trait)] // It lends.
    pub fn next(&mut self) -> Option<Result<D::Item<'_>, BoxError>> {
        match self.job.next_timed() {
            Ok(read) => read.map(|read| Ok(read.sample)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Calls `f` with every sample that is left. This uses the dataset's [`get_many`], if it has one.
    ///
    /// # Errors
    ///
    /// The first error of a sample or of `f`.
    ///
    /// [`get_many`]: crate::Dataset::get_many
    pub fn for_each(&mut self, mut f: impl for<'a> FnMut(D::Item<'a>) -> Result<(), BoxError>) -> Result<(), BoxError> {
        self.job.for_each(&mut |read| f(read.sample))
    }
}

impl<D: Loadable> fmt::Debug for Samples<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples").field("len", &self.len()).finish_non_exhaustive()
    }
}
