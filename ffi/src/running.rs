//! A loader of whatever kind, and the pass that it is in.

use slotline::Loader;
use slotline::loader::{Collated, Output, State, StatsReader, Stopper, Warning};

use crate::batch::Made;
use crate::collate;
use crate::failure::Failure;
use crate::field::About;

/// What a handle needs of a loader.
pub(crate) trait Loads: Send + 'static {
    /// What its passes give.
    type Item;

    fn begin_epoch(&mut self) -> Result<(), Failure>;
    fn next_batch(&mut self) -> Option<Result<Self::Item, Failure>>;
    fn next_epoch(&self) -> u32;
    fn facts(&self) -> Facts;
    fn stopper(&self) -> Stopper;
    fn state(&self) -> Result<State, Failure>;
    fn load_state(&mut self, state: &State) -> Result<(), Failure>;
    fn stats_reader(&self) -> StatsReader;
    fn warnings(&self) -> &[Warning];
}

/// A loader on the host.
#[derive(Debug)]
pub(crate) enum HostLoader {
    /// It stacks samples.
    Stacked(Loader),
    /// A callback makes its batches.
    Collated(Loader<Collated<collate::Collated>>),
}

/// Calls the same function of whichever it is.
macro_rules! either {
    ($self:expr, $loader:ident => $call:expr) => {
        match $self {
            HostLoader::Stacked($loader) => $call,
            HostLoader::Collated($loader) => $call,
        }
    };
}

impl Loads for HostLoader {
    type Item = Made;

    fn begin_epoch(&mut self) -> Result<(), Failure> {
        Ok(either!(self, loader => loader.begin_epoch())?)
    }

    #[inline]
    fn next_batch(&mut self) -> Option<Result<Made, Failure>> {
        Some(match self {
            Self::Stacked(loader) => loader.next_batch()?.map(Made::Stacked).map_err(Failure::from),
            Self::Collated(loader) => loader.next_batch()?.map(Made::Collated).map_err(Failure::from),
        })
    }

    fn next_epoch(&self) -> u32 {
        either!(self, loader => loader.next_epoch())
    }

    fn facts(&self) -> Facts {
        either!(self, loader => Facts::of(loader))
    }

    fn stopper(&self) -> Stopper {
        either!(self, loader => loader.stopper())
    }

    fn state(&self) -> Result<State, Failure> {
        Ok(either!(self, loader => loader.state()))
    }

    fn load_state(&mut self, state: &State) -> Result<(), Failure> {
        Ok(either!(self, loader => loader.load_state(state))?)
    }

    fn stats_reader(&self) -> StatsReader {
        either!(self, loader => loader.stats_reader())
    }

    fn warnings(&self) -> &[Warning] {
        either!(self, loader => loader.warnings())
    }
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
    pub(crate) fn of<B: Output>(loader: &Loader<B>) -> Self {
        Self {
            len: loader.len(),
            batch_size: loader.batch_size(),
            depth: loader.depth(),
            memory_ceiling: loader.memory_ceiling(),
            fields: loader.fields().into_iter().flatten().map(About::from).collect(),
        }
    }

    /// Batches of a pass, or -1.
    pub(crate) fn len(&self) -> i64 {
        self.len.and_then(|len| i64::try_from(len).ok()).unwrap_or(-1)
    }
}

/// A loader with what C asks of its passes.
#[derive(Debug)]
pub(crate) struct Running<L> {
    pub(crate) loader: L,
    pass: Pass,
    /// Batches that the pass gave, with errors in their places, and those that were given before it was resumed.
    given: usize,
    /// The latter of the next pass.
    resumed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pass {
    /// None was begun.
    None,
    Begun,
    Over,
}

/// What became of asking for a batch.
pub(crate) enum Next<T> {
    Batch(T),
    Failed(Failure),
    /// The pass is over.
    End,
    /// No pass was begun.
    NoPass,
}

impl<L: Loads> Running<L> {
    pub(crate) fn new(loader: L) -> Self {
        Self { loader, pass: Pass::None, given: 0, resumed: 0 }
    }

    /// Starts a pass; one before it is given up.
    pub(crate) fn begin_epoch(&mut self) -> Result<(), Failure> {
        (self.pass, self.given) = (Pass::None, 0);
        self.loader.begin_epoch()?;
        (self.pass, self.given) = (Pass::Begun, std::mem::take(&mut self.resumed));
        Ok(())
    }

    /// The next batch of the pass, or why there is none.
    #[inline]
    pub(crate) fn next_batch(&mut self) -> Next<L::Item> {
        match self.pass {
            Pass::None => return Next::NoPass,
            Pass::Over => return Next::End,
            Pass::Begun => {}
        }
        match self.loader.next_batch() {
            Some(Ok(batch)) => {
                self.given += 1;
                Next::Batch(batch)
            }
            Some(Err(failure)) => {
                self.given += usize::from(failure.is_in_place());
                Next::Failed(failure)
            }
            None => {
                self.pass = Pass::Over;
                Next::End
            }
        }
    }

    /// How many batches, and errors in the places of batches, the pass has given.
    pub(crate) fn given(&self) -> usize {
        self.given
    }

    /// Goes on from a state; a pass before it is given up.
    pub(crate) fn load_state(&mut self, state: &State) -> Result<(), Failure> {
        self.pass = Pass::None;
        self.loader.load_state(state)?;
        self.resumed = state.batches();
        Ok(())
    }
}
