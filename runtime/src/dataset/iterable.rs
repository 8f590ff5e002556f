//! Datasets that are read in sequence: streams, logs, archives, anything without an index.

use std::sync::Arc;

use super::{Chain2, Context, Map, WorkerInfo};
use crate::BoxError;
use crate::sample::{Fields, Sample};

/// A dataset whose samples are read in sequence (torch's `IterableDataset`).
///
/// Each worker makes its own pass: the cursor that [`iter`](Self::iter) returns belongs to that worker. If the samples
/// were not divided among the workers, each worker would read all of them. So `iter` receives the worker's
/// [`WorkerInfo`], and [`WorkerInfo::share`] computes the worker's part.
///
/// ```
/// use slotline::dataset::{Context, IterableDataset};
/// use slotline::{BoxError, Loader, WorkerInfo};
///
/// /// The numbers from 0 up to, but not including, this one.
/// struct Count(usize);
///
/// impl IterableDataset for Count {
///     type Sample<'a> = i64;
///     type Cursor = std::ops::Range<usize>;
///
///     fn iter(&self, worker: Option<WorkerInfo>) -> Result<Self::Cursor, BoxError> {
///         Ok(worker.map_or(0..self.0, |worker| worker.share(self.0)))
///     }
///
///     fn next<'a>(&'a self, left: &'a mut Self::Cursor, _: &'a mut Context) -> Result<Option<i64>, BoxError> {
///         Ok(left.next().map(|number| number as i64))
///     }
/// }
///
/// let mut loader = Loader::iterable(Count(10)).batch_size(3).num_workers(2).build()?;
/// let mut batches = Vec::new();
/// for batch in loader.epoch()? {
///     batches.push(batch?.tensors().as_slice().to_vec()); // from worker 0, worker 1, and so on
/// }
/// assert_eq!(batches, [vec![0, 1, 2], vec![5, 6, 7], vec![3, 4], vec![8, 9]]);
/// # Ok::<(), BoxError>(())
/// ```
///
/// To make a dataset from an ordinary iterator, use [`iter_fn`](super::iter_fn).
pub trait IterableDataset: Send + Sync + 'static {
    /// One sample; it may borrow from the dataset, from the cursor and from the [`Context`].
    type Sample<'a>: Sample
    where
        Self: 'a;

    /// The state of one worker's pass, with everything that it needs to continue: an iterator, an open file, a buffer.
    type Cursor: Send + 'static;

    /// Starts a worker's pass, in that worker. If there are no workers, `worker` is `None`, and the pass runs in the
    /// thread of the training loop.
    ///
    /// # Errors
    ///
    /// Any error that prevents the pass from starting. It is returned as this worker's first result, and the worker
    /// produces nothing more in the pass.
    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Self::Cursor, BoxError>;

    /// Returns the next sample, or `None` at the end. It is not called again after the end.
    ///
    /// # Errors
    ///
    /// Any error that prevents the sample from being read. By default the batch becomes an error,
    /// the samples already read for it are lost, and the next call starts the next batch. With
    /// [`on_error`](crate::loader::Builder::on_error) the same batch can continue with the next
    /// call. A dataset that cannot continue after an error must then return `None`.
    ///
    /// After a panic, this function is not called again in the pass, except after a panic of a
    /// function passed to [`map`](Self::map), which affects only that sample. If a sample does not
    /// fit its row, or a collate function fails, the rest of that batch is still read, and the next
    /// batch is not affected.
    fn next<'a>(
        &'a self,
        cursor: &'a mut Self::Cursor,
        cx: &'a mut Context,
    ) -> Result<Option<Self::Sample<'a>>, BoxError>;

    /// Writes the state of this cursor, from which [`resume`](Self::resume) can continue, for the
    /// [state of a loader](crate::loader::Loader::state). Returns whether the dataset supports
    /// this.
    ///
    /// The worker calls this after each batch. `to` is empty, and reuses the memory of the previous
    /// save. By default a dataset does not support saving. Such a dataset is read again from its
    /// start when a state is loaded, and the loader logs a warning.
    ///
    /// ```
    /// use slotline::dataset::{Context, IterableDataset};
    /// use slotline::{BoxError, Loader, WorkerInfo};
    ///
    /// /// The numbers from 0 up to, but not including, this one.
    /// struct Count(usize);
    ///
    /// impl IterableDataset for Count {
    ///     type Sample<'a> = i64;
    ///     type Cursor = std::ops::Range<usize>;
    ///
    ///     fn iter(&self, worker: Option<WorkerInfo>) -> Result<Self::Cursor, BoxError> {
    ///         Ok(worker.map_or(0..self.0, |worker| worker.share(self.0)))
    ///     }
    ///
    ///     fn next<'a>(&'a self, left: &'a mut Self::Cursor, _: &'a mut Context) -> Result<Option<i64>, BoxError> {
    ///         Ok(left.next().map(|number| number as i64))
    ///     }
    ///
    ///     fn save(&self, left: &Self::Cursor, to: &mut String) -> bool {
    ///         to.push_str(&left.start.to_string());
    ///         true
    ///     }
    ///
    ///     fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Self::Cursor, BoxError> {
    ///         Ok(saved.parse()?..self.iter(worker)?.end)
    ///     }
    /// }
    ///
    /// let loader = || Loader::iterable(Count(10)).batch_size(3).num_workers(2).build();
    /// let (mut before, mut after) = (loader()?, loader()?);
    /// let mut pass = before.epoch()?;
    /// assert_eq!(pass.next().expect("from worker 0")?.tensors().as_slice(), [0, 1, 2]);
    /// after.load_state(&pass.state())?;
    /// assert_eq!(after.epoch()?.next().expect("from worker 1")?.tensors().as_slice(), [5, 6, 7]);
    /// # Ok::<(), BoxError>(())
    /// ```
    fn save(&self, cursor: &Self::Cursor, to: &mut String) -> bool {
        let _ = (cursor, to);
        false
    }

    /// Resumes a worker's pass from what a cursor of that worker [saved](Self::save), instead of [`iter`](Self::iter).
    ///
    /// # Errors
    ///
    /// Those of `iter`, and any error if `saved` does not fit the dataset or cannot be parsed.
    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Self::Cursor, BoxError> {
        let _ = (worker, saved);
        Err("this dataset does not implement `resume`; implement it, or load a state from the start of a pass".into())
    }

    /// Returns the number of samples in a pass, over all workers, if it is known. A loader logs a
    /// warning if there are more.
    fn len(&self) -> Option<usize> {
        None
    }

    /// Returns whether a pass is known to have no samples.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns the fields of every sample, if the dataset knows them without reading one.
    ///
    /// If this returns `None`, building a loader starts a pass, as the first worker with samples
    /// would, and reads one sample from it.
    fn fields(&self) -> Option<Fields> {
        None
    }

    /// Chains this dataset with another one that has the same type of samples (torch's `a + b`).
    ///
    /// For any number of datasets of one type, see [`ChainDataset`](super::ChainDataset).
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::{IterableDataset, iter_fn};
    ///
    /// let both = iter_fn(|_| Ok((0..2_i64).map(Ok))).chain(iter_fn(|_| Ok([7_i64, 8].map(Ok))));
    /// let mut loader = Loader::iterable(both).batch_size(4).build()?;
    /// assert_eq!(loader.epoch()?.next().expect("a batch")?.tensors().as_slice(), [0, 1, 7, 8]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    fn chain<B>(self, other: B) -> Chain2<Self, B>
    where
        Self: Sized,
        B: for<'a> IterableDataset<Sample<'a> = Self::Sample<'a>>,
    {
        Chain2::new(self, other)
    }

    /// Applies `function` to each sample, like [`Dataset::map`](super::Dataset::map).
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::{IterableDataset, iter_fn};
    ///
    /// let lines = iter_fn(|_| Ok(["1 2", "3 4"].map(|line| Ok(line.as_bytes().to_vec()))));
    /// let numbers = lines.map(|line, _| {
    ///     let numbers: Result<Vec<i64>, _> = str::from_utf8(&line)?.split(' ').map(str::parse).collect();
    ///     Ok(numbers?)
    /// });
    /// let mut loader = Loader::iterable(numbers).batch_size(2).build()?;
    /// assert_eq!(loader.epoch()?.next().expect("a batch")?.tensors().as_slice(), [1, 2, 3, 4]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    fn map<S, F>(self, function: F) -> Map<Self, F>
    where
        Self: Sized,
        F: for<'a> Fn(Self::Sample<'a>, &mut Context) -> Result<S, BoxError> + Send + Sync + 'static,
        S: Sample + 'static,
    {
        Map::new(self, function)
    }
}

impl<D: IterableDataset> IterableDataset for Arc<D> {
    type Sample<'a> = D::Sample<'a>;
    type Cursor = D::Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Self::Cursor, BoxError> {
        (**self).iter(worker)
    }

    #[inline]
    fn next<'a>(
        &'a self,
        cursor: &'a mut Self::Cursor,
        cx: &'a mut Context,
    ) -> Result<Option<Self::Sample<'a>>, BoxError> {
        (**self).next(cursor, cx)
    }

    fn save(&self, cursor: &Self::Cursor, to: &mut String) -> bool {
        (**self).save(cursor, to)
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Self::Cursor, BoxError> {
        (**self).resume(worker, saved)
    }

    fn len(&self) -> Option<usize> {
        (**self).len()
    }

    fn fields(&self) -> Option<Fields> {
        (**self).fields()
    }
}
