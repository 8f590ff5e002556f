//! Datasets: samples by index, or in sequence.
//!
//! | to load | use |
//! |---|---|
//! | the rows of arrays | [`TensorDataset`] |
//! | the results of a function of the index | [`from_fn`] |
//! | anything else | your own [`Dataset`], with a [`Context`] for random numbers and memory |
//! | the results of a function of each sample | [`Dataset::map`], [`IterableDataset::map`] |
//! | some samples of a dataset | [`Subset`] |
//! | a dataset in random parts | [`random_split`] |
//! | several datasets in sequence | [`ConcatDataset`], or [`Dataset::concat`] if their types differ |
//! | several datasets, combined sample by sample | [`StackDataset`] |
//! | samples in sequence, without an index | [`iter_fn`], or your own [`IterableDataset`] |
//! | several iterable datasets in sequence | [`ChainDataset`], or [`IterableDataset::chain`] if their types differ |

mod chain;
mod concat;
mod concat2;
mod context;
mod error;
mod function;
mod iter_fn;
mod iterable;
mod loadable;
mod map;
mod memory;
pub(crate) mod reading;
mod split;
mod stack;
pub(crate) mod stop;
mod subset;
mod upcoming;
mod worker;

use std::sync::Arc;

pub use self::chain::{Chain2, Chain2Cursor, ChainCursor, ChainDataset};
pub use self::concat::ConcatDataset;
pub use self::concat2::Concat2;
pub use self::context::Context;
pub use self::error::{ConcatError, OutOfRange};
pub(crate) use self::error::{ManyError, Panicked};
pub use self::function::{FnDataset, from_fn};
pub use self::iter_fn::{IterFn, iter_fn};
pub use self::iterable::IterableDataset;
pub use self::loadable::{Iterable, Loadable};
pub use self::map::Map;
pub use self::memory::{LengthMismatch, Rows, TensorDataset};
pub use self::reading::{decoding, downloading, fetching, is_timed, reading, writing};
pub use self::split::{SplitError, SplitLength, random_split};
pub use self::stack::{Datasets, StackDataset, StackError};
pub use self::stop::StopToken;
pub use self::subset::{Subset, SubsetError};
pub use self::upcoming::Upcoming;
pub(crate) use self::worker::set_worker_info;
pub use self::worker::{WorkerInfo, worker_info};
use crate::BoxError;
pub use crate::prefetch::prefetch;
use crate::sample::{Fields, RowsMut, Sample};

/// A dataset whose samples can be read by index, from any thread (torch's map-style `Dataset`).
///
/// ```
/// use slotline::BoxError;
/// use slotline::dataset::{Context, Dataset};
///
/// struct Squares;
///
/// impl Dataset for Squares {
///     type Sample<'a> = (i64, f32);
///
///     fn len(&self) -> usize {
///         1_000
///     }
///
///     fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
///         Ok((index as i64, (index * index) as f32))
///     }
/// }
/// ```
pub trait Dataset: Send + Sync + 'static {
    /// One sample; it may borrow from the dataset and from the [`Context`].
    type Sample<'a>: Sample
    where
        Self: 'a;

    /// Returns the number of samples. Indices are below it.
    ///
    /// It may change from pass to pass: a loader without a sampler calls it at the beginning of each pass.
    fn len(&self) -> usize;

    /// Returns whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sample at `index`. Called from several threads at once.
    ///
    /// # Errors
    ///
    /// Any error that prevents the sample from being read. The batch that it belongs to becomes an error that names the
    /// index, unless [`on_error`](crate::loader::Builder::on_error) changes that.
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError>;

    /// Announces that `index` will be read soon, so that its memory can be fetched in advance ([`prefetch`] does that).
    /// Must be cheap.
    ///
    /// This is only a hint. It is called a few samples ahead; without workers also during the previous batch. The
    /// sample may never be read if the pass is dropped. A panic here is treated as a panic in the sample that is being
    /// read at the time.
    #[inline]
    fn prefetch(&self, index: usize) {
        let _ = index;
    }

    /// Returns whether a loader should call [`begin_pass`](Self::begin_pass), because the dataset
    /// can fetch its data far ahead.
    fn reads_ahead(&self) -> bool {
        false
    }

    /// Announces the indices of a pass, in the order in which they will be needed, before the first one is read. A
    /// dataset on a disk or behind a network can fetch them long before they are needed, on a thread of its own.
    ///
    /// This is only a hint. A loader gives it if [`reads_ahead`](Self::reads_ahead) returned true
    /// when the loader was built, and only if it knows the order, unlike that of a user's iterator
    /// of indices. The pass may be dropped before its end, and several loaders may share the
    /// dataset. The loader copies its table of indices for this call, 4 or 8 bytes for each. With
    /// worker processes, only the process of the loader calls this function. It must not panic: a
    /// panic reaches the caller that begins the pass.
    ///
    /// A dataset that reads from another one passes the announcement on, with [`Upcoming::map`] if the indices differ.
    fn begin_pass(&self, upcoming: Upcoming) {
        let _ = upcoming;
    }

    /// Returns whether a loader should call [`get_many`](Self::get_many), because that reads
    /// several samples faster than repeated calls of [`get`](Self::get).
    fn reads_many(&self) -> bool {
        false
    }

    /// Returns whether a loader that stacks samples should call [`write_many`](Self::write_many)
    /// for the rows that a thread writes in sequence, because the samples are in memory and are
    /// copied faster together. Unlike with [`reads_many`](Self::reads_many), several threads can
    /// then write parts of one batch.
    fn writes_many(&self) -> bool {
        false
    }

    /// Reads the samples at `indices` and passes each to `put`, in that order (torch's `__getitems__`).
    ///
    /// If [`reads_many`](Self::reads_many) returns true and samples are batched, a loader calls this function for a
    /// whole batch, or for a [part](crate::loader::Builder::part_size) of one. `cx` starts with the random numbers of
    /// the first sample; call [`Context::go_to`] to get those of another sample.
    ///
    /// ```
    /// use slotline::BoxError;
    /// use slotline::dataset::{Context, Dataset};
    ///
    /// /// Numbers in a store that is slow for each request, but not for each number.
    /// struct Remote;
    ///
    /// # fn ask(keys: &[usize]) -> Result<Vec<f64>, BoxError> { Ok(keys.iter().map(|&key| key as f64).collect()) }
    /// impl Dataset for Remote {
    ///     type Sample<'a> = f64;
    ///
    ///     fn len(&self) -> usize {
    ///         1_000_000
    ///     }
    ///
    ///     fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<f64, BoxError> {
    ///         Ok(ask(&[index])?[0])
    ///     }
    ///
    ///     fn reads_many(&self) -> bool {
    ///         true
    ///     }
    ///
    ///     fn get_many(
    ///         &self,
    ///         indices: &[usize],
    ///         _: &mut Context,
    ///         put: &mut dyn FnMut(f64) -> Result<(), BoxError>,
    ///     ) -> Result<(), BoxError> {
    ///         ask(indices)?.into_iter().try_for_each(put)
    ///     }
    /// }
    /// # let mut loader = slotline::Loader::builder(Remote).batch_size(3).build()?;
    /// # assert_eq!(loader.epoch()?.nth(1).unwrap()?.tensors().as_slice(), [3.0, 4.0, 5.0]);
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error that prevents a sample from being read, or an error from `put`. The error is attributed to the first
    /// sample that was not put. If [`on_error`](crate::loader::Builder::on_error) does not raise it, the samples after
    /// that one are read again.
    fn get_many(
        &self,
        indices: &[usize],
        cx: &mut Context,
        put: &mut dyn for<'a> FnMut(Self::Sample<'a>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        for (number, &index) in indices.iter().enumerate() {
            cx.go_to(number);
            put(self.get(index, cx)?)?;
        }
        Ok(())
    }

    /// Reads the samples at `indices` and writes each into its row, in that order. The default
    /// implementation calls [`get_many`](Self::get_many). A dataset that stores its samples by
    /// field can copy many rows of a field at once.
    ///
    /// A loader that stacks samples calls this function in place of `get_many` if
    /// [`reads_many`](Self::reads_many) returns true, and in place of `get` if
    /// [`writes_many`](Self::writes_many) does. Rows must be written in the order of the indices.
    ///
    /// ```
    /// use slotline::BoxError;
    /// use slotline::dataset::{Context, Dataset};
    /// use slotline::dtype::DType;
    /// use slotline::sample::{Fields, RowsMut};
    ///
    /// /// Columns of numbers.
    /// struct Table(Vec<[u8; 4]>, Vec<[u8; 8]>);
    ///
    /// impl Dataset for Table {
    ///     type Sample<'a> = (f32, i64);
    ///
    ///     fn len(&self) -> usize {
    ///         self.0.len()
    ///     }
    ///
    ///     fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<(f32, i64), BoxError> {
    ///         Ok((f32::from_ne_bytes(self.0[index]), i64::from_ne_bytes(self.1[index])))
    ///     }
    ///
    ///     fn reads_many(&self) -> bool {
    ///         true
    ///     }
    ///
    ///     fn write_many(&self, indices: &[usize], _: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
    ///         let mut fields = rows.fields(indices.len())?;
    ///         fields.write_fixed(DType::F32, indices.iter().map(|&index| &self.0[index][..]))?;
    ///         fields.write_fixed(DType::I64, indices.iter().map(|&index| &self.1[index][..]))?;
    ///         Ok(fields.finish()?)
    ///     }
    /// }
    /// # let table = Table(vec![1.5_f32.to_ne_bytes(); 5], (0_i64..5).map(i64::to_ne_bytes).collect());
    /// # let mut loader = slotline::Loader::builder(table).batch_size(3).build()?;
    /// # let batch = loader.epoch()?.nth(1).unwrap()?;
    /// # let (floats, integers) = batch.tensors();
    /// # assert_eq!((floats.as_slice(), integers.as_slice()), (&[1.5; 2][..], &[3, 4][..]));
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`get_many`](Self::get_many). The error is attributed to the first row that was not
    /// written.
    fn write_many(&self, indices: &[usize], cx: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        self.get_many(indices, cx, &mut |sample| rows.push(sample))
    }

    /// Returns the fields of every sample, if the dataset knows them without reading one.
    ///
    /// If this returns `None`, a loader reads one sample when it is built.
    fn fields(&self) -> Option<Fields> {
        None
    }

    /// Concatenates this dataset with another one that has the same type of samples (torch's `a + b`).
    ///
    /// For any number of datasets of one type, see [`ConcatDataset`].
    ///
    /// ```
    /// use slotline::Dataset;
    /// use slotline::dataset::{TensorDataset, from_fn};
    ///
    /// let measured = TensorDataset::new(vec![0.5, 0.25])?;
    /// let made_up = from_fn(100, |index, _| Ok(index as f64));
    /// assert_eq!(measured.concat(made_up)?.len(), 102);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the two datasets together have more samples than a `usize` can count.
    fn concat<B>(self, other: B) -> Result<Concat2<Self, B>, ConcatError>
    where
        Self: Sized,
        B: for<'a> Dataset<Sample<'a> = Self::Sample<'a>>,
    {
        Concat2::new(self, other)
    }

    /// Applies `function` to each sample: decoding, conversion, augmentation.
    ///
    /// The function runs in the worker that reads the sample. Its result must own its data; for
    /// samples that borrow, implement [`Dataset`]. An error or a panic of the function is treated
    /// as an error or a panic of the sample.
    ///
    /// Since the sample may borrow from the [`Context`] that it was read with, the dataset and the
    /// function each get a separate [part](Context::parts) of the context, with its own memory and
    /// random numbers. The random numbers depend on the sample only, and are the same for any
    /// number of workers.
    ///
    /// ```
    /// use slotline::array::Array;
    /// use slotline::dataset::TensorDataset;
    /// use slotline::rng::rand_core::Rng;
    /// use slotline::{Dataset, Loader};
    ///
    /// let waves = Array::new((0..32).map(|x| x as f32).collect(), &[8, 4])?;
    /// let noisy = TensorDataset::new((waves, vec![0_i64; 8]))?.map(|(wave, label), cx| {
    ///     let mut wave = wave.as_slice().to_vec();
    ///     for x in &mut wave {
    ///         *x = *x / 32.0 + 0.1 * (cx.rng().next_u32() as f32 / u32::MAX as f32 - 0.5);
    ///     }
    ///     Ok((wave, label))
    /// });
    /// let mut loader = Loader::builder(noisy).batch_size(8).shuffle(true).num_workers(2).build()?;
    /// for batch in loader.epoch()? {
    ///     let batch = batch?;
    ///     let (waves, labels) = batch.tensors();
    ///     assert_eq!((waves.shape(), labels.len()), (&[8, 4][..], 8));
    /// }
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

impl<D: Dataset> Dataset for Arc<D> {
    type Sample<'a> = D::Sample<'a>;

    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        (**self).get(index, cx)
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        (**self).prefetch(index);
    }

    fn reads_ahead(&self) -> bool {
        (**self).reads_ahead()
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        (**self).begin_pass(upcoming);
    }

    fn reads_many(&self) -> bool {
        (**self).reads_many()
    }

    fn writes_many(&self) -> bool {
        (**self).writes_many()
    }

    fn get_many(
        &self,
        indices: &[usize],
        cx: &mut Context,
        put: &mut dyn for<'a> FnMut(Self::Sample<'a>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        (**self).get_many(indices, cx, put)
    }

    fn write_many(&self, indices: &[usize], cx: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        (**self).write_many(indices, cx, rows)
    }

    fn fields(&self) -> Option<Fields> {
        (**self).fields()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SampleRng;
    use crate::rng::rand_core::Rng;

    /// An index and two random numbers.
    type Noise = (i64, [u64; 2]);

    /// Returns the samples of a bulk read, and its result.
    fn read(
        dataset: &impl for<'a> Dataset<Sample<'a> = Noise>,
        indices: &[usize],
        cx: &mut Context,
    ) -> (Vec<Noise>, Result<(), String>) {
        let mut got = Vec::new();
        let outcome = dataset.get_many(indices, cx, &mut |sample| {
            got.push(sample);
            Ok(())
        });
        (got, outcome.map_err(|error| error.to_string()))
    }

    /// Makes a dataset of random numbers that fails at index 7.
    fn noise() -> impl for<'a> Dataset<Sample<'a> = Noise> {
        from_fn(10, |index, cx| {
            if index == 7 {
                return Err("seven".into());
            }
            Ok((index as i64, [cx.rng().next_u64(), cx.rng().next_u64()]))
        })
    }

    #[test]
    fn a_bulk_read_defaults_to_single_reads() {
        let mut cx = Context::default();
        cx.start_pass(3, 2);
        let want: Vec<_> = [(5, 40), (0, 41), (5, 42)]
            .map(|(index, position)| {
                cx.start_sample(position);
                let alone = noise().get(index, &mut cx).unwrap();
                let mut rng = SampleRng::new(3, 2, position);
                assert_eq!(alone, (index as i64, [rng.next_u64(), rng.next_u64()]));
                alone
            })
            .into();
        assert_ne!(want[0].1, want[2].1, "the numbers depend on the position, not on the index");
        cx.start_sample(40);
        assert_eq!(read(&noise(), &[5, 0, 5], &mut cx), (want.clone(), Ok(())));
        cx.start_sample(40);
        assert_eq!(read(&Arc::new(noise()), &[5, 0, 5], &mut cx), (want.clone(), Ok(())));
        cx.start_sample(40);
        assert_eq!(read(&noise(), &[5, 0, 7, 5], &mut cx), (want[..2].into(), Err("seven".into())));
        assert!(!noise().reads_many());
    }

    #[test]
    fn a_bulk_read_ends_where_put_fails() {
        let mut asked = 0;
        let error = noise().get_many(&[1, 2, 3], &mut Context::default(), &mut |(index, _)| {
            asked += 1;
            if index == 2 { Err("full".into()) } else { Ok(()) }
        });
        assert_eq!((error.unwrap_err().to_string(), asked), ("full".into(), 2));
    }
}
