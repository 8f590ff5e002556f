//! Builds a loader whose workers are processes that share one ring; the public builder for
//! processes.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use slotline_core::robust::{Shape, Word};

use crate::dataset::Dataset;
use crate::loader::assembly::memory::{Cells, MemoryPlan, bulk, bulk_memory, check_order, make_cells};
use crate::loader::assembly::share::{FirstBatch, Share};
use crate::loader::backend::AnyBackend;
use crate::loader::backend::processes::attach::was_started_as_worker;
use crate::loader::backend::processes::control::Control;
use crate::loader::backend::processes::spawn::Spawn;
use crate::loader::backend::processes::spawn_config::{SHARED, SpawnFacts, number_of};
use crate::loader::backend::processes::start::{Supervision, start};
use crate::loader::backend::processes::worker::{ProcessWorkers, connect};
use crate::loader::builder::Builder;
use crate::loader::builder::options::{Options, Workload};
use crate::loader::collate::Collate;
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::cell::Cell;
use crate::loader::collate::overflow::Overflow;
use crate::loader::collate::stack::Stack;
use crate::loader::consumer::core::LoaderCore;
use crate::loader::consumer::loader::Loader;
use crate::loader::cores::worker_cores;
use crate::loader::error::build::{BuildError, clash};
#[cfg(doc)]
use crate::loader::error::run::Error;
use crate::loader::order::index_source::{Batching, IndexSource, Origin};
use crate::loader::order::passes::{IndexedPasses, Passes};
use crate::loader::order::plan::IndexStream;
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::engine::Engine;
use crate::sample::Fields;

/// The maximum number of workers, since the words of the ring have room for this many worker
/// numbers.
pub(super) const MAX_WORKERS: usize = 4095;
/// The maximum number of parts of a batch. A part is a group of rows that a worker claims at once.
const MAX_PARTS: usize = 16;

fn pow2(slots: usize) -> usize {
    slots.checked_next_power_of_two().unwrap_or(usize::MAX)
}

/// The options of a loader whose workers are processes: see [`Builder::processes`].
#[derive(Debug)]
pub struct ProcessBuilder<D, C = Stack> {
    pub(super) builder: Builder<D, C>,
    pub(super) restarts: usize,
    pub(super) sample_timeout: Option<Duration>,
    /// The command that starts workers, and the user's bytes for them; `None` if workers are
    /// forked.
    pub(super) command: Option<(Command, Vec<u8>)>,
}

/// Checks that the options work with processes. `pins` says whether a function pins the batches,
/// and `spawns` whether a command starts the workers.
pub(super) fn check(options: &Options, pins: bool, spawns: bool) -> Result<(), BuildError> {
    if spawns && was_started_as_worker() {
        return Err(BuildError::StartedAsWorker);
    }
    let with = "processes";
    match options.num_workers {
        0 => return clash(with, "num_workers = 0", "set num_workers, or drop processes"),
        1..=MAX_WORKERS => {}
        value => {
            return Err(BuildError::TooMany { option: "num_workers of processes", value, most: MAX_WORKERS });
        }
    }
    for (given, option, hint) in [
        (options.help == Some(true), "help", "use threads, or drop help"),
        (options.on_overflow != Overflow::Error, "on_overflow", "use threads, or drop on_overflow"),
        (pins, "pin_memory_with", "use pin_memory alone: it locks the batches' memory"),
    ] {
        if given {
            return clash(with, option, hint);
        }
    }
    Ok(())
}

/// Returns the facts that a worker that is started by a command must know about a loader of any
/// kind.
pub(super) fn facts(options: &Options, batching: Batching, is_collated: bool) -> SpawnFacts {
    SpawnFacts {
        workers: options.num_workers,
        stride: batching.batch_size,
        drops_last: usize::from(batching.drop_last),
        is_single: usize::from(batching.single),
        is_collated: usize::from(is_collated),
        has_init: usize::from(options.worker_init.is_some()),
        is_persistent: usize::from(options.persistent_workers),
        on_error: number_of(options.on_error),
        strategy: options.wait_strategy as usize,
        ..SpawnFacts::default()
    }
}

impl<D, C> Builder<D, C> {
    /// Makes the workers processes instead of threads (on Linux). Call this after all other
    /// options.
    ///
    /// Code that crashes then ends one worker instead of the program. Code that is not thread-safe,
    /// or that holds a global lock, runs in parallel. The batches are the same, bit for bit, and
    /// are written directly into memory that the processes share.
    ///
    /// [`build`](ProcessBuilder::build) starts a thread that forks the workers. A worker has a copy
    /// of the dataset as it was at the fork, and of the program's threads only the one that forked:
    /// a lock that another thread held stays locked in the worker. So build the loader before the
    /// program starts other threads, if the dataset may need their locks. (One such lock is that of
    /// std for printing a panic: a worker that is forked while it is held hangs if it panics
    /// itself.) A change that one worker makes to the dataset is not visible to others. With
    /// [`spawn`](ProcessBuilder::spawn), workers are started by a command instead, and inherit
    /// nothing. Unless the dataset returns its [`fields`](Dataset::fields), `build` reads the first
    /// samples in the program itself, and code that crashes there ends the program.
    ///
    /// If a worker ends, by a signal or by an exit, an [`Error::Sample`] for the sample that it was
    /// reading is returned instead of the batch, unless the worker is
    /// [replaced](ProcessBuilder::restart_workers). If the program ends, so do the workers.
    ///
    /// For an [iterable dataset](Loader::iterable), and with [`round_robin`](Builder::round_robin),
    /// each worker is forked by a thread of its own. No other worker can make that worker's
    /// batches, so if it ends and is not replaced, the loader stops. With an iterable dataset, the
    /// replacement resumes at the beginning of the current batch, like a loader that [loads a
    /// state](Loader::load_state). After a sample that took [too
    /// long](ProcessBuilder::sample_timeout) the replacement continues with the next sample, but
    /// may have to read the slow one again to get there; if that takes too long again, the loader
    /// stops. `sample_timeout` also limits the start of a pass. For iterable datasets, a sample
    /// that ended its worker is an error even with [`on_error`](Builder::on_error).
    ///
    /// The result of a [collate function](Builder::collate) must be a [`Sample`](crate::Sample),
    /// which is written into the memory of the batch. The loader returns a [`Batch`](crate::Batch)
    /// with the fields of this result. Its length is the number of samples; it has the index of its
    /// first sample only (for an iterable dataset, the number in the worker's stream). `build`
    /// calls the function with the first samples to learn the fields. All results must have the
    /// same shapes.
    ///
    /// [`memory`](Builder::memory) must be [shared](crate::arena::Memory::is_shared), such as
    /// [`Pages::shared`](crate::arena::Pages::shared).
    ///
    /// Events that a worker emits through `tracing`, in its own thread, go to the program's
    /// subscriber as text, with the target `slotline::worker`. Spans do not. Threads that a dataset
    /// starts in a worker use the worker's copy of the subscriber. A worker ignores SIGINT.
    ///
    /// A worker that overwrites the shared memory at random can change the contents of batches. The
    /// program checks what it needs before it reads a batch, so it does not crash, unless the
    /// worker writes to a batch after its delivery.
    ///
    /// `help`, `on_overflow` and `pin_memory_with` are not available with processes, and `build`
    /// refuses them. The calling thread does not load while it waits. No more than 4 GiB of
    /// batches, or 1,024 batches if that is more, can be kept beyond `hold`.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    ///
    /// let squares = from_fn(10, |index, _| Ok((index * index) as i64));
    /// let mut loader = Loader::builder(squares).batch_size(4).num_workers(2).processes().restart_workers(3).build()?;
    /// let sums: Vec<i64> = loader.epoch()?.map(|batch| Ok(batch?.tensors().as_slice().iter().sum())).collect::<Result<_, slotline::Error>>()?;
    /// assert_eq!(sums, [14, 126, 145]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn processes(self) -> ProcessBuilder<D, C> {
        ProcessBuilder { builder: self, restarts: 0, sample_timeout: None, command: None }
    }
}

impl<D, C> ProcessBuilder<D, C> {
    /// Starts each worker by this command, instead of forking it.
    ///
    /// The program of the command must call [`work_if_spawned`](crate::loader::work_if_spawned)
    /// first in its `main`. That function makes the worker's dataset, with the collate function and
    /// the `worker_init` if this loader has them. It gets the bytes `setup`. Usually the command is
    /// the program itself, from [`current_exe`](std::env::current_exe).
    ///
    /// Such a worker has no copy of the program's memory and none of its locks, so the loader may
    /// be built while other threads run, and after CUDA or Python have started. It takes only as
    /// long to start as its own program, whatever the size of this one. It shares only the batches,
    /// and must be built with the same version of slotline.
    ///
    /// The command's program may end or crash before it works as a worker. Or the worker may differ
    /// from this loader in its kind of dataset, in having a collate function or a
    /// [`worker_init`](Builder::worker_init), or in the fields or length of its dataset. The error
    /// is then [`Error::WorkerDied`] from [`epoch`](Loader::epoch) or from the pass, and the worker
    /// is not replaced, whatever [`restart_workers`](Self::restart_workers) is. If a program
    /// neither ends nor begins to work, the loader waits for it; [`timeout`](Builder::timeout)
    /// limits that. Such a program is killed when the loader is dropped, but not if the loader's
    /// process is killed, since it is not a worker yet.
    ///
    /// The standard input of the command is replaced. `tracing` events in the worker go to its own
    /// subscriber.
    ///
    /// ```
    /// use std::process::Command;
    ///
    /// use slotline::dataset::from_fn;
    /// use slotline::loader::work_if_spawned;
    /// use slotline::{BoxError, Dataset, Loader};
    ///
    /// fn multiples(of: i64) -> impl Dataset<Sample<'static> = i64> {
    ///     from_fn(10, move |index, _| Ok(index as i64 * of))
    /// }
    ///
    /// fn main() -> Result<(), BoxError> {
    ///     work_if_spawned(|setup| Ok(multiples(std::str::from_utf8(setup)?.parse()?)));
    ///
    ///     let this = Command::new(std::env::current_exe()?);
    ///     let builder = Loader::builder(multiples(3)).batch_size(5).num_workers(2);
    ///     let mut loader = builder.processes().spawn(this, "3").build()?;
    ///     let sums: Vec<i64> = loader.epoch()?.map(|batch| Ok(batch?.tensors().as_slice().iter().sum())).collect::<Result<_, slotline::Error>>()?;
    ///     assert_eq!(sums, [30, 105]);
    ///     Ok(())
    /// }
    /// ```
    pub fn spawn(mut self, command: Command, setup: impl Into<Vec<u8>>) -> Self {
        self.command = Some((command, setup.into()));
        self
    }

    /// Sets how many times, in all, a worker that ended is replaced by a new one. The samples that
    /// it was reading are then read again, so the batches are the same. The default is 0.
    ///
    /// A sample that always ends its worker uses up one replacement each time. With
    /// [`on_error`](Builder::on_error) such a sample is left out or replaced instead, and is not
    /// read again by this loader, even if the worker was killed from outside while it read that
    /// sample. After 1,024 such samples, further ones are errors of their batches.
    ///
    /// A replacement is forked when its predecessor has ended. It has the dataset, and the locks of
    /// other threads, as they are at that time.
    pub fn restart_workers(mut self, times: usize) -> Self {
        self.restarts = times;
        self
    }

    /// Sets how long a sample may take. If it takes longer, its worker is killed and replaced,
    /// whatever [`restart_workers`](Self::restart_workers) is. An [`Error::Sample`] is then
    /// returned instead of the batch, or with [`on_error`](Builder::on_error) the sample is skipped
    /// or replaced. The default, 0, means no limit.
    ///
    /// A worker is killed after this time, or up to a quarter of it later. If a dataset
    /// [reads many samples at once](Dataset::get_many), all of them together count as one. Time
    /// during which the process is suspended counts. This limit does not apply to
    /// [`worker_init`](Builder::worker_init); the loader's [`timeout`](Builder::timeout) does.
    pub fn sample_timeout(mut self, limit: Duration) -> Self {
        self.sample_timeout = Some(limit).filter(|limit| !limit.is_zero());
        self
    }
}

impl<D: Dataset, C: Share<D>> ProcessBuilder<D, C> {
    /// Checks the options, allocates the memory and starts the workers.
    ///
    /// # Errors
    ///
    /// See [`BuildError`].
    pub fn build(self) -> Result<Loader<<C::Shared as Collate<D>>::Output>, BuildError> {
        if self.builder.options.round_robin {
            return self.build_round_robin();
        }
        let Self { builder: Builder { dataset, collate, mut options }, restarts, sample_timeout, command } = self;
        let len = dataset.len();
        let draw = options.check(Workload::Shared(len))?;
        check(&options, collate.pins(), command.is_some())?;
        let (rows, workers, batching, on_error) =
            (draw.rows(len), options.num_workers, draw.batching, options.on_error);
        let bulk = bulk(&dataset, rows, batching, false);
        options.slots()?;
        check_order(order_memory(&options, &draw, len, bulk))?;
        let mut collate = collate.share();
        let fields = C::fields(&collate, &dataset, FirstBatch { batching, rows, workers, on_error })?;
        let mut cells = ring_cells::<D, _>(&mut options, &mut collate, &fields, &draw, len, bulk)?;
        let facts = facts(&options, batching, cells.is_whole);
        let mut warnings = std::mem::take(&mut cells.made.warnings);
        warnings.extend(options.warnings(batching, draw.len(len)));
        let (part_rows, sizer) = claims(&options, rows, cells.made.shared && bulk == 0);
        let (hold, payload_at) = (options.hold, cells.made.payload_at.take().expect("the memory is shared"));
        let depth = cells.made.payloads.len() - hold;
        let (slot_cells, memory, stats) = cells.divide(&options, batching, (depth, hold));

        let (parts, in_order) = (rows.div_ceil(part_rows).next_power_of_two(), options.in_order);
        let (shape, strategy) = (shape(depth, parts), options.wait_strategy);
        let map = |source| BuildError::Map { bytes: Control::bytes(shape, workers, rows), source };
        let control = Arc::new(Control::new(shape, workers, rows, strategy).map_err(map)?);
        let is_streamed = matches!(draw.from, Origin::IndexStream(_));
        let index_stream = is_streamed.then(|| IndexStream::new(depth, rows, in_order)).transpose()?;
        let engine = Engine::new(dataset, collate, rows, batching, bulk, workers, index_stream);
        let engine = Arc::new(connect(engine.on_error(on_error, draw.lengths()), &control));
        let mut threads = options.workers(engine.cancel.clone(), &engine.activities)?;
        let cores = worker_cores(&options.affinity, workers, &mut warnings)?;
        let spawn = command.map(|command| {
            let (in_order, is_fixed) = (usize::from(in_order), usize::from(options.part_size.is_some()));
            let facts =
                SpawnFacts { kind: SHARED, len, depth, parts, rows, bulk, in_order, part_rows, is_fixed, ..facts };
            let (lengths, cores) = (engine.lengths.as_deref(), cores.iter().map(|core| core.id).collect());
            Spawn::new(command, facts, &fields, lengths, &control, memory.block.as_ref(), cores)
        });
        let (spawn, init) = (spawn.transpose()?, options.init_hook());
        let process_workers =
            ProcessWorkers { engine: engine.clone(), control, part_rows, payload_at, sizer, init, cores, in_order };
        // If many samples are read at once, it is unknown which of them ended a worker.
        let passes_over = !on_error.is_raise() && bulk == 0;
        let supervision =
            Supervision { restarts, sample_timeout, passes_over, spawn, listener: options.on_warning.clone() };
        let backend = start(process_workers, supervision, slot_cells, &memory, &mut threads, &mut warnings)?;
        let plan_cell = engine.plan_cell.clone();
        let passes = Box::new(IndexedPasses { dataset: engine, rows, draw, plan_cell });
        let backend = (AnyBackend::Processes(Box::new(backend)), passes as Box<dyn Passes>);
        Ok(Loader::new(LoaderCore::new(options, batching, memory, backend, threads, (stats, warnings))))
    }
}

fn shape(slots: usize, parts: usize) -> Shape {
    Shape::new(slots.min(1 << 20), parts)
}

/// Returns the bytes of the loader's orders and indices. Called before the loader's memory is made.
fn order_memory(options: &Options, draw: &IndexSource, len: usize, bulk: usize) -> usize {
    let size = options.size(draw.rows(len));
    draw.memory(len, pow2(size.ahead()) + options.hold, size.rows).saturating_add(bulk_memory(bulk, size))
}

/// Makes the memory of all batches.
fn ring_cells<D: Dataset, C: Collate<D>>(
    options: &mut Options,
    collate: &mut C,
    fields: &Fields,
    draw: &IndexSource,
    len: usize,
    bulk: usize,
) -> Result<Cells<C::Payload>, BuildError> {
    let hold = options.hold;
    let plan = MemoryPlan {
        fields: &|| Ok(fields.clone()),
        rows: draw.rows(len),
        cells: &|size| pow2(size.ahead()).saturating_add(hold),
        overhead: &|size, slots| {
            let parts = MAX_PARTS.min(size.rows.max(1).next_power_of_two());
            let control = Control::bytes(shape(pow2(slots), parts), size.workers, size.rows);
            let words = slots.saturating_mul(Cell::<BatchBuffer>::SIZE + size_of::<Word>());
            let order = draw.memory(len, slots, size.rows).saturating_add(bulk_memory(bulk, size));
            order.saturating_add(words).saturating_add(control)
        },
        reserved: order_memory(options, draw, len, bulk),
        fewest: 1,
        // Do not request more batches from a user's iterator than torch would.
        settles: !matches!(draw.from, Origin::IndexStream(_)),
        touchers: 0,
        forked: true,
    };
    make_cells(options, collate, &plan)
}

/// Returns the number of rows in each part of a batch, and the sizer of claims. Only a `divisible`
/// batch can have several parts.
fn claims(options: &Options, rows: usize, divisible: bool) -> (usize, ClaimSizer) {
    let most = if divisible { MAX_PARTS.min(rows.next_power_of_two()) } else { 1 };
    let part_rows = options.part_size.unwrap_or(1).max(rows.div_ceil(most));
    let parts = rows.div_ceil(part_rows).next_power_of_two();
    let sizer = ClaimSizer::of(options.part_size.is_some(), parts);
    (part_rows, sizer)
}
