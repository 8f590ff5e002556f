//! The ways in which batches come from the workers: through one ring that all of them share, or through a separate ring
//! for each worker. Without workers, the consumer makes them.

pub(crate) mod alone;
pub(crate) mod per_worker;
#[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
pub(crate) mod processes;
pub(crate) mod shared;

use crate::BoxError;
use crate::loader::backend::alone::Alone;
use crate::loader::backend::per_worker::PerWorker;
use crate::loader::backend::per_worker::worker::Request;
#[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
use crate::loader::backend::processes::ProcessRing;
use crate::loader::backend::shared::SharedRing;
use crate::loader::checkpoint::state::State;
use crate::loader::collate::Storage;
use crate::loader::collate::batch::Tag;
use crate::loader::collate::cell::Lease;
use crate::loader::collate::slab::Slab;
use crate::loader::error::failure::Failure;
use crate::loader::order::progress::Progress;
use crate::loader::worker::cancel::{CancelFlag, Stopper};
use crate::loader::worker::pool::WorkerPool;
use crate::wait::Until;

/// The consumer's end of a loader's rings.
#[expect(clippy::large_enum_variant, reason = "a loader has one, which never moves")]
pub(crate) enum Backend<P> {
    /// No workers: the consumer makes all batches.
    Alone(Alone<P>),
    /// One ring: any free worker claims rows of the next batch.
    Shared(SharedRing<P>),
    /// A ring for each worker, which makes whole batches.
    PerWorker(PerWorker<P>),
    /// One ring for worker processes.
    #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
    Processes(Box<ProcessRing<P>>),
}

/// The result of asking for the next batch.
pub(crate) type Next<P> = Result<Got<P>, Nothing>;

/// A batch, its number and its rows; it may have errors.
pub(crate) struct Got<P> {
    pub(crate) lease: Lease<P>,
    pub(crate) task: usize,
    pub(crate) rows: usize,
}

/// Why the consumer gets no batch. It is small, so that the batch in the other case stays in registers.
pub(crate) enum Nothing {
    Failed {
        failure: Box<Failure>,
        task: usize,
    },
    /// A batch that was never published, which user code cannot cause.
    Lost {
        task: usize,
    },
    /// No batch yet, but the next call may have one.
    Again,
    Empty,
    /// More batches are kept than there is memory for.
    Held,
    /// The loader was stopped, or has lost its workers. Batches made ahead stay in their slots, so that none of them
    /// counts as delivered.
    Closed,
    End,
}

/// A pass to begin.
pub(crate) struct Begin<'a> {
    pub(crate) request: Request,
    /// The number of batches still to come, if that is known.
    pub(crate) left: Option<usize>,
    /// The part of the pass that was already delivered.
    pub(crate) from: Option<&'a State>,
    pub(crate) deadline: &'a Until,
}

/// A pass that has begun.
pub(crate) struct Begun {
    /// Workers that could not begin, by number.
    pub(crate) failures: Vec<(usize, BoxError)>,
    /// Whether no thread is left to load.
    pub(crate) no_worker_left: bool,
}

/// Why a pass did not begin, or the previous one did not end.
pub(crate) enum NotBegun {
    /// The deadline passed first.
    Late,
    Closed,
    TooMany,
}

/// Calls the same function of either variant.
macro_rules! either {
    ($self:expr, $end:ident => $call:expr) => {
        match $self {
            Backend::Alone($end) => $call,
            Backend::Shared($end) => $call,
            Backend::PerWorker($end) => $call,
            #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
            Backend::Processes($end) => $call,
        }
    };
}

impl<P: Storage> Backend<P> {
    /// Takes the rest of a pass, whose delivered part is `pass`, and discards it.
    pub(crate) fn drain(&mut self, pass: &mut Progress, deadline: &Until) -> Result<(), NotBegun> {
        either!(self, end => end.drain(pass, deadline))
    }

    /// Begins a pass, after all workers have run their `worker_init`.
    pub(crate) fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, NotBegun> {
        either!(self, end => end.begin(begin))
    }

    /// Returns the next batch or failure if it is ready; makes it now if the calling thread makes batches.
    #[inline(always)]
    pub(crate) fn try_next(
        &mut self,
        pass: &Progress,
        cancel: &CancelFlag,
        pool: &WorkerPool,
        slab: &mut Slab<P>,
    ) -> Next<P> {
        // Not in the `match`: a look at a jump table takes longer than making a small batch's row.
        if let Self::Alone(end) = self {
            return end.try_next(pass, cancel, slab);
        }
        match self {
            Self::Alone(_) => Err(Nothing::Again),
            Self::Shared(end) => end.try_next(pass, cancel, pool, slab),
            // Taken apart and put together: otherwise the result of the other variant would also go through memory.
            Self::PerWorker(end) => match end.try_next(slab) {
                Ok(Got { lease, task, rows }) => Ok(Got { lease, task, rows }),
                Err(nothing) => Err(nothing),
            },
            #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
            Self::Processes(end) => match end.try_next(cancel, slab) {
                Ok(Got { lease, task, rows }) => Ok(Got { lease, task, rows }),
                Err(nothing) => Err(nothing),
            },
        }
    }

    /// Sets whether the consumer helps the workers, if it can do without. Returns whether it has helped them.
    pub(crate) fn set_helping(&mut self, helps: bool) -> bool {
        match self {
            Self::Shared(end) => end.set_helping(helps),
            _ => false,
        }
    }

    /// Waits while [`try_next`](Self::try_next) would return `Empty`; `false` if the deadline passed first.
    pub(crate) fn wait(&mut self, deadline: &Until) -> bool {
        either!(self, end => end.wait(deadline))
    }

    /// Waits while [`try_next`](Self::try_next) would return `Held`; `false` if the deadline passed first.
    pub(crate) fn wait_for_release(&mut self, deadline: &Until, slab: &Slab<P>) -> bool {
        either!(self, end => end.wait_for_release(deadline, slab))
    }

    /// Describes the batch whose cell is still in a slot, because there was no other to leave there.
    pub(crate) fn shared(&self) -> Option<Tag> {
        match self {
            Self::Shared(end) => end.empty.as_ref().map(|slot| slot.tag()),
            Self::Alone(_) | Self::PerWorker(_) => None,
            #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
            Self::Processes(end) => end.shared().map(|cell| cell.tag()),
        }
    }

    /// Whether the next batch is ready.
    pub(crate) fn is_ready(&self) -> bool {
        either!(self, end => end.is_ready())
    }

    /// The number of finished batches.
    pub(crate) fn ready(&self) -> usize {
        either!(self, end => end.ready())
    }

    /// Makes workers begin nothing more of this pass.
    pub(crate) fn seal(&self) {
        match self {
            Self::Shared(end) => end.seal(),
            Self::Alone(_) | Self::PerWorker(_) => {}
            #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
            Self::Processes(end) => end.seal(),
        }
    }

    /// Makes the workers end.
    pub(crate) fn close(&self) {
        either!(self, end => end.close());
    }

    /// Returns a handle that stops the loader. It keeps none of the loader's memory.
    pub(crate) fn stopper(&self) -> Stopper {
        either!(self, end => end.stopper())
    }

    /// The number of the batch that would come next in order.
    pub(crate) fn awaited(&self, pass: &Progress) -> usize {
        either!(self, end => end.awaited(pass))
    }

    /// Whether no more batches will come once a worker has ended with a panic.
    pub(crate) fn cannot_continue(&self) -> bool {
        match self {
            // The other workers take over its share, as long as there are any.
            Self::Alone(end) => end.is_closed(),
            Self::Shared(end) => end.is_closed(),
            // Each worker reads a part that no other worker reads.
            Self::PerWorker(_) => true,
            #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
            Self::Processes(end) => end.is_closed(),
        }
    }

    /// Whether batches have the numbers that they were asked for with, in a pass of `tasks` batches. Those of an
    /// iterable dataset are counted as they come, since workers at their end return none.
    pub(crate) fn is_numbered(&self, tasks: Option<usize>) -> bool {
        !matches!(self, Self::PerWorker(_)) || tasks.is_some()
    }
}
