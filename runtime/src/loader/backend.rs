//! The two ways in which batches come from the workers: through one ring that all of them share, or through a ring of each one's
//! own.

use crate::BoxError;
use crate::wait::Until;

use super::Progress;
use super::batch::Tag;
use super::collate::Storage;
use super::crew::Crew;
use super::job::Abandoned;
use super::lanes::{PerWorker, Request};
use super::shared::SharedRing;
use super::slab::{Lease, Slab};
use super::state::State;
use super::stop::Stopper;
use super::work::Failure;

/// The consumer's end of a loader's rings.
#[expect(clippy::large_enum_variant, reason = "a loader has one, which never moves")]
pub(super) enum Backend<P> {
    /// One ring: whoever is free claims rows of the next batch.
    Shared(SharedRing<P>),
    /// A ring for each worker, which makes whole batches.
    PerWorker(PerWorker<P>),
}

/// What the consumer gets.
pub(super) type Next<P> = Result<Got<P>, Nothing>;

/// A batch, its number and its rows; it may have met trouble.
pub(super) struct Got<P> {
    pub(super) lease: Lease<P>,
    pub(super) task: usize,
    pub(super) rows: usize,
}

/// Why the consumer gets no batch. Small, so that what it does get stays in registers.
pub(super) enum Nothing {
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
pub(super) struct Begin<'a> {
    pub(super) request: Request,
    /// How many batches are to come, if that is known.
    pub(super) left: Option<usize>,
    /// What was delivered before.
    pub(super) from: Option<&'a State>,
    pub(super) deadline: &'a Until,
}

/// A pass that has begun.
pub(super) struct Begun {
    /// Workers that could not begin, by number.
    pub(super) failures: Vec<(usize, BoxError)>,
    /// Whether nobody is left to load.
    pub(super) nobody_left: bool,
}

/// Why a pass did not begin, or the one before it did not end.
pub(super) enum Stuck {
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
    pub(super) fn drain(&mut self, pass: &mut Progress, deadline: &Until) -> Result<(), Stuck> {
        either!(self, end => end.drain(pass, deadline))
    }

    /// Begins a pass, once all workers have run their `worker_init`.
    pub(super) fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, Stuck> {
        either!(self, end => end.begin(begin))
    }

    /// The next batch or failure, if it is there; made now, if that is the caller's to do.
    #[inline(always)]
    pub(super) fn try_next(
        &mut self,
        pass: &Progress,
        abandoned: &Abandoned,
        crew: &Crew,
        slab: &mut Slab<P>,
    ) -> Next<P> {
        match self {
            Self::Shared(end) => end.try_next(pass, abandoned, crew, slab),
            // Taken apart and put together: else the other way's would go where a call puts this one, which is memory.
            Self::PerWorker(end) => match end.try_next(slab) {
                Ok(Got { lease, task, rows }) => Ok(Got { lease, task, rows }),
                Err(nothing) => Err(nothing),
            },
        }
    }

    /// Waits while [`try_next`](Self::try_next) would say `Empty`; `false` if the deadline passed first.
    pub(super) fn wait(&mut self, deadline: &Until) -> bool {
        either!(self, end => end.wait(deadline))
    }

    /// Waits while [`try_next`](Self::try_next) would say `Held`; `false` if the deadline passed first.
    pub(super) fn wait_for_release(&mut self, deadline: &Until, slab: &Slab<P>) -> bool {
        either!(self, end => end.wait_for_release(deadline, slab))
    }

    /// The batch whose cell is in a slot still, as there was no other to leave there.
    pub(super) fn shared(&self) -> Option<Tag> {
        match self {
            Self::Shared(end) => end.empty.as_ref().map(|slot| slot.tag()),
            Self::PerWorker(_) => None,
        }
    }

    /// Whether the next batch is there.
    pub(super) fn is_ready(&self) -> bool {
        either!(self, end => end.is_ready())
    }

    /// How many finished batches there are.
    pub(super) fn ready(&self) -> usize {
        either!(self, end => end.ready())
    }

    /// Lets workers begin nothing more of this pass.
    pub(super) fn seal(&self) {
        if let Self::Shared(end) = self {
            end.seal();
        }
    }

    /// Sends the workers home.
    pub(super) fn close(&self) {
        either!(self, end => end.close());
    }

    /// What stops the loader. It keeps none of its memory.
    pub(super) fn stopper(&self) -> Stopper {
        either!(self, end => end.stopper())
    }

    /// The number of the batch that would come next in order.
    pub(super) fn awaited(&self, pass: &Progress) -> usize {
        either!(self, end => end.awaited(pass))
    }

    /// Whether no batch will come any more once a worker has ended before its time.
    pub(super) fn cannot_go_on(&self) -> bool {
        match self {
            // The others do its share, as long as there are any.
            Self::Shared(end) => end.is_closed(),
            // Each has something to read that nobody else does.
            Self::PerWorker(_) => true,
        }
    }

    /// Whether batches have the numbers that they were asked for by, in a pass of so many batches: those of an iterable dataset
    /// are counted as they come, since workers at their end are asked in vain.
    pub(super) fn is_numbered(&self, tasks: Option<usize>) -> bool {
        matches!(self, Self::Shared(_)) || tasks.is_some()
    }
}
