//! Datasets: samples by index.

mod context;
mod function;
mod memory;

use std::sync::Arc;

pub use self::context::Context;
pub use self::function::{FnDataset, from_fn};
pub use self::memory::{LengthMismatch, Rows, TensorDataset};
use crate::BoxError;
use crate::sample::{Fields, Sample};

/// Samples that can be had by index, from any thread (torch's map-style `Dataset`).
///
/// ```
/// use slotline::BoxError;
/// use slotline::dataset::{Context, Dataset};
///
/// struct Squares;
///
/// impl Dataset for Squares {
///     type Sample<'a> = (i64, f32);
///
///     fn len(&self) -> usize {
///         1_000
///     }
///
///     fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
///         Ok((index as i64, (index * index) as f32))
///     }
/// }
/// ```
pub trait Dataset: Send + Sync + 'static {
    /// What there is for an index; it may borrow from the dataset and from the [`Context`].
    type Sample<'a>: Sample
    where
        Self: 'a;

    /// How many samples there are. Indices are below it.
    fn len(&self) -> usize;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample at `index`; called from several threads at once.
    ///
    /// # Errors
    ///
    /// Whatever keeps the sample from being had. The batch it belongs to becomes an error that names the index.
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError>;

    /// Says that `index` will be asked for soon, so that its memory may be fetched meanwhile. Must be cheap.
    #[inline]
    fn prefetch(&self, index: usize) {
        let _ = index;
    }

    /// The fields of every sample, if the dataset knows them without reading one.
    ///
    /// With `None` a loader reads one sample when it is built, to ask that.
    fn fields(&self) -> Option<Fields> {
        None
    }
}

impl<D: Dataset> Dataset for Arc<D> {
    type Sample<'a> = D::Sample<'a>;

    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        (**self).get(index, cx)
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        (**self).prefetch(index);
    }

    fn fields(&self) -> Option<Fields> {
        (**self).fields()
    }
}
