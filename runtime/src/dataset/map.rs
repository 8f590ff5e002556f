//! A function applied to each sample of a dataset.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use super::{Context, Dataset, IterableDataset, Panicked, Upcoming, WorkerInfo};
use crate::BoxError;
use crate::sample::Sample;

/// A dataset whose samples are the results of a function. Made by [`Dataset::map`] and
/// [`IterableDataset::map`].
#[derive(Clone)]
pub struct Map<D, F> {
    dataset: D,
    function: F,
}

impl<D, F> Map<D, F> {
    pub(super) fn new(dataset: D, function: F) -> Self {
        Self { dataset, function }
    }

    /// Returns the dataset whose samples are passed to the function.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }
}

impl<D, F, S> Dataset for Map<D, F>
where
    D: Dataset,
    F: for<'a> Fn(D::Sample<'a>, &mut Context) -> Result<S, BoxError> + Send + Sync + 'static,
    S: Sample + 'static,
{
    type Sample<'a> = S;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<S, BoxError> {
        let [inner, own] = cx.parts();
        (self.function)(self.dataset.get(index, inner)?, own)
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        self.dataset.prefetch(index);
    }

    fn reads_ahead(&self) -> bool {
        self.dataset.reads_ahead()
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        self.dataset.begin_pass(upcoming);
    }

    fn reads_many(&self) -> bool {
        self.dataset.reads_many()
    }

    fn get_many(
        &self,
        indices: &[usize],
        cx: &mut Context,
        put: &mut dyn FnMut(S) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let [inner, own] = cx.parts();
        let mut numbers = 0..;
        self.dataset.get_many(indices, inner, &mut |sample| {
            own.go_to(numbers.next().unwrap_or_default());
            put((self.function)(sample, own)?)
        })
    }
}

impl<D, F, S> IterableDataset for Map<D, F>
where
    D: IterableDataset,
    F: for<'a> Fn(D::Sample<'a>, &mut Context) -> Result<S, BoxError> + Send + Sync + 'static,
    S: Sample + 'static,
{
    type Sample<'a> = S;
    type Cursor = D::Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<D::Cursor, BoxError> {
        self.dataset.iter(worker)
    }

    #[inline]
    fn next<'a>(&'a self, cursor: &'a mut D::Cursor, cx: &'a mut Context) -> Result<Option<S>, BoxError> {
        let [inner, own] = cx.parts();
        let Some(sample) = self.dataset.next(cursor, inner)? else { return Ok(None) };
        // A panic of the function leaves the cursor intact, so the pass can continue.
        match catch_unwind(AssertUnwindSafe(|| (self.function)(sample, own))) {
            Ok(outcome) => outcome.map(Some),
            Err(panic) => Err(Panicked(Mutex::new(panic)).into()),
        }
    }

    fn save(&self, cursor: &D::Cursor, to: &mut String) -> bool {
        self.dataset.save(cursor, to)
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<D::Cursor, BoxError> {
        self.dataset.resume(worker, saved)
    }

    fn len(&self) -> Option<usize> {
        self.dataset.len()
    }
}

impl<D: fmt::Debug, F> fmt::Debug for Map<D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("dataset", &self.dataset).finish_non_exhaustive()
    }
}
