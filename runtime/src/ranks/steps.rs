//! Loops over batches that end at the same step on all ranks.

use crate::loader::Output;
use crate::{BoxError, Error, Loader};

/// Returns an iterator over batches that ends on all ranks as soon as one rank has no more batches.
///
/// `all` is called once for each step with whether this rank has another batch, and must return
/// whether all ranks have one. It is usually an all-reduce with a logical and (the minimum of zeros
/// and ones). When a rank has no more batches, the batches of the other ranks for that step are
/// dropped, so each of them reads one batch that is not used.
///
/// ```
/// use slotline::ranks::while_all;
///
/// // Another rank has two batches. A real program calls its collective library here.
/// let mut other = [true, true, false].into_iter();
/// let all = |mine: bool| Ok(mine & other.next().expect("the ranks take the same steps"));
/// let batches: Result<Vec<_>, slotline::BoxError> = while_all(0..5, all).collect();
/// assert_eq!(batches?, [0, 1]);
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// An error of `all` is returned instead of the batch, and the iterator ends.
pub fn while_all<I, F>(batches: I, all: F) -> WhileAll<I::IntoIter, F>
where
    I: IntoIterator,
    F: FnMut(bool) -> Result<bool, BoxError>,
{
    WhileAll { batches: batches.into_iter(), all, ended: false }
}

/// The iterator that [`while_all`] returns.
#[derive(Debug)]
pub struct WhileAll<I, F> {
    batches: I,
    all: F,
    ended: bool,
}

impl<I: Iterator, F: FnMut(bool) -> Result<bool, BoxError>> Iterator for WhileAll<I, F> {
    type Item = Result<I::Item, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.batches.next();
        let all = (self.all)(batch.is_some());
        self.ended = !matches!(all, Ok(true));
        match all {
            Ok(true) => batch.map(Ok),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// Returns an iterator over batches that ends on all ranks when the last rank has no more batches.
/// It yields `None` for a step for which only other ranks have a batch. Take part in that step
/// without data, for example with a loss of 0.
///
/// `any` is called once for each step with whether this rank has another batch, and must return
/// whether any rank has one. It is usually an all-reduce with a logical or (the maximum of zeros
/// and ones).
///
/// ```
/// use slotline::ranks::while_any;
///
/// let mut other = [true, true, true, false].into_iter();
/// let any = |mine: bool| Ok(mine | other.next().expect("the ranks take the same steps"));
/// let batches: Result<Vec<_>, slotline::BoxError> = while_any(0..2, any).collect();
/// assert_eq!(batches?, [Some(0), Some(1), None]);
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// An error of `any` is returned instead of the batch, and the iterator ends.
pub fn while_any<I, F>(batches: I, any: F) -> WhileAny<I::IntoIter, F>
where
    I: IntoIterator,
    F: FnMut(bool) -> Result<bool, BoxError>,
{
    WhileAny { batches: Some(batches.into_iter()), any, ended: false }
}

/// The iterator that [`while_any`] returns.
#[derive(Debug)]
pub struct WhileAny<I, F> {
    /// `None` after the iterator's end.
    batches: Option<I>,
    any: F,
    ended: bool,
}

impl<I: Iterator, F: FnMut(bool) -> Result<bool, BoxError>> Iterator for WhileAny<I, F> {
    type Item = Result<Option<I::Item>, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.batches.as_mut().and_then(Iterator::next);
        if batch.is_none() {
            self.batches = None;
        }
        let any = (self.any)(batch.is_some());
        self.ended = !matches!(any, Ok(true));
        match any {
            Ok(true) => Some(Ok(batch)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// Returns an iterator over batches like [`while_any`], which begins another pass of the loader when
/// this rank has no more batches, so that each step has a batch. The iterator ends when every rank
/// has finished its first pass; a pass that repeats the data is then abandoned. The loader's next
/// pass has the number that follows the first pass, however many passes were repeated, so all ranks
/// continue with the same number.
///
/// A [state](crate::loader::State) that is saved during a repeated pass does not record that it is
/// a repetition. After resuming, this rank's pass counts as its first one.
///
/// ```
/// use slotline::dataset::TensorDataset;
/// use slotline::ranks::repeat_while_any;
/// use slotline::{Batch, BoxError, Loader};
///
/// let mut loader = Loader::builder(TensorDataset::new(vec![1_i64, 2, 3])?).build()?;
/// // Another rank has five batches.
/// let mut other = [true, true, true, true, true, false].into_iter();
/// let any = |mine: bool| Ok(mine | other.next().expect("the ranks take the same steps"));
/// let mut seen = Vec::new();
/// for batch in repeat_while_any(&mut loader, any)? {
///     seen.push(batch??.tensors().as_slice()[0]);
/// }
/// assert_eq!(seen, [1, 2, 3, 1, 2]);
/// # Ok::<(), BoxError>(())
/// ```
///
/// An error of `any` is returned instead of the batch, and the iterator ends. It also ends with an
/// error if a repeated pass has no batches.
///
/// # Errors
///
/// Those of [`Loader::begin_epoch`].
pub fn repeat_while_any<B, F>(loader: &mut Loader<B>, any: F) -> Result<RepeatWhileAny<'_, B, F>, Error>
where
    B: Output,
    F: FnMut(bool) -> Result<bool, BoxError>,
{
    loader.begin_epoch()?;
    let next_epoch = loader.next_epoch();
    Ok(RepeatWhileAny { loader, any, next_epoch, repeats: false, ended: false })
}

/// The iterator that [`repeat_while_any`] returns.
#[derive(Debug)]
pub struct RepeatWhileAny<'a, B: Output, F> {
    loader: &'a mut Loader<B>,
    any: F,
    /// The number of the pass that follows the first one.
    next_epoch: u32,
    /// Whether the first pass has ended.
    repeats: bool,
    ended: bool,
}

impl<B: Output, F> RepeatWhileAny<'_, B, F> {
    /// Begins another pass, and returns its first batch.
    fn repeat(&mut self) -> Result<Result<B::Item, Error>, BoxError> {
        if let Err(error) = self.loader.begin_epoch() {
            return Ok(Err(error));
        }
        self.loader.next_batch().ok_or_else(|| {
            self.ended = true;
            "this rank has no batches to repeat; use while_any, which has steps without a batch".into()
        })
    }
}

impl<B: Output, F: FnMut(bool) -> Result<bool, BoxError>> Iterator for RepeatWhileAny<'_, B, F> {
    type Item = Result<Result<B::Item, Error>, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.loader.next_batch();
        self.repeats |= batch.is_none();
        let any = (self.any)(!self.repeats);
        self.ended = !matches!(any, Ok(true));
        match any {
            Ok(true) => Some(batch.map_or_else(|| self.repeat(), Ok)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl<B: Output, F> Drop for RepeatWhileAny<'_, B, F> {
    fn drop(&mut self) {
        self.loader.end_epoch();
        if self.repeats {
            self.loader.set_next_epoch(self.next_epoch);
        }
    }
}
