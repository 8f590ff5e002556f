//! Builds a loader whose worker threads share a ring, or that has no workers.

use std::sync::Arc;

use slotline_core::ordered::Slot;

use crate::dataset::Dataset;
use crate::loader::assembly::memory::{Cells, MemoryPlan, bulk, bulk_memory, check_order, make_cells};
use crate::loader::backend::AnyBackend;
use crate::loader::backend::caller_thread::CallerThread;
use crate::loader::backend::index_worker::IndexWorker;
use crate::loader::backend::shared::start::{Claims, Started, start};
use crate::loader::builder::Builder;
use crate::loader::builder::options::{Workload, ring_slots};
use crate::loader::collate::Collate;
use crate::loader::collate::allocate::fields_of;
use crate::loader::collate::cell::{Cell, CellOwner};
use crate::loader::consumer::core::LoaderCore;
use crate::loader::consumer::loader::Loader;
use crate::loader::error::build::BuildError;
use crate::loader::order::index_source::{IndexSource, Origin};
use crate::loader::order::passes::{IndexedPasses, Passes};
use crate::loader::order::plan::IndexStream;
use crate::loader::worker::engine::Engine;

impl<D: Dataset, C: Collate<D>> Builder<D, C> {
    /// Checks the options, allocates the memory and starts the workers.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]. If several options are wrong, torch's are reported first, in the order
    /// in which torch checks them.
    pub fn build(self) -> Result<Loader<C::Output>, BuildError> {
        if self.options.round_robin { self.build_round_robin() } else { self.build_shared() }
    }

    /// Works like [`build`](Self::build), with any free worker making the next batch.
    fn build_shared(mut self) -> Result<Loader<C::Output>, BuildError> {
        let len = self.dataset.len();
        let draw = self.options.check(Workload::Shared(len))?;
        let (rows, workers, batching) = (draw.rows(len), self.options.num_workers, draw.batching);
        let bulk = bulk(&self.dataset, rows, batching, C::STACKS);
        let reads_many = self.dataset.reads_many();
        let mut cells = self.cells(&draw, len, bulk)?;
        let Self { dataset, collate, mut options } = self;
        let mut warnings = std::mem::take(&mut cells.made.warnings);
        warnings.extend(options.warnings(batching, draw.len(len)));
        let claims = Claims::new(options.part_size, rows, cells.made.shared && workers > 0, reads_many);
        let (ahead, all, untouched) = (options.ahead(), cells.made.payloads.len(), cells.made.untouched.take());
        // Without workers there is no ring, and all cells are spare.
        let placed = if workers == 0 { 0 } else { ahead };
        let (slot_cells, memory, stats) = cells.divide(&options, batching, (placed, all - ahead));
        let is_streamed = matches!(draw.from, Origin::IndexStream(_));
        let index_stream = is_streamed.then(|| IndexStream::new(ahead, rows, options.in_order)).transpose()?;
        let engine = Engine::new(dataset, collate, rows, batching, bulk, workers, index_stream);
        let engine = engine.on_error(options.on_error, draw.lengths());
        let plan_cell = engine.plan_cell.clone();
        let mut threads = options.workers(engine.cancel.clone(), &engine.activities)?;
        let (backend, passes): (_, Box<dyn Passes>) = if workers == 0 {
            let engine = Arc::new(engine);
            let worker = IndexWorker { reader: engine.reader(None, claims.sizer), engine: engine.clone() };
            let backend = CallerThread::new(Box::new(worker), threads.cancel.clone(), &memory.cell_pool);
            (AnyBackend::CallerThread(backend), Box::new(IndexedPasses { dataset: engine, rows, draw, plan_cell }))
        } else {
            let released = memory.cell_pool.released().clone();
            let Started { backend, engine } =
                start(&mut options, engine, claims, (slot_cells, untouched, released), &mut threads, &mut warnings)?;
            (AnyBackend::Shared(backend), Box::new(IndexedPasses { dataset: engine, rows, draw, plan_cell }))
        };
        let core = LoaderCore::new(options, batching, memory, (backend, passes), threads, (stats, warnings));
        Ok(Loader::new(core))
    }

    /// Makes the memory of all batches.
    fn cells(&mut self, draw: &IndexSource, len: usize, bulk: usize) -> Result<Cells<C::Payload>, BuildError> {
        let Self { dataset, collate, options } = self;
        let (rows, workers, hold) = (draw.rows(len), options.num_workers, options.hold);
        // The number of slots can still grow once the size of a batch is known, so this number is a
        // minimum.
        let least = options.slots()?;
        let order = draw.memory(len, least, rows).saturating_add(bulk_memory(bulk, options.size(rows)));
        check_order(order)?;
        let plan = MemoryPlan {
            fields: &|| fields_of(dataset),
            rows,
            cells: &|size| ring_slots(size.ahead(), hold),
            overhead: &|size, slots| {
                // Count a slot for each spare cell, too. Then a smaller prefetch factor never takes
                // more memory, even if the number of slots is rounded up.
                let words = Cell::<C::Payload>::SIZE + size_of::<Slot<CellOwner<C::Payload>>>();
                let words = slots.saturating_mul(words);
                draw.memory(len, slots, size.rows).saturating_add(bulk_memory(bulk, size)).saturating_add(words)
            },
            reserved: order,
            fewest: 0,
            // Do not request more batches from a user's iterator than torch would.
            settles: !matches!(draw.from, Origin::IndexStream(_)),
            // With a timeout only workers make batches, and the timeout must not include the time
            // to touch memory.
            touchers: if options.timeout.is_zero() { workers } else { 0 },
            forked: false,
        };
        make_cells(options, collate, &plan)
    }
}
