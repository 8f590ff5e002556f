//! What a thread has claimed: the samples of some rows of a batch, read one after the other.

use std::fmt;

use crate::BoxError;
use crate::dataset::Loadable;

/// The samples of some rows of one batch.
///
/// A sample is written where `Read::row` says. So rows must be the claim's own and below those that the layout has, and each is
/// given for one sample at a time. There are two implementations, beside this trait, which is not public.
#[doc(hidden)]
pub trait Job<D: Loadable> {
    /// Reads the next row's sample; `None` after the last row, or once nobody wants the batch any more.
    fn next(&mut self) -> Result<Option<Read<'_, D>>, BoxError>;

    /// As [`next`](Self::next), and times the sample if the job is one whose samples are timed.
    fn next_timed(&mut self) -> Result<Option<Read<'_, D>>, BoxError>;

    /// Whether it is a sample by itself and no batch.
    fn is_single(&self) -> bool;

    /// Whether nobody wants the batch any more.
    fn is_cancelled(&self) -> bool;

    /// How many samples there still are, at most.
    fn left(&self) -> usize;

    /// The index of the next sample, if there surely is one.
    fn index(&self) -> Option<usize>;

    /// Whether [`for_each`](Self::for_each) is the better way.
    fn reads_many(&self) -> bool;

    /// Reads all samples that are left, with one call of the dataset if it likes that.
    fn for_each(&mut self, put: Put<'_, D>) -> Result<(), BoxError>;
}

/// What is done with each sample of a bulk read.
pub(crate) type Put<'p, D> = &'p mut dyn for<'s> FnMut(Read<'s, D>) -> Result<(), BoxError>;

/// A sample, and where it belongs.
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
