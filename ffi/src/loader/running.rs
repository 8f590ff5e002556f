//! A loader of any kind, and its current pass.

use std::time::Duration;

use slotline::Loader;
use slotline::loader::{Collated, Output, State, StatsReader, Stopper, Warning};
#[cfg(feature = "cuda")]
use slotline_cuda::DeviceLoader;

use crate::abi::Failure;
#[cfg(feature = "cuda")]
use crate::abi::SLOTLINE_ERROR_STATE;
use crate::batch::collate;
use crate::batch::handle::Made;
use crate::fields::field::About;

/// A loader of any kind.
#[derive(Debug)]
pub(crate) enum AnyLoader {
    /// A loader that stacks samples.
    Stacked(Loader),
    /// A loader whose batches a callback makes.
    Collated(Loader<Collated<collate::Collated>>),
    /// A loader that delivers batches on a device.
    #[cfg(feature = "cuda")]
    Device(Box<DeviceLoader>),
}

/// Evaluates the same expression for a host loader of any kind; a device loader contains one.
macro_rules! host {
    ($self:expr, $loader:ident => $call:expr) => {
        match $self {
            AnyLoader::Stacked($loader) => $call,
            AnyLoader::Collated($loader) => $call,
            #[cfg(feature = "cuda")]
            AnyLoader::Device(loader) => {
                let $loader = loader.loader();
                $call
            }
        }
    };
}

impl AnyLoader {
    fn begin_epoch(&mut self) -> Result<(), Failure> {
        match self {
            Self::Stacked(loader) => Ok(loader.begin_epoch()?),
            Self::Collated(loader) => Ok(loader.begin_epoch()?),
            #[cfg(feature = "cuda")]
            Self::Device(loader) => Ok(loader.begin_epoch()?),
        }
    }

    /// Returns the next batch. A failure is boxed to keep the result small.
    #[inline]
    fn next_batch(&mut self) -> Option<Result<Made, Box<Failure>>> {
        Some(match self {
            Self::Stacked(loader) => loader.next_batch()?.map(Made::Stacked).map_err(Failure::boxed),
            Self::Collated(loader) => loader.next_batch()?.map(Made::Collated).map_err(Failure::boxed),
            #[cfg(feature = "cuda")]
            Self::Device(loader) => {
                loader.next_batch()?.map(|batch| Made::Device(Box::new(batch))).map_err(Failure::boxed)
            }
        })
    }

    /// Works like [`next_batch`](Self::next_batch), but waits at most `patience`.
    fn next_within(&mut self, patience: Duration) -> Option<Result<Made, Box<Failure>>> {
        Some(match self {
            Self::Stacked(loader) => loader.next_within(patience)?.map(Made::Stacked).map_err(Failure::boxed),
            Self::Collated(loader) => loader.next_within(patience)?.map(Made::Collated).map_err(Failure::boxed),
            #[cfg(feature = "cuda")]
            Self::Device(_) => Err(Failure::boxed(Failure::invalid(
                "next_within is not available for a loader on a device; call next, which waits for a copy at most the \
                 timeout_ms of slotline_device_options",
            ))),
        })
    }

    /// Whether the next batch can be requested without waiting; true on a device, which cannot tell.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Stacked(loader) => loader.is_ready(),
            Self::Collated(loader) => loader.is_ready(),
            #[cfg(feature = "cuda")]
            Self::Device(_) => true,
        }
    }

    pub(crate) fn next_epoch(&self) -> u32 {
        host!(self, loader => loader.next_epoch())
    }

    pub(crate) fn info(&self) -> LoaderInfo {
        host!(self, loader => LoaderInfo::of(loader))
    }

    pub(crate) fn stopper(&self) -> Stopper {
        host!(self, loader => loader.stopper())
    }

    pub(crate) fn state(&self) -> Result<State, Failure> {
        match self {
            Self::Stacked(loader) => Ok(loader.state()),
            Self::Collated(loader) => Ok(loader.state()),
            #[cfg(feature = "cuda")]
            Self::Device(loader) => loader.state().ok_or_else(|| {
                let why = "the loader keeps no state during a pass; set resumable in slotline_device_options when you make it";
                Failure::new(SLOTLINE_ERROR_STATE, why)
            }),
        }
    }

    fn load_state(&mut self, state: &State) -> Result<(), Failure> {
        match self {
            Self::Stacked(loader) => Ok(loader.load_state(state)?),
            Self::Collated(loader) => Ok(loader.load_state(state)?),
            #[cfg(feature = "cuda")]
            Self::Device(loader) => Ok(loader.loader_mut().load_state(state)?),
        }
    }

    pub(crate) fn stats_reader(&self) -> StatsReader {
        host!(self, loader => loader.stats_reader())
    }

    pub(crate) fn warnings(&self) -> &[Warning] {
        host!(self, loader => loader.warnings())
    }
}

/// The properties of a loader that never change.
#[derive(Debug)]
pub(crate) struct LoaderInfo {
    /// The number of batches in a pass, if it is known in advance.
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

    /// Returns the number of batches in a pass, or -1 if it is unknown.
    pub(crate) fn len(&self) -> i64 {
        self.len.and_then(|len| i64::try_from(len).ok()).unwrap_or(-1)
    }
}

/// A loader, with the state of its pass that the C functions need.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) loader: AnyLoader,
    pass: Pass,
    /// The number of batches that the pass has delivered, including errors in place of batches and
    /// batches from before a resume.
    given: usize,
    /// The number of batches delivered before the state that the next pass resumes from.
    resumed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pass {
    /// No pass was started.
    None,
    Begun,
    Over,
}

/// The result of requesting a batch.
pub(crate) enum Next {
    Batch(Made),
    Failed(Box<Failure>),
    /// The pass has ended.
    End,
    /// No pass was started.
    NoPass,
}

impl Running {
    pub(crate) fn new(loader: AnyLoader) -> Self {
        Self { loader, pass: Pass::None, given: 0, resumed: 0 }
    }

    /// Starts a pass; a pass that has not ended is abandoned.
    pub(crate) fn begin_epoch(&mut self) -> Result<(), Failure> {
        (self.pass, self.given) = (Pass::None, 0);
        self.loader.begin_epoch()?;
        (self.pass, self.given) = (Pass::Begun, std::mem::take(&mut self.resumed));
        Ok(())
    }

    /// Returns the next batch of the pass, or the reason why there is none. Waits at most `patience`
    /// if that is given.
    #[inline]
    pub(crate) fn next_batch(&mut self, patience: Option<Duration>) -> Next {
        match self.pass {
            Pass::None => return Next::NoPass,
            Pass::Over => return Next::End,
            Pass::Begun => {}
        }
        let next = match patience {
            None => self.loader.next_batch(),
            Some(patience) => self.loader.next_within(patience),
        };
        match next {
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

    /// Resumes from a state; the current pass is abandoned.
    pub(crate) fn load_state(&mut self, state: &State) -> Result<(), Failure> {
        self.pass = Pass::None;
        self.loader.load_state(state)?;
        self.resumed = state.batches();
        Ok(())
    }
}
