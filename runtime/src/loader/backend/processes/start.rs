//! Starts the worker processes that share a ring.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::dataset::Dataset;
use crate::loader::backend::processes::spawn::Spawn;
use crate::loader::backend::processes::supervisor::{EventFd, Ledger, Supervisor};
use crate::loader::backend::processes::worker::{ProcessWorkers, view};
use crate::loader::backend::processes::{ProcessRing, SlotCell};
use crate::loader::collate::Collate;
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::cell::CellOwner;
use crate::loader::collate::loader_memory::LoaderMemory;
use crate::loader::error::build::BuildError;
use crate::loader::error::warning::{Listener, Warning};
use crate::loader::worker::pool::WorkerPool;
use crate::loader::worker::workers::Workers;

/// How worker processes are started, and whether those that end are replaced.
pub(crate) struct Supervision {
    pub(crate) restarts: usize,
    pub(crate) sample_timeout: Option<Duration>,
    /// Whether a sample that ended its worker is skipped or replaced.
    pub(crate) passes_over: bool,
    /// Starts workers by a command; `None` if workers are forked.
    pub(crate) spawn: Option<Spawn>,
    pub(crate) listener: Listener,
}

/// Starts the workers of a ring, which has a slot for each cell in `slot_cells`.
pub(crate) fn start<D: Dataset, C: Collate<D, Payload = BatchBuffer>>(
    process_workers: ProcessWorkers<D, C>,
    Supervision { restarts, sample_timeout, passes_over, spawn, listener }: Supervision,
    slot_cells: Vec<CellOwner<BatchBuffer>>,
    memory: &LoaderMemory<BatchBuffer>,
    threads: &mut Workers,
    warnings: &mut Vec<Warning>,
) -> Result<ProcessRing<BatchBuffer>, BuildError> {
    let (control, plan_cell, part_rows, in_order) = (
        process_workers.control.clone(),
        process_workers.engine.plan_cell.clone(),
        process_workers.part_rows,
        process_workers.in_order,
    );
    let (workers, has_init) = (process_workers.engine.workers(), process_workers.init.is_some());
    let wakeup = Arc::new(EventFd::new().map_err(|source| BuildError::Map { bytes: 0, source })?);
    let ring = Arc::new(view(&control, in_order));
    let ledger = Arc::new(Ledger::new(slot_cells.len(), workers, restarts));
    let supervisor = Supervisor {
        main: Arc::new(process_workers),
        spawn: spawn.map(RefCell::new),
        control: control.clone(),
        ring: ring.clone(),
        ledger: ledger.clone(),
        wakeup: wakeup.clone(),
        liveness: threads.liveness.clone(),
        activities: threads.activities.clone(),
        sample_timeout,
        passes_over,
        part_rows,
        listener,
    };
    let (started, outcome) = mpsc::sync_channel(1);
    let supervise = Box::new(move || supervisor.run(&started));
    threads.pool = WorkerPool::start(vec![supervise], &[], warnings, &mut || {})?.of_workers(workers);
    outcome.recv().unwrap_or_else(|_| {
        let source = io::Error::other("the thread that starts worker processes panicked");
        Err(BuildError::Thread { worker: 0, source })
    })?;
    let layout = slot_cells.first().map(|cell| cell.state().payload.layout());
    Ok(ProcessRing {
        control,
        ring,
        ledger,
        wakeup,
        cancel: threads.cancel.clone(),
        released: memory.cell_pool.released().clone(),
        can_be_invalid: layout.is_some_and(|layout| layout.can_be_invalid()),
        slots: slot_cells.into_iter().map(SlotCell::new).collect(),
        empty: None,
        plan_cell,
        part_rows,
        in_order,
        start: 0,
        to_assign: 0,
        next: 0,
        left: 0,
        pass: 0,
        uncalled: 0,
        has_init,
    })
}
