//! Two datasets of different types, one after the other.

use super::{ConcatError, Context, Dataset};
use crate::BoxError;
use crate::sample::Fields;

/// The samples of one dataset and then those of another, of the same sample type; made by
/// [`Dataset::concat`](super::Dataset::concat). It is read sample by sample, as a [`ConcatDataset`](super::ConcatDataset) is.
#[derive(Clone, Debug)]
pub struct Concat2<A, B> {
    first: A,
    second: B,
    /// Samples in the first.
    middle: usize,
    /// Samples in both.
    len: usize,
}

impl<A: Dataset, B: Dataset> Concat2<A, B> {
    pub(super) fn new(first: A, second: B) -> Result<Self, ConcatError> {
        let middle = first.len();
        let len = middle.checked_add(second.len()).ok_or(ConcatError::TooLong { place: 1 })?;
        Ok(Self { first, second, middle, len })
    }
}

impl<A, B> Concat2<A, B> {
    /// The two datasets.
    pub fn datasets(&self) -> (&A, &B) {
        (&self.first, &self.second)
    }
}

impl<A, B> Dataset for Concat2<A, B>
where
    A: Dataset,
    B: for<'a> Dataset<Sample<'a> = A::Sample<'a>>,
{
    type Sample<'a> = A::Sample<'a>;

    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        match index.checked_sub(self.middle) {
            None => self.first.get(index, cx),
            Some(index) => self.second.get(index, cx),
        }
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        match index.checked_sub(self.middle) {
            None => self.first.prefetch(index),
            Some(index) => self.second.prefetch(index),
        }
    }

    /// Those of the first dataset that has samples.
    fn fields(&self) -> Option<Fields> {
        if self.middle > 0 { self.first.fields() } else { self.second.fields() }
    }
}
