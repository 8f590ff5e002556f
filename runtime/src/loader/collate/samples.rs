//! The samples of a batch, as a collate function gets them.

use std::fmt;

use crate::BoxError;
use crate::dataset::Loadable;
use crate::loader::collate::job::Job;

/// The samples of one batch, one after the other, for a collate function.
///
/// Each sample is lent until the next one is asked for, since it may borrow from the reading thread's memory.
pub struct Samples<'s, D: Loadable> {
    job: &'s mut dyn Job<D>,
}

impl<'s, D: Loadable> Samples<'s, D> {
    pub(crate) fn new(job: &'s mut dyn Job<D>) -> Self {
        Self { job }
    }

    /// How many samples are left; of an iterable dataset, and where [bad ones](crate::loader::OnError) are skipped, at most.
    pub fn len(&self) -> usize {
        self.job.left()
    }

    /// Whether it is a sample by itself and no batch, as with [`batch_size(None)`](crate::loader::Builder::batch_size).
    pub fn is_single(&self) -> bool {
        self.job.is_single()
    }

    /// Whether no sample is left; an iterable dataset may be at its end before.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset index of the next sample, if it has one and there surely is one, which is not so where
    /// [bad samples](crate::loader::OnError) are passed over.
    pub fn index(&self) -> Option<usize> {
        self.job.index()
    }

    /// The next sample, or what kept it from being read.
    #[allow(clippy::should_implement_trait)] // It lends.
    pub fn next(&mut self) -> Option<Result<D::Item<'_>, BoxError>> {
        match self.job.next_timed() {
            Ok(read) => read.map(|read| Ok(read.sample)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Gives every sample that is left to `f`: the way to have a dataset's [`get_many`] used, if it has one.
    ///
    /// # Errors
    ///
    /// The first of the samples' errors or of `f`'s.
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
