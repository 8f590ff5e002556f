//! Builds a loader whose workers share a ring from its options.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use slotline_core::ordered::{Config, Consumer, Delivery, Slot, Worker};

use crate::arena::shortage;
use crate::dataset::Dataset;
use crate::loader::backend::Backend;
use crate::loader::backend::alone::{Alone, Maker, Stop};
use crate::loader::backend::shared::SharedRing;
use crate::loader::backend::shared::worker::{Filler, Helper, Ring, Shared};
use crate::loader::builder::Builder;
use crate::loader::builder::memory_budget::MemoryBudget;
use crate::loader::builder::options::{Options, Workload, ring_slots};
use crate::loader::collate::Storage;
use crate::loader::collate::allocate::{MakeSlots, SlotRequest, fields_of};
use crate::loader::collate::block::Block;
use crate::loader::collate::cell::{Cell, Owned};
use crate::loader::collate::overflow::{Overflow, Spills};
use crate::loader::collate::slab::Slab;
use crate::loader::consumer::loader::Loader;
use crate::loader::consumer::resume::Log;
use crate::loader::consumer::{Inner, Parts};
use crate::loader::cores::{usable_cores, worker_cores};
use crate::loader::error::build::BuildError;
use crate::loader::error::warning::Warning;
use crate::loader::metrics::activity::Activity;
use crate::loader::metrics::reader::ConsumerStats;
use crate::loader::order::index_source::{Batching, Origin};
use crate::loader::order::passes::{Orders, Passes};
use crate::loader::order::plan::Feed;
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::deaths::Deaths;
use crate::loader::worker::engine::Engine;
use crate::loader::worker::init_barrier::{InitBarrier, InitHook};
use crate::loader::worker::pool::WorkerPool;
use crate::loader::worker::watchdog::Watchdog;
use crate::placed::Placed;
use crate::wait::Waiter;

/// The maximum number of parts of a batch, which keeps the cost of counting parts small.
const MOST_PARTS: usize = 1024;

impl<D: Dataset, C: MakeSlots<D>> Builder<D, C> {
    /// Checks the options, allocates the memory and starts the workers.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]. If several options are wrong, torch's are reported first, in the order in which torch checks
    /// them.
    pub fn build(self) -> Result<Loader<C::Output>, BuildError> {
        if self.options.round_robin { self.build_round_robin() } else { self.build_shared() }
    }

    /// Works like [`build`](Self::build), with any free worker making the next batch.
    fn build_shared(mut self) -> Result<Loader<C::Output>, BuildError> {
        let len = self.dataset.len();
        let draw = self.options.check(Workload::Shared(len))?;
        let Options { num_workers: workers, in_order, timeout, pin_memory, .. } = self.options;
        // If batches are read by an order, there may be more slots once the size of a batch is known.
        let least = self.options.slots()?;
        let rows = draw.rows(len);
        let bulk = bulk(&self.dataset, rows, draw.batching);
        let order = draw.memory(len, least, rows).saturating_add(bulk_memory(bulk, workers));
        check_order(order)?;
        let options = &mut self.options;
        let (hold, memory) = (options.hold, options.memory.take());
        let budget = MemoryBudget {
            fewest: 0,
            slots: &|size| ring_slots(size.ahead(), hold),
            overhead: &|size, slots| {
                let bulk = bulk_memory(if bulk > 0 { size.rows } else { 0 }, size.workers);
                // Counts slots for the cells that are in none, too, so that a smaller prefetch factor never takes more
                // memory, even if the number of slots is rounded up.
                let words = Cell::<C::Payload>::SIZE + size_of::<Slot<Owned<C::Payload>>>();
                let words = slots.saturating_mul(words);
                draw.memory(len, slots, size.rows).saturating_add(bulk).saturating_add(words)
            },
        };
        let spilling = options.on_overflow == Overflow::Spill;
        let made = self.collate.make_slots(SlotRequest {
            fields: &|| fields_of(&self.dataset),
            rows,
            slots: &mut |batch| {
                // A user's iterator is not asked for more than torch would ask it for.
                let known = batch.filter(|_| !matches!(draw.from, Origin::Feed(_)));
                options.settle_below_limit(known.map_or(usize::MAX, |bytes| bytes(rows)), rows, batch, &budget)?;
                options.slots()
            },
            reserved: order,
            pin_memory,
            memory,
            spilling,
            // With a timeout only workers make batches, and the timeout must not include touching memory.
            touchers: if timeout.is_zero() { workers } else { 0 },
            forked: false,
        })?;
        let (ahead, slots) = (self.options.ahead(), made.payloads.len());
        let part_rows = match self.options.part_size {
            _ if !made.shared => rows,
            Some(part_size) => part_size.min(rows).max(rows.div_ceil(MOST_PARTS)),
            // No other thread to share with, or a dataset that reads a whole batch at once.
            None if workers == 0 || bulk > 0 => rows,
            None => rows.div_ceil(MOST_PARTS),
        };
        let parts = rows.div_ceil(part_rows);
        let sizer = if self.options.part_size.is_some() { ClaimSizer::fixed(1) } else { ClaimSizer::adaptive(parts) };
        // With a given part size, workers claim at no other size.
        let watching = if self.options.part_size.is_none() { sizer.clone().watching() } else { sizer.clone() };
        let sample_bytes = made.payloads.first().map_or(Some(0), Storage::sample_bytes);
        let block = Block::of(&made.payloads);
        let memory_ceiling = made.bytes.saturating_add((budget.overhead)(self.options.size(rows), slots));
        let mut warnings = made.warnings;
        warnings.extend(self.options.many_workers());
        warnings.extend(draw.batching.no_batch(draw.len(len)));

        let waiter = || Waiter::new(self.options.wait_strategy);
        let (single, on_held) = (draw.batching.single, self.options.on_held);
        // Without workers there is no ring, and all cells are spare ones.
        let placed = if workers == 0 { 0 } else { ahead };
        let (slab, places) = Slab::new(made.payloads, (placed, slots - ahead), single, made.more, on_held, waiter());
        let on_error = self.options.on_error;
        let feed = matches!(draw.from, Origin::Feed(_)).then(|| Feed::new(ahead, rows, in_order)).transpose()?;
        let engine = Engine::new(self.dataset, self.collate, rows, draw.batching, bulk, workers, feed);
        let engine = engine.on_error(on_error, draw.lengths());
        let (plan_cell, stride) = (engine.plan_cell.clone(), engine.stride);
        let (cancel, activities) = (engine.cancel.clone(), engine.activities.clone());
        let deaths = Arc::new(Deaths::new(workers));
        let cores = worker_cores(&self.options.affinity, workers, &mut warnings)?;
        let watchdog = watchdog(&self.options, &activities)?;
        let (batching, released) = (draw.batching, slab.released().clone());
        let (backend, passes, pool): (_, Box<dyn Passes>, _) = if workers == 0 {
            let stop = Arc::new(Stop { cancel: cancel.clone(), released });
            let engine = Arc::new(engine);
            let maker =
                Box::new(Maker { reader: engine.reader(None, sizer), engine: engine.clone(), parts, part_rows });
            let alone = Alone { maker, plan_cell: plan_cell.clone(), rows, stride, stop, ticket: 0, end: 0 };
            (Backend::Alone(alone), Box::new(Orders { engine, rows, draw, plan_cell }), WorkerPool::default())
        } else {
            let delivery = if in_order { Delivery::InOrder } else { Delivery::Arrival };
            let config = Config::new().parts(parts).delivery(delivery);
            let places: Box<[_]> = places.into_iter().map(Slot::new).collect();
            let room = Waiter::for_room(self.options.wait_strategy, places.len());
            let ring: Arc<Ring<C::Payload>> = Arc::new(Ring::with_wait(places, config, waiter(), room));
            ring.seal();
            let consumer = Consumer::new(ring.clone()).expect("a new ring has no consumer");
            let helps = self.options.help.unwrap_or(in_order && self.options.worker_init.is_none());
            let helps = helps && timeout.is_zero();
            let persistent = self.options.persistent_workers;
            let barrier = self.options.worker_init.take();
            let barrier = barrier.map(|init| InitBarrier::new(InitHook::new(init, persistent), workers));
            let (cancel, deaths, untouched) = (cancel.clone(), deaths.clone(), made.untouched);
            let shared = Shared { ring, cancel, part_rows, barrier, shares: helps, deaths, untouched, released };
            let shared = Arc::new(shared);
            let filler = Arc::new(Filler { engine, shared: shared.clone() });
            let lives = (0..workers).map(|id| {
                let (filler, mut reader) = (filler.clone(), filler.engine.reader(Some(id), watching.clone()));
                move || {
                    let worker = Worker::new(filler.shared.ring.clone());
                    filler.work(&worker, &mut reader);
                }
            });
            let mut building = shared.untouched.as_ref().map(|untouched| untouched.building.lock());
            let pool = WorkerPool::start(lives, &cores, &mut warnings, || {
                drop(building.take());
                shared.close();
            })?;
            drop(building);
            let (worker, sweeper) = (Worker::new(shared.ring.clone()), Worker::new(shared.ring.clone()));
            let helper = Helper { reader: filler.engine.reader(None, sizer), worker, filler: filler.clone() };
            let (helper, cell) = (Box::new(helper), plan_cell.clone());
            let end =
                SharedRing { shared, consumer, empty: None, sweeper, plan_cell: cell, rows, stride, helper, helps };
            (Backend::Shared(end), Box::new(Orders { engine: filler, rows, draw, plan_cell }), pool)
        };
        let parts = Parts {
            backend,
            passes,
            cancel,
            activities,
            deaths,
            pool,
            batching,
            slab,
            in_order,
            block,
            memory_ceiling,
            warnings,
            log: Log::new(if in_order { 0 } else { ahead }),
            stats: ConsumerStats::new(sample_bytes, Spills::new(made.spills, &self.options.on_warning)),
            watchdog,
        };
        Ok(Loader::new(Inner::new(parts, self.options)))
    }
}

impl Options {
    /// Returns a warning if workers will have to take turns on the cores.
    pub(crate) fn many_workers(&self) -> Option<Warning> {
        let workers = self.num_workers;
        // There is at least one core. Otherwise asking for their number takes as long as starting a thread.
        let cores = if workers > 1 { usable_cores() } else { 1 };
        (workers > cores).then_some(Warning::ManyWorkers { workers, cores })
    }
}

/// Starts the watchdog, if there is a time limit.
pub(crate) fn watchdog(
    options: &Options,
    activities: &Placed<[CachePadded<Activity>]>,
) -> Result<Option<Watchdog>, BuildError> {
    let start = |patience| Watchdog::start(patience, activities.clone(), options.on_warning.clone());
    let watchdog = options.watchdog.map(start);
    watchdog.transpose().map_err(|source| BuildError::Watchdog { source })
}

/// Returns the number of indices that each thread keeps for bulk reads: those of a whole batch, or none if samples are
/// read one by one, as they are without batches.
pub(crate) fn bulk(dataset: &impl Dataset, rows: usize, batching: Batching) -> usize {
    if dataset.reads_many() && !batching.single { rows } else { 0 }
}

/// Returns the bytes of the indices that all threads keep for bulk reads of `bulk` samples; `usize::MAX` on overflow.
pub(crate) fn bulk_memory(bulk: usize, workers: usize) -> usize {
    bulk.saturating_mul(workers.saturating_add(1)).saturating_mul(size_of::<usize>())
}

/// Checks that there is enough memory for the order of a pass.
pub(crate) fn check_order(bytes: usize) -> Result<(), BuildError> {
    shortage(bytes).map_or(Ok(()), |available| Err(BuildError::OrderMemory { bytes, available }))
}
