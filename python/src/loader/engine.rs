//! The loader: it begins passes, and knows where they are.
//!
//! One engine has one pass at a time, so a loader with several live iterators has several engines. It keeps that of the
//! latest pass, and the others belong to their iterators alone. Each engine has its own generator. The order of a pass
//! depends on the seed and the number of the pass only: where an engine has not made the pass before, its generator is
//! set to where it would be then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use pyo3::prelude::*;
use pyo3::types::PyString;
use serde_json::Value;
use slotline::dataset::Dataset;
use slotline::fork::Process;
use slotline::loader::{BuildError, State, StateError};
use slotline::rng::{Generator, SharedGenerator};
use slotline::sampler::EpochHandle;
use slotline::{Error, Ranks};

use super::failure;
use super::options::{self, Options};
use super::output::Output;
use super::pass::Pass;
use super::source::{Node, Source};

/// An engine, and where it is.
pub(crate) struct Running {
    pub(crate) loader: slotline::Loader,
    /// The pass for which the generator is where it should be.
    due: Option<u32>,
}

/// The place of one engine.
///
/// A thread that has locked it does not attach to the interpreter before it has unlocked it. So threads that are attached
/// may lock it, too.
pub(crate) struct Seat {
    running: Mutex<Running>,
    /// Whether an iterator uses it.
    busy: AtomicBool,
    generator: SharedGenerator,
    epoch: EpochHandle,
    process: Process,
}

/// Why a pass could not begin.
enum NotBegun {
    Build(BuildError),
    State(StateError),
    Run(Error),
}

impl From<BuildError> for NotBegun {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

impl Seat {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it unless another thread has.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Running>> {
        match self.running.try_lock() {
            Ok(running) => Some(running),
            Err(TryLockError::Poisoned(running)) => Some(running.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether this is the process that has the engine's threads.
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// Takes it for an iterator, if it can be used.
    fn take(&self) -> bool {
        self.is_here() && !self.busy.swap(true, Ordering::Acquire)
    }

    /// Ends the pass, and lets another iterator use it.
    pub(crate) fn leave(&self) {
        if self.is_here() {
            self.lock().loader.end_epoch();
            self.busy.store(false, Ordering::Release);
        }
    }

    /// Returns the position, unless a thread that does not exist in this process has locked it.
    fn state(&self) -> Option<State> {
        if self.is_here() {
            Some(self.lock().loader.state())
        } else {
            self.try_lock().map(|running| running.loader.state())
        }
    }
}

/// What changes.
struct Control {
    /// The engine of the latest pass, or of the next one.
    seat: Arc<Seat>,
    /// The number of the next pass.
    next: u32,
    /// Whether that engine resumes from a state.
    resumed: bool,
    seed: u64,
}

/// The native part of `slotline.Loader`.
#[pyclass(module = "slotline._slotline", frozen)]
pub(crate) struct Engine {
    node: Arc<Node>,
    options: Options,
    output: Arc<Output>,
    /// Whether the seed of a state replaces the loader's, since none was given.
    adopts_seed: bool,
    len: usize,
    /// How many words of the generator a pass draws.
    words: OnceLock<u64>,
    control: Mutex<Control>,
}

impl Engine {
    /// Locked only by threads that are attached, and not while they detach.
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds an engine, at the start of the first pass.
    fn build(node: &Arc<Node>, options: &Options, seed: u64) -> Result<Seat, BuildError> {
        let (generator, epoch) = (SharedGenerator::from(Generator::from_seed(seed)), EpochHandle::default());
        let loader = options.builder(node, (&generator, seed), &epoch)?.build()?.untyped();
        let running = Mutex::new(Running { loader, due: Some(0) });
        Ok(Seat { running, busy: AtomicBool::new(false), generator, epoch, process: Process::this() })
    }

    /// Moves an engine to the start of a pass.
    fn go_to(&self, seat: &Seat, running: &mut Running, epoch: u32, seed: u64) -> Result<(), BuildError> {
        if running.due != Some(epoch) {
            let words = if epoch == 0 { 0 } else { self.words()?.saturating_mul(epoch.into()) };
            let mut generator = seat.generator.lock();
            generator.manual_seed(seed);
            generator.discard(words);
            running.due = Some(epoch);
        }
        running.loader.set_next_epoch(epoch);
        seat.epoch.set(epoch.into());
        Ok(())
    }

    fn words(&self) -> Result<u64, BuildError> {
        if let Some(&words) = self.words.get() {
            return Ok(words);
        }
        let words = self.options.words(self.node.len())?;
        Ok(*self.words.get_or_init(|| words))
    }

    /// Begins a pass, in this engine or in a new one.
    fn start(&self, seat: Option<Arc<Seat>>, from: &Start) -> Result<Arc<Seat>, NotBegun> {
        let (taken, seat) = match seat {
            Some(seat) => (true, seat),
            None => (false, Arc::new(Self::build(&self.node, &self.options, from.seed)?)),
        };
        let mut running = seat.lock();
        match &from.resume {
            Some(state) if !taken => running.loader.load_state(state).map_err(NotBegun::State)?,
            Some(_) => {}
            None => self.go_to(&seat, &mut running, from.epoch, from.seed)?,
        }
        running.loader.begin_epoch().map_err(NotBegun::Run)?;
        let next = from.epoch.wrapping_add(1);
        running.due = Some(next);
        // The order is drawn. What the loader saves once this pass has ended is the start of the next one.
        seat.epoch.set(next.into());
        drop(running);
        seat.busy.store(true, Ordering::Relaxed);
        Ok(seat)
    }
}

/// Where a pass begins.
struct Start {
    epoch: u32,
    seed: u64,
    /// The position within the pass.
    resume: Option<State>,
}

/// A generator takes too long to get to passes beyond so many words.
const MOST_WORDS: u64 = 1 << 40;

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (
        source, output, names, *, packed, batch_size, shuffle, seed, adopts_seed, replacement, num_samples, rank, world_size,
        drop_last, num_workers, prefetch_factor, in_order, hold, on_held, on_error, timeout, memory_limit, affinity,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are the options, by name")]
    fn new(
        py: Python<'_>,
        source: &Source,
        output: &str,
        names: Option<Vec<Py<PyString>>>,
        packed: bool,
        batch_size: Option<usize>,
        shuffle: bool,
        seed: u64,
        adopts_seed: bool,
        replacement: bool,
        num_samples: Option<usize>,
        rank: Option<usize>,
        world_size: Option<usize>,
        drop_last: bool,
        num_workers: usize,
        prefetch_factor: Option<usize>,
        in_order: bool,
        hold: usize,
        on_held: &str,
        on_error: &str,
        timeout: f64,
        memory_limit: Option<usize>,
        affinity: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let ranks = match (rank, world_size) {
            (None, None) => None,
            (Some(rank), Some(world_size)) => {
                Some(Ranks::new(rank, world_size).map_err(|error| failure::option(py, error.to_string()))?)
            }
            _ => return Err(failure::option(py, "rank and world_size belong together; set both or neither")),
        };
        let options = Options {
            batch_size,
            shuffle,
            replacement,
            num_samples,
            ranks,
            drop_last,
            num_workers,
            prefetch_factor,
            in_order,
            hold,
            on_held: options::on_held(py, on_held)?,
            on_error: options::on_error(py, on_error)?,
            timeout: options::timeout(py, timeout)?,
            memory_limit,
            affinity: options::affinity(affinity)?,
        };
        options.check(py)?;
        let node = source.node.clone();
        let output = Arc::new(Output::new(py, output, packed, names, &node, batch_size)?);
        let seat = py.detach(|| Self::build(&node, &options, seed)).map_err(|error| failure::build(py, &error))?;
        let len = seat.lock().loader.len().unwrap_or_default();
        let control = Mutex::new(Control { seat: Arc::new(seat), next: 0, resumed: false, seed });
        Ok(Self { node, options, output, adopts_seed, len, words: OnceLock::new(), control })
    }

    /// Begins the next pass.
    fn begin(&self, py: Python<'_>) -> PyResult<Pass> {
        let mut control = self.control();
        let (seat, taken) = (control.seat.clone(), control.seat.take());
        let resume = std::mem::take(&mut control.resumed);
        let resume = resume.then(|| seat.state()).flatten();
        let resumed = resume.is_some();
        let from = Start { epoch: control.next, seed: control.seed, resume };
        control.next = control.next.wrapping_add(1);
        drop(control);
        match py.detach(|| self.start(taken.then(|| seat.clone()), &from)) {
            Ok(seat) => {
                self.control().seat = seat.clone();
                Ok(Pass::new(seat, self.output.clone(), self.options.timeout, self.options.on_held))
            }
            Err(error) => {
                if taken {
                    seat.busy.store(false, Ordering::Release);
                }
                let mut control = self.control();
                (control.next, control.resumed) = (from.epoch, resumed);
                Err(match error {
                    NotBegun::Build(error) => failure::build(py, &error),
                    NotBegun::State(error) => failure::state(py, &error),
                    NotBegun::Run(error) => failure::run(py, &error),
                })
            }
        }
    }

    /// The number of batches of a pass.
    fn __len__(&self) -> usize {
        self.len
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.control().seed
    }

    /// The number of the next pass.
    #[getter]
    fn next_epoch(&self) -> u32 {
        self.control().next
    }

    /// Sets the number of the next pass.
    fn set_epoch(&self, py: Python<'_>, epoch: u32) -> PyResult<()> {
        let build = |error| failure::build(py, &error);
        if epoch > 0 && py.detach(|| self.words()).map_err(build)?.saturating_mul(epoch.into()) > MOST_WORDS {
            let message =
                format!("epoch is {epoch}, but drawing the random numbers of all epochs before takes too long");
            return Err(failure::option(py, message));
        }
        let (seat, seed) = {
            let mut control = self.control();
            (control.next, control.resumed) = (epoch, false);
            (control.seat.clone(), control.seed)
        };
        // The state of a pass that is running is its own.
        if seat.take() {
            let moved = py.detach(|| self.go_to(&seat, &mut seat.lock(), epoch, seed));
            seat.busy.store(false, Ordering::Release);
            moved.map_err(build)?;
        }
        Ok(())
    }

    /// The position, as JSON.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        let seat = self.control().seat.clone();
        let state = seat.state().ok_or_else(|| failure::forked(py))?;
        serde_json::to_string(&state).map_err(|error| failure::no_state(py, &error))
    }

    /// Makes the next pass resume from a position.
    fn load_state(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let unreadable = |error| failure::no_state(py, &error);
        let value: Value = serde_json::from_str(state).map_err(unreadable)?;
        self.check_origin(py, &value)?;
        let state: State = serde_json::from_value(value).map_err(unreadable)?;
        let (seat, own) = {
            let control = self.control();
            (control.seat.clone(), control.seed)
        };
        let seed = state.seed().filter(|_| self.adopts_seed).unwrap_or(own);
        let seat = if seed == own && seat.take() {
            seat
        } else {
            let seat = py.detach(|| Self::build(&self.node, &self.options, seed));
            Arc::new(seat.map_err(|error| failure::build(py, &error))?)
        };
        let loaded = {
            let mut running = seat.lock();
            let loaded = running.loader.load_state(&state);
            if loaded.is_ok() {
                running.due = None;
            }
            loaded
        };
        seat.busy.store(false, Ordering::Release);
        loaded.map_err(|error| failure::state(py, &error))?;
        let mut control = self.control();
        *control = Control { seat, next: state.epoch(), resumed: true, seed };
        Ok(())
    }

    /// What the engine of the latest pass has done, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let stats = self.running(py, |running| running.loader.stats())?;
        serde_json::to_string(&stats).map_err(|error| failure::no_state(py, &error))
    }

    /// What held the loop back.
    fn verdict(&self, py: Python<'_>) -> PyResult<String> {
        self.running(py, |running| running.loader.stats().verdict().to_string())
    }

    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.running(py, |running| running.loader.warnings().iter().map(ToString::to_string).collect())
    }

    /// The most bytes that batches and the order of a pass take.
    #[getter]
    fn memory_ceiling(&self, py: Python<'_>) -> PyResult<usize> {
        self.running(py, |running| running.loader.memory_ceiling())
    }
}

impl Engine {
    /// Checks that a state begins its pass where this loader would: its generator must be where the passes before have left
    /// it, and its sampler must have saved itself if this one does. If the order or the length of the dataset is another
    /// one, the engine says so.
    fn check_origin(&self, py: Python<'_>, state: &Value) -> PyResult<()> {
        let Some(own) = self.control().seat.state().and_then(|own| serde_json::to_value(own).ok()) else {
            return Ok(());
        };
        if ["/start/sampler/name", "/dataset_len"].into_iter().any(|at| own.pointer(at) != state.pointer(at)) {
            return Ok(());
        }
        let malformed = |field, state: String, reason: String| {
            Err(failure::state(py, &StateError::Malformed { field, state, reason }))
        };
        let saved = |state: &Value| state.pointer("/start/sampler/saved").filter(|saved| !saved.is_null()).is_some();
        if saved(state) != saved(&own) {
            let (found, expected) = if saved(state) { ("present", "none") } else { ("missing", "one") };
            return malformed("sampler.saved", found.to_owned(), format!("the loader's sampler has {expected}"));
        }
        let place = state.pointer("/start/generator").and_then(|place| place.as_str()?.split_once(':'));
        let drawn: Option<u64> = place.and_then(|(_, drawn)| drawn.parse().ok());
        let epoch = state.pointer("/epoch").and_then(Value::as_u64);
        let (Some(drawn), Some(epoch)) = (drawn, epoch) else { return Ok(()) };
        let words = py.detach(|| self.words()).map_err(|error| failure::build(py, &error))?;
        let expected = words.saturating_mul(epoch);
        if drawn != expected {
            let (found, reason) = (format!("at number {drawn}"), format!("epoch {epoch} begins at number {expected}"));
            return malformed("generator", found, reason);
        }
        Ok(())
    }

    /// Reads from the engine of the latest pass.
    fn running<T>(&self, py: Python<'_>, read: impl FnOnce(&Running) -> T) -> PyResult<T> {
        let seat = self.control().seat.clone();
        let running = if seat.is_here() { Some(seat.lock()) } else { seat.try_lock() };
        running.map(|running| read(&running)).ok_or_else(|| failure::forked(py))
    }
}
