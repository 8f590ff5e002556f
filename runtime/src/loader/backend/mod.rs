//! The two ways in which batches come from the workers: through one ring that all of them share, or through a ring of each one's
//! own.

pub(crate) mod per_worker;
pub(crate) mod shared;

use crate::BoxError;
use crate::loader::backend::per_worker::PerWorker;
use crate::loader::backend::per_worker::worker::Request;
use crate::loader::backend::shared::SharedRing;
use crate::loader::checkpoint::state::State;
use crate::loader::collate::Storage;
use crate::loader::collate::batch::Tag;
use crate::loader::collate::slab::{Lease, Slab};
use crate::loader::error::failure::Failure;
use crate::loader::order::progress::Progress;
use crate::loader::worker::cancel::{CancelFlag, Stopper};
use crate::loader::worker::pool::WorkerPool;
use crate::wait::Until;

/// The consumer's end of a loader's rings.
#[expect(clippy::large_enum_variant, reason = "a loader has one, which never moves")]
pub(crate) enum Backend<P> {
    /// One ring: whoever is free claims rows of the next batch.
    Shared(SharedRing<P>),
    /// A ring for each worker, which makes whole batches.
    PerWorker(PerWorker<P>),
}

/// What the consumer gets.
pub(crate) type Next<P> = Result<Got<P>, Nothing>;

/// A batch, its number and its rows; it may have met errors.
pub(crate) struct Got<P> {
    pub(crate) lease: Lease<P>,
    pub(crate) task: usize,
    pub(crate) rows: usize,
}

/// Why the consumer gets no batch. Small, so that what it does get stays in registers.
pub(crate) enum Nothing {
    Failed {
        failure: Box<Failure>,
        task: usize,
    },
    /// A batch that was never published, which no user code can cause.
    Lost {
        task: usize,
    },
    /// Nothing yet, but the next call may have something.
    Again,
    Empty,
    /// More batches are kept than there is memory for.
    Held,
    /// The loader was stopped, or has lost its workers. What it had made ahead stays where it is, so that nothing of it counts as
    /// delivered.
    Closed,
    End,
}

/// A pass to begin.
pub(crate) struct Begin<'a> {
    pub(crate) request: Request,
    /// How many batches are to come, if that is known.
    pub(crate) left: Option<usize>,
    /// What was delivered before.
    pub(crate) from: Option<&'a State>,
    pub(crate) deadline: &'a Until,
}

/// A pass that has begun.
pub(crate) struct Begun {
    /// Workers that could not begin, by number.
    pub(crate) failures: Vec<(usize, BoxError)>,
    /// Whether nobody is left to load.
    pub(crate) nobody_left: bool,
}

/// Why a pass did not begin, or the one before it did not end.
pub(crate) enum NotBegun {
    /// The deadline passed first.
    Late,
    Closed,
    TooMany,
}

/// Calls the same function of whichever it is.
macro_rules! either {
    ($self:expr, $end:ident => $call:expr) => {
        match $self {
            Backend::Shared($end) => $call,
            Backend::PerWorker($end) => $call,
        }
    };
}

impl<P: Storage> Backend<P> {
    /// Sees a pass to its end, of which this much was delivered: takes all that is still to come and throws it away.
    pub(crate) fn drain(&mut self, pass: &mut Progress, deadline: &Until) -> Result<(), NotBegun> {
        either!(self, end => end.drain(pass, deadline))
    }

    /// Begins a pass, once all workers have run their `worker_init`.
    pub(crate) fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, NotBegun> {
        either!(self, end => end.begin(begin))
    }

    /// The next batch or failure, if it is there; made now, if that is the caller's to do.
    #[inline(always)]
    pub(crate) fn try_next(
        &mut self,
        pass: &Progress,
        cancel: &CancelFlag,
        pool: &WorkerPool,
        slab: &mut Slab<P>,
    ) -> Next<P> {
        match self {
            Self::Shared(end) => end.try_next(pass, cancel, pool, slab),
            // Taken apart and put together: else the other way's would go where a call puts this one, which is memory.
            Self::PerWorker(end) => match end.try_next(slab) {
                Ok(Got { lease, task, rows }) => Ok(Got { lease, task, rows }),
                Err(nothing) => Err(nothing),
            },
        }
    }

    /// Waits while [`try_next`](Self::try_next) would say `Empty`; `false` if the deadline passed first.
    pub(crate) fn wait(&mut self, deadline: &Until) -> bool {
        either!(self, end => end.wait(deadline))
    }

    /// Waits while [`try_next`](Self::try_next) would say `Held`; `false` if the deadline passed first.
    pub(crate) fn wait_for_release(&mut self, deadline: &Until, slab: &Slab<P>) -> bool {
        either!(self, end => end.wait_for_release(deadline, slab))
    }

    /// The batch whose cell is in a slot still, as there was no other to leave there.
    pub(crate) fn shared(&self) -> Option<Tag> {
        match self {
            Self::Shared(end) => end.empty.as_ref().map(|slot| slot.tag()),
            Self::PerWorker(_) => None,
        }
    }

    /// Whether the next batch is there.
    pub(crate) fn is_ready(&self) -> bool {
        either!(self, end => end.is_ready())
    }

    /// How many finished batches there are.
    pub(crate) fn ready(&self) -> usize {
        either!(self, end => end.ready())
    }

    /// Lets workers begin nothing more of this pass.
    pub(crate) fn seal(&self) {
        if let Self::Shared(end) = self {
            end.seal();
        }
    }

    /// Sends the workers home.
    pub(crate) fn close(&self) {
        either!(self, end => end.close());
    }

    /// What stops the loader. It keeps none of its memory.
    pub(crate) fn stopper(&self) -> Stopper {
        either!(self, end => end.stopper())
    }

    /// The number of the batch that would come next in order.
    pub(crate) fn awaited(&self, pass: &Progress) -> usize {
        either!(self, end => end.awaited(pass))
    }

    /// Whether no batch will come any more once a worker has ended before its time.
    pub(crate) fn cannot_go_on(&self) -> bool {
        match self {
            // The others do its share, as long as there are any.
            Self::Shared(end) => end.is_closed(),
            // Each has something to read that nobody else does.
            Self::PerWorker(_) => true,
        }
    }

    /// Whether batches have the numbers that they were asked for by, in a pass of so many batches: those of an iterable dataset
    /// are counted as they come, since workers at their end are asked in vain.
    pub(crate) fn is_numbered(&self, tasks: Option<usize>) -> bool {
        matches!(self, Self::Shared(_)) || tasks.is_some()
    }
}
