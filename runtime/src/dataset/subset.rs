//! Some samples of a dataset.

use std::collections::TryReserveError;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;
use std::sync::Arc;

use super::context::Scratch;
use super::{Context, Dataset, ManyError, OutOfRange, Upcoming};
use crate::BoxError;
use crate::causes::with_causes;
use crate::rng::{IndexWord, reserve_table};
use crate::sample::{Fields, RowsMut};
use crate::sampler::Order;

/// The samples of a dataset at the given indices, in that order, with repetitions (torch's `Subset`).
/// Sample `i` is the dataset's sample at the `i`-th of these indices. Its random numbers depend on
/// its position in the pass over the subset. Each index takes 4 bytes (8 if the dataset has more
/// than 2³² samples). Clones, and the parts of a [`random_split`](super::random_split), share one
/// table of indices.
///
/// An invalid index is an error at construction (torch reports it when the sample is read). Unlike
/// in torch, there are no negative indices that count from the end: indices are `usize`.
///
/// ```
/// use slotline::Dataset;
/// use slotline::dataset::{Subset, from_fn};
///
/// let squares = from_fn(100, |index, _| Ok((index * index) as i64));
/// let some = Subset::new(squares, [3, 1, 4, 1])?;
/// assert_eq!(some.len(), 4);
/// assert!(some.indices().eq([3, 1, 4, 1]));
///
/// let error = Subset::new(some, 0..5).unwrap_err(); // indices into the subset
/// assert_eq!(error.to_string(), "Subset: indices[4] is 4, but the dataset has only 4 samples");
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// To make several subsets of one dataset, pass an `Arc` of it to each.
#[derive(Clone)]
pub struct Subset<D> {
    dataset: D,
    /// Indices that were below the dataset's length at construction.
    table: Arc<Order>,
    /// The range of the table that belongs to this subset. It is always inside the table.
    range: Range<usize>,
}

/// The error for a [`Subset`] that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubsetError {
    /// An index is not below the dataset's length.
    #[error("Subset: indices[{position}] is {index}, but the dataset has only {len} samples")]
    Index {
        /// The position in the list of indices, counted from 0.
        position: usize,
        /// The index.
        index: usize,
        /// The number of samples in the dataset.
        len: usize,
    },
    /// The memory for the table could not be allocated.
    #[error(
        "Subset: cannot allocate {bytes} bytes for the indices; free memory, or pass fewer indices: {}",
        with_causes(source)
    )]
    Memory {
        /// The size of the table in bytes; `usize::MAX` if it is larger than that or unknown.
        bytes: usize,
        /// The allocator's error.
        r#source: TryReserveError,
    },
}

impl<D: Dataset> Subset<D> {
    /// Selects the samples of `dataset` at `indices`.
    ///
    /// # Errors
    ///
    /// If an index is not below the dataset's length (the error names the first one), or the memory cannot be
    /// allocated.
    pub fn new(dataset: D, indices: impl IntoIterator<Item = usize>) -> Result<Self, SubsetError> {
        let (len, indices) = (dataset.len(), indices.into_iter());
        let mut table = Order::default();
        if u32::fits(len) {
            collect(indices, len, table.u32_table())?;
        } else {
            collect(indices, len, table.u64_table())?;
        }
        let range = 0..table.len();
        Ok(Self::of_table(dataset, Arc::new(table), range))
    }

    /// Selects the samples of `dataset` in this order, which is shared, and may be
    /// [computed](Order::computed) instead of a table.
    ///
    /// The indices of `order` are not checked here: one that is not below the dataset's length is an
    /// error when it is read.
    ///
    /// ```
    /// use slotline::Dataset;
    /// use slotline::dataset::{Subset, from_fn};
    /// use slotline::sampler::Order;
    ///
    /// let squares = from_fn(100, |index, _| Ok((index * index) as i64));
    /// let twice = Subset::ordered(squares, Order::computed(200, 0, |place| place % 100));
    /// assert_eq!((twice.len(), twice.indices().nth(103)), (200, Some(3)));
    /// ```
    pub fn ordered(dataset: D, order: Order) -> Self {
        let range = 0..order.len();
        Self { dataset, table: Arc::new(order), range }
    }

    /// Selects the samples at the indices in a range of a table. The caller has checked that `range` is within the
    /// table and the indices are within the dataset.
    pub(super) fn of_table(dataset: D, table: Arc<Order>, range: Range<usize>) -> Self {
        debug_assert!(range.start <= range.end && range.end <= table.len());
        Self { dataset, table, range }
    }
}

/// Fills a table with indices below `len`.
fn collect<I: IndexWord>(
    indices: impl Iterator<Item = usize>,
    len: usize,
    table: &mut Vec<I>,
) -> Result<(), SubsetError> {
    let memory =
        |entries: usize| move |source| SubsetError::Memory { bytes: entries.saturating_mul(size_of::<I>()), source };
    let least = indices.size_hint().0;
    reserve_table(table, least).map_err(memory(least))?;
    for (position, index) in indices.enumerate() {
        if index >= len {
            return Err(SubsetError::Index { position, index, len });
        }
        if table.len() == table.capacity() {
            table.try_reserve(1).map_err(memory(position.saturating_add(1)))?;
        }
        table.push(I::from_index(index));
    }
    Ok(())
}

impl<D> Subset<D> {
    /// Returns the dataset that the samples are taken from.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// Selects the samples with the same indices from another dataset. An index that `dataset` does not have is an
    /// error when it is read.
    pub fn of<E>(&self, dataset: E) -> Subset<E> {
        Subset { dataset, table: self.table.clone(), range: self.range.clone() }
    }

    /// Returns the dataset's indices of the samples, in order.
    pub fn indices(&self) -> impl ExactSizeIterator<Item = usize> + DoubleEndedIterator + FusedIterator + '_ {
        self.range.clone().map(|position| self.table.index(position))
    }

    /// Returns the index that sample `index` has in the dataset, or `None` if `index` is out of
    /// range.
    #[inline]
    pub fn locate(&self, index: usize) -> Option<usize> {
        (index < self.range.len()).then(|| self.table.index(self.range.start + index))
    }

    /// Calls `read` with the indices that these samples have in the dataset.
    fn with_located(
        &self,
        indices: &[usize],
        cx: &mut Context,
        read: impl FnOnce(&[usize], &mut Context) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        // The list is taken out of the context, which the dataset needs, and put back for the next
        // call.
        let mut inner = cx.local::<Scratch>().0.pop().unwrap_or_default();
        inner.clear();
        ManyError::reserve(&mut inner, indices.len())?;
        inner.extend(indices.iter().map_while(|&index| self.locate(index)));
        // An index that is out of range is an error only of its own sample, so the samples before
        // it are read first.
        let mut outcome = if inner.is_empty() { Ok(()) } else { read(&inner, cx) };
        if let (Ok(()), Some(&index)) = (&outcome, indices.get(inner.len())) {
            outcome = Err(OutOfRange::error("Subset", index, self.range.len()));
        }
        cx.local::<Scratch>().0.push(inner);
        outcome
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Sample<'a> = D::Sample<'a>;

    fn len(&self) -> usize {
        self.range.len()
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let missing = || OutOfRange { dataset: "Subset", index, len: self.len() };
        self.dataset.get(self.locate(index).ok_or_else(missing)?, cx)
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        if let Some(index) = self.locate(index) {
            self.dataset.prefetch(index);
        }
    }

    fn reads_ahead(&self) -> bool {
        self.dataset.reads_ahead()
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        let (table, range) = (self.table.clone(), self.range.clone());
        let inner = move |index| (index < range.len()).then(|| table.index(range.start + index));
        self.dataset.begin_pass(upcoming.map(inner));
    }

    fn reads_many(&self) -> bool {
        self.dataset.reads_many()
    }

    fn writes_many(&self) -> bool {
        self.dataset.writes_many()
    }

    fn get_many(
        &self,
        indices: &[usize],
        cx: &mut Context,
        put: &mut dyn for<'a> FnMut(Self::Sample<'a>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        self.with_located(indices, cx, |inner, cx| self.dataset.get_many(inner, cx, put))
    }

    fn write_many(&self, indices: &[usize], cx: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        self.with_located(indices, cx, |inner, cx| self.dataset.write_many(inner, cx, rows))
    }

    fn fields(&self) -> Option<Fields> {
        self.dataset.fields()
    }
}

impl<D> fmt::Debug for Subset<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first: Vec<usize> = self.indices().take(8).collect();
        f.debug_struct("Subset").field("len", &self.range.len()).field("first", &first).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::dataset::from_fn;

    /// A dataset whose samples are the indices. It records the indices of each bulk read.
    #[derive(Default)]
    struct Noted(Mutex<Vec<Vec<usize>>>);

    impl Dataset for Noted {
        type Sample<'a> = i64;

        fn len(&self) -> usize {
            10
        }

        fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<i64, BoxError> {
            Ok(index as i64)
        }

        fn reads_many(&self) -> bool {
            true
        }

        fn get_many(
            &self,
            indices: &[usize],
            _: &mut Context,
            put: &mut dyn FnMut(i64) -> Result<(), BoxError>,
        ) -> Result<(), BoxError> {
            self.0.lock().unwrap().push(indices.to_vec());
            indices.iter().try_for_each(|&index| put(index as i64))
        }
    }

    #[test]
    fn a_table_is_as_narrow_as_the_length_allows() {
        let of = |len| Subset::new(from_fn(len, |i, _| Ok(i as i64)), [0, len - 1]).unwrap();
        let narrow = of(1 << 32);
        assert!(matches!(*narrow.table, Order::U32(_)) && narrow.table.memory() == 8);
        let wide = of((1 << 32) + 1);
        assert!(matches!(*wide.table, Order::U64(_)) && wide.table.memory() == 16);
        assert!(wide.indices().rev().eq([1 << 32, 0]));
        assert!(Arc::ptr_eq(&wide.table, &wide.clone().table));
    }

    #[test]
    fn indices_beyond_memory_are_an_error() {
        let all = from_fn(usize::MAX, |i, _| Ok(i as i64));
        let error = Subset::new(all, 0..usize::MAX).unwrap_err();
        assert!(matches!(error, SubsetError::Memory { bytes: usize::MAX, .. }), "{error}");
    }

    #[test]
    fn iterators_may_understate_their_length() {
        let even = Subset::new(from_fn(100, |i, _| Ok(i as i64)), (0..100).filter(|i| i % 2 == 0)).unwrap();
        assert!(even.indices().eq((0..100).step_by(2)));
        assert_eq!(format!("{even:?}"), "Subset { len: 50, first: [0, 2, 4, 6, 8, 10, 12, 14], .. }");
    }

    /// Returns a `put` that records the samples.
    fn note(got: &mut Vec<i64>) -> impl FnMut(i64) -> Result<(), BoxError> + '_ {
        |sample| {
            got.push(sample);
            Ok(())
        }
    }

    #[test]
    fn a_bulk_read_passes_on_the_datasets_indices() {
        let subset = Subset::new(Subset::new(Noted::default(), (0..10).rev()).unwrap(), [3, 1, 4]).unwrap();
        let (mut cx, mut got) = (Context::default(), Vec::new());
        subset.get_many(&[2, 0], &mut cx, &mut note(&mut got)).unwrap();
        assert_eq!(got, [5, 6]);
        assert_eq!(subset.dataset().dataset().0.lock().unwrap()[..], [[5, 6]]);
        assert!(subset.reads_many() && !Subset::new(from_fn(1, |_, _| Ok(0)), [0]).unwrap().reads_many());
    }

    #[test]
    fn an_index_out_of_range_fails_only_its_own_sample() {
        let subset = Subset::new(Noted::default(), [7, 8]).unwrap();
        let (mut cx, mut got) = (Context::default(), Vec::new());
        let error = subset.get_many(&[1, 0, 2, 1], &mut cx, &mut note(&mut got)).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&OutOfRange { dataset: "Subset", index: 2, len: 2 }));
        assert_eq!(got, [8, 7], "the samples before it");
        assert!(subset.get_many(&[2], &mut cx, &mut |_| Ok(())).is_err());
        assert_eq!(subset.dataset().0.lock().unwrap().len(), 1, "an empty read is not passed on");
    }

    #[test]
    fn other_errors_come_before_an_index_out_of_range() {
        let subset = Subset::new(Noted::default(), [7, 8]).unwrap();
        let error = subset.get_many(&[1, 2], &mut Context::default(), &mut |_| Err("full".into())).unwrap_err();
        assert_eq!(error.to_string(), "full");
    }

    #[test]
    fn nested_bulk_reads_reuse_their_memory() {
        let inner = Subset::new(Noted::default(), (0..10).rev()).unwrap();
        let subset = Subset::new(Subset::new(inner, 0..10).unwrap(), 0..10).unwrap();
        let mut cx = Context::default();
        let mut kept = Vec::new();
        for _ in 0..3 {
            subset.get_many(&[1, 2, 3], &mut cx, &mut |_| Ok(())).unwrap();
            let mut addresses: Vec<usize> = cx.local::<Scratch>().0.iter().map(|one| one.as_ptr() as usize).collect();
            addresses.sort_unstable();
            kept.push(addresses);
        }
        assert_eq!(kept[0].len(), 3);
        assert!(kept.iter().all(|addresses| *addresses == kept[0]));
    }
}
