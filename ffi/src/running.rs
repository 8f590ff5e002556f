//! A loader of any kind, and its current pass.

use slotline::Loader;
use slotline::loader::{Collated, Output, State, StatsReader, Stopper, Warning};

use crate::batch::Made;
use crate::collate;
use crate::failure::Failure;
use crate::field::About;

/// The functions of a loader that a handle needs.
pub(crate) trait LoaderOps: Send + 'static {
    /// The type of the batches.
    type Item;

    fn begin_epoch(&mut self) -> Result<(), Failure>;
    /// A failure is boxed, so that it does not take room in the result of every call.
    fn next_batch(&mut self) -> Option<Result<Self::Item, Box<Failure>>>;
    fn next_epoch(&self) -> u32;
    fn facts(&self) -> LoaderInfo;
    fn stopper(&self) -> Stopper;
    fn state(&self) -> Result<State, Failure>;
    fn load_state(&mut self, state: &State) -> Result<(), Failure>;
    fn stats_reader(&self) -> StatsReader;
    fn warnings(&self) -> &[Warning];
}

/// A loader on the host.
#[derive(Debug)]
pub(crate) enum HostLoader {
    /// A loader that stacks samples.
    Stacked(Loader),
    /// A loader whose batches a callback makes.
    Collated(Loader<Collated<collate::Collated>>),
}

/// Calls the same function for either variant.
macro_rules! either {
    ($self:expr, $loader:ident => $call:expr) => {
        match $self {
            HostLoader::Stacked($loader) => $call,
            HostLoader::Collated($loader) => $call,
        }
    };
}

impl LoaderOps for HostLoader {
    type Item = Made;

    fn begin_epoch(&mut self) -> Result<(), Failure> {
        Ok(either!(self, loader => loader.begin_epoch())?)
    }

    #[inline]
    fn next_batch(&mut self) -> Option<Result<Made, Box<Failure>>> {
        Some(match self {
            Self::Stacked(loader) => loader.next_batch()?.map(Made::Stacked).map_err(Failure::boxed),
            Self::Collated(loader) => loader.next_batch()?.map(Made::Collated).map_err(Failure::boxed),
        })
    }

    fn next_epoch(&self) -> u32 {
        either!(self, loader => loader.next_epoch())
    }

    fn facts(&self) -> LoaderInfo {
        either!(self, loader => LoaderInfo::of(loader))
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

/// The properties of a loader that never change.
#[derive(Debug)]
pub(crate) struct LoaderInfo {
    /// The number of batches of a pass, if it is known in advance.
    pub(crate) len: Option<usize>,
    pub(crate) batch_size: usize,
    pub(crate) depth: usize,
    pub(crate) memory_ceiling: usize,
    pub(crate) fields: Box<[About]>,
}

impl LoaderInfo {
    pub(crate) fn of<B: Output>(loader: &Loader<B>) -> Self {
        Self {
            len: loader.len(),
            batch_size: loader.batch_size(),
            depth: loader.depth(),
            memory_ceiling: loader.memory_ceiling(),
            fields: loader.fields().into_iter().flatten().map(About::from).collect(),
        }
    }

    /// Returns the number of batches of a pass, or -1.
    pub(crate) fn len(&self) -> i64 {
        self.len.and_then(|len| i64::try_from(len).ok()).unwrap_or(-1)
    }
}

/// A loader, with the state of its pass that C asks for.
#[derive(Debug)]
pub(crate) struct Running<L> {
    pub(crate) loader: L,
    pass: Pass,
    /// The number of batches that the pass delivered, including errors in place of batches, and those delivered before it
    /// was resumed.
    given: usize,
    /// The number of batches that were delivered before the next pass was resumed.
    resumed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pass {
    /// No pass was started.
    None,
    Begun,
    Over,
}

/// The result of asking for a batch.
pub(crate) enum Next<T> {
    Batch(T),
    Failed(Box<Failure>),
    /// The pass has ended.
    End,
    /// No pass was started.
    NoPass,
}

impl<L: LoaderOps> Running<L> {
    pub(crate) fn new(loader: L) -> Self {
        Self { loader, pass: Pass::None, given: 0, resumed: 0 }
    }

    /// Starts a pass, and abandons the previous one.
    pub(crate) fn begin_epoch(&mut self) -> Result<(), Failure> {
        (self.pass, self.given) = (Pass::None, 0);
        self.loader.begin_epoch()?;
        (self.pass, self.given) = (Pass::Begun, std::mem::take(&mut self.resumed));
        Ok(())
    }

    /// Returns the next batch of the pass, or the reason why there is none.
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

    /// Returns the number of batches, and of errors in place of batches, that the pass has delivered.
    pub(crate) fn given(&self) -> usize {
        self.given
    }

    /// Resumes from a state, and abandons the current pass.
    pub(crate) fn load_state(&mut self, state: &State) -> Result<(), Failure> {
        self.pass = Pass::None;
        self.loader.load_state(state)?;
        self.resumed = state.batches();
        Ok(())
    }
}
