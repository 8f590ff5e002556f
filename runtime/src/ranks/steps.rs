//! Loops over batches that end at the same step on all ranks.

use crate::BoxError;

/// Returns an iterator that ends for all ranks when it ends for one of them.
///
/// `all` is called once for each step with whether this rank has another batch, and returns whether all ranks have: an
/// all-reduce with a logical and (the minimum of zeros and ones). When a rank has none, the batches that the others
/// have for that step are dropped, so up to one batch of each rank is read without being used.
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

/// Returns an iterator that ends for all ranks when it has ended for all of them. It returns `None` for a step for which
/// only other ranks have a batch: take that step without data, such as with a loss of 0.
///
/// `any` is called once for each step with whether this rank has another batch, and returns whether any rank has: an
/// all-reduce with a logical or (the maximum of zeros and ones).
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
    /// `None` after its end.
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
