//! How a loader whose workers each have a ring of their own is made of its options.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use slotline_core::spsc::Slot;

use super::dealt::DealtHand;
use super::iterable::{Engine as IterEngine, IterHand, IterPasses};
use super::side::{Lane, Lanes};
use super::slab::Slab;
use super::worker::{Hand, LaneWorker, Mark, Reply, Request, Ring};
use super::{Own, PerWorker};
use crate::dataset::{Context, Dataset, Iterable, IterableDataset, Loadable, WorkerInfo, set_worker_info, worker_info};
use crate::loader::backend::Backend;
use crate::loader::block::Block;
use crate::loader::build::{bulk, bulk_memory, check_order, watchdog};
use crate::loader::builder::Builder;
use crate::loader::collate::Storage;
use crate::loader::crew::{Crew, worker_cores};
use crate::loader::draw::Batching;
use crate::loader::engine::Engine;
use crate::loader::error::BuildError;
use crate::loader::fate::Fate;
use crate::loader::gate::Start;
use crate::loader::inner::Parts;
use crate::loader::job::{Abandoned, Activity, Reader};
use crate::loader::limit::{Bill, Size};
use crate::loader::options::{Kind, Options};
use crate::loader::overflow::Spills;
use crate::loader::pacer::Pacer;
use crate::loader::passes::{Orders, Passes};
use crate::loader::payloads::{Made, PROBES, Payloads, Request as Wanted, fields_of, probe};
use crate::loader::resume::Log;
use crate::loader::stats::Tally;
use crate::loader::work::dispose;
use crate::loader::{Inner, Loader};
use crate::sample::Fields;
use crate::sync::Mutex;
use crate::wait::Waiter;

impl<D: IterableDataset, C: Payloads<Iterable<D>>> Builder<Iterable<D>, C> {
    /// Checks the options, takes the memory and starts the workers.
    ///
    /// To learn the fields of a sample it reads the first one of a pass of its own, as worker 0 (and if that has none, as
    /// worker 1, and so on; with the worker's number for its seed), unless [`IterableDataset::fields`] says them: a dataset
    /// whose samples come once only must.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]. Of several options that are wrong, torch's are named first, in the order in which torch checks
    /// them.
    pub fn build(mut self) -> Result<Loader<C::Output>, BuildError> {
        let draw = self.options.check(Kind::Iterable)?;
        let on_error = self.options.on_error;
        on_error.check(Kind::Iterable, self.dataset.0.len().is_some())?;
        let tries = if on_error.is_raise() { 1 } else { PROBES };
        let workers = self.options.num_workers;
        let fields = || fields_of_first(&self.dataset.0, workers, tries);
        let batching = draw.batching;
        let made = make_cells(&mut self.options, &mut self.collate, &fields, batching.batch_size, &|_| 0)?;
        let engine = Arc::new(IterEngine {
            dataset: self.dataset,
            collate: self.collate,
            batching,
            tolerant: !on_error.is_raise(),
            abandoned: Arc::default(),
            activities: (0..=workers).map(|_| Default::default()).collect(),
            resume: Mutex::default(),
        });
        let hand = {
            let engine = engine.clone();
            move |worker: Option<usize>| {
                let reader = Reader::new(worker.unwrap_or(workers), worker, Pacer::fixed(1), 0);
                IterHand::new(engine.clone(), reader)
            }
        };
        let threads = (engine.abandoned.clone(), engine.activities.clone());
        let passes = Box::new(IterPasses(engine));
        assemble(self.options, threads, passes, made, batching, hand).map(Loader::new)
    }
}

impl<D: Dataset, C: Payloads<D>> Builder<D, C> {
    /// As [`build`](Self::build), but with batches dealt out to the workers in turn, as torch does: batch `i` is made by
    /// worker `i mod num_workers` as long as they are taken in order, and a worker keeps up to `prefetch_factor` batches
    /// that it was asked for, even if it is stuck at the first of them and the others have nothing to do.
    ///
    /// For those who rely on who makes what; [`build`](Self::build) is faster, and its first batch is made by all workers
    /// together.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build); and `part_size`, `help` or an iterator as sampler do not go with it.
    pub fn build_dealt(mut self) -> Result<Loader<C::Output>, BuildError> {
        let len = self.dataset.len();
        let draw = self.options.check(Kind::Dealt(len))?;
        let (rows, workers, batching) = (draw.rows(len), self.options.num_workers, draw.batching);
        let bulk = bulk(&self.dataset, rows, batching);
        let order = draw.memory(len, 0, rows);
        let order = |size: Size| order.saturating_add(bulk_memory(if bulk > 0 { size.rows } else { 0 }, size.workers));
        check_order(order(self.options.size(rows)))?;
        let fields = || fields_of(&self.dataset);
        let made = make_cells(&mut self.options, &mut self.collate, &fields, rows, &order)?;
        let on_error = self.options.on_error;
        let engine = Engine::new(self.dataset, self.collate, rows, batching, bulk, workers, None);
        let engine = Arc::new(engine.on_error(on_error));
        let hand = {
            let engine = engine.clone();
            move |worker| DealtHand { engine: engine.clone(), reader: engine.reader(worker, Pacer::fixed(1)) }
        };
        let threads = (engine.abandoned.clone(), engine.activities.clone());
        let board = engine.board.clone();
        let passes = Box::new(Orders { len: move || engine.dataset.len(), rows, draw, board });
        assemble(self.options, threads, passes, made, batching, hand).map(Loader::new)
    }
}

/// The fields of an iterable dataset's samples: as it says, or as the first one has them that a worker would read. Workers
/// are asked in turn, as some may have no samples, or may not be able to start; each for so many samples, if they are bad.
fn fields_of_first(dataset: &impl IterableDataset, workers: usize, tries: usize) -> Result<Fields, BuildError> {
    if let Some(fields) = dataset.fields() {
        return Ok(fields);
    }
    let mut cx = Context::new(None);
    let mut failure = None;
    for id in 0..workers.max(1) {
        // No base seed is drawn yet: that is for a pass to do.
        let worker = (workers > 0).then(|| WorkerInfo::new(id, workers, 0));
        let own = worker_info();
        set_worker_info(worker.or(own));
        // Outside: what a function returns is leaked if a local of it panics as it is dropped (rust-lang/rust#47949).
        let mut cursor = None;
        let first = probe(|| {
            let cursor = cursor.insert(dataset.iter(worker)?);
            for _ in 1..tries {
                if let Ok(sample) = dataset.next(cursor, &mut cx) {
                    return Ok(sample.map(|sample| Fields::of(&sample)));
                }
            }
            Ok(dataset.next(cursor, &mut cx)?.map(|sample| Fields::of(&sample)))
        });
        let ended = probe(|| {
            drop(cursor);
            Ok(())
        });
        set_worker_info(own);
        // What is not wanted of these is dropped by itself: it may panic.
        let first = match ended {
            Ok(()) => first,
            Err(error) => {
                dispose(first);
                Err(error)
            }
        };
        match first {
            Ok(Some(fields)) => {
                dispose(failure);
                return Ok(fields);
            }
            Ok(None) => {}
            Err(source) if failure.is_none() => failure = Some(BuildError::Probe { index: 0, source }),
            Err(other) => dispose(other),
        }
    }
    // A dataset without samples has no fields, and no batches either.
    failure.map_or_else(|| Ok(Fields::new()), Err)
}

/// Makes the memory of all batches: a cell for each slot of the lanes, or for the calling thread; one for each batch that
/// is held; and with workers one more, to leave in a ring for the batch that is taken. `order` says what orders and indices
/// take beside it.
fn make_cells<D: Loadable, C: Payloads<D>>(
    options: &mut Options,
    collate: &mut C,
    fields: &dyn Fn() -> Result<Fields, BuildError>,
    rows: usize,
    order: &dyn Fn(Size) -> usize,
) -> Result<Cells<C::Payload>, BuildError> {
    let hold = options.hold;
    let cells = |size: Size| size.ahead().saturating_add(hold).saturating_add(usize::from(size.workers > 0));
    options.check_slots(cells(options.size(rows)))?;
    let beside = |size: Size, cells: usize| {
        let lanes = size.prefetch.saturating_mul(size.workers).saturating_mul(Lanes::<C::Payload>::PLACE);
        order(size).saturating_add(lanes).saturating_add(cells.saturating_mul(Slab::<C::Payload>::CELL))
    };
    let (reserved, pin_memory, memory) = (order(options.size(rows)), options.pin_memory, options.memory.take());
    let spills = Spills::new(options.on_overflow);
    let made = collate.payloads(Wanted {
        fields,
        rows,
        slots: &mut |batch| {
            options.settle_below_limit(usize::MAX, rows, batch, &Bill { slots: &cells, beside: &beside })?;
            Ok(cells(options.size(rows)))
        },
        reserved,
        pin_memory,
        memory,
        spilling: spills.allowed,
        touchers: 0,
    })?;
    let memory_ceiling = made.bytes.saturating_add(beside(options.size(rows), made.payloads.len()));
    Ok(Cells { made, memory_ceiling, spills })
}

/// The memory of all batches, and what the whole loader takes with it.
struct Cells<P> {
    made: Made<P>,
    memory_ceiling: usize,
    spills: Spills,
}

/// Starts the workers, and puts everything together.
fn assemble<P: Storage, H: Hand<P> + 'static>(
    mut options: Options,
    (abandoned, activities): (Arc<Abandoned>, Arc<[CachePadded<Activity>]>),
    passes: Box<dyn Passes>,
    Cells { made, memory_ceiling, spills }: Cells<P>,
    batching: Batching,
    hand: impl Fn(Option<usize>) -> H,
) -> Result<Inner<P>, BuildError> {
    let (workers, prefetch) = (options.num_workers, options.prefetch());
    let mut warnings = made.warnings;
    warnings.extend(options.many_workers());
    warnings.extend(batching.no_batch(passes.samples()));
    let sample_bytes = made.payloads.first().map_or(Some(0), Storage::sample_bytes);
    let waiter = || Arc::new(Waiter::new(options.wait_strategy));
    let block = Block::of(&made.payloads);
    let slab = Arc::new(Slab::new(made.payloads, workers * prefetch, Waiter::new(options.wait_strategy)));
    let any = (!options.in_order && workers > 0).then(waiter);
    let start = options.worker_init.take().map(|init| Start::new(init, options.persistent_workers));
    let fate = Arc::new(Fate::new(workers));
    let mut lanes = Vec::with_capacity(workers);
    let mut hands = Vec::with_capacity(workers);
    for id in 0..workers {
        let requests = Ring::<Request>::with_wait(slots(prefetch, |_| Request::default()), waiter(), waiter());
        let reply = |i| Reply { cell: id * prefetch + i, mark: Mark::new(), ..Reply::default() };
        let items = any.clone().unwrap_or_else(waiter);
        let replies = Ring::<Reply>::with_wait(slots(prefetch, reply), items, waiter());
        let ((ask, asked), (answer, answers)) = (requests.into_split(), replies.into_split());
        lanes.push(Lane::new(ask, answers));
        let (slab, hand) = (slab.clone(), hand(Some(id)));
        let (start, activities) = (start.clone(), activities.clone());
        let (requests, replies, fate) = (asked, answer, fate.clone());
        let mut worker = LaneWorker { id, workers, requests, replies, slab, start, hand, activities, fate };
        hands.push(move || worker.work());
    }
    let slab_len = slab.len();
    let lanes = Lanes::new(lanes, slab, any, prefetch, abandoned.clone());
    let cores = worker_cores(&options.affinity, workers, &mut warnings)?;
    let watchdog = watchdog(options.watchdog, &activities)?;
    let crew = Crew::start(hands.into_iter(), &cores, &mut warnings, || lanes.close())?;
    let own = (workers == 0).then(|| Own::new(Box::new(hand(None))));
    let gaps = if options.in_order { 0 } else { slab_len };
    let in_order = lanes.any.is_none();
    let parts = Parts {
        backend: Backend::PerWorker(PerWorker { lanes, own, has_init: start.is_some() }),
        passes,
        abandoned,
        activities,
        fate,
        crew,
        batching,
        hold: options.hold,
        in_order,
        block,
        memory_ceiling,
        warnings,
        log: Log::new(gaps),
        tally: Tally::new(sample_bytes, spills),
        watchdog,
    };
    Ok(Inner::new(parts, options))
}

fn slots<T>(count: usize, value: impl FnMut(usize) -> T) -> Box<[Slot<T>]> {
    (0..count).map(value).map(Slot::new).collect()
}
