//! Two datasets of different types, in sequence.

use super::context::Scratch;
use super::{ConcatError, Context, Dataset, ManyError, Upcoming};
use crate::BoxError;
use crate::sample::{Fields, RowsMut};

/// The samples of one dataset followed by those of another one, which has the same sample type.
/// Made by [`Dataset::concat`](super::Dataset::concat). If a dataset can [read
/// many](Dataset::reads_many) samples at once, one call reads all samples of the dataset that follow
/// each other in a batch.
#[derive(Clone, Debug)]
pub struct Concat2<A, B> {
    first: A,
    second: B,
    /// The number of samples in the first dataset.
    middle: usize,
    /// The number of samples in both datasets.
    len: usize,
}

impl<A: Dataset, B: Dataset> Concat2<A, B> {
    pub(super) fn new(first: A, second: B) -> Result<Self, ConcatError> {
        let middle = first.len();
        let len = middle.checked_add(second.len()).ok_or(ConcatError::TooLong { dataset: 1 })?;
        Ok(Self { first, second, middle, len })
    }
}

impl<A, B> Concat2<A, B> {
    /// Returns the two datasets.
    pub fn datasets(&self) -> (&A, &B) {
        (&self.first, &self.second)
    }
}

impl<A, B> Dataset for Concat2<A, B>
where
    A: Dataset,
    B: for<'a> Dataset<Sample<'a> = A::Sample<'a>>,
{
    type Sample<'a> = A::Sample<'a>;

    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        match index.checked_sub(self.middle) {
            None => self.first.get(index, cx),
            Some(index) => self.second.get(index, cx),
        }
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        match index.checked_sub(self.middle) {
            None => self.first.prefetch(index),
            Some(index) => self.second.prefetch(index),
        }
    }

    fn reads_ahead(&self) -> bool {
        self.first.reads_ahead() || self.second.reads_ahead()
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        let middle = self.middle;
        if self.first.reads_ahead() {
            self.first.begin_pass(upcoming.map(move |index| (index < middle).then_some(index)));
        }
        if self.second.reads_ahead() {
            self.second.begin_pass(upcoming.map(move |index| index.checked_sub(middle)));
        }
    }

    fn reads_many(&self) -> bool {
        self.first.reads_many() || self.second.reads_many()
    }

    fn writes_many(&self) -> bool {
        self.first.writes_many() && self.second.writes_many()
    }

    fn get_many(
        &self,
        indices: &[usize],
        cx: &mut Context,
        put: &mut dyn for<'a> FnMut(Self::Sample<'a>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let locate = |index: usize| Ok(index.checked_sub(self.middle).map_or((0, index), |index| (1, index)));
        read_runs(indices, cx, locate, |dataset, run, cx| match dataset {
            0 => read_all(&self.first, run, cx, put),
            _ => read_all(&self.second, run, cx, put),
        })
    }

    fn write_many(&self, indices: &[usize], cx: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        let locate = |index: usize| Ok(index.checked_sub(self.middle).map_or((0, index), |index| (1, index)));
        read_runs(indices, cx, locate, |dataset, run, cx| match dataset {
            0 => write_all(&self.first, run, cx, rows),
            _ => write_all(&self.second, run, cx, rows),
        })
    }

    /// Returns fields that fit the samples of the datasets that are not empty. The capacity of a
    /// packed or padded field is the largest that one of these datasets declares.
    fn fields(&self) -> Option<Fields> {
        let first: &dyn Fn() -> Option<Fields> = &|| self.first.fields();
        Fields::of_all([(self.middle == 0, first), (self.middle == self.len, &|| self.second.fields())].into_iter())
    }
}

/// Reads samples of concatenated datasets. `locate` returns the dataset that a sample is in, and
/// its index there. `read` reads a run: consecutive samples of the batch that are in one dataset.
pub(super) fn read_runs(
    indices: &[usize],
    cx: &mut Context,
    locate: impl Fn(usize) -> Result<(usize, usize), BoxError>,
    mut read: impl FnMut(usize, &[usize], &mut Context) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    // The list is taken out of the context, which the datasets need, and put back for the next
    // call.
    let mut run = cx.local::<Scratch>().0.pop().unwrap_or_default();
    run.clear();
    ManyError::reserve(&mut run, indices.len())?;
    let mut number = 0;
    let mut outcome = Ok(());
    while let (Ok(()), Some(&index)) = (&outcome, indices.get(number)) {
        outcome = locate(index).and_then(|(dataset, first)| {
            run.clear();
            run.push(first);
            // An index that is out of range is an error only of its own sample, so the samples
            // before it are read first.
            let others = indices[number + 1..].iter().map_while(|&index| locate(index).ok());
            run.extend(others.take_while(|&(other, _)| other == dataset).map(|(_, index)| index));
            cx.with_samples_from(number, |cx| read(dataset, &run, cx))
        });
        number += run.len();
    }
    cx.local::<Scratch>().0.push(run);
    outcome
}

/// Reads samples of one dataset, and fails if they are not as many as were requested.
pub(super) fn read_all<D: Dataset>(
    dataset: &D,
    indices: &[usize],
    cx: &mut Context,
    put: &mut dyn for<'a> FnMut(D::Sample<'a>) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    let (mut given, wanted) = (0, indices.len());
    dataset.get_many(indices, cx, &mut |sample| {
        if given == wanted {
            return Err(ManyError::More { wanted }.into());
        }
        put(sample)?;
        given += 1;
        Ok(())
    })?;
    if given < wanted { Err(ManyError::Fewer { wanted, given }.into()) } else { Ok(()) }
}

/// Writes samples of one dataset, and fails if the rows written are not as many as were requested.
pub(super) fn write_all<D: Dataset>(
    dataset: &D,
    indices: &[usize],
    cx: &mut Context,
    rows: &mut RowsMut<'_>,
) -> Result<(), BoxError> {
    rows.only(indices.len(), |rows| dataset.write_many(indices, cx, rows))
}
