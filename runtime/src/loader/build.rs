//! How a loader is made of its options.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use slotline_core::ordered::{Config, Consumer, Delivery, Slot, Worker};

use super::backend::Backend;
use super::block::Block;
use super::builder::Builder;
use super::collate::Storage;
use super::crew::{Crew, usable_cores, worker_cores};
use super::draw::{Batching, Origin};
use super::engine::Engine;
use super::error::{BuildError, Warning};
use super::fate::Fate;
use super::gate::{Gate, Start};
use super::inner::Parts;
use super::job::Activity;
use super::limit::Bill;
use super::options::{Kind, Options, ring_slots};
use super::overflow::Spills;
use super::pacer::Pacer;
use super::passes::Orders;
use super::payloads::{Payloads, Request, fields_of};
use super::plan::Feed;
use super::resume::Log;
use super::ring::{Filler, Helper, Ring, Shared};
use super::shared::SharedRing;
use super::slab::{Cell, Slab};
use super::stats::Tally;
use super::watch::Watchdog;
use super::{Inner, Loader};
use crate::arena::available_memory;
use crate::dataset::Dataset;
use crate::wait::Waiter;

/// At most so many parts of a batch, so that the counting of parts stays small change.
const MOST_PARTS: usize = 1024;

impl<D: Dataset, C: Payloads<D>> Builder<D, C> {
    /// Checks the options, takes the memory and starts the workers.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]. Of several options that are wrong, torch's are named first, in the order in which torch checks
    /// them.
    pub fn build(mut self) -> Result<Loader<C::Output>, BuildError> {
        let len = self.dataset.len();
        let draw = self.options.check(Kind::Shared(len))?;
        let Options { num_workers: workers, in_order, timeout, pin_memory, .. } = self.options;
        // Of batches that are read by an order there may be more, once their size is known.
        let least = self.options.slots()?;
        let rows = draw.rows(len);
        let bulk = bulk(&self.dataset, rows, draw.batching);
        let order = draw.memory(len, least, rows).saturating_add(bulk_memory(bulk, workers));
        check_order(order)?;
        let options = &mut self.options;
        let (hold, memory) = (options.hold, options.memory.take());
        let bill = Bill {
            slots: &|size| ring_slots(size.ahead(), hold),
            beside: &|size, slots| {
                let bulk = bulk_memory(if bulk > 0 { size.rows } else { 0 }, size.workers);
                // As if the cells that are in no slot had one, too: so that fewer ahead of an even number take no less.
                let words = Cell::<C::Payload>::SIZE + size_of::<Slot<Arc<Cell<C::Payload>>>>();
                let words = slots.saturating_mul(words);
                draw.memory(len, slots, size.rows).saturating_add(bulk).saturating_add(words)
            },
        };
        let spills = Spills::new(options.on_overflow);
        let made = self.collate.payloads(Request {
            fields: &|| fields_of(&self.dataset),
            rows,
            slots: &mut |batch| {
                // A user's iterator is asked for no more than torch would ask it for.
                let known = batch.filter(|_| !matches!(draw.from, Origin::Feed(_)));
                options.settle_below_limit(known.map_or(usize::MAX, |bytes| bytes(rows)), rows, batch, &bill)?;
                options.slots()
            },
            reserved: order,
            pin_memory,
            memory,
            spilling: spills.allowed,
            // Nobody but the workers makes batches under a timeout, and it is not meant for this.
            touchers: if timeout.is_zero() { workers } else { 0 },
        })?;
        let (ahead, slots) = (self.options.ahead(), made.payloads.len());
        let part_rows = match self.options.part_size {
            _ if !made.shared => rows,
            Some(part_size) => part_size.min(rows).max(rows.div_ceil(MOST_PARTS)),
            // Nobody to share with, or a dataset that reads a whole batch at once.
            None if workers == 0 || bulk > 0 => rows,
            None => rows.div_ceil(MOST_PARTS),
        };
        let parts = rows.div_ceil(part_rows);
        let pacer = if self.options.part_size.is_some() { Pacer::fixed(1) } else { Pacer::adaptive(parts) };
        // Who said how much to claim wants no other pace.
        let watching = if self.options.part_size.is_none() { pacer.clone().watching() } else { pacer.clone() };
        let sample_bytes = made.payloads.first().map_or(Some(0), Storage::sample_bytes);
        let block = Block::of(&made.payloads);
        let memory_ceiling = made.bytes.saturating_add((bill.beside)(self.options.size(rows), slots));
        let mut warnings = made.warnings;
        warnings.extend(self.options.many_workers());
        warnings.extend(draw.batching.no_batch(draw.len(len)));

        let delivery = if in_order { Delivery::InOrder } else { Delivery::Arrival };
        let config = Config::new().parts(parts).delivery(delivery);
        let waiter = || Waiter::new(self.options.wait_strategy);
        let (single, on_held) = (draw.batching.single, self.options.on_held);
        let (slab, places) = Slab::new(made.payloads, (ahead, slots - ahead), single, made.more, on_held, waiter());
        let places: Box<[_]> = places.into_iter().map(Slot::new).collect();
        let ring: Arc<Ring<C::Payload>> = Arc::new(Ring::with_wait(places, config, waiter(), waiter()));
        ring.seal();
        let consumer = Consumer::new(ring.clone()).expect("a new ring has no consumer");
        let helps = self.options.help.unwrap_or(in_order && self.options.worker_init.is_none());
        let persistent = self.options.persistent_workers;
        let init = self.options.worker_init.take().filter(|_| workers > 0);
        let gate = init.map(|init| Gate::new(Start::new(init, persistent), workers));
        let cores = worker_cores(&self.options.affinity, workers, &mut warnings)?;
        let on_error = self.options.on_error;
        let feed = matches!(draw.from, Origin::Feed(_)).then(|| Feed::new(slots, rows, in_order));
        let engine = Engine::new(self.dataset, self.collate, rows, draw.batching, bulk, workers, feed);
        let engine = engine.on_error(on_error);
        let (board, stride) = (engine.board.clone(), engine.stride);
        let (abandoned, activities) = (engine.abandoned.clone(), engine.activities.clone());
        let (shares, untouched) = (helps && timeout.is_zero(), made.untouched);
        let fate = Arc::new(Fate::new(workers));
        let released = slab.released().clone();
        let shared = Shared { ring, abandoned, part_rows, gate, shares, fate: fate.clone(), untouched, released };
        let shared = Arc::new(shared);
        let filler = Arc::new(Filler { engine, shared: shared.clone() });
        let watchdog = watchdog(self.options.watchdog, &activities)?;
        let hands = (0..workers).map(|id| {
            let (filler, mut reader) = (filler.clone(), filler.engine.reader(Some(id), watching.clone()));
            move || {
                let worker = Worker::new(filler.shared.ring.clone());
                filler.work(&worker, &mut reader);
            }
        });
        let mut building = shared.untouched.as_ref().map(|untouched| untouched.building.lock());
        let crew = Crew::start(hands, &cores, &mut warnings, || {
            drop(building.take());
            shared.close();
        })?;
        drop(building);
        let batching = draw.batching;
        let (worker, sweeper) = (Worker::new(shared.ring.clone()), Worker::new(shared.ring.clone()));
        let helper = Helper { reader: filler.engine.reader(None, pacer), worker, filler: filler.clone() };
        let helps = workers == 0 || shares;
        let (helper, abandoned) = (Box::new(helper), shared.abandoned.clone());
        let orders = Orders { len: move || filler.engine.dataset.len(), rows, draw, board: board.clone() };
        let end = SharedRing { shared, consumer, empty: None, sweeper, board, rows, stride, helper, helps };
        let parts = Parts {
            backend: Backend::Shared(end),
            passes: Box::new(orders),
            abandoned,
            activities,
            fate,
            crew,
            batching,
            slab,
            in_order,
            block,
            memory_ceiling,
            warnings,
            log: Log::new(if in_order { 0 } else { ahead }),
            tally: Tally::new(sample_bytes, spills),
            watchdog,
        };
        Ok(Loader::new(Inner::new(parts, self.options)))
    }
}

impl Options {
    /// Whether workers will have to take turns on the cores.
    pub(super) fn many_workers(&self) -> Option<Warning> {
        let (workers, cores) = (self.num_workers, usable_cores());
        (workers > cores).then_some(Warning::ManyWorkers { workers, cores })
    }
}

/// Starts the watchdog, if there is to be one.
pub(super) fn watchdog(
    patience: Option<Duration>,
    activities: &Arc<[CachePadded<Activity>]>,
) -> Result<Option<Watchdog>, BuildError> {
    let watchdog = patience.map(|patience| Watchdog::start(patience, activities.clone()));
    watchdog.transpose().map_err(|source| BuildError::Watchdog { source })
}

/// Indices that each thread keeps for bulk reads: those of a whole batch, or none where samples are read one by one, as they
/// are without batches.
pub(super) fn bulk(dataset: &impl Dataset, rows: usize, batching: Batching) -> usize {
    if dataset.reads_many() && !batching.single { rows } else { 0 }
}

/// Bytes of the indices that each thread keeps for a bulk read of so many; `usize::MAX` if it is even more.
pub(super) fn bulk_memory(bulk: usize, workers: usize) -> usize {
    bulk.saturating_mul(workers.saturating_add(1)).saturating_mul(size_of::<usize>())
}

/// Checks that there is memory for the order of a pass.
pub(super) fn check_order(bytes: usize) -> Result<(), BuildError> {
    match available_memory().filter(|&available| bytes as u64 > available) {
        Some(available) => Err(BuildError::OrderMemory { bytes, available }),
        None => Ok(()),
    }
}
