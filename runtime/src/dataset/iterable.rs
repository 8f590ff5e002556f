//! Datasets that are read from the start.

use std::sync::Arc;

use super::{Context, WorkerInfo};
use crate::BoxError;
use crate::sample::{Fields, Sample};

/// Samples that come one after the other (torch's `IterableDataset`).
pub trait IterableDataset: Send + Sync + 'static {
    /// One sample.
    type Sample<'a>: Sample
    where
        Self: 'a;
    /// Where one worker is in its pass.
    type Cursor: Send + 'static;

    /// Starts a pass.
    ///
    /// # Errors
    ///
    /// Whatever.
    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Self::Cursor, BoxError>;

    /// The next sample.
    ///
    /// # Errors
    ///
    /// Whatever.
    fn next<'a>(
        &'a self,
        cursor: &'a mut Self::Cursor,
        cx: &'a mut Context,
    ) -> Result<Option<Self::Sample<'a>>, BoxError>;

    /// How many.
    fn len(&self) -> Option<usize> {
        None
    }

    /// Fields.
    fn fields(&self) -> Option<Fields> {
        None
    }
}

impl<D: IterableDataset> IterableDataset for Arc<D> {
    type Sample<'a> = D::Sample<'a>;
    type Cursor = D::Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Self::Cursor, BoxError> {
        (**self).iter(worker)
    }

    fn next<'a>(
        &'a self,
        cursor: &'a mut Self::Cursor,
        cx: &'a mut Context,
    ) -> Result<Option<Self::Sample<'a>>, BoxError> {
        (**self).next(cursor, cx)
    }

    fn len(&self) -> Option<usize> {
        (**self).len()
    }

    fn fields(&self) -> Option<Fields> {
        (**self).fields()
    }
}
