//! An iterable dataset made from a function that returns iterators.

use std::fmt;

use super::{Context, IterableDataset, WorkerInfo};
use crate::BoxError;
use crate::sample::Sample;

/// Makes an iterable dataset whose passes are the iterators that `start` returns, one for each worker.
///
/// ```
/// use slotline::Loader;
/// use slotline::dataset::iter_fn;
///
/// let evens = iter_fn(|worker| {
///     let mine = worker.map_or(0..50, |worker| worker.share(50));
///     Ok(mine.map(|i| Ok(2 * i as i64)))
/// });
/// let mut loader = Loader::iterable(evens).batch_size(10).num_workers(2).build()?;
/// assert_eq!(loader.epoch()?.count(), 6); // 25 samples for each worker: 10, 10 and 5
/// # Ok::<(), slotline::BoxError>(())
/// ```
pub fn iter_fn<F, I, S>(start: F) -> IterFn<F>
where
    F: Fn(Option<WorkerInfo>) -> Result<I, BoxError> + Send + Sync + 'static,
    I: IntoIterator<Item = Result<S, BoxError>>,
    I::IntoIter: Send + 'static,
    S: Sample + 'static,
{
    IterFn { start, len: None }
}

/// The dataset returned by [`iter_fn`].
#[derive(Clone)]
pub struct IterFn<F> {
    start: F,
    len: Option<usize>,
}

impl<F> IterFn<F> {
    /// Sets the number of samples in a pass, over all workers.
    #[must_use]
    pub fn with_len(mut self, len: usize) -> Self {
        self.len = Some(len);
        self
    }
}

impl<F, I, S> IterableDataset for IterFn<F>
where
    F: Fn(Option<WorkerInfo>) -> Result<I, BoxError> + Send + Sync + 'static,
    I: IntoIterator<Item = Result<S, BoxError>>,
    I::IntoIter: Send + 'static,
    S: Sample + 'static,
{
    type Sample<'a> = S;
    type Cursor = I::IntoIter;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<I::IntoIter, BoxError> {
        Ok((self.start)(worker)?.into_iter())
    }

    #[inline]
    fn next<'a>(&'a self, cursor: &'a mut I::IntoIter, _: &'a mut Context) -> Result<Option<S>, BoxError> {
        cursor.next().transpose()
    }

    fn len(&self) -> Option<usize> {
        self.len
    }
}

impl<F> fmt::Debug for IterFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterFn").field("len", &self.len).finish_non_exhaustive()
    }
}
