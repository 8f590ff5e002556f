//! The trait of everything that a loader can load: datasets by index, and iterable datasets.

use std::ops::Deref;

use super::{Dataset, IterableDataset};
use crate::sample::{Sample, Schema};

/// The source of a loader's batches: a [`Dataset`], or an [`IterableDataset`] in the wrapper
/// [`Iterable`].
pub trait Loadable: 'static {
    /// One sample.
    type Item<'a>: Sample
    where
        Self: 'a;

    /// The layout of a batch of samples.
    type Schema: Schema + 'static;
}

impl<D: Dataset> Loadable for D {
    type Item<'a> = D::Sample<'a>;
    type Schema = <D::Sample<'static> as Sample>::Schema;
}

/// The wrapper of an [`IterableDataset`] in a loader. Made by
/// [`Loader::iterable`](crate::Loader::iterable).
///
/// It is a separate type because one type may implement both [`Dataset`] and [`IterableDataset`], and [`Loadable`]
/// could then not be implemented for both. It derefs to the dataset.
#[derive(Clone, Debug)]
pub struct Iterable<D>(pub(crate) D);

impl<D: IterableDataset> Loadable for Iterable<D> {
    type Item<'a> = D::Sample<'a>;
    type Schema = <D::Sample<'static> as Sample>::Schema;
}

impl<D> Deref for Iterable<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.0
    }
}
