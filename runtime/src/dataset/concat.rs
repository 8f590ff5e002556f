//! Datasets of one type, one after the other.

use super::{Context, Dataset, OutOfRange};
use crate::BoxError;
use crate::sample::Fields;

/// The samples of several datasets, one dataset after the other (torch's `ConcatDataset`).
///
/// An index is found by bisection over the ends of the datasets, which are noted at construction: a dataset that grows
/// later keeps its share of the indices. For two datasets of different types see
/// [`Dataset::concat`](super::Dataset::concat). torch's negative indices, which count from the end, do not exist:
/// indices are `usize`. As torch's, it is read sample by sample, also where its datasets
/// [read many](Dataset::reads_many) at once.
///
/// ```
/// use slotline::Dataset;
/// use slotline::dataset::{ConcatDataset, TensorDataset};
///
/// let years = vec![TensorDataset::new((vec![1.0, 2.0], vec![0, 1]))?, TensorDataset::new((vec![3.0], vec![1]))?];
/// let all = ConcatDataset::new(years)?;
/// assert_eq!(all.len(), 3);
/// assert_eq!(all.locate(2), Some((1, 0))); // dataset 1, its sample 0
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConcatDataset<D> {
    datasets: Vec<D>,
    /// Of each dataset the index after its last sample; ascending, and the last one is the length.
    ends: Box<[usize]>,
}

/// Why datasets could not be put one after the other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConcatError {
    /// There are none.
    #[error("ConcatDataset: the list of datasets is empty; give at least one dataset")]
    Empty,
    /// Their samples can't be counted.
    #[error("ConcatDataset: with dataset {place} there are more samples than {max}; leave some out", max = usize::MAX)]
    TooLong {
        /// The dataset with which they become too many, counted from 0.
        place: usize,
    },
}

impl<D: Dataset> ConcatDataset<D> {
    /// These datasets, one after the other.
    ///
    /// # Errors
    ///
    /// If there are none, or they have more samples than a `usize` can count.
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
    /// The datasets.
    pub fn datasets(&self) -> &[D] {
        &self.datasets
    }

    /// Which dataset sample `index` is in, and at which of its indices; `None` if there is no such sample.
    #[inline]
    pub fn locate(&self, index: usize) -> Option<(usize, usize)> {
        // The first that ends after the index: never an empty one.
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

    /// Those of the first dataset that has samples.
    fn fields(&self) -> Option<Fields> {
        self.datasets.iter().find(|dataset| !dataset.is_empty())?.fields()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::from_fn;

    #[test]
    fn empty_lists_and_endless_ones_are_errors() {
        let of = |lens: &[usize]| -> Vec<_> { lens.iter().map(|&len| from_fn(len, |i, _| Ok(i as i64))).collect() };
        assert_eq!(ConcatDataset::new(of(&[])).unwrap_err(), ConcatError::Empty);
        let error = ConcatDataset::new(of(&[1, usize::MAX - 1, 0, 1])).unwrap_err();
        assert_eq!(error, ConcatError::TooLong { place: 3 });
        assert!(error.to_string().contains("with dataset 3 there are more samples than 18446744073709551615"));
        assert_eq!(ConcatDataset::new(of(&[1, usize::MAX - 1])).unwrap().len(), usize::MAX);
    }

    #[test]
    fn every_index_is_found_and_empty_datasets_are_passed_over() {
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
