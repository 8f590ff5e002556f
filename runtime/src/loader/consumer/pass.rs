//! One pass over the dataset.

use std::fmt;

use crate::loader::checkpoint::state::State;
use crate::loader::collate::Output;
use crate::loader::collate::batch::Batch;
use crate::loader::consumer::loader::Loader;
use crate::loader::error::run::Error;
use crate::loader::error::warning::Warning;
use crate::loader::metrics::stats::Stats;
use crate::loader::trace::PassSpan;
use crate::sample::Dynamic;

/// One pass (an epoch): an iterator over its batches, or the errors instead of them.
///
/// A pass that is dropped before its end is abandoned: workers stop after their current sample.
///
/// A `for` loop borrows the pass. To call [`state`](Self::state) or [`stats`](Self::stats) between
/// batches, write `while let Some(batch) = pass.next()`. If the pass cannot borrow the loader, for
/// example because batches are taken in several functions of a struct that owns the loader, use
/// [`Loader::next_batch`] instead.
pub struct Pass<'a, B: Output = Batch<Dynamic>> {
    loader: &'a mut Loader<B>,
    /// The reason why the pass could not begin.
    refused: Option<Error>,
    _span: PassSpan,
}

impl<'a, B: Output> Pass<'a, B> {
    /// Returns the pass that has just begun. If it could not begin, `refused` is the reason, and
    /// the pass returns only that.
    pub(crate) fn new(loader: &'a mut Loader<B>, refused: Option<Error>) -> Self {
        let span = loader.pass_span();
        Self { loader, refused, _span: span }
    }

    /// Returns the statistics of the loader so far: [`Loader::stats`].
    pub fn stats(&self) -> Stats {
        self.loader.stats()
    }

    /// Returns the warnings of the loader so far: [`Loader::warnings`].
    pub fn warnings(&self) -> &[Warning] {
        self.loader.warnings()
    }

    /// The number of batches that the pass has yet to return, including those that consist only of
    /// [bad samples](crate::loader::OnError::Skip). `None` if it is unknown before the end.
    pub fn remaining(&self) -> Option<usize> {
        self.loader.remaining()
    }

    /// Returns the loader's state, at any time in the pass; see [`Loader::state`].
    pub fn state(&self) -> State {
        self.loader.state()
    }

    /// Whether the next batch, an error instead of it, or the end of the pass is ready, so that
    /// `next` neither waits nor loads. With an iterable dataset it may also be true when a worker
    /// has reached the end of its part of the dataset; `next` then asks the next worker. Without
    /// workers, the end of an iterator or of an iterable dataset is known only once `next` has
    /// reached it.
    pub fn is_ready(&self) -> bool {
        self.loader.is_ready()
    }

    /// Works like `next`, for a caller that keeps batches and could drop some: returns
    /// [`Held`](Error::Held) at once where `next` would
    /// [take more memory or wait](crate::loader::Builder::on_held).
    pub fn next_or_held(&mut self) -> Option<Result<B::Item, Error>> {
        if let Some(error) = self.refused.take() {
            return Some(Err(error));
        }
        self.loader.next_or_held()
    }
}

impl<B: Output> Iterator for Pass<'_, B> {
    type Item = Result<B::Item, Error>;

    #[inline(always)] // See `Loader::next_batch`.
    fn next(&mut self) -> Option<Self::Item> {
        if self.refused.is_some() {
            return self.refused.take().map(Err);
        }
        self.loader.next_batch()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Timeouts and held batches add errors to the batches, and a stop can end the pass early,
        // so no number is certain.
        (0, None)
    }
}

impl<B: Output> Drop for Pass<'_, B> {
    fn drop(&mut self) {
        self.loader.end_epoch();
    }
}

impl<B: Output> fmt::Debug for Pass<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass")
            .field("epoch", &self.loader.core.position.pass.epoch)
            .field("delivered", &self.loader.core.position.pass.delivered)
            .field("remaining", &self.remaining())
            .finish()
    }
}
