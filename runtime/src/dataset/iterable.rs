//! Datasets that are read from the start: streams, logs, archives, anything without an index.

use std::sync::Arc;

use super::{Chain2, Context, Map, WorkerInfo};
use crate::BoxError;
use crate::sample::{Fields, Sample};

/// Samples that come one after the other (torch's `IterableDataset`).
///
/// Each worker reads its own replica: what [`iter`](Self::iter) starts is that worker's alone. So that a sample does not come
/// once for each worker, `iter` is told which worker it is for, and [`WorkerInfo::share`] says what its part is.
///
/// ```
/// use slotline::dataset::{Context, IterableDataset};
/// use slotline::{BoxError, Loader, WorkerInfo};
///
/// /// The numbers from 0 on.
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
///     batches.push(batch?.tensors().as_slice().to_vec()); // of worker 0, of worker 1, and so on
/// }
/// assert_eq!(batches, [vec![0, 1, 2], vec![5, 6, 7], vec![3, 4], vec![8, 9]]);
/// # Ok::<(), BoxError>(())
/// ```
///
/// For an ordinary iterator, [`iter_fn`](super::iter_fn) makes a dataset of it.
pub trait IterableDataset: Send + Sync + 'static {
    /// One sample; it may borrow from the dataset, from the cursor and from the [`Context`].
    type Sample<'a>: Sample
    where
        Self: 'a;

    /// How far one worker is in its pass, with all that it needs to go on: an iterator, an open file, a buffer.
    type Cursor: Send + 'static;

    /// Starts a pass of one worker, in that worker; `None` if there are no workers, in the thread of the training loop.
    ///
    /// # Errors
    ///
    /// Whatever keeps the pass from being started. It arrives as this worker's first result, and there is nothing more from
    /// it in the pass.
    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Self::Cursor, BoxError>;

    /// The next sample, or `None` at the end, after which it is not called again.
    ///
    /// # Errors
    ///
    /// Whatever keeps the sample from being had. The batch becomes an error, with the samples that were already read for it,
    /// and the next batch begins with the next call, unless [`on_error`](crate::loader::Builder::on_error) has the batch
    /// itself go on with it; a dataset that cannot go on must say `None` then. After a panic it is not called again in this
    /// pass. A sample that does not fit its row, or a collate function that fails, is another matter: the rest of that batch
    /// is read all the same, and the next batch is what it would have been.
    fn next<'a>(
        &'a self,
        cursor: &'a mut Self::Cursor,
        cx: &'a mut Context,
    ) -> Result<Option<Self::Sample<'a>>, BoxError>;

    /// Writes what [`resume`](Self::resume) needs to go on from where this cursor is, for the [state of a
    /// loader](crate::loader::Loader::state); whether it can.
    ///
    /// It is asked after each batch, by the worker. `to` is empty, with the memory of what was saved before. A dataset that
    /// cannot, as none can unless it says so, is read again from its start when a state is loaded, and the loader warns.
    ///
    /// ```
    /// use slotline::dataset::{Context, IterableDataset};
    /// use slotline::{BoxError, Loader, WorkerInfo};
    ///
    /// /// The numbers from 0 on.
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
    /// assert_eq!(pass.next().expect("of worker 0")?.tensors().as_slice(), [0, 1, 2]);
    /// after.load_state(&pass.state())?;
    /// assert_eq!(after.epoch()?.next().expect("of worker 1")?.tensors().as_slice(), [5, 6, 7]);
    /// # Ok::<(), BoxError>(())
    /// ```
    fn save(&self, cursor: &Self::Cursor, to: &mut String) -> bool {
        let _ = (cursor, to);
        false
    }

    /// Goes on with a pass of one worker from what a cursor of that worker has [saved](Self::save), in the place of
    /// [`iter`](Self::iter).
    ///
    /// # Errors
    ///
    /// As those of `iter`; and whatever does not fit the dataset, or cannot be read.
    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Self::Cursor, BoxError> {
        let _ = (worker, saved);
        Err("this dataset saves nothing that it could go on from".into())
    }

    /// How many samples a pass has, over all workers, if that is known. A loader warns if there are more.
    fn len(&self) -> Option<usize> {
        None
    }

    /// Whether a pass surely has no samples.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The fields of every sample, if the dataset knows them without reading one.
    ///
    /// With `None` a loader starts a pass when it is built, as the first worker that has samples would, reads one sample, and
    /// leaves it at that.
    fn fields(&self) -> Option<Fields> {
        None
    }

    /// This dataset and after it another with the same type of samples (torch's `a + b`).
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

    /// The dataset of what `function` makes of each sample, as [`Dataset::map`](super::Dataset::map).
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
