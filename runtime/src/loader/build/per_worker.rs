//! Builds a loader whose workers each have a separate ring from its options.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use slotline_core::spsc::Slot;

use crate::BoxError;
use crate::dataset::{
    Context, Dataset, Iterable, IterableDataset, Loadable, StopToken, WorkerInfo, set_worker_info, worker_info,
};
use crate::loader::backend::Backend;
use crate::loader::backend::per_worker::dispatch::{Dispatch, WorkerLink};
use crate::loader::backend::per_worker::iterable::{StreamPasses, StreamReader, Streaming};
use crate::loader::backend::per_worker::round_robin::RoundRobin;
use crate::loader::backend::per_worker::worker::{MakeBatch, Mark, Outcome, Reply, Request, Ring, RingWorker};
use crate::loader::backend::per_worker::{Own, PerWorker, Rouse};
use crate::loader::build::shared::{bulk, bulk_memory, check_order, watchdog};
use crate::loader::builder::Builder;
use crate::loader::builder::memory_budget::{MemoryBudget, Size};
use crate::loader::builder::options::{Options, Workload};
use crate::loader::collate::Storage;
use crate::loader::collate::allocate::{MadeSlots, MakeSlots, PROBES, SlotRequest, fields_of};
use crate::loader::collate::block::Block;
use crate::loader::collate::cell::Cell;
use crate::loader::collate::overflow::{Overflow, Spills};
use crate::loader::collate::slab::Slab;
use crate::loader::consumer::loader::Loader;
use crate::loader::consumer::resume::Log;
use crate::loader::consumer::{Inner, Parts};
use crate::loader::cores::worker_cores;
use crate::loader::error::build::BuildError;
use crate::loader::error::guard::{dispose, probe};
use crate::loader::metrics::activity::Activity;
use crate::loader::metrics::reader::ConsumerStats;
use crate::loader::order::index_source::Batching;
use crate::loader::order::passes::{Orders, Passes};
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::deaths::Deaths;
use crate::loader::worker::engine::Engine;
use crate::loader::worker::init_barrier::InitHook;
use crate::loader::worker::pool::WorkerPool;
use crate::loader::worker::reader::Reader;
use crate::placed::Placed;
use crate::sample::Fields;
use crate::sync::Mutex;
use crate::wait::Waiter;

impl<D: IterableDataset, C: MakeSlots<Iterable<D>>> Builder<Iterable<D>, C> {
    /// Checks the options, allocates the memory and starts the workers.
    ///
    /// To learn the fields of a sample it reads the first sample of a separate pass, as worker 0 (if that has none, as
    /// worker 1, and so on; with the worker's number as its seed), unless [`IterableDataset::fields`] returns them. A
    /// dataset whose samples can be read only once must do so.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]. If several options are wrong, torch's are reported first, in the order in which torch checks
    /// them.
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
        let engine = Arc::new(Streaming {
            dataset: self.dataset,
            collate: self.collate,
            batching,
            skipping: !on_error.is_raise(),
            cancel: StopToken::default(),
            activities: (0..=workers).map(|_| Default::default()).collect(),
            resume: Mutex::default(),
        });
        let maker = {
            let engine = engine.clone();
            move |worker: Option<usize>| {
                let reader = Reader::new(
                    worker.unwrap_or(workers),
                    worker,
                    ClaimSizer::fixed(1),
                    0,
                    Some(engine.cancel.clone()),
                );
                StreamReader::new(engine.clone(), reader)
            }
        };
        let threads = (engine.cancel.clone(), engine.activities.clone());
        let passes = Box::new(StreamPasses(engine));
        let init = init_hook(&mut self.options);
        assemble(self.options, threads, passes, made, batching, init, None, maker).map(Loader::new)
    }
}

impl<D: Dataset, C: MakeSlots<D>> Builder<D, C> {
    /// Works like [`build`](Self::build), with workers that make batches [in turn](Self::round_robin).
    pub(crate) fn build_round_robin(mut self) -> Result<Loader<C::Output>, BuildError> {
        let len = self.dataset.len();
        let draw = self.options.check(Workload::RoundRobin(len))?;
        let (rows, workers, batching) = (draw.rows(len), self.options.num_workers, draw.batching);
        let bulk = bulk(&self.dataset, rows, batching);
        let order = draw.memory(len, 0, rows);
        let order = |size: Size| order.saturating_add(bulk_memory(if bulk > 0 { size.rows } else { 0 }, size.workers));
        check_order(order(self.options.size(rows)))?;
        let fields = || fields_of(&self.dataset);
        let made = make_cells(&mut self.options, &mut self.collate, &fields, rows, &order, false)?;
        let on_error = self.options.on_error;
        let engine = Engine::new(self.dataset, self.collate, rows, batching, bulk, workers, None);
        let engine = Arc::new(engine.on_error(on_error, draw.lengths()));
        let maker = {
            let engine = engine.clone();
            move |worker| RoundRobin { engine: engine.clone(), reader: engine.reader(worker, ClaimSizer::fixed(1)) }
        };
        let threads = (engine.cancel.clone(), engine.activities.clone());
        let plan_cell = engine.plan_cell.clone();
        let passes = Box::new(Orders { engine, rows, draw, plan_cell });
        let init = init_hook(&mut self.options);
        assemble(self.options, threads, passes, made, batching, init, None, maker).map(Loader::new)
    }
}

/// Takes the user's code that each worker runs before a pass.
pub(crate) fn init_hook(options: &mut Options) -> Option<InitHook> {
    options.worker_init.take().map(|init| InitHook::new(init, options.persistent_workers))
}

/// Returns the fields of an iterable dataset's samples: those that it returns, or those of the first sample that a
/// worker would read. Workers are tried in turn, as some may have no samples, or may not be able to start; each reads
/// up to `tries` samples if they are bad.
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

/// Returns the fields that `find` finds at the beginning of a worker's pass; tries the workers in turn.
pub(crate) fn first_of_workers<D: IterableDataset>(
    dataset: &D,
    workers: usize,
    find: impl Fn(&mut D::Cursor, &mut Context, &mut Option<Fields>) -> Result<(), BoxError>,
) -> Result<Fields, BuildError> {
    let mut cx = Context::default();
    let mut failure = None;
    for id in 0..workers.max(1) {
        // No base seed has been drawn yet; a pass does that.
        let worker = (workers > 0).then(|| WorkerInfo::new(id, workers, 0));
        let own = worker_info();
        set_worker_info(worker.or(own));
        // Declared outside of the closure: the return value of a function is leaked if one of its locals panics when it
        // is dropped (rust-lang/rust#47949).
        let (mut cursor, mut fields) = (None, None);
        let first = probe(|| find(cursor.insert(dataset.iter(worker)?), &mut cx, &mut fields));
        let ended = probe(|| {
            drop(cursor);
            Ok(())
        });
        set_worker_info(own);
        // Values that are not needed are dropped separately, since each may panic.
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
    // A dataset without samples has no fields, but no batches either.
    failure.map_or_else(|| Ok(Fields::new()), Err)
}

/// Makes the memory of all batches: a cell for each slot of the links, or for the calling thread; one for each batch
/// that is held; and with workers one more, to leave in a ring for the batch that is taken. `order` returns the
/// additional bytes for orders and indices. `forked` says whether worker processes write into the memory.
pub(crate) fn make_cells<D: Loadable, C: MakeSlots<D>>(
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
    let overhead = |size: Size, cells: usize| {
        let links = size.prefetch.saturating_mul(size.workers).saturating_mul(Dispatch::<C::Payload>::PLACE);
        order(size).saturating_add(links).saturating_add(cells.saturating_mul(Cell::<C::Payload>::SIZE))
    };
    let (reserved, pin_memory, memory) = (order(options.size(rows)), options.pin_memory, options.memory.take());
    let spilling = options.on_overflow == Overflow::Spill;
    let made = collate.make_slots(SlotRequest {
        fields,
        rows,
        slots: &mut |batch| {
            // Batches in turn are also for datasets whose samples depend on their worker, as in torch.
            let known = batch.filter(|_| !options.round_robin);
            options.settle_below_limit(
                known.map_or(usize::MAX, |bytes| bytes(rows)),
                rows,
                batch,
                &MemoryBudget { slots: &cells, overhead: &overhead, fewest: 0 },
            )?;
            Ok(cells(options.size(rows)))
        },
        reserved,
        pin_memory,
        memory,
        spilling,
        touchers: 0,
        forked,
    })?;
    let memory_ceiling = made.bytes.saturating_add(overhead(options.size(rows), made.payloads.len()));
    let spills = Spills::new(made.spills, &options.on_warning);
    Ok(Cells { made, memory_ceiling, spills, is_whole: forked && !C::STACKS })
}

/// The memory of all batches, and the total memory of the loader.
pub(crate) struct Cells<P> {
    pub(crate) made: MadeSlots<P>,
    memory_ceiling: usize,
    spills: Spills,
    /// Whether batches are made as one row, by a collate function.
    pub(crate) is_whole: bool,
}

/// Starts the workers and assembles the loader. `rouse` wakes worker threads that wait outside of their rings.
#[expect(clippy::too_many_arguments, reason = "each is a part of the loader")]
pub(crate) fn assemble<P: Storage, H: MakeBatch<P> + 'static>(
    options: Options,
    (cancel, activities): (StopToken, Placed<[CachePadded<Activity>]>),
    passes: Box<dyn Passes>,
    Cells { made, memory_ceiling, spills, is_whole }: Cells<P>,
    batching: Batching,
    start: Option<InitHook>,
    rouse: Option<Rouse>,
    maker: impl Fn(Option<usize>) -> H,
) -> Result<Inner<P>, BuildError> {
    let (workers, prefetch) = (options.num_workers, options.prefetch());
    let mut warnings = made.warnings;
    warnings.extend(options.many_workers());
    warnings.extend(batching.no_batch(passes.samples()));
    let weighed = made.payloads.first().filter(|_| !is_whole);
    let sample_bytes = weighed.map_or(Some(0), Storage::sample_bytes);
    let waiter = || Arc::new(Waiter::new(options.wait_strategy));
    let block = Block::of(&made.payloads);
    let released = Waiter::new(options.wait_strategy);
    let (slab, cells) = Slab::new(
        made.payloads,
        (workers * prefetch, options.hold),
        batching.single || is_whole,
        made.more,
        options.on_held,
        released,
    );
    let mut cells = cells.into_iter();
    let any = (!options.in_order && workers > 0).then(waiter);
    let deaths = Arc::new(Deaths::new(workers));
    let mut links = Vec::with_capacity(workers);
    let mut lives = Vec::with_capacity(workers);
    for id in 0..workers {
        let requests = Ring::<Request>::with_wait(slots(prefetch, |_| Request::default()), waiter(), waiter());
        let reply = |_| {
            let cell = cells.next().expect("there is a cell for each slot");
            Reply { cell, task: 0, outcome: Outcome::default(), mark: Mark::new() }
        };
        let items = any.clone().unwrap_or_else(waiter);
        let replies = Ring::<Reply<P>>::with_wait(slots(prefetch, reply), items, waiter());
        let ((ask, asked), (answer, answers)) = (requests.into_split(), replies.into_split());
        links.push(WorkerLink::new(ask, answers));
        let maker = maker(Some(id));
        let (start, activities) = (start.clone(), activities.clone());
        let (requests, replies, deaths) = (asked, answer, deaths.clone());
        let mut worker = RingWorker { id, workers, requests, replies, start, maker, activities, deaths };
        lives.push(move || worker.work());
    }
    let links = Dispatch::new(links, slab.released().clone(), any, prefetch, cancel.clone());
    let cores = worker_cores(&options.affinity, workers, &mut warnings)?;
    let watchdog = watchdog(&options, &activities)?;
    let pool = WorkerPool::start(lives.into_iter(), &cores, &mut warnings, || links.close())?;
    let own = (workers == 0).then(|| Own::new(Box::new(maker(None))));
    let gaps = if options.in_order { 0 } else { slab.depth() };
    let in_order = links.any.is_none();
    let parts = Parts {
        backend: Backend::PerWorker(PerWorker { links, own, has_init: start.is_some(), rouse }),
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
        log: Log::new(gaps),
        stats: ConsumerStats::new(sample_bytes, spills),
        watchdog,
    };
    Ok(Inner::new(parts, options))
}

fn slots<T>(count: usize, value: impl FnMut(usize) -> T) -> Box<[Slot<T>]> {
    (0..count).map(value).map(Slot::new).collect()
}
