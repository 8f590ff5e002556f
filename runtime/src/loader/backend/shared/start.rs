//! Starts the worker threads that share a ring.

use std::sync::Arc;

use core_affinity::CoreId;
use slotline_core::ordered::{Config, Consumer, Delivery, Slot, Worker};

use crate::dataset::Dataset;
use crate::loader::backend::shared::SharedRing;
use crate::loader::backend::shared::worker::{Filler, Helper, Ring, Shared};
use crate::loader::builder::options::Options;
use crate::loader::collate::Collate;
use crate::loader::collate::allocate::Untouched;
use crate::loader::collate::cell::CellOwner;
use crate::loader::collate::storage::Storage;
use crate::loader::cores::worker_cores;
use crate::loader::error::build::BuildError;
use crate::loader::error::warning::Warning;
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::engine::Engine;
use crate::loader::worker::init_barrier::InitBarrier;
use crate::loader::worker::pool::WorkerPool;
use crate::loader::worker::threads::ThreadMain;
use crate::loader::worker::workers::Workers;
use crate::wait::Waiter;

/// The maximum number of parts of a batch, which keeps the cost of counting parts small.
const MAX_PARTS: usize = 1024;

/// How batches are divided into claims.
pub(crate) struct Claims {
    parts: usize,
    part_rows: usize,
    pub(crate) sizer: ClaimSizer,
    /// The sizer for workers, which also detects claims that are quicker than passing a batch
    /// between cores.
    watching: ClaimSizer,
}

impl Claims {
    /// Divides batches of `rows` rows into parts. A batch has one part if it is not `divisible`
    /// among threads, and without a part size also if a thread `reads_many` samples at once.
    pub(crate) fn new(part_size: Option<usize>, rows: usize, divisible: bool, reads_many: bool) -> Self {
        let least = rows.div_ceil(MAX_PARTS);
        let part_rows = match part_size {
            _ if !divisible => rows,
            Some(part_size) => part_size.min(rows).max(least),
            None if reads_many => rows,
            None => least,
        };
        let parts = rows.div_ceil(part_rows);
        let sizer = ClaimSizer::of(part_size.is_some(), parts);
        // With a given part size, the size of workers' claims must not adapt.
        let watching = if part_size.is_some() { sizer.clone() } else { sizer.clone().watching() };
        Self { parts, part_rows, sizer, watching }
    }
}

/// The backend with a ring, whose workers were started, and the engine that they share.
pub(crate) struct Started<D: Dataset, C: Collate<D>> {
    pub(crate) backend: SharedRing<C::Payload>,
    pub(crate) engine: Arc<Filler<D, C>>,
}

/// Starts the workers of a ring, which has a slot for each cell in `slot_cells`.
pub(crate) fn start<D: Dataset, C: Collate<D>>(
    options: &mut Options,
    engine: Engine<D, C>,
    claims: Claims,
    cells: (Vec<CellOwner<C::Payload>>, Option<Untouched>, Arc<Waiter>),
    threads: &mut Workers,
    warnings: &mut Vec<Warning>,
) -> Result<Started<D, C>, BuildError> {
    let cores = worker_cores(&options.affinity, options.num_workers, warnings)?;
    let (shared, consumer) = new_ring(options, &claims, cells, threads);
    let plan_cell = engine.plan_cell.clone();
    let engine = Arc::new(Filler { engine, shared: shared.clone() });
    let work = (0..options.num_workers).map(|id| -> ThreadMain {
        let (filler, mut reader) = (engine.clone(), engine.engine.reader(Some(id), claims.watching.clone()));
        Box::new(move || filler.work(&Worker::new(filler.shared.ring.clone()), &mut reader))
    });
    start_pool(&shared, work.collect(), &cores, threads, warnings)?;
    let (worker, discarder) = (Worker::new(shared.ring.clone()), Worker::new(shared.ring.clone()));
    let reader = engine.engine.reader(None, claims.sizer);
    let helper = Box::new(Helper { reader, worker, filler: engine.clone() });
    let helps = shared.shares;
    let backend = SharedRing { shared, consumer, empty: None, discarder, plan_cell, helper, helps };
    Ok(Started { backend, engine })
}

/// Makes the ring, and what its threads share.
fn new_ring<P: Storage>(
    options: &mut Options,
    claims: &Claims,
    (slot_cells, untouched, released): (Vec<CellOwner<P>>, Option<Untouched>, Arc<Waiter>),
    threads: &Workers,
) -> (Arc<Shared<P>>, Consumer<Arc<Ring<P>>>) {
    let (workers, in_order, strategy) = (options.num_workers, options.in_order, options.wait_strategy);
    let helps = options.help.unwrap_or(in_order && options.worker_init.is_none()) && options.timeout.is_zero();
    let delivery = if in_order { Delivery::InOrder } else { Delivery::Arrival };
    let config = Config::new().parts(claims.parts).delivery(delivery);
    let slot_cells: Box<[_]> = slot_cells.into_iter().map(Slot::new).collect();
    let room = Waiter::for_room(strategy, slot_cells.len());
    let ring: Arc<Ring<P>> = Arc::new(Ring::with_wait(slot_cells, config, Waiter::new(strategy), room));
    ring.seal();
    let consumer = Consumer::new(ring.clone()).expect("a new ring has no consumer");
    let shared = Shared {
        ring,
        cancel: threads.cancel.clone(),
        part_rows: claims.part_rows,
        barrier: options.init_hook().map(|init| InitBarrier::new(init, workers)),
        shares: helps,
        liveness: threads.liveness.clone(),
        untouched,
        released,
    };
    (Arc::new(shared), consumer)
}

/// Starts the threads. They touch memory only when all of them run.
fn start_pool<P: Storage>(
    shared: &Shared<P>,
    work: Vec<ThreadMain>,
    cores: &[CoreId],
    threads: &mut Workers,
    warnings: &mut Vec<Warning>,
) -> Result<(), BuildError> {
    let mut building = shared.untouched.as_ref().map(|untouched| untouched.building.lock());
    threads.pool = WorkerPool::start(work, cores, warnings, &mut || {
        drop(building.take());
        shared.close();
    })?;
    Ok(())
}
