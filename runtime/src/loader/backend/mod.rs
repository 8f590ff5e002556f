//! The backends, which make the batches of a loader: in the calling thread, by workers that share
//! one ring, or by workers with rings of their own. Each is a module here; [`protocol`] defines the
//! interface between them and the loader.

pub(crate) mod caller_thread;
pub(crate) mod index_worker;
pub(crate) mod per_worker;
#[cfg(processes)]
pub(crate) mod processes;
pub(crate) mod protocol;
pub(crate) mod shared;
pub(crate) mod stream_worker;

use crate::loader::backend::caller_thread::CallerThread;
use crate::loader::backend::per_worker::PerWorker;
#[cfg(processes)]
use crate::loader::backend::processes::ProcessRing;
use crate::loader::backend::protocol::{Backend, Begin, Begun, Next, NotBegun};
use crate::loader::backend::shared::SharedRing;
use crate::loader::checkpoint::state::Streams;
use crate::loader::collate::cell_pool::CellPool;
use crate::loader::collate::storage::Storage;
use crate::loader::collate::tag::Tag;
use crate::loader::order::progress::Progress;
use crate::loader::worker::cancel::Stopper;
use crate::loader::worker::pool::WorkerPool;
use crate::wait::Until;

/// The backend of a loader.
pub(crate) enum AnyBackend<P> {
    /// Without workers: the calling thread makes all batches.
    CallerThread(CallerThread<P>),
    /// Threads that share one ring: any free worker claims rows of the next batch.
    Shared(SharedRing<P>),
    /// Workers with rings of their own. Each worker makes whole batches.
    PerWorker(PerWorker<P>),
    /// Worker processes that share one ring.
    #[cfg(processes)]
    Processes(Box<ProcessRing<P>>),
}

/// Calls the same method of whichever variant `$self` is.
macro_rules! any {
    ($self:expr, $backend:ident => $call:expr) => {
        match $self {
            AnyBackend::CallerThread($backend) => $call,
            AnyBackend::Shared($backend) => $call,
            AnyBackend::PerWorker($backend) => $call,
            #[cfg(processes)]
            AnyBackend::Processes($backend) => $call,
        }
    };
}

impl<P: Storage> Backend<P> for AnyBackend<P> {
    fn drain(&mut self, pass: &mut Progress, deadline: &Until) -> Result<(), NotBegun> {
        any!(self, backend => backend.drain(pass, deadline))
    }

    fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, NotBegun> {
        any!(self, backend => backend.begin(begin))
    }

    #[inline(always)]
    fn try_next(&mut self, pass: &Progress, pool: &WorkerPool, cell_pool: &mut CellPool<P>) -> Next<P> {
        // Check this variant before the `match`, whose jump table takes longer than making one row
        // of a small batch.
        if let Self::CallerThread(backend) = self {
            return backend.try_next(pass, pool, cell_pool);
        }
        any!(self, backend => backend.try_next(pass, pool, cell_pool))
    }

    fn set_helping(&mut self, helps: bool) -> bool {
        any!(self, backend => backend.set_helping(helps))
    }

    fn wait(&mut self, deadline: &Until) -> bool {
        any!(self, backend => backend.wait(deadline))
    }

    fn wait_for_release(&mut self, deadline: &Until, cell_pool: &CellPool<P>) -> bool {
        any!(self, backend => backend.wait_for_release(deadline, cell_pool))
    }

    fn kept(&self) -> Option<Tag> {
        any!(self, backend => backend.kept())
    }

    fn is_ready(&self) -> bool {
        any!(self, backend => backend.is_ready())
    }

    fn ready(&self) -> usize {
        any!(self, backend => backend.ready())
    }

    fn seal(&self) {
        any!(self, backend => backend.seal());
    }

    fn close(&self) {
        any!(self, backend => backend.close());
    }

    fn stopper(&self) -> Stopper {
        any!(self, backend => backend.stopper())
    }

    fn awaited(&self, pass: &Progress) -> usize {
        any!(self, backend => backend.awaited(pass))
    }

    fn cannot_continue(&self) -> bool {
        any!(self, backend => backend.cannot_continue())
    }

    fn assigns_batches(&self) -> bool {
        any!(self, backend => backend.assigns_batches())
    }

    fn streams(&self, samples: Option<usize>) -> Option<Streams> {
        any!(self, backend => backend.streams(samples))
    }
}
