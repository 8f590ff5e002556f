//! What a loader can load: datasets by index, and datasets that are read from the start.

use std::ops::Deref;

use super::{Dataset, IterableDataset};
use crate::sample::{Sample, Schema};

/// What the batches of a loader are made of: the samples of a [`Dataset`], or those of an [`IterableDataset`] in its
/// wrapper, [`Iterable`].
pub trait Loadable: 'static {
    /// One sample.
    type Item<'a>: Sample
    where
        Self: 'a;

    /// What a batch of them looks like.
    type Schema: Schema + 'static;
}

impl<D: Dataset> Loadable for D {
    type Item<'a> = D::Sample<'a>;
    type Schema = <D::Sample<'static> as Sample>::Schema;
}

/// An [`IterableDataset`], as a loader has it; made by [`Loader::iterable`](crate::Loader::iterable).
///
/// A type of its own, so that the compiler can tell a loader's batches of one kind from those of the other. It derefs to the
/// dataset.
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
