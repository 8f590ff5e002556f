//! A loader with the pass that it is in, whatever their types.
//!
//! A [`Pass`] borrows its loader, and here both are kept side by side. That is sound for this reason, which every `unsafe`
//! block below stands on:
//!
//! > `loader` is a box's, which is not moved and nobody else has. While there is a `pass`, nothing but the pass uses the
//! > loader; it goes before the loader does, and before the loader is used again.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use slotline::Loader;
use slotline::dataset::{Dataset, Loadable};
use slotline::loader::{Collate, LaneLoader, LanePass, Pass, State, Stats, Stopper, Warning};

use crate::batch::Made;
use crate::failure::Failure;
use crate::field::About;

/// A loader of any kind whose passes give `T`, with its pass.
pub(crate) trait AnyLoader<T>: Send {
    /// Starts a pass; one before it is given up.
    fn epoch(&mut self) -> Result<(), Failure>;

    /// Puts the next batch of the pass into `place`, which is then initialised, or says why not.
    fn next(&mut self, place: &mut MaybeUninit<T>) -> Next;

    /// The number of the pass that the next `epoch` gives.
    fn next_epoch(&self) -> u32;

    /// How many batches, and errors in the places of batches, the pass has given.
    fn given(&self) -> usize;

    /// Where it is.
    fn state(&self) -> Result<State, Failure>;

    /// Goes on from there; a pass before it is given up.
    fn load_state(&mut self, state: &State) -> Result<(), Failure>;

    /// What it did.
    fn stats(&self) -> Stats;

    /// What it noticed.
    fn warnings(&self) -> &[Warning];
}

/// What became of asking for a batch.
pub(crate) enum Next {
    Batch,
    Failed(Failure),
    /// The pass is over.
    End,
    /// No pass was begun.
    NoPass,
}

/// What is known of a loader from its beginning.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Batches of a pass, if that is known.
    pub(crate) len: Option<usize>,
    pub(crate) batch_size: usize,
    pub(crate) depth: usize,
    pub(crate) memory_ceiling: usize,
    pub(crate) fields: Box<[About]>,
}

impl Facts {
    /// Batches of a pass, or -1.
    pub(crate) fn len(&self) -> i64 {
        self.len.and_then(|len| i64::try_from(len).ok()).unwrap_or(-1)
    }
}

/// What [`Running`] needs of a loader.
pub(crate) trait Loads: Send + 'static {
    /// What its passes give.
    type Item: 'static;
    type Pass<'l>: Passes<Item = Self::Item> + Send
    where
        Self: 'l;

    fn epoch(&mut self) -> Result<Self::Pass<'_>, Failure>;
    fn next_epoch(&self) -> u32;
    fn facts(&self) -> Facts;
    fn stopper(&self) -> Stopper;
    fn state(&self) -> Result<State, Failure>;
    fn load_state(&mut self, state: &State) -> Result<(), Failure>;
    fn stats(&self) -> Stats;
    fn warnings(&self) -> &[Warning];
}

/// And of its pass.
pub(crate) trait Passes {
    type Item;

    fn next(&mut self) -> Option<Result<Self::Item, Failure>>;
    fn state(&self) -> Result<State, Failure>;
    fn stats(&self) -> Stats;
    fn warnings(&self) -> &[Warning];
}

/// Both loaders have what it takes, under the same names.
macro_rules! loads {
    ($loader:ident, $pass:ident, $dataset:ident) => {
        impl<D: $dataset, C: Collate<D, Batch: Into<Made>>> Loads for $loader<D, C> {
            type Item = Made;
            type Pass<'l> = $pass<'l, D, C>;

            fn epoch(&mut self) -> Result<$pass<'_, D, C>, Failure> {
                Ok($loader::epoch(self)?)
            }

            fn next_epoch(&self) -> u32 {
                $loader::next_epoch(self)
            }

            fn stopper(&self) -> Stopper {
                $loader::stopper(self)
            }

            fn state(&self) -> Result<State, Failure> {
                Ok($loader::state(self))
            }

            fn load_state(&mut self, state: &State) -> Result<(), Failure> {
                Ok($loader::load_state(self, state)?)
            }

            fn stats(&self) -> Stats {
                $loader::stats(self)
            }

            fn warnings(&self) -> &[Warning] {
                $loader::warnings(self)
            }

            fn facts(&self) -> Facts {
                Facts {
                    len: self.len(),
                    batch_size: self.batch_size(),
                    depth: self.depth(),
                    memory_ceiling: self.memory_ceiling(),
                    fields: self.fields().into_iter().flatten().map(About::from).collect(),
                }
            }
        }

        impl<D: $dataset, C: Collate<D, Batch: Into<Made>>> Passes for $pass<'_, D, C> {
            type Item = Made;

            #[inline]
            fn next(&mut self) -> Option<Result<Made, Failure>> {
                Some(match Iterator::next(self)? {
                    Ok(batch) => Ok(batch.into()),
                    Err(error) => Err(error.into()),
                })
            }

            fn state(&self) -> Result<State, Failure> {
                Ok($pass::state(self))
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

loads!(Loader, Pass, Dataset);
loads!(LaneLoader, LanePass, Loadable);

/// A loader with its pass.
pub(crate) struct Running<L: Loads> {
    pass: Option<L::Pass<'static>>,
    /// Whether a pass was begun, and is over.
    over: bool,
    /// Batches that it gave, with errors in their places, and those that were given before it was resumed.
    given: usize,
    /// The latter of the next pass.
    resumed: usize,
    /// What the loader says while it cannot be asked.
    next_epoch: u32,
    loader: NonNull<L>,
}

// SAFETY: it has the loader alone, as a box would; and the pass.
unsafe impl<L: Loads> Send for Running<L> {}

impl<L: Loads> Running<L> {
    pub(crate) fn new(loader: L) -> Self {
        let next_epoch = loader.next_epoch();
        let loader = NonNull::from(Box::leak(Box::new(loader)));
        Self { pass: None, over: false, given: 0, resumed: 0, next_epoch, loader }
    }

    /// Asks the pass, or, without one, the loader.
    fn ask<'a, T: 'a>(&'a self, pass: impl FnOnce(&'a L::Pass<'static>) -> T, loader: impl FnOnce(&'a L) -> T) -> T {
        match &self.pass {
            Some(now) => pass(now),
            // SAFETY: there is no pass, and none can begin as long as this is borrowed.
            None => loader(unsafe { self.loader.as_ref() }),
        }
    }
}

impl<L: Loads> AnyLoader<L::Item> for Running<L> {
    fn epoch(&mut self) -> Result<(), Failure> {
        (self.pass, self.over, self.given) = (None, false, 0);
        // SAFETY: there is no pass, and the next one ends before this is used again.
        let loader: &'static mut L = unsafe { self.loader.as_mut() };
        self.pass = Some(loader.epoch()?);
        self.given = std::mem::take(&mut self.resumed);
        self.next_epoch = self.next_epoch.wrapping_add(1);
        Ok(())
    }

    #[inline]
    fn next(&mut self, place: &mut MaybeUninit<L::Item>) -> Next {
        let Some(pass) = &mut self.pass else { return if self.over { Next::End } else { Next::NoPass } };
        let next = match pass.next() {
            Some(Ok(item)) => {
                place.write(item);
                Next::Batch
            }
            Some(Err(failure)) if !failure.is_in_place() => return Next::Failed(failure),
            Some(Err(failure)) => Next::Failed(failure),
            None => {
                (self.pass, self.over) = (None, true);
                return Next::End;
            }
        };
        self.given += 1;
        next
    }

    fn next_epoch(&self) -> u32 {
        self.next_epoch
    }

    fn given(&self) -> usize {
        self.given
    }

    fn state(&self) -> Result<State, Failure> {
        self.ask(Passes::state, Loads::state)
    }

    fn load_state(&mut self, state: &State) -> Result<(), Failure> {
        (self.pass, self.over) = (None, false);
        // SAFETY: there is no pass.
        let loader = unsafe { self.loader.as_mut() };
        let outcome = loader.load_state(state);
        self.next_epoch = loader.next_epoch();
        if outcome.is_ok() {
            self.resumed = state.batches();
        }
        outcome
    }

    fn stats(&self) -> Stats {
        self.ask(Passes::stats, Loads::stats)
    }

    fn warnings(&self) -> &[Warning] {
        self.ask(Passes::warnings, Loads::warnings)
    }
}

impl<L: Loads> Drop for Running<L> {
    fn drop(&mut self) {
        self.pass = None;
        // SAFETY: there is no pass, it was made by a box, and this is the end of it.
        drop(unsafe { Box::from_raw(self.loader.as_ptr()) });
    }
}
