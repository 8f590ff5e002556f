//! Datasets of one type, in sequence.

use super::{Context, Dataset, OutOfRange, Upcoming};
use crate::BoxError;
use crate::sample::Fields;

/// The samples of several datasets, in sequence (torch's `ConcatDataset`).
///
/// An index is found by binary search over the ends of the datasets, which are recorded at construction: a dataset that
/// grows later keeps its share of the indices. For two datasets of different types see
/// [`Dataset::concat`](super::Dataset::concat). There are no negative indices that count from the end, as torch has:
/// indices are `usize`. Like torch's, it is read sample by sample, even if its datasets can [read
/// many](Dataset::reads_many) at once.
///
/// Samples must have the same fields in all datasets. If the datasets know them ([`Dataset::fields`]), a loader over
/// datasets that differ isn't built, and the error names the dataset and the field. To mix the datasets by weight, see
/// [`MixtureSampler`](crate::sampler::MixtureSampler).
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

/// Why datasets could not be concatenated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConcatError {
    /// There are no datasets.
    #[error("ConcatDataset: the list of datasets is empty; pass at least one dataset")]
    Empty,
    /// The total number of samples overflows.
    #[error("ConcatDataset: dataset {place} makes the total exceed {max} samples; use fewer", max = usize::MAX)]
    TooLong {
        /// The dataset at which the total overflows, counted from 0.
        place: usize,
    },
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
        let ends = datasets.iter().enumerate().map(|(place, dataset)| {
            end = end.checked_add(dataset.len()).ok_or(ConcatError::TooLong { place })?;
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

    /// Returns the lengths of the datasets, for a [`MixtureSampler`](crate::sampler::MixtureSampler).
    pub fn lens(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.ends
            .iter()
            .enumerate()
            .map(|(place, end)| end - place.checked_sub(1).map_or(0, |before| self.ends[before]))
    }

    /// Returns the dataset that sample `index` is in, and its index there; `None` if `index` is out of range.
    #[inline]
    pub fn locate(&self, index: usize) -> Option<(usize, usize)> {
        // The first dataset that ends after the index, which is never an empty one.
        let place = self.ends.partition_point(|&end| end <= index);
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        (place < self.ends.len()).then(|| (place, index - start))
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
        let (place, index) = self.locate(index).ok_or_else(missing)?;
        self.datasets[place].get(index, cx)
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        if let Some((place, index)) = self.locate(index) {
            self.datasets[place].prefetch(index);
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

    /// Returns the fields of all datasets that have samples: packed and ragged fields have the largest room.
    fn fields(&self) -> Option<Fields> {
        fields_of(self.datasets.iter().map(|dataset| (dataset.is_empty(), || dataset.fields())))
    }
}

/// Returns the fields of datasets in sequence, of which some are empty; `None` if the first one with samples doesn't know
/// them. If they differ, a loader can't be built with them.
pub(super) fn fields_of<F: FnOnce() -> Option<Fields>>(datasets: impl Iterator<Item = (bool, F)>) -> Option<Fields> {
    let mut datasets = datasets.enumerate().filter(|(_, (is_empty, _))| !is_empty);
    let (first, (_, fields)) = datasets.next()?;
    let mut all = fields()?;
    for (place, (_, fields)) in datasets {
        if let Some(fields) = fields() {
            all.include([first, place], fields);
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::from_fn;

    #[test]
    fn empty_lists_and_too_many_samples_are_errors() {
        let of = |lens: &[usize]| -> Vec<_> { lens.iter().map(|&len| from_fn(len, |i, _| Ok(i as i64))).collect() };
        assert_eq!(ConcatDataset::new(of(&[])).unwrap_err(), ConcatError::Empty);
        let error = ConcatDataset::new(of(&[1, usize::MAX - 1, 0, 1])).unwrap_err();
        assert_eq!(error, ConcatError::TooLong { place: 3 });
        assert!(error.to_string().contains("dataset 3 makes the total exceed 18446744073709551615 samples"));
        assert_eq!(ConcatDataset::new(of(&[1, usize::MAX - 1])).unwrap().len(), usize::MAX);
    }

    #[test]
    fn every_index_is_found_and_empty_datasets_are_skipped() {
        let lens = [0, 3, 0, 0, 1, 2, 0];
        let datasets: Vec<_> = lens.iter().map(|&len| from_fn(len, |i, _| Ok(i as i64))).collect();
        let all = ConcatDataset::new(datasets).unwrap();
        let want = lens.iter().enumerate().flat_map(|(place, &len)| (0..len).map(move |index| (place, index)));
        assert!((0..all.len()).map(|index| all.locate(index).unwrap()).eq(want));
        assert_eq!((all.len(), all.locate(6), all.locate(usize::MAX)), (6, None, None));
        let error = all.get(6, &mut Context::new(None)).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&OutOfRange { dataset: "ConcatDataset", index: 6, len: 6 }));
        all.prefetch(6);
    }
}
