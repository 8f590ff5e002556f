//! The memory of a loader's batches as a whole, and what code that takes any loader needs to know of it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::Loader;
use super::batch::Batch;
use super::collate::{Collate, Stack};
use super::error::{Error, Warning};
use super::lanes::{LaneLoader, LanePass};
use super::pass::Pass;
use super::state::State;
use super::stats::Stats;
use super::stop::Stopper;
use crate::arena::{Memory, Pages};
use crate::dataset::{Dataset, Loadable};
use crate::sample::{Field, Layout, Schema};

/// What all batches of a loader are in.
pub(super) struct Block {
    layout: Arc<Layout>,
    arena: Arc<dyn Memory>,
}

impl Block {
    /// What these slots are in, if it is the loader's.
    pub(super) fn of<D: Loadable, C: Collate<D>>(payloads: &[C::Payload]) -> Option<Self> {
        let region = C::region(payloads.first()?)?;
        Some(Self { layout: region.layout().clone(), arena: region.arena().clone() })
    }

    pub(super) fn fields(&self) -> impl ExactSizeIterator<Item = &Field> {
        self.layout.columns.iter().map(|column| &column.field)
    }

    pub(super) fn memory(&self) -> &dyn Memory {
        &*self.arena
    }

    /// Whether it is memory of which only [`Builder::memory`](super::Builder::memory) knows what a forked process has.
    pub(super) fn is_given(&self) -> bool {
        is_given(&*self.arena)
    }

    /// The most bytes that [`Columns::bytes`](crate::sample::Columns::bytes) of a batch can have.
    fn batch_bytes(&self) -> usize {
        self.layout.columns.first().map_or(0, |first| self.layout.size - first.offset)
    }
}

/// Whether a forked process may lack this memory, or share it with its parent. It has a copy of [`Pages`].
pub(super) fn is_given(memory: &dyn Memory) -> bool {
    !(memory as &dyn Any).is::<Pages>()
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("arena", &self.arena).finish_non_exhaustive()
    }
}

/// A loader that stacks samples in memory of its own: a [`Loader`] or a [`LaneLoader`], for code that takes either. Sealed: unsafe
/// code relies on what it says of its memory.
pub trait BatchLoader: sealed::Sealed {
    /// The [schema](Schema) of its batches.
    type Schema: Schema;
    /// A pass.
    type Pass<'l>: BatchPass<Self::Schema>
    where
        Self: 'l;

    /// [`Loader::epoch`].
    ///
    /// # Errors
    ///
    /// As there.
    fn epoch(&mut self) -> Result<Self::Pass<'_>, Error>;

    /// [`Loader::fields`].
    fn fields(&self) -> impl ExactSizeIterator<Item = &Field>;

    /// [`Loader::memory`].
    fn memory(&self) -> &dyn Memory;

    /// The most bytes that [`Columns::bytes`](crate::sample::Columns::bytes) of a batch can have.
    fn batch_bytes(&self) -> usize;

    /// The most samples a batch has.
    fn batch_size(&self) -> usize;

    /// How many batches can be held while the next one is asked for, at most, so that it is not
    /// [refused](Error::Held).
    fn most_held(&self) -> usize;

    /// [`Loader::stopper`].
    fn stopper(&self) -> Stopper;
}

/// A pass of a [`BatchLoader`]. Sealed, too: its batches are in that memory.
pub trait BatchPass<S>: sealed::Sealed + Iterator<Item = Result<Batch<S>, Error>> {
    /// [`Pass::is_ready`].
    fn is_ready(&self) -> bool;

    /// As `next`, for a caller that holds batches and could drop some: [`Held`](Error::Held) comes at once, also where `next`
    /// [would wait](super::Builder::wait_for_release), and never ends the pass.
    fn next_or_held(&mut self) -> Option<Self::Item>;

    /// [`Pass::state`].
    fn state(&self) -> State;

    /// [`Pass::stats`].
    fn stats(&self) -> Stats;

    /// [`Pass::warnings`].
    fn warnings(&self) -> &[Warning];
}

mod sealed {
    pub trait Sealed {}
}

/// Both loaders, which differ in their passes and in what can be held.
macro_rules! batch_loader {
    ($loader:ident, $pass:ident, $dataset:ident, $most_held:expr) => {
        impl<D: $dataset> BatchLoader for $loader<D, Stack> {
            type Schema = <D as Loadable>::Schema;
            type Pass<'l>
                = $pass<'l, D, Stack>
            where
                D: 'l;

            fn epoch(&mut self) -> Result<$pass<'_, D>, Error> {
                $loader::epoch(self)
            }

            fn fields(&self) -> impl ExactSizeIterator<Item = &Field> {
                self.stacked().fields()
            }

            fn memory(&self) -> &dyn Memory {
                self.stacked().memory()
            }

            fn batch_bytes(&self) -> usize {
                self.stacked().batch_bytes()
            }

            fn batch_size(&self) -> usize {
                $loader::batch_size(self)
            }

            fn most_held(&self) -> usize {
                $most_held(self)
            }

            fn stopper(&self) -> Stopper {
                $loader::stopper(self)
            }
        }

        impl<D: $dataset> sealed::Sealed for $loader<D, Stack> {}
        impl<D: $dataset> sealed::Sealed for $pass<'_, D, Stack> {}

        impl<D: $dataset> $loader<D, Stack> {
            fn stacked(&self) -> &Block {
                self.block.as_ref().expect("a loader that stacks samples has memory")
            }
        }

        impl<D: $dataset> BatchPass<<D as Loadable>::Schema> for $pass<'_, D, Stack> {
            fn is_ready(&self) -> bool {
                $pass::is_ready(self)
            }

            fn next_or_held(&mut self) -> Option<Self::Item> {
                $pass::next_or_held(self)
            }

            fn state(&self) -> State {
                $pass::state(self)
            }

            fn stats(&self) -> Stats {
                $pass::stats(self)
            }

            fn warnings(&self) -> &[Warning] {
                $pass::warnings(self)
            }
        }
    };
}

batch_loader!(Loader, Pass, Dataset, |loader: &Self| loader.depth() - 1);
batch_loader!(LaneLoader, LanePass, Loadable, |loader: &Self| loader.hold);
