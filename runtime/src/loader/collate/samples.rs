//! The samples of a batch, as passed to a collate function.

use std::fmt;
use std::panic::resume_unwind;

use crate::BoxError;
use crate::dataset::Loadable;
use crate::loader::collate::job::Job;
use crate::loader::error::failure::Cause;
use crate::loader::error::guard::guarded;

/// The samples of one batch, read one after the other by a collate function.
///
/// Each sample is valid until the next one is asked for, since it may borrow from the reading
/// thread's memory.
pub struct Samples<'s, D: Loadable> {
    job: &'s mut dyn Job<D>,
}

impl<'s, D: Loadable> Samples<'s, D> {
    pub(crate) fn new(job: &'s mut dyn Job<D>) -> Self {
        Self { job }
    }

    /// The number of samples that are left. In an iterable dataset, and if
    /// [bad samples](crate::loader::OnError) are skipped, it is a maximum.
    pub fn len(&self) -> usize {
        self.job.left()
    }

    /// Whether this is a single sample instead of a batch, as with
    /// [`batch_size(None)`](crate::loader::Builder::batch_size).
    pub fn is_single(&self) -> bool {
        self.job.is_single()
    }

    /// Whether no sample is left. In an iterable dataset, none may be left although this is false.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset index of the next sample. `None` if it has no index, if no sample is left, or if
    /// [bad samples](crate::loader::OnError) are skipped, because then the next good sample is not
    /// known.
    pub fn index(&self) -> Option<usize> {
        self.job.index()
    }

    /// Returns the next sample, or the error of reading it.
    #[allow(clippy::should_implement_trait)] // The item borrows from `self`.
    pub fn next(&mut self) -> Option<Result<D::Item<'_>, BoxError>> {
        match self.job.next_timed() {
            Ok(read) => read.map(|read| Ok(read.sample)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Calls `read` with the next sample, and returns its result. A sample for which `read` fails
    /// or panics is a bad one, like a sample that could not be read: if
    /// [bad samples](crate::loader::OnError) are skipped or replaced, `read` is called with the
    /// sample that follows instead.
    ///
    /// So do everything that can fail because of one sample, such as decoding it, inside `read`.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    /// use slotline::loader::{Budget, OnError};
    ///
    /// let texts = from_fn(4, |index, _| Ok([b"1", b"x", b"3", b"4"][index].to_vec()));
    /// let builder = Loader::builder(texts).batch_size(2).on_error(OnError::Skip(Budget::Samples(1)));
    /// let mut loader = builder
    ///     .collate(|samples| {
    ///         let mut numbers: Vec<u8> = Vec::new();
    ///         while let Some(number) = samples.next_as(|text| Ok(str::from_utf8(text.as_ref())?.parse()?)) {
    ///             numbers.push(number?);
    ///         }
    ///         Ok(numbers)
    ///     })
    ///     .build()?;
    /// let batches: Result<Vec<_>, slotline::Error> = loader.epoch()?.collect();
    /// assert_eq!(batches?, [vec![1], vec![3, 4]]);
    /// assert_eq!(loader.stats().bad_indices, [1]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn next_as<T>(
        &mut self,
        mut read: impl FnMut(D::Item<'_>) -> Result<T, BoxError>,
    ) -> Option<Result<T, BoxError>> {
        loop {
            let cause = match self.job.next_timed() {
                Ok(None) => return None,
                Ok(Some(sample)) => match guarded(|| read(sample.sample)) {
                    Ok(made) => return Some(Ok(made)),
                    Err(cause) => cause,
                },
                Err(error) => return Some(Err(error)),
            };
            match self.job.pass_over(cause) {
                Ok(()) => {}
                Err(Cause::Panic(message)) => resume_unwind(Box::new(message)),
                Err(cause) => return Some(Err(cause.into_error())),
            }
        }
    }

    /// Calls `f` with every sample that is left. This uses the dataset's [`get_many`] if it has
    /// one.
    ///
    /// A sample for which `f` fails or panics is a bad one, as with [`next_as`](Self::next_as). So
    /// `f` must take either the whole sample or nothing of it: it should decode the sample before
    /// it appends anything.
    ///
    /// # Errors
    ///
    /// The first error of a sample or of `f`, unless bad samples are skipped or replaced.
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
