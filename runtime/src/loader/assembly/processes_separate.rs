//! Builds a loader whose workers are processes with rings of their own.

use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use slotline_core::robust::Shape;

use crate::dataset::{Dataset, Iterable, IterableDataset};
use crate::loader::assembly::memory::{Cells, bulk, bulk_memory, check_order};
use crate::loader::assembly::per_worker::{assemble, make_cells};
use crate::loader::assembly::processes::{ProcessBuilder, check, facts};
use crate::loader::assembly::share::{FirstBatch, Share};
use crate::loader::backend::processes::child::Restarts;
use crate::loader::backend::processes::control::Control;
use crate::loader::backend::processes::process_link::{LinkShared, ProcessLink, Server, Service};
use crate::loader::backend::processes::separate::{RoundRobinService, Streams};
use crate::loader::backend::processes::spawn::Spawn;
use crate::loader::backend::processes::spawn_config::{ROUND_ROBIN, STREAM, SpawnFacts};
use crate::loader::backend::processes::supervisor::EventFd;
use crate::loader::backend::processes::worker::connect;
use crate::loader::backend::protocol::BatchWorker;
use crate::loader::backend::stream_worker::{StreamPasses, Streaming};
use crate::loader::builder::Builder;
use crate::loader::builder::memory_budget::Size;
use crate::loader::builder::options::{Options, Workload};
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::batch_memory::BatchMemory;
use crate::loader::collate::{Collate, Output};
use crate::loader::consumer::loader::Loader;
use crate::loader::error::build::BuildError;
#[cfg(doc)]
use crate::loader::error::run::Error;
use crate::loader::order::index_source::Batching;
use crate::loader::order::passes::{IndexedPasses, Passes};
use crate::loader::worker::engine::Engine;
use crate::sample::Fields;

impl<D: IterableDataset, C: Share<Iterable<D>>> ProcessBuilder<Iterable<D>, C> {
    /// Checks the options, allocates the memory and starts the workers.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    #[expect(clippy::type_complexity, reason = "a name for it would say less")]
    pub fn build(self) -> Result<Loader<<C::Shared as Collate<Iterable<D>>>::Output>, BuildError> {
        let Self { builder: Builder { dataset, collate, mut options }, restarts, sample_timeout, command } = self;
        let draw = options.check(Workload::Iterable)?;
        let on_error = options.on_error;
        options.check_on_error(Workload::Iterable, dataset.0.len().is_some())?;
        check(&options, collate.pins(), command.is_some())?;
        let mut collate = collate.share();
        let (workers, batching) = (options.num_workers, draw.batching);
        let fields =
            C::fields(&collate, &dataset, FirstBatch { batching, rows: batching.batch_size, workers, on_error })?;
        let known = || Ok(fields.clone());
        let order = |size: Size| Control::bytes(shape(size.workers), size.workers, 0);
        let cells =
            make_cells::<Iterable<D>, _>(&mut options, &mut collate, &known, batching.batch_size, &order, true)?;
        let control = control(&options, 0)?;
        let engine = Streaming::new((dataset, collate), batching, on_error, control.cancel(), control.activities());
        let passes = Box::new(StreamPasses(engine.clone()));
        let facts = SpawnFacts { kind: STREAM, rows: batching.batch_size, ..facts(&options, batching, cells.is_whole) };
        let supervision =
            Supervision { restarts, sample_timeout, passes_over: false, command, facts, fields, lengths: None };
        start(options, cells, batching, passes, (Streams(engine), control), supervision)
    }
}

impl<D: Dataset, C: Share<D>> ProcessBuilder<D, C> {
    /// Works like [`build`](Self::build), with workers that make batches
    /// [in turn](Builder::round_robin).
    pub(super) fn build_round_robin(self) -> Result<Loader<<C::Shared as Collate<D>>::Output>, BuildError> {
        let Self { builder: Builder { dataset, collate, mut options }, restarts, sample_timeout, command } = self;
        let len = dataset.len();
        let draw = options.check(Workload::RoundRobin(len))?;
        check(&options, collate.pins(), command.is_some())?;
        let mut collate = collate.share();
        let (rows, workers, batching) = (draw.rows(len), options.num_workers, draw.batching);
        let bulk = bulk(&dataset, rows, batching, false);
        let order = draw.memory(len, 0, rows);
        let order = |size: Size| {
            order.saturating_add(bulk_memory(bulk, size)).saturating_add(Control::bytes(
                shape(size.workers),
                size.workers,
                size.rows,
            ))
        };
        check_order(order(options.size(rows)))?;
        let on_error = options.on_error;
        let fields = C::fields(&collate, &dataset, FirstBatch { batching, rows, workers, on_error })?;
        let known = || Ok(fields.clone());
        let cells = make_cells::<D, _>(&mut options, &mut collate, &known, rows, &order, true)?;
        let control = control(&options, rows)?;
        let engine = Engine::new(dataset, collate, rows, batching, bulk, workers, None);
        let engine = Arc::new(connect(engine.on_error(on_error, draw.lengths()), &control));
        let plan_cell = engine.plan_cell.clone();
        let passes = Box::new(IndexedPasses { dataset: engine.clone(), rows, draw, plan_cell });
        // If many samples are read at once, it is unknown which of them ended a worker.
        let passes_over = !on_error.is_raise() && bulk == 0;
        let facts = SpawnFacts { kind: ROUND_ROBIN, len, rows, bulk, ..facts(&options, batching, cells.is_whole) };
        let lengths = engine.lengths.clone();
        let supervision = Supervision { restarts, sample_timeout, passes_over, command, facts, fields, lengths };
        let service = RoundRobinService { engine, control: control.clone() };
        start(options, cells, batching, passes, (service, control), supervision)
    }
}

/// How workers are started, and what to do about those that end.
struct Supervision {
    restarts: usize,
    sample_timeout: Option<Duration>,
    passes_over: bool,
    /// The command that starts the workers, if they are not forked, and what they must know in that
    /// case.
    command: Option<(Command, Vec<u8>)>,
    facts: SpawnFacts,
    fields: Fields,
    lengths: Option<Arc<[u32]>>,
}

/// Returns the shape of the shared memory: one slot for the request to each worker.
fn shape(workers: usize) -> Shape {
    Shape::new(workers.next_power_of_two(), 1)
}

/// Maps the control memory that the processes share, for requests of at most `rows` indices.
fn control(options: &Options, rows: usize) -> Result<Arc<Control>, BuildError> {
    let (workers, strategy) = (options.num_workers, options.wait_strategy);
    let shape = shape(workers);
    let map = |source| BuildError::Map { bytes: Control::bytes(shape, workers, rows), source };
    Control::new(shape, workers, rows, strategy).map(Arc::new).map_err(map)
}

/// Starts the workers and assembles the loader.
fn start<S: Service<BatchBuffer>, B: Output<Payload = BatchBuffer>>(
    mut options: Options,
    mut cells: Cells<BatchBuffer>,
    batching: Batching,
    passes: Box<dyn Passes>,
    (service, control): (S, Arc<Control>),
    Supervision { restarts, sample_timeout, passes_over, command, facts, fields, lengths }: Supervision,
) -> Result<Loader<B>, BuildError> {
    let map = |source| BuildError::Map { bytes: 0, source };
    let wakeup = Arc::new(EventFd::new().map_err(map)?);
    let init = options.init_hook();
    let workers = options.num_workers;
    let spawn = command.map(|command| {
        let (depth, parts) = (control.shape().depth(), control.shape().parts());
        // A process runs on the core of the thread that starts it.
        let (block, cores) = (BatchMemory::of(&cells.made.payloads), Vec::new());
        let (facts, lengths) = (SpawnFacts { depth, parts, ..facts }, lengths.as_deref());
        Spawn::new(command, facts, &fields, lengths, &control, block.as_ref(), cores)
    });
    let payload_at = cells.made.payload_at.take().expect("the memory is shared");
    let process_link = Arc::new(LinkShared {
        server: Server { service, payload_at, workers, init: init.clone() },
        control: control.clone(),
        restarts: Restarts::new(restarts),
        sample_timeout,
        passes_over,
        wakeup: wakeup.clone(),
        spawn: Mutex::new(spawn.transpose()?),
    });
    let (started, outcomes) = mpsc::channel();
    let maker = move |worker: Option<usize>| -> Box<dyn BatchWorker<_>> {
        let worker = worker.expect("processes are workers");
        Box::new(ProcessLink::new(worker, process_link.clone(), started.clone()))
    };
    let wake_workers = Arc::new(move || wakeup.signal());
    let threads = options.workers(control.cancel(), &control.activities())?;
    let core = assemble(options, batching, cells, passes, threads, (init, Some(wake_workers)), &maker)?;
    // This ends the iteration if a worker sends nothing.
    drop(maker);
    outcomes.iter().take(workers).collect::<Result<(), _>>()?;
    Ok(Loader::new(core))
}
