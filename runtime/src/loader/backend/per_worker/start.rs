//! Starts workers that have rings of their own.

use std::sync::Arc;

use core_affinity::CoreId;
use slotline_core::spsc::Slot;

use crate::loader::backend::per_worker::request_queues::{RequestQueues, WorkerLink};
use crate::loader::backend::per_worker::worker::{Reply, Ring, RingWorker};
use crate::loader::backend::per_worker::{PerWorker, WakeWorkers};
use crate::loader::backend::protocol::{BatchWorker, Outcome, Request, StreamPosition};
use crate::loader::collate::cell::CellOwner;
use crate::loader::collate::storage::Storage;
use crate::loader::error::build::BuildError;
use crate::loader::error::warning::Warning;
use crate::loader::worker::init_barrier::InitHook;
use crate::loader::worker::pool::WorkerPool;
use crate::loader::worker::threads::ThreadMain;
use crate::loader::worker::workers::Workers;
use crate::wait::{WaitStrategy, Waiter};

/// The values from which the links between the consumer and its workers are made.
pub(crate) struct Links<P> {
    /// One cell for each slot of the reply rings: `prefetch` cells for each link.
    pub(crate) slot_cells: Vec<CellOwner<P>>,
    pub(crate) prefetch: usize,
    /// The waiter on which the consumer waits for a free cell.
    pub(crate) released: Arc<Waiter>,
    /// The user's `worker_init`, if there is one.
    pub(crate) init: Option<InitHook>,
    pub(crate) wake_workers: Option<WakeWorkers>,
}

/// Starts a worker for each of `makers`.
pub(crate) fn start<P: Storage>(
    makers: Vec<Box<dyn BatchWorker<P>>>,
    Links { slot_cells, prefetch, released, init, wake_workers }: Links<P>,
    (strategy, in_order): (WaitStrategy, bool),
    cores: &[CoreId],
    threads: &mut Workers,
    warnings: &mut Vec<Warning>,
) -> Result<PerWorker<P>, BuildError> {
    let waiter = || Arc::new(Waiter::new(strategy));
    let (workers, any) = (makers.len(), (!in_order).then(waiter));
    let mut slot_cells = slot_cells.into_iter();
    let mut links = Vec::with_capacity(workers);
    let mut work: Vec<ThreadMain> = Vec::with_capacity(workers);
    for (id, maker) in makers.into_iter().enumerate() {
        let requests = Ring::<Request>::with_wait(slots(prefetch, |_| Request::default()), waiter(), waiter());
        let reply = |_| {
            let cell = slot_cells.next().expect("there is a cell for each slot");
            Reply { cell, task: 0, outcome: Outcome::default(), position: StreamPosition::new() }
        };
        let items = any.clone().unwrap_or_else(waiter);
        let replies = Ring::<Reply<P>>::with_wait(slots(prefetch, reply), items, waiter());
        let ((ask, requests), (replies, answers)) = (requests.into_split(), replies.into_split());
        links.push(WorkerLink::new(ask, answers));
        let (start, activities, liveness) = (init.clone(), threads.activities.clone(), threads.liveness.clone());
        let mut worker = RingWorker { id, workers, requests, replies, start, maker, activities, liveness };
        work.push(Box::new(move || worker.work()));
    }
    let links = RequestQueues::new(links, released, any, prefetch, threads.cancel.clone());
    threads.pool = WorkerPool::start(work, cores, warnings, &mut || links.close())?;
    Ok(PerWorker { links, has_init: init.is_some(), wake_workers })
}

fn slots<T>(count: usize, value: impl FnMut(usize) -> T) -> Box<[Slot<T>]> {
    (0..count).map(value).map(Slot::new).collect()
}
