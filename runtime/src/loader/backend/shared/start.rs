//! Starts the worker threads that share a ring.

use std::sync::Arc;

use slotline_core::ordered::{Config, Consumer, Delivery, Slot, Worker};

use crate::dataset::Dataset;
use crate::loader::backend::shared::SharedRing;
use crate::loader::backend::shared::worker::{Filler, Helper, Ring, Shared};
use crate::loader::builder::options::Options;
use crate::loader::collate::Collate;
use crate::loader::collate::allocate::Untouched;
use crate::loader::collate::cell::CellOwner;
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
    Claims { parts, part_rows, sizer, watching }: Claims,
    (slot_cells, untouched, released): (Vec<CellOwner<C::Payload>>, Option<Untouched>, Arc<Waiter>),
    threads: &mut Workers,
    warnings: &mut Vec<Warning>,
) -> Result<Started<D, C>, BuildError> {
    let (workers, in_order, strategy) = (options.num_workers, options.in_order, options.wait_strategy);
    let helps = options.help.unwrap_or(in_order && options.worker_init.is_none()) && options.timeout.is_zero();
    let init = options.init_hook();
    let cores = worker_cores(&options.affinity, workers, warnings)?;
    let delivery = if in_order { Delivery::InOrder } else { Delivery::Arrival };
    let config = Config::new().parts(parts).delivery(delivery);
    let slot_cells: Box<[_]> = slot_cells.into_iter().map(Slot::new).collect();
    let room = Waiter::for_room(strategy, slot_cells.len());
    let ring: Arc<Ring<C::Payload>> = Arc::new(Ring::with_wait(slot_cells, config, Waiter::new(strategy), room));
    ring.seal();
    let consumer = Consumer::new(ring.clone()).expect("a new ring has no consumer");
    let plan_cell = engine.plan_cell.clone();
    let shared = Arc::new(Shared {
        ring,
        cancel: threads.cancel.clone(),
        part_rows,
        barrier: init.map(|init| InitBarrier::new(init, workers)),
        shares: helps,
        liveness: threads.liveness.clone(),
        untouched,
        released,
    });
    let engine = Arc::new(Filler { engine, shared: shared.clone() });
    let work = (0..workers).map(|id| -> ThreadMain {
        let (filler, mut reader) = (engine.clone(), engine.engine.reader(Some(id), watching.clone()));
        Box::new(move || filler.work(&Worker::new(filler.shared.ring.clone()), &mut reader))
    });
    let work = work.collect();
    let mut building = shared.untouched.as_ref().map(|untouched| untouched.building.lock());
    threads.pool = WorkerPool::start(work, &cores, warnings, &mut || {
        drop(building.take());
        shared.close();
    })?;
    drop(building);
    let (worker, discarder) = (Worker::new(shared.ring.clone()), Worker::new(shared.ring.clone()));
    let reader = engine.engine.reader(None, sizer);
    let helper = Box::new(Helper { reader, worker, filler: engine.clone() });
    let backend = SharedRing { shared, consumer, empty: None, discarder, plan_cell, helper, helps };
    Ok(Started { backend, engine })
}
