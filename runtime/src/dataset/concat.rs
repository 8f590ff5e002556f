//! Datasets of one type, in sequence.

use super::concat2::{read_all, read_runs, write_all};
use super::{ConcatError, Context, Dataset, OutOfRange, Upcoming};
use crate::BoxError;
use crate::sample::{Fields, RowsMut};

/// The samples of several datasets, in sequence (torch's `ConcatDataset`).
///
/// The dataset of an index is found by binary search over the ends of the datasets. These are
/// recorded at construction, so the range of a dataset's indices does not change if the dataset
/// grows later. For two datasets of different types see
/// [`Dataset::concat`](super::Dataset::concat). Unlike in torch, there are no negative indices that
/// count from the end: indices are `usize`.
///
/// If a dataset can [read many](Dataset::reads_many) samples at once, one call reads all samples of
/// the dataset that follow each other in a batch (torch's `ConcatDataset` reads them one by one).
///
/// Samples must have the same fields in all datasets. If the datasets know their fields
/// ([`Dataset::fields`]) and these differ, building a loader fails with an error that names the
/// dataset and the field. To mix the datasets by weight, see `MixtureSampler` of
/// `slotline-sequences`.
///
/// ```
/// use slotline::Dataset;
/// use slotline::dataset::{ConcatDataset, TensorDataset};
///
/// let years = vec![TensorDataset::new((vec![1.0, 2.0], vec![0, 1]))?, TensorDataset::new((vec![3.0], vec![1]))?];
/// let all = ConcatDataset::new(years)?;
/// assert_eq!(all.len(), 3);
/// assert_eq!(all.locate(2), Some((1, 0))); // sample 0 of dataset 1
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConcatDataset<D> {
    datasets: Vec<D>,
    /// For each dataset, the index after its last sample. Ascending; the last one is the length.
    ends: Box<[usize]>,
}

impl<D: Dataset> ConcatDataset<D> {
    /// Concatenates these datasets, in this order.
    ///
    /// # Errors
    ///
    /// If there are no datasets, or they have more samples than a `usize` can count.
    pub fn new(datasets: impl Into<Vec<D>>) -> Result<Self, ConcatError> {
        let datasets = datasets.into();
        if datasets.is_empty() {
            return Err(ConcatError::Empty);
        }
        let mut end = 0_usize;
        let ends = datasets.iter().enumerate().map(|(number, dataset)| {
            end = end.checked_add(dataset.len()).ok_or(ConcatError::TooLong { dataset: number })?;
            Ok(end)
        });
        let ends = ends.collect::<Result<_, _>>()?;
        Ok(Self { datasets, ends })
    }
}

impl<D> ConcatDataset<D> {
    /// Returns the datasets.
    pub fn datasets(&self) -> &[D] {
        &self.datasets
    }

    /// Returns the lengths of the datasets, which a `MixtureSampler` of `slotline-sequences` needs.
    pub fn lens(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.ends
            .iter()
            .enumerate()
            .map(|(number, end)| end - number.checked_sub(1).map_or(0, |before| self.ends[before]))
    }

    /// Returns the dataset that sample `index` is in, and its index there; `None` if `index` is out of range.
    #[inline]
    pub fn locate(&self, index: usize) -> Option<(usize, usize)> {
        // The first dataset that ends after the index. It is never empty.
        let dataset = self.ends.partition_point(|&end| end <= index);
        let start = dataset.checked_sub(1).map_or(0, |before| self.ends[before]);
        (dataset < self.ends.len()).then(|| (dataset, index - start))
    }
}

impl<D: Dataset> Dataset for ConcatDataset<D> {
    type Sample<'a> = D::Sample<'a>;

    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let missing = || OutOfRange { dataset: "ConcatDataset", index, len: self.len() };
        let (dataset, index) = self.locate(index).ok_or_else(missing)?;
        self.datasets[dataset].get(index, cx)
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        if let Some((dataset, index)) = self.locate(index) {
            self.datasets[dataset].prefetch(index);
        }
    }

    fn reads_ahead(&self) -> bool {
        self.datasets.iter().any(Dataset::reads_ahead)
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        let mut start = 0;
        for (dataset, &end) in self.datasets.iter().zip(&self.ends) {
            if dataset.reads_ahead() {
                dataset.begin_pass(upcoming.map(move |index| (index < end).then(|| index.checked_sub(start))?));
            }
            start = end;
        }
    }

    fn reads_many(&self) -> bool {
        self.datasets.iter().any(Dataset::reads_many)
    }

    fn writes_many(&self) -> bool {
        self.datasets.iter().all(Dataset::writes_many)
    }

    fn get_many(
        &self,
        indices: &[usize],
        cx: &mut Context,
        put: &mut dyn for<'a> FnMut(Self::Sample<'a>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let locate = |index| self.locate(index).ok_or_else(|| OutOfRange::error("ConcatDataset", index, self.len()));
        read_runs(indices, cx, locate, |dataset, run, cx| read_all(&self.datasets[dataset], run, cx, put))
    }

    fn write_many(&self, indices: &[usize], cx: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        let locate = |index| self.locate(index).ok_or_else(|| OutOfRange::error("ConcatDataset", index, self.len()));
        read_runs(indices, cx, locate, |dataset, run, cx| write_all(&self.datasets[dataset], run, cx, rows))
    }

    /// Returns fields that fit the samples of all datasets that are not empty. The capacity of a
    /// packed or padded field is the largest that one of these datasets declares.
    fn fields(&self) -> Option<Fields> {
        Fields::of_all(self.datasets.iter().map(|dataset| (dataset.is_empty(), || dataset.fields())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::dataset::from_fn;

    /// A dataset whose samples are pairs: `before` plus the index, and the position in the pass. It
    /// records the indices of each bulk read.
    #[derive(Default)]
    struct Noted {
        before: usize,
        /// The number of samples that a bulk read returns beyond those requested. If it is negative,
        /// that many are missing.
        surplus: isize,
        asked: Mutex<Vec<Vec<usize>>>,
    }

    impl Dataset for Noted {
        type Sample<'a> = (i64, i64);

        fn len(&self) -> usize {
            5
        }

        fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<(i64, i64), BoxError> {
            Ok(((self.before + index) as i64, cx.position() as i64))
        }

        fn reads_many(&self) -> bool {
            true
        }

        fn get_many(
            &self,
            indices: &[usize],
            cx: &mut Context,
            put: &mut dyn FnMut((i64, i64)) -> Result<(), BoxError>,
        ) -> Result<(), BoxError> {
            self.asked.lock().unwrap().push(indices.to_vec());
            let puts = indices.len().saturating_add_signed(self.surplus);
            for (sample, &index) in indices.iter().cycle().take(puts).enumerate() {
                cx.go_to(sample);
                put(self.get(index, cx)?)?;
            }
            Ok(())
        }
    }

    /// Reads samples together in a context whose first sample is at position 100, and returns them with the outcome.
    fn read(dataset: &impl for<'a> Dataset<Sample<'a> = (i64, i64)>, indices: &[usize]) -> (Vec<(i64, i64)>, String) {
        let (mut cx, mut got) = (Context::default(), Vec::new());
        cx.start_sample(100);
        let outcome = dataset.get_many(indices, &mut cx, &mut |sample| {
            got.push(sample);
            Ok(())
        });
        cx.go_to(0);
        assert_eq!(cx.position(), 100, "the context counts from the first sample again");
        (got, outcome.err().map(|error| error.to_string()).unwrap_or_default())
    }

    fn asked(noted: &Noted) -> Vec<Vec<usize>> {
        std::mem::take(&mut noted.asked.lock().unwrap())
    }

    #[test]
    fn samples_that_follow_each_other_in_one_dataset_are_read_together() {
        let noted = |before| Noted { before, ..Noted::default() };
        let all = ConcatDataset::new([noted(0), noted(5), noted(10)]).unwrap();
        assert!(all.reads_many());
        let indices = [3, 1, 9, 5, 6, 0, 14];
        let want: Vec<_> = indices.iter().enumerate().map(|(i, &index)| (index as i64, 100 + i as i64)).collect();
        assert_eq!(read(&all, &indices), (want.clone(), String::new()));
        assert_eq!(asked(&all.datasets[0]), [vec![3, 1], vec![0]]);
        assert_eq!(asked(&all.datasets[1]), [[4, 0, 1]]);
        assert_eq!(asked(&all.datasets[2]), [[4]]);

        let slow = from_fn(5, |index, cx| Ok((index as i64, cx.position() as i64)));
        let two = slow.concat(noted(5)).unwrap();
        assert!(two.reads_many());
        assert_eq!(read(&two, &indices[..6]), (want[..6].to_vec(), String::new()));
        assert_eq!(asked(two.datasets().1), [[4, 0, 1]]);

        let plain = from_fn(5, |index, _| Ok(index as i64));
        assert!(
            !ConcatDataset::new([plain.clone()]).unwrap().reads_many()
                && !plain.clone().concat(plain).unwrap().reads_many()
        );
    }

    #[test]
    fn a_bulk_read_that_is_not_complete_ends_with_its_own_samples() {
        for (surplus, got, words) in
            [(-1, 1, "asked for 2 samples but put only 1"), (1, 2, "asked for 2 samples but put more")]
        {
            let all = ConcatDataset::new([Noted { surplus, ..Noted::default() }, Noted::default()]).unwrap();
            let (samples, error) = read(&all, &[2, 3, 7]);
            assert!(samples.len() == got && error.contains(words), "{samples:?} {error}");
        }
        let all = ConcatDataset::new([Noted::default(), Noted::default()]).unwrap();
        let (samples, error) = read(&all, &[9, 10, 1]);
        assert!(samples == [(4, 100)] && error.contains("index 10 is not below its length, 10"), "{samples:?} {error}");
    }

    #[test]
    fn empty_lists_and_too_many_samples_are_errors() {
        let of = |lens: &[usize]| -> Vec<_> { lens.iter().map(|&len| from_fn(len, |i, _| Ok(i as i64))).collect() };
        assert_eq!(ConcatDataset::new(of(&[])).unwrap_err(), ConcatError::Empty);
        let error = ConcatDataset::new(of(&[1, usize::MAX - 1, 0, 1])).unwrap_err();
        assert_eq!(error, ConcatError::TooLong { dataset: 3 });
        assert!(error.to_string().contains("dataset 3 makes the total exceed 18446744073709551615 samples"));
        assert_eq!(ConcatDataset::new(of(&[1, usize::MAX - 1])).unwrap().len(), usize::MAX);
    }

    #[test]
    fn every_index_is_found_and_empty_datasets_are_skipped() {
        let lens = [0, 3, 0, 0, 1, 2, 0];
        let datasets: Vec<_> = lens.iter().map(|&len| from_fn(len, |i, _| Ok(i as i64))).collect();
        let all = ConcatDataset::new(datasets).unwrap();
        let want = lens.iter().enumerate().flat_map(|(dataset, &len)| (0..len).map(move |index| (dataset, index)));
        assert!((0..all.len()).map(|index| all.locate(index).unwrap()).eq(want));
        assert_eq!((all.len(), all.locate(6), all.locate(usize::MAX)), (6, None, None));
        let error = all.get(6, &mut Context::default()).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&OutOfRange { dataset: "ConcatDataset", index: 6, len: 6 }));
        all.prefetch(6);
    }
}
