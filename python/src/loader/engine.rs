//! The loader object: it begins passes and knows their positions.
//!
//! An engine runs one pass at a time, so a loader with several live iterators has several engines.
//! It keeps the engine of the latest pass; the others belong to their iterators. Each engine has
//! its own random generator. The order of a pass depends only on the seed and the number of the
//! pass: if an engine has not run the preceding passes, its generator is advanced as if it had.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{PyTraverseError, PyVisit};
use serde_json::Value;
use slotline::dataset::Dataset;
use slotline::fork::Process;
use slotline::loader::{BadSample, BuildError, State, StateError, StatsReader, Stopper};
use slotline::{Error, Ranks};
use slotline_python_shielded::shielded;

use super::failure;
use super::helper::HelperThread;
use super::map::Functions;
use super::options::{self, Options};
use super::output::Output;
use super::pass::{Finish, Next, Pass, SLICE};
use super::plan::{Chosen, Handles, Indices, Passes, Plan};
use super::source::{Node, Source};
use super::watched::watched;
use crate::detached::detached;

/// An engine, and the pass that its generator is ready for.
pub(crate) struct Running {
    pub(crate) loader: slotline::Loader,
    /// The seed and the number of the pass for which the generator is at the right position.
    due: Option<(u64, u32)>,
}

impl Running {
    fn left(&self) -> Option<usize> {
        self.loader.remaining()
    }

    fn warnings(&self) -> Vec<String> {
        self.loader.warnings().iter().map(ToString::to_string).collect()
    }
}

/// An engine with its generator and statistics, and whether an iterator uses it.
///
/// A thread that has locked the engine does not attach to the interpreter until it has unlocked it,
/// except to call functions of the program. Then it is the helper thread, whose loads the others do
/// not wait for while they are attached. So threads that are attached may lock it without a deadlock.
pub(crate) struct PassSlot {
    running: ManuallyDrop<Mutex<Running>>,
    /// Whether an iterator uses the engine.
    busy: AtomicBool,
    handles: Handles,
    /// The most samples of a batch that it has room for, if a sampler of the program chooses batches.
    most: Option<usize>,
    process: Process,
    pub(crate) helper: HelperThread,
    /// The engine's answers from before the helper thread began to load a batch, until the loop
    /// gets that batch.
    kept: Mutex<Option<Kept>>,
    /// The numbers of batches that came from the engine but were not delivered, because a signal
    /// handler raised an exception.
    returned: Mutex<Vec<usize>>,
    stats: StatsReader,
    stopper: Stopper,
}

/// The state, remaining batches and warnings of an engine at one point in time.
struct Kept {
    state: State,
    left: Option<usize>,
    warnings: Vec<String>,
}

/// The reason why a pass could not begin.
enum NotBegun {
    Build(BuildError),
    State(StateError),
    Run(Error),
    /// A signal handler raised an exception.
    Signal(PyErr),
}

impl NotBegun {
    fn raised(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Build(error) => failure::build(py, &error),
            Self::State(error) => failure::state(py, &error),
            Self::Run(error) => failure::run(py, &error),
            Self::Signal(error) => error,
        }
    }
}

impl From<BuildError> for NotBegun {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

impl PassSlot {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the engine, unless another thread holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Running>> {
        match self.running.try_lock() {
            Ok(running) => Some(running),
            Err(TryLockError::Poisoned(running)) => Some(running.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns whether this process is the one with the engine's threads, and not a fork of it.
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// Reserves the engine for an iterator. Returns `false` if it is in use or belongs to another
    /// process.
    fn take(&self) -> bool {
        self.is_here() && !self.busy.swap(true, Ordering::Acquire)
    }

    /// Loads the next batch on behalf of another thread, which may never request it.
    pub(crate) fn load_ahead(&self, patience: Duration) -> Next {
        let mut running = self.lock();
        let kept = Kept { state: running.loader.state(), left: running.left(), warnings: running.warnings() };
        *self.kept() = Some(kept);
        running.loader.help_within(patience)
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Discards the saved answers: the loop has received the batch that the helper loaded, or
    /// begins another pass.
    pub(crate) fn forget_kept(&self) {
        *self.kept() = None;
    }

    pub(crate) fn returned(&self) -> MutexGuard<'_, Vec<usize>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many samples could not be read since the engine was created, and the last of
    /// them.
    pub(crate) fn bad_samples(&self) -> (u64, Option<BadSample>) {
        let mut stats = self.stats.stats();
        (stats.bad_samples, stats.bad_causes.pop())
    }

    /// Discards everything that was saved for the engine's earlier position.
    fn forget(&self) {
        self.forget_kept();
        self.returned().clear();
    }

    /// Ends the pass, and makes the engine available to other iterators.
    pub(crate) fn leave(&self) {
        if !self.is_here() {
            return;
        }
        if self.helper.leave() {
            // The helper is still loading: do not wait for it, and do not use this engine again.
            return self.stopper.stop();
        }
        // Errors that nobody has received are dropped here, with exceptions of the program.
        Python::attach(|py| detached(py, || self.lock().loader.end_epoch()));
        self.busy.store(false, Ordering::Release);
    }

    /// Reads from the engine, or from the saved answers while the helper uses it. Returns `None` if
    /// the engine is locked by a thread that does not exist in this process.
    fn read<T>(&self, read: impl Fn(&Running) -> T, kept: impl Fn(&Kept) -> T) -> Option<T> {
        let is_here = self.is_here();
        loop {
            if let Ok(found) = self.kept.try_lock()
                && let Some(found) = &*found
            {
                return Some(kept(found));
            }
            if let Some(running) = self.try_lock() {
                return Some(read(&running));
            }
            if !is_here {
                return None;
            }
            // The helper is about to save the answers, or another Python thread is loading.
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn state(&self) -> Option<State> {
        let state = self.read(|running| running.loader.state(), |kept| kept.state.clone())?;
        Some(self.returned().iter().fold(state, |state, &batch| state.without(batch)))
    }

    /// Returns the number of batches left in the pass; the inner value is `None` if that is
    /// unknown.
    pub(crate) fn left(&self) -> Option<Option<usize>> {
        let left = self.read(Running::left, |kept| kept.left)?;
        Some(left.map(|left| left + self.returned().len()))
    }
}

impl Drop for PassSlot {
    fn drop(&mut self) {
        let (is_here, is_helper) = (self.process.is_this(), self.helper.is_current());
        let mut end = || {
            self.helper.end(is_here);
            // SAFETY: it is dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.running) };
        };
        // This waits for threads, which may call functions of the program.
        if is_helper { end() } else { Python::attach(|py| detached(py, end)) }
    }
}

/// The mutable part of an [`Engine`].
struct Control {
    /// The engine of the latest pass, or of the next one.
    slot: Arc<PassSlot>,
    /// The number of the next pass.
    next: u32,
    /// Whether the engine resumes from a state.
    resumed: bool,
    seed: u64,
}

/// The native part of `slotline.Loader`.
#[pyclass(module = "slotline._slotline", frozen)]
pub(crate) struct Engine {
    node: Arc<Node>,
    functions: Functions,
    options: Options,
    output: Arc<Output>,
    /// Whether a loaded state's seed replaces the loader's, because no seed was given.
    adopts_seed: bool,
    /// The number of batches in a pass; `None` for a stream.
    len: Option<usize>,
    /// The seed and the number of a pass with batches by length, and how many batches it has.
    counted: Mutex<Option<((u64, u32), usize)>>,
    memory_ceiling: usize,
    /// The number of words that a pass draws from the generator.
    words: OnceLock<u64>,
    control: Mutex<Control>,
}

impl Engine {
    /// Locks the mutable part. Only attached threads lock it, and they do not detach while they
    /// hold it.
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds an engine that is ready to begin the first pass.
    fn build(node: &Arc<Node>, options: &Options, seed: u64) -> Result<PassSlot, BuildError> {
        let handles = Handles::new(seed);
        let loader = match &**node {
            Node::Stream(stream) => stream.loader(options, &handles.generator)?,
            _ => options.builder(node, seed, &handles)?.build()?.untyped(),
        };
        let most = options.batch_size.filter(|_| matches!(options.passes, Passes::Given { batches: true }));
        let (stats, stopper) = (loader.stats_reader(), loader.stopper());
        let calls = node.calls_python();
        let is_slow = calls || node.reads_files(false) || loader.batch_bytes() >= LARGE;
        let helper = HelperThread::new(is_slow, calls || node.reads_files(true));
        let running = ManuallyDrop::new(Mutex::new(Running { loader, due: Some((seed, 0)) }));
        let (busy, process) = (AtomicBool::new(false), Process::this());
        let (kept, returned) = (Mutex::default(), Mutex::default());
        Ok(PassSlot { running, busy, handles, most, process, helper, kept, returned, stats, stopper })
    }

    /// Moves an engine to the start of a pass.
    fn go_to(&self, slot: &PassSlot, running: &mut Running, epoch: u32, seed: u64) -> Result<(), BuildError> {
        if running.due != Some((seed, epoch)) {
            let words = if epoch == 0 { 0 } else { self.words()?.wrapping_mul(epoch.into()) };
            let mut generator = slot.handles.generator.lock();
            generator.manual_seed(seed);
            generator.discard(words);
            running.due = Some((seed, epoch));
        }
        running.loader.set_next_epoch(epoch);
        slot.forget();
        slot.handles.set_epoch(seed, epoch);
        Ok(())
    }

    /// Returns the options, with room for this many samples in a batch if a sampler of the program chooses batches.
    fn options_for(&self, most: Option<usize>) -> Options {
        Options { batch_size: most.or(self.options.batch_size), ..self.options.clone() }
    }

    fn words(&self) -> Result<u64, BuildError> {
        if let Some(&words) = self.words.get() {
            return Ok(words);
        }
        let is_stream = matches!(*self.node, Node::Stream(_));
        let words = self.options.words((!is_stream).then(|| self.node.len()))?;
        Ok(*self.words.get_or_init(|| words))
    }

    /// Gets this engine or a new one ready to begin a pass.
    fn prepare(
        &self,
        slot: Option<Arc<PassSlot>>,
        from: &Start,
        chosen: Option<Chosen>,
    ) -> Result<Arc<PassSlot>, NotBegun> {
        let (taken, slot) = match slot {
            Some(slot) => (true, slot),
            None => (false, Arc::new(Self::build(&self.node, &self.options_for(from.most), from.seed)?)),
        };
        if let Some(chosen) = chosen {
            *slot.handles.given() = chosen;
        }
        let mut running = slot.lock();
        match &from.resume {
            Some(state) if !taken => running.loader.load_state(state).map_err(NotBegun::State)?,
            Some(_) => {}
            None => self.go_to(&slot, &mut running, from.epoch, from.seed)?,
        }
        if from.done.next > 0 {
            let state = from.done.state(running.loader.state());
            running.loader.load_state(&state).map_err(NotBegun::State)?;
        }
        drop(running);
        Ok(slot)
    }

    /// Begins a pass, in this engine or in a new one.
    fn start(
        &self,
        py: Python<'_>,
        slot: Option<Arc<PassSlot>>,
        from: &Start,
        chosen: Option<Chosen>,
    ) -> Result<Arc<PassSlot>, NotBegun> {
        let slot = detached(py, || self.prepare(slot, from, chosen))?;
        let (begun, timeout) = (Instant::now(), self.options.timeout);
        // Workers may still be making samples of the previous pass, so this may have to wait.
        loop {
            let left = if timeout.is_zero() { SLICE } else { timeout.saturating_sub(begun.elapsed()) };
            let outcome = detached(py, || {
                let mut running = slot.lock();
                running.loader.begin_epoch_within(SLICE.min(left))?;
                running.due = Some((from.seed, from.epoch.wrapping_add(1)));
                Ok(())
            });
            match outcome {
                Ok(()) => break,
                Err(Error::Timeout { .. }) if timeout.is_zero() || left > SLICE => {
                    py.check_signals().map_err(NotBegun::Signal)?;
                }
                Err(Error::Timeout { task, busy, .. }) => {
                    return Err(NotBegun::Run(Error::Timeout { after: timeout, task, busy }));
                }
                Err(error) => return Err(NotBegun::Run(error)),
            }
        }
        // The order is drawn. A state saved after the end of this pass is the start of the next one.
        slot.handles.set_epoch(from.seed, from.epoch.wrapping_add(1));
        slot.busy.store(true, Ordering::Relaxed);
        Ok(slot)
    }
}

/// The position where a pass begins.
struct Start {
    epoch: u32,
    seed: u64,
    /// The position within the pass, or `None` for its start.
    resume: Option<State>,
    /// The most samples of a batch, if a sampler of the program chooses batches.
    most: Option<usize>,
    done: Done,
}

/// The batches of a pass that are not loaded: all before number `next` that are not `missing`.
#[derive(Default)]
struct Done {
    next: usize,
    missing: Vec<usize>,
}

impl Done {
    /// Returns the state after these batches, given that of the start of the pass.
    fn state(&self, start: State) -> State {
        self.missing.iter().fold(start.up_to(self.next), |state, &batch| state.without(batch))
    }
}

/// The size in bytes from which on copying a batch may take long.
const LARGE: usize = 64 << 20;

#[shielded]
#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (
        source, output, names, plan, *, packed, include_index, batch_size, shuffle, seed, adopts_seed, replacement, num_samples, rank, world_size,
        drop_last, num_workers, prefetch_factor, in_order, hold, on_held, on_error, timeout, memory_limit, affinity,
        padding = None, multiple_of = 1,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are the options, by name")]
    fn new(
        py: Python<'_>,
        source: &Source,
        output: &str,
        names: Option<Vec<Py<PyString>>>,
        plan: Option<PyRef<'_, Plan>>,
        packed: bool,
        include_index: bool,
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
        padding: Option<Vec<Option<Vec<u8>>>>,
        multiple_of: usize,
    ) -> PyResult<Self> {
        let ranks = match (rank, world_size) {
            (None, None) => None,
            (Some(rank), Some(world_size)) => {
                Some(Ranks::new(rank, world_size).map_err(|error| failure::option(py, error.to_string()))?)
            }
            _ => return Err(failure::option(py, "rank and world_size belong together; set both or neither")),
        };
        let passes = plan.map_or(Passes::Whole, |plan| plan.passes.clone());
        let options = Options {
            passes,
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
        let (node, functions) = (source.node.clone(), source.functions.clone_ref(py));
        if matches!(*node, Node::Stream(_)) && (replacement || num_samples.is_some()) {
            let what =
                "packed tars are read as a stream, whose samples can't be drawn; leave out replacement and num_samples";
            return Err(failure::option(py, what));
        }
        if matches!(*node, Node::Stream(_)) && (include_index || !matches!(options.passes, Passes::Whole)) {
            let what =
                "packed tars are read as a stream, whose samples have no indices; leave out include_index and samplers";
            return Err(failure::option(py, what));
        }
        // Planned batches differ in size; a batch has at least one sample.
        let rows = if options.passes.has_batches() { Some(usize::MAX) } else { options.batch_size };
        let mut output = Output::new(py, output, (packed, include_index), names, &node, rows)?;
        if let Some(padding) = padding {
            output.pad(py, padding, multiple_of)?;
        }
        let output = Arc::new(output);
        let slot = detached(py, || Self::build(&node, &options, seed)).map_err(|error| failure::build(py, &error))?;
        let (len, memory_ceiling) = {
            let running = slot.lock();
            let is_given = matches!(options.passes, Passes::Given { .. });
            (running.loader.len().filter(|_| !is_given), running.loader.memory_ceiling())
        };
        let control = Mutex::new(Control { slot: Arc::new(slot), next: 0, resumed: false, seed });
        let (counted, words) = (Mutex::default(), OnceLock::new());
        Ok(Self { node, functions, options, output, adopts_seed, len, counted, memory_ceiling, words, control })
    }

    /// Begins the next pass: of these samples, if a sampler of the program has chosen them, in batches with these ends, as the
    /// bytes of `u32`. With `at`, it is the pass with this seed and number, without the batches before the
    /// third number, except for those in the list. `seed` is that of the pass, unless it continues another one. `finish` makes
    /// the loop's object of each batch. `warns` is whether the pass warns of samples that it lacks.
    #[pyo3(signature = (indices = None, ends = None, at = None, seed = None, finish = None, warns = true))]
    #[expect(clippy::too_many_arguments, reason = "they are the options, by name")]
    fn begin(
        &self,
        py: Python<'_>,
        indices: Option<Indices>,
        ends: Option<&[u8]>,
        at: Option<(u64, u32, usize, Vec<usize>)>,
        seed: Option<u64>,
        finish: Option<Py<PyAny>>,
        warns: bool,
    ) -> PyResult<Pass> {
        let chosen = indices.map(|indices| Chosen::new(indices, ends.unwrap_or_default()));
        let mut control = self.control();
        let mut done = Done::default();
        if let Some((seed, epoch, next, missing)) = at {
            (control.seed, control.next, control.resumed) = (seed, epoch, false);
            done = Done { next, missing };
        }
        // A batch that is longer than those before needs another engine. A pass that resumes has none.
        let own = control.slot.most;
        let most = own.map(|own| if control.resumed { own } else { own.max(chosen.as_ref().map_or(0, Chosen::most)) });
        let slot = control.slot.clone();
        let resume = std::mem::take(&mut control.resumed);
        let mut resume = resume.then(|| slot.state()).flatten();
        let is_begun = resume.as_ref().is_some_and(|state| state.batches() > 0);
        let new = seed.filter(|&seed| seed != control.seed && !is_begun);
        if let Some(seed) = new {
            (control.seed, resume) = (seed, None);
        }
        // Some samplers keep the seed that their engine was built with.
        let taken = own == most && (new.is_none() || !self.options.keeps_seed()) && control.slot.take();
        let resumed = resume.is_some();
        let from = Start { epoch: control.next, seed: control.seed, resume, most, done };
        control.next = control.next.wrapping_add(1);
        drop(control);
        match self.start(py, taken.then(|| slot.clone()), &from, chosen) {
            Ok(slot) => {
                let mut control = self.control();
                // If `resumed` is set, another thread has loaded a state meanwhile, whose engine is
                // kept.
                let former = (!control.resumed).then(|| std::mem::replace(&mut control.slot, slot.clone()));
                drop(control);
                drop(former);
                let finish = finish.map(|function| Finish { function, seed: from.seed, epoch: from.epoch });
                Ok(Pass::new(slot, self.output.clone(), &self.options, self.functions.clone_ref(py), finish, warns))
            }
            Err(error) => {
                if taken {
                    slot.busy.store(false, Ordering::Release);
                }
                let mut control = self.control();
                if !control.resumed {
                    (control.next, control.resumed) = (from.epoch, resumed);
                }
                drop(control);
                Err(error.raised(py))
            }
        }
    }

    /// Loads one sample as the first pass in order would, in a new engine without threads. Its random
    /// numbers are those of another seed, if one is given.
    fn sample<'py>(&self, py: Python<'py>, index: usize, seed: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        let (node, seed) = (self.node.clone(), seed.unwrap_or_else(|| self.control().seed));
        // With as many ranks as samples, the share of rank `index` is this sample, with the random
        // numbers of its position.
        let ranks = Ranks::new(index, self.options.passes.len(node.len()))
            .map_err(|error| failure::option(py, error.to_string()))?;
        let options = Options { ranks: Some(ranks), ..self.options.clone() };
        let is_remote = node.reads_files(true);
        let load = move || {
            let builder = options.builder(&node, seed, &Handles::new(seed))?;
            let mut loader = builder.build()?.untyped();
            loader.begin_epoch().map_err(NotBegun::Run)?;
            Ok::<_, NotBegun>(loader.next_batch())
        };
        // Waiting for a server must be interruptible.
        let loaded = if is_remote { watched(py, load)? } else { detached(py, load) };
        let next = loaded.map_err(|error| error.raised(py))?;
        let batch = next.expect("a rank has one sample").map_err(|error| failure::run(py, &error))?;
        self.output.make(py, batch)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.functions.traverse(&visit)
    }

    /// The number of batches in a pass; of batches by length, in the next one.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        match &self.options.passes {
            Passes::Lengths(sampler) => {
                let of = {
                    let control = self.control();
                    (control.seed, control.next)
                };
                let counted = || self.counted.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((_, batches)) = counted().filter(|(counted, _)| *counted == of) {
                    return Ok(batches);
                }
                let batches = detached(py, || self.options.batches_by_length(sampler, of));
                let batches = batches.map_err(|error| failure::build(py, &error.into()))?;
                *counted() = Some((of, batches));
                Ok(batches)
            }
            _ => self.len.ok_or_else(failure::no_len),
        }
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
        if epoch == u32::MAX {
            return Err(failure::option(
                py,
                format!("epoch is {epoch}, after which the next one would have no number"),
            ));
        }
        if epoch > 0 && detached(py, || self.words()).map_err(build)?.checked_mul(epoch.into()).is_none() {
            let message = format!("epoch is {epoch}, but a generator does not have as many random numbers");
            return Err(failure::option(py, message));
        }
        let (slot, seed) = {
            let mut control = self.control();
            if control.resumed && control.next == epoch {
                return Ok(()); // A training loop calls this before each pass, also before the one that it resumes.
            }
            (control.next, control.resumed) = (epoch, false);
            (control.slot.clone(), control.seed)
        };
        // The state of a running pass is not affected.
        if slot.take() {
            let moved = detached(py, || self.go_to(&slot, &mut slot.lock(), epoch, seed));
            slot.busy.store(false, Ordering::Release);
            moved.map_err(build)?;
        }
        Ok(())
    }

    /// Returns the position, as JSON.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        let slot = self.control().slot.clone();
        let state = slot.state().ok_or_else(|| failure::forked(py))?;
        serde_json::to_string(&state).map_err(|error| failure::no_state(py, &error))
    }

    /// Makes the next pass resume from a position.
    fn load_state(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let unreadable = |error| failure::no_state(py, &error);
        let value: Value = serde_json::from_str(state).map_err(unreadable)?;
        self.check_origin(py, &value)?;
        let most = value["batch_size"].as_u64().map(|most| most as usize);
        let state: State = serde_json::from_value(value).map_err(unreadable)?;
        let (slot, own, epoch) = {
            let control = self.control();
            (control.slot.clone(), control.seed, control.next)
        };
        let seed = state.seed().filter(|_| self.adopts_seed).unwrap_or(own);
        let most = slot.most.and(most);
        let slot = if seed == own && most == slot.most && slot.take() {
            slot
        } else {
            let slot = detached(py, || Self::build(&self.node, &self.options_for(most), seed));
            Arc::new(slot.map_err(|error| failure::build(py, &error))?)
        };
        let loaded = detached(py, || {
            let mut running = slot.lock();
            slot.handles.set_epoch(seed, state.epoch());
            let loaded = running.loader.load_state(&state);
            if loaded.is_ok() {
                running.due = None;
                slot.forget();
            } else {
                slot.handles.set_epoch(seed, epoch);
            }
            loaded
        });
        slot.busy.store(false, Ordering::Release);
        loaded.map_err(|error| failure::misfit(py, &error, matches!(self.options.passes, Passes::Lengths(_))))?;
        let mut control = self.control();
        let former = std::mem::replace(&mut *control, Control { slot, next: state.epoch(), resumed: true, seed });
        drop(control);
        drop(former);
        Ok(())
    }

    /// Returns the statistics of the engine of the latest pass, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let stats = self.control().slot.stats.stats();
        serde_json::to_string(&stats).map_err(|error| failure::no_state(py, &error))
    }

    /// Returns one sentence about what has limited the loader's speed.
    fn verdict(&self) -> String {
        self.control().slot.stats.stats().verdict().to_string()
    }

    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let slot = self.control().slot.clone();
        let own = slot.read(Running::warnings, |kept| kept.warnings.clone()).ok_or_else(|| failure::forked(py))?;
        Ok([own, self.node.warnings()].concat())
    }

    /// The most bytes that batches and the order of a pass take.
    #[getter]
    fn memory_ceiling(&self) -> usize {
        self.memory_ceiling
    }
}

impl Engine {
    /// Checks that the pass of a state begins like a pass of this loader: with the generator at the
    /// position after the preceding passes, and with a saved sampler exactly if this loader's
    /// sampler saves itself. (The engine itself checks the order and the length of the dataset.)
    fn check_origin(&self, py: Python<'_>, state: &Value) -> PyResult<()> {
        let Some(own) = self.control().slot.state().and_then(|own| serde_json::to_value(own).ok()) else {
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
        let words = detached(py, || self.words()).map_err(|error| failure::build(py, &error))?;
        let expected = words.saturating_mul(epoch);
        if drawn != expected {
            let (found, reason) = (format!("at number {drawn}"), format!("epoch {epoch} begins at number {expected}"));
            return malformed("generator", found, reason);
        }
        Ok(())
    }
}
