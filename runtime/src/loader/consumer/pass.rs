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
/// If it is dropped before its end, it is abandoned: workers stop after their current sample.
///
/// A `for` loop borrows the pass. To call [`state`](Self::state) or [`stats`](Self::stats) between batches, write
/// `while let Some(batch) = pass.next()`. A loop that must own what it iterates, or that takes batches in several
/// places, uses [`Loader::next_batch`] instead.
pub struct Pass<'a, B: Output = Batch<Dynamic>> {
    loader: &'a mut Loader<B>,
    /// Why the pass could not begin.
    refused: Option<Error>,
    _span: PassSpan,
}

impl<'a, B: Output> Pass<'a, B> {
    /// Returns the pass that has just begun, or one that returns the reason why it could not.
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

    /// The number of batches of the pass still to come, including those that consist only of
    /// [bad samples](crate::loader::OnError::Skip); `None` if it is not known before the end.
    pub fn remaining(&self) -> Option<usize> {
        self.loader.remaining()
    }

    /// Returns the loader's state, at any time in the pass; see [`Loader::state`].
    pub fn state(&self) -> State {
        self.loader.state()
    }

    /// Whether the next batch, an error instead of it, or the end of the pass is ready, so that `next` neither waits nor
    /// loads. With an iterable dataset it may be true when a worker has reached its end, and `next` then asks another
    /// worker. Without workers, the end of an iterator or a stream is known only when `next` has come to it.
    pub fn is_ready(&self) -> bool {
        self.loader.is_ready()
    }

    /// Works like `next`, for a caller that holds batches and could drop some: returns [`Held`](Error::Held) at once,
    /// even where `next` would [take more memory or wait](crate::loader::Builder::on_held).
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
        // Timeouts and held batches add items to the batches, and a stop can end the pass early.
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
