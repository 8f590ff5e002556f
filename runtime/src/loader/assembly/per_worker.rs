//! Builds a loader whose worker threads have rings of their own.

use std::sync::Arc;

use crate::BoxError;
use crate::dataset::{
    Context, Dataset, Iterable, IterableDataset, Loadable, StopToken, WorkerInfo, set_worker_info, worker_info,
};
use crate::loader::assembly::memory::{self, Cells, MemoryPlan, bulk, bulk_memory, check_order};
use crate::loader::backend::AnyBackend;
use crate::loader::backend::caller_thread::CallerThread;
use crate::loader::backend::index_worker::IndexWorker;
use crate::loader::backend::per_worker::WakeWorkers;
use crate::loader::backend::per_worker::request_queues::RequestQueues;
use crate::loader::backend::per_worker::start::{Links, start};
use crate::loader::backend::protocol::BatchWorker;
use crate::loader::backend::stream_worker::{StreamPasses, StreamReader, Streaming};
use crate::loader::builder::Builder;
use crate::loader::builder::memory_budget::Size;
use crate::loader::builder::options::{Options, Workload};
use crate::loader::collate::Collate;
use crate::loader::collate::allocate::{PROBES, fields_of};
use crate::loader::collate::cell::Cell;
use crate::loader::collate::storage::Storage;
use crate::loader::consumer::core::LoaderCore;
use crate::loader::consumer::loader::Loader;
use crate::loader::cores::worker_cores;
use crate::loader::error::build::BuildError;
use crate::loader::error::guard::{dispose, probe};
use crate::loader::order::index_source::Batching;
use crate::loader::order::passes::{IndexedPasses, Passes};
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::engine::Engine;
use crate::loader::worker::init_barrier::InitHook;
use crate::loader::worker::workers::Workers;
use crate::sample::Fields;

impl<D: IterableDataset, C: Collate<Iterable<D>>> Builder<Iterable<D>, C> {
    /// Checks the options, allocates the memory and starts the workers.
    ///
    /// To learn the fields of a sample, this reads the first sample that worker 0 would read, in a
    /// separate pass; if there is none, that of worker 1, and so on. (The seed of a worker is its
    /// number in that pass.) No sample is read if [`IterableDataset::fields`] returns the fields,
    /// as it must for a dataset whose samples can be read only once.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]. If several options are wrong, torch's are reported first, in the order
    /// in which torch checks them.
    pub fn build(mut self) -> Result<Loader<C::Output>, BuildError> {
        let draw = self.options.check(Workload::Iterable)?;
        let on_error = self.options.on_error;
        self.options.check_on_error(Workload::Iterable, self.dataset.0.len().is_some())?;
        let tries = if on_error.is_raise() { 1 } else { PROBES };
        let workers = self.options.num_workers;
        let fields = || fields_of_first(&self.dataset.0, workers, tries);
        let batching = draw.batching;
        let options = &mut self.options;
        let made = make_cells(options, &mut self.collate, &fields, batching.batch_size, &|_| 0, false)?;
        let activities = (0..=workers).map(|_| Default::default()).collect();
        let dataset = (self.dataset, self.collate);
        let engine = Streaming::new(dataset, batching, on_error, StopToken::default(), activities);
        let maker = {
            let engine = engine.clone();
            move |worker| -> Box<dyn BatchWorker<_>> { Box::new(StreamReader::new(&engine, worker)) }
        };
        let threads = self.options.workers(engine.cancel.clone(), &engine.activities)?;
        let passes = Box::new(StreamPasses(engine));
        let init = self.options.init_hook();
        assemble(self.options, batching, made, passes, threads, (init, None), &maker).map(Loader::new)
    }
}

impl<D: Dataset, C: Collate<D>> Builder<D, C> {
    /// Works like [`build`](Self::build), with workers that make batches
    /// [in turn](Self::round_robin).
    pub(crate) fn build_round_robin(mut self) -> Result<Loader<C::Output>, BuildError> {
        let len = self.dataset.len();
        let draw = self.options.check(Workload::RoundRobin(len))?;
        let (rows, workers, batching) = (draw.rows(len), self.options.num_workers, draw.batching);
        let bulk = bulk(&self.dataset, rows, batching, C::STACKS);
        let order = draw.memory(len, 0, rows);
        let order = |size: Size| order.saturating_add(bulk_memory(bulk, size));
        check_order(order(self.options.size(rows)))?;
        let fields = || fields_of(&self.dataset);
        let made = make_cells(&mut self.options, &mut self.collate, &fields, rows, &order, false)?;
        let on_error = self.options.on_error;
        let engine = Engine::new(self.dataset, self.collate, rows, batching, bulk, workers, None);
        let engine = Arc::new(engine.on_error(on_error, draw.lengths()));
        let maker = {
            let engine = engine.clone();
            move |worker| -> Box<dyn BatchWorker<_>> {
                let reader = engine.reader(worker, ClaimSizer::fixed(1));
                Box::new(IndexWorker { engine: engine.clone(), reader })
            }
        };
        let threads = self.options.workers(engine.cancel.clone(), &engine.activities)?;
        let plan_cell = engine.plan_cell.clone();
        let passes = Box::new(IndexedPasses { dataset: engine, rows, draw, plan_cell });
        let init = self.options.init_hook();
        assemble(self.options, batching, made, passes, threads, (init, None), &maker).map(Loader::new)
    }
}

/// Returns the fields of an iterable dataset's samples: those that the dataset returns, or those of
/// the first sample that a worker would read. Workers are tried in turn, as some may have no
/// samples or may fail to start. Up to `tries` samples are read for each worker if they are bad.
pub(crate) fn fields_of_first(
    dataset: &impl IterableDataset,
    workers: usize,
    tries: usize,
) -> Result<Fields, BuildError> {
    if let Some(fields) = dataset.fields() {
        return Ok(fields);
    }
    first_of_workers(dataset, workers, |cursor, cx, fields| {
        for _ in 1..tries {
            if let Ok(sample) = dataset.next(cursor, cx) {
                *fields = sample.as_ref().map(Fields::of);
                return Ok(());
            }
        }
        *fields = dataset.next(cursor, cx)?.as_ref().map(Fields::of);
        Ok(())
    })
}

/// Returns the fields that `find` finds at the beginning of a worker's pass. Tries the workers in
/// turn.
pub(crate) fn first_of_workers<D: IterableDataset>(
    dataset: &D,
    workers: usize,
    find: impl Fn(&mut D::Cursor, &mut Context, &mut Option<Fields>) -> Result<(), BoxError>,
) -> Result<Fields, BuildError> {
    let mut cx = Context::default();
    let mut failure = None;
    for id in 0..workers.max(1) {
        // Use 0 as the base seed, since only a pass draws one.
        let worker = (workers > 0).then(|| WorkerInfo::new(id, workers, 0));
        let own = worker_info();
        set_worker_info(worker.or(own));
        // Declared outside of the closure, because the return value of a function is leaked if one
        // of its locals panics in its `drop` (rust-lang/rust#47949).
        let (mut cursor, mut fields) = (None, None);
        let first = probe(|| find(cursor.insert(dataset.iter(worker)?), &mut cx, &mut fields));
        let ended = probe(|| {
            drop(cursor);
            Ok(())
        });
        set_worker_info(own);
        // Drop values that are not needed separately, since each may panic.
        let first = match ended {
            Ok(()) => first,
            Err(error) => {
                dispose(first);
                Err(error)
            }
        };
        match first.map(|()| fields) {
            Ok(Some(fields)) => {
                dispose(failure);
                return Ok(fields);
            }
            Ok(None) => {}
            Err(source) if failure.is_none() => failure = Some(BuildError::Probe { index: 0, source }),
            Err(other) => dispose(other),
        }
    }
    // A dataset without samples needs no fields, since it has no batches.
    failure.map_or_else(|| Ok(Fields::new()), Err)
}

/// Makes the memory of all batches. There is a cell for each slot of the rings (or one for the
/// calling thread), one for each batch that is held, and with workers one more, which replaces the
/// cell of a delivered batch in a ring. `order` returns the additional bytes for orders and
/// indices. `forked` says whether worker processes write into the memory.
pub(crate) fn make_cells<D: Loadable, C: Collate<D>>(
    options: &mut Options,
    collate: &mut C,
    fields: &dyn Fn() -> Result<Fields, BuildError>,
    rows: usize,
    order: &dyn Fn(Size) -> usize,
    forked: bool,
) -> Result<Cells<C::Payload>, BuildError> {
    let hold = options.hold;
    let cells = |size: Size| size.ahead().saturating_add(hold).saturating_add(usize::from(size.workers > 0));
    options.check_slots(cells(options.size(rows)))?;
    let plan = MemoryPlan {
        fields,
        rows,
        cells: &cells,
        overhead: &|size, cells| {
            let links = size.prefetch.saturating_mul(size.workers).saturating_mul(RequestQueues::<C::Payload>::PLACE);
            order(size).saturating_add(links).saturating_add(cells.saturating_mul(Cell::<C::Payload>::SIZE))
        },
        reserved: order(options.size(rows)),
        fewest: 0,
        // Batches in turn are meant for datasets whose samples depend on the worker, as in torch,
        // so use torch's default.
        settles: !options.round_robin,
        touchers: 0,
        forked,
    };
    memory::make_cells(options, collate, &plan)
}

/// Starts the workers and assembles the loader. `wake_workers` wakes worker threads that wait for
/// something other than their rings.
pub(crate) fn assemble<P: Storage>(
    options: Options,
    batching: Batching,
    mut cells: Cells<P>,
    passes: Box<dyn Passes>,
    mut threads: Workers,
    (init, wake_workers): (Option<InitHook>, Option<WakeWorkers>),
    maker: &dyn Fn(Option<usize>) -> Box<dyn BatchWorker<P>>,
) -> Result<LoaderCore<P>, BuildError> {
    let (workers, prefetch) = (options.num_workers, options.prefetch());
    let mut warnings = std::mem::take(&mut cells.made.warnings);
    warnings.extend(options.warnings(batching, passes.samples()));
    let (slot_cells, memory, stats) = cells.divide(&options, batching, (workers * prefetch, options.hold));
    let backend = if workers == 0 {
        AnyBackend::CallerThread(CallerThread::new(maker(None), threads.cancel.clone(), &memory.cell_pool))
    } else {
        let cores = worker_cores(&options.affinity, workers, &mut warnings)?;
        let makers = (0..workers).map(|id| maker(Some(id))).collect();
        let links = Links { slot_cells, released: memory.cell_pool.released().clone(), prefetch, init, wake_workers };
        let strategy = (options.wait_strategy, options.in_order);
        AnyBackend::PerWorker(start(makers, links, strategy, &cores, &mut threads, &mut warnings)?)
    };
    Ok(LoaderCore::new(options, batching, memory, (backend, passes), threads, (stats, warnings)))
}
