//! A dataset made from a function.

use std::fmt;

use super::{Context, Dataset, OutOfRange};
use crate::BoxError;
use crate::sample::Sample;

/// Makes a dataset of `len` samples that `get` computes from their index.
///
/// ```
/// let squares = slotline::dataset::from_fn(1_000, |index, _| Ok((index as i64, (index * index) as f32)));
/// ```
///
/// For an index that is not below `len`, which only a faulty sampler returns, the dataset returns
/// [`OutOfRange`] without calling `get`.
///
/// The samples must own what they hold; for samples that borrow, implement [`Dataset`].
pub fn from_fn<S, F>(len: usize, get: F) -> FnDataset<F>
where
    S: Sample + 'static,
    F: Fn(usize, &mut Context) -> Result<S, BoxError> + Send + Sync + 'static,
{
    FnDataset { len, get }
}

/// A dataset made by [`from_fn`].
#[derive(Clone)]
pub struct FnDataset<F> {
    len: usize,
    get: F,
}

impl<S, F> Dataset for FnDataset<F>
where
    S: Sample + 'static,
    F: Fn(usize, &mut Context) -> Result<S, BoxError> + Send + Sync + 'static,
{
    type Sample<'a> = S;

    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<S, BoxError> {
        if index >= self.len {
            return Err(OutOfRange::error("from_fn", index, self.len));
        }
        (self.get)(index, cx)
    }
}

impl<F> fmt::Debug for FnDataset<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnDataset").field("len", &self.len).finish_non_exhaustive()
    }
}
