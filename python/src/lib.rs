//! The native extension module of the Python package `slotline`.
//!
//! `slotline.torch.DataLoader` is a subclass of torch's. What differs is how batches get from the
//! workers to the loop: a worker writes them into memory that it shares with the loader's process
//! (`memory`, `channel`, `batch`), and the loop's tensors refer to that memory (`dlpack`). Samples
//! are collated as by torch's `default_collate` (`collate`). Datasets that hold tensors or arrays
//! are read without calling their Python code (`gather`).
//!
//! `slotline.Loader` wraps the loader of the `slotline` crate (`loader`).

// The public items are those of the Python module, which are documented in its stubs.
#![allow(missing_docs)]
#![cfg(target_os = "linux")]

mod batch;
mod capsule;
mod channel;
mod collate;
mod detached;
mod dlpack;
mod forks;
mod frozen;
mod gather;
mod generators;
mod keep;
#[cfg(feature = "files")]
mod lift;
mod loader;
mod memory;
mod numpy;
mod panics;
mod pool;
mod rows;
mod strided;
mod tree;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use pyo3::exceptions::{PyEOFError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyType};
use slotline_python_shielded::shielded;

use crate::batch::{Containers, Pickle};
use crate::channel::{Block, BlockRef, Channel, Message, Receiver, Sender, TryRecvError};
use crate::collate::{Gathered, TorchApi};
use crate::detached::detached;
use crate::gather::Kinds;
use crate::pool::Pool;

/// A pool of memory for batches in this process, which a loader reuses in all of its passes.
#[pyclass(module = "slotline._slotline", name = "Pool", frozen)]
struct PyPool(Arc<Pool>);

#[shielded]
#[pymethods]
impl PyPool {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// A copy, in another process or of another loader, is a new pool.
    fn __reduce__(slf: Bound<'_, Self>) -> (Bound<'_, PyType>, ()) {
        (slf.get_type(), ())
    }
}

/// Collates lists of samples into batches in memory of this process.
#[pyclass(module = "slotline._slotline", frozen)]
struct Collator {
    api: &'static TorchApi,
    pool: Arc<Pool>,
}

#[shielded]
#[pymethods]
impl Collator {
    #[new]
    #[pyo3(signature = (pool = None))]
    fn new(py: Python<'_>, pool: Option<&PyPool>) -> PyResult<Self> {
        Ok(Self { api: TorchApi::get(py)?, pool: pool_of(pool) })
    }

    fn __call__<'py>(&self, py: Python<'py>, samples: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyAny>> {
        let mut gathered = Gathered::new(true);
        let node = gathered.collate(self.api, samples)?;
        batch::make_local(py, self.api, &self.pool, &node, &mut gathered)
    }
}

/// Makes batches of tensors and arrays that a dataset holds, without calling the dataset.
#[pyclass(module = "slotline._slotline", frozen)]
struct Gatherer {
    api: &'static TorchApi,
    pool: Arc<Pool>,
    kinds: Kinds,
}

#[shielded]
#[pymethods]
impl Gatherer {
    /// Takes torch's classes `TensorDataset`, `StackDataset`, `ConcatDataset` and `Subset`.
    #[new]
    fn new(py: Python<'_>, kinds: [Py<PyAny>; 4], pool: &PyPool) -> PyResult<Self> {
        Ok(Self { api: TorchApi::get(py)?, pool: pool.0.clone(), kinds: Kinds::new(kinds) })
    }

    /// Returns the batch of the samples at these indices, or `None` if only the dataset itself can
    /// make it.
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        dataset: &Bound<'py, PyAny>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(index) = collate::integers(index) else { return Ok(None) };
        let mut gathered = Gathered::new(true);
        match gather::gather(&mut gathered, self.api, &self.kinds, dataset, &index) {
            Some(node) => batch::make_local(py, self.api, &self.pool, &node, &mut gathered).map(Some),
            None => {
                // Discard the error: the dataset is called next and raises its own.
                drop(PyErr::take(py));
                Ok(None)
            }
        }
    }
}

/// Returns the given pool, or a new one.
fn pool_of(pool: Option<&PyPool>) -> Arc<Pool> {
    pool.map(|pool| pool.0.clone()).unwrap_or_default()
}

/// How the contents of a message are encoded; stored in the upper half of the message's kind.
mod form {
    /// No contents.
    pub(super) const EMPTY: u32 = 0;
    /// A list of integers.
    pub(super) const INTEGERS: u32 = 1;
    /// A list that contains only `None`, sent as its length.
    pub(super) const NONES: u32 = 2;
    /// A batch, in the format of the module `batch`.
    pub(super) const BATCH: u32 = 3;
    /// The states of random generators.
    pub(super) const GENERATORS: u32 = 4;
}

/// The kind of messages that contain batches, as in `slotline.torch._workers.messages`. The memory
/// limit applies only to them, so that an error about the limit itself can be sent.
const BATCH: u16 = 4;

pyo3::create_exception!(slotline._slotline, Closed, PyEOFError, "Nothing more comes from the other end of a channel.");

pyo3::create_exception!(
    slotline._slotline,
    NotLifted,
    PyRuntimeError,
    "A picture that torchvision has to make, or that is an error."
);

/// A timeout that never expires in practice. (`Instant` cannot represent a time `Duration::MAX`
/// ahead.)
const FOREVER: Duration = Duration::from_secs(1 << 32);

/// One process's end of a connection: a channel to send and a channel to receive. Other threads and
/// Python's signal handlers may use it while it waits for a message or makes a batch.
#[pyclass(module = "slotline._slotline", frozen)]
struct Port {
    api: &'static TorchApi,
    pickle: Pickle,
    pool: Arc<Pool>,
    /// The channel to send to. Code of the program that runs while a batch is made may query it.
    to: Channel,
    /// Boxed, since Python's allocator does not provide the alignment that these types need.
    sending: Box<Mutex<Sending>>,
    receiving: Box<Mutex<Receiving>>,
    received: Mutex<Received>,
}

struct Sending {
    sender: Sender,
    containers: Containers,
}

struct Receiving {
    receiver: Receiver,
    containers: Containers,
    /// The states of the worker's generators that belong to the next reply.
    generators: Option<Block>,
}

/// The messages received so far. No Python code runs while this is locked.
#[derive(Default)]
struct Received {
    /// The states of the worker's generators after the latest reply.
    generators: Option<Arc<Block>>,
    /// The tasks whose replies have not been received, oldest first. Python's signal handlers can
    /// raise an exception after any call, so only this record is reliable about what was sent and
    /// received.
    due: VecDeque<u64>,
}

impl Port {
    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn message<'py>(
        &self,
        py: Python<'py>,
        Receiving { receiver, containers, .. }: &mut Receiving,
        message: Message,
        place: Option<BlockRef>,
    ) -> PyResult<(u32, u64, Bound<'py, PyAny>)> {
        let (kind, form) = (message.kind & 0xFFFF, message.kind >> 16);
        let block = place.map(|place| receiver.block(place)).transpose()?;
        let value = match (form, block) {
            (form::INTEGERS, Some(block)) => collate::list_of(py, block.bytes())?,
            (form::NONES, Some(block)) => {
                let count = block.bytes().first_chunk().map_or(0, |count| usize::from_ne_bytes(*count));
                PyList::new(py, (0..count).map(|_| py.None()))?.into_any()
            }
            (form::BATCH, Some(block)) => {
                batch::receive(py, self.api, &self.pickle, &self.pool, receiver, block, containers)?
            }
            _ => py.None().into_bound(py),
        };
        Ok((kind, message.task, value))
    }
}

impl Sending {
    /// Sends bytes unchanged.
    fn bytes(&mut self, (message, is_batch): (Message, bool), bytes: &[u8]) -> PyResult<bool> {
        if is_batch {
            self.sender.admit(bytes.len())?;
        }
        let draft = self.sender.draft(bytes.len(), is_batch)?;
        // SAFETY: the block belongs to this sender, and has room for the bytes.
        unsafe { draft.start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(self.sender.send(message, Some(draft)))
    }
}

/// Locks a mutex that only one thread may use at a time; fails if another thread holds it.
fn lock<T>(of_one: &Mutex<T>) -> PyResult<MutexGuard<'_, T>> {
    match of_one.try_lock() {
        Ok(locked) => Ok(locked),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            let text = "this end of the channel is in use: by another thread, or by what a signal has interrupted";
            Err(PyRuntimeError::new_err(text))
        }
    }
}

#[shielded]
#[pymethods]
impl Port {
    /// Takes the channel to send to, and the channel to receive from.
    #[new]
    #[pyo3(signature = (to, from, pool = None))]
    fn new(py: Python<'_>, to: &Channel, from: &Channel, pool: Option<&PyPool>) -> PyResult<Self> {
        let taken = || PyRuntimeError::new_err("this end of the channel is in use");
        Ok(Self {
            api: TorchApi::get(py)?,
            pickle: Pickle::new(py)?,
            pool: pool_of(pool),
            to: to.share(),
            sending: Box::new(Mutex::new(Sending {
                sender: to.sender().ok_or_else(taken)?,
                containers: Containers::default(),
            })),
            receiving: Box::new(Mutex::new(Receiving {
                receiver: from.receiver().ok_or_else(taken)?,
                containers: Containers::default(),
                generators: None,
            })),
            received: Mutex::default(),
        })
    }

    /// Sends a value. Returns `False` if the receiver has closed the channel.
    #[pyo3(signature = (kind, task = 0, value = None))]
    fn send(&self, py: Python<'_>, kind: u16, task: u64, value: Option<Bound<'_, PyAny>>) -> PyResult<bool> {
        let message = |form: u32| (Message { kind: u32::from(kind) | form << 16, task }, kind == BATCH);
        let mut sending = lock(&self.sending)?;
        let Some(value) = value else { return Ok(sending.sender.send(message(form::EMPTY).0, None)) };
        if let Some(integers) = collate::integers(&value) {
            let bytes: Vec<u8> = integers.iter().flat_map(|value| value.to_ne_bytes()).collect();
            return sending.bytes(message(form::INTEGERS), &bytes);
        }
        if let Some(count) = collate::nones(&value) {
            return sending.bytes(message(form::NONES), &count.to_ne_bytes());
        }
        let mut gathered = Gathered::new(false);
        let node = gathered.walk(self.api, &value);
        let message = message(form::BATCH);
        let Sending { sender, containers } = &mut *sending;
        batch::send(py, &self.pickle, sender, message, node, gathered, containers)
    }

    /// Sends a request that will be answered by a message with the same task. Task numbers must
    /// ascend.
    #[pyo3(signature = (kind, task, value = None))]
    fn ask(&self, py: Python<'_>, kind: u16, task: u64, value: Option<Bound<'_, PyAny>>) -> PyResult<bool> {
        let sent = self.send(py, kind, task, value)?;
        if sent {
            self.received().due.push_back(task);
        }
        Ok(sent)
    }

    /// Returns the tasks whose replies have not been received.
    #[getter]
    fn due(&self) -> Vec<u64> {
        self.received().due.iter().copied().collect()
    }

    /// Collates samples into a batch, and sends it.
    fn collate(&self, py: Python<'_>, kind: u16, task: u64, samples: &Bound<'_, PyList>) -> PyResult<bool> {
        let mut sending = lock(&self.sending)?;
        let mut gathered = Gathered::new(false);
        let node = gathered.collate(self.api, samples)?;
        let message = (Message { kind: u32::from(kind) | form::BATCH << 16, task }, kind == BATCH);
        let Sending { sender, containers } = &mut *sending;
        batch::send(py, &self.pickle, sender, message, node, gathered, containers)
    }

    /// Sends bytes unchanged: states of generators, which the port at the other end stores.
    fn send_bytes(&self, kind: u16, value: &[u8]) -> PyResult<bool> {
        lock(&self.sending)?.bytes((Message { kind: u32::from(kind) | form::GENERATORS << 16, task: 0 }, false), value)
    }

    /// The states of the worker's generators after the message received last, if it sent them.
    #[getter]
    fn generators<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let generators = self.received().generators.clone();
        generators.map(|block| PyBytes::new(py, block.bytes()))
    }

    /// Whether the receiver has closed the channel.
    #[getter]
    fn closed(&self) -> bool {
        self.to.is_closed()
    }

    /// The first task whose reply is still needed.
    #[getter]
    fn wanted(&self) -> u64 {
        self.to.wanted()
    }

    /// The number of messages that can be received without waiting.
    #[getter]
    fn ready(&self) -> PyResult<usize> {
        Ok(lock(&self.receiving)?.receiver.ready())
    }

    /// Returns unused memory to the system until it is needed again.
    fn trim(&self) -> PyResult<()> {
        lock(&self.sending)?.sender.trim();
        Ok(())
    }

    /// Records that this end begins a task, at the time `begun` of `time.perf_counter`.
    fn begin(&self, task: u64, begun: f64) -> PyResult<()> {
        lock(&self.sending)?.sender.begin(task, begun);
        Ok(())
    }

    /// Records that this end has finished its task after `took` seconds, of which it collated and
    /// copied for `writing` seconds.
    fn end(&self, took: f64, writing: f64) -> PyResult<()> {
        let [took, writing] = [took, writing].map(|time| Duration::try_from_secs_f64(time).unwrap_or_default());
        lock(&self.sending)?.sender.end(took, writing);
        Ok(())
    }

    /// Returns the kind, task and value of the next message. Returns `None` if there is none within
    /// `timeout` seconds, and raises `Closed` if there will be no more.
    #[pyo3(signature = (timeout = 0.0))]
    fn receive<'py>(&self, py: Python<'py>, timeout: f64) -> PyResult<Option<(u32, u64, Bound<'py, PyAny>)>> {
        let mut receiving = lock(&self.receiving)?;
        let (message, place) = loop {
            let receiver = &mut receiving.receiver;
            let mut received = receiver.receive(None);
            if matches!(received, Err(TryRecvError::Empty)) && timeout > 0.0 {
                let patience = Duration::try_from_secs_f64(timeout).unwrap_or(FOREVER).min(FOREVER);
                received = detached(py, || receiver.receive(Some(patience)));
            }
            match received {
                Ok((message, Some(place))) if message.kind >> 16 == form::GENERATORS => {
                    receiving.generators = Some(receiver.block(place)?);
                }
                Ok(received) => break received,
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Closed) => return Err(Closed::new_err("the other process has closed the channel")),
            }
        };
        let made = self.message(py, &mut receiving, message, place);
        // Updated only after the value was made, even on an error, so that Python code that ran
        // meanwhile has seen the previous state.
        let mut received = self.received();
        // Replies keep their order, so no older reply can follow.
        while received.due.front().is_some_and(|&task| task <= message.task) {
            received.due.pop_front();
        }
        // These states belong to the batch of a reply. Messages that are not replies may come in
        // between.
        if message.task > 0 && receiving.generators.is_some() {
            let before = std::mem::replace(&mut received.generators, receiving.generators.take().map(Arc::new));
            drop(received);
            drop(before);
        }
        made.map(Some)
    }
}

// `DESIGN.md` describes what this relies on under "Threads of Python".
/// Runs the `slotline` program, and returns its exit code. `arguments` begin with the program's
/// name.
#[cfg(feature = "program")]
#[shielded]
#[pyfunction]
fn run_program(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    detached(py, || slotline_cli::run(arguments))
}

#[pymodule(gil_used = false)]
fn _slotline(module: &Bound<'_, PyModule>) -> PyResult<()> {
    panics::set_version(module.py());
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Closed", module.py().get_type::<Closed>())?;
    module.add("NotLifted", module.py().get_type::<NotLifted>())?;
    module.add_class::<PyPool>()?;
    module.add_class::<Collator>()?;
    module.add_class::<Gatherer>()?;
    module.add_class::<Channel>()?;
    module.add_class::<frozen::Columns>()?;
    module.add_function(wrap_pyfunction!(frozen::freeze, module)?)?;
    module.add_class::<Port>()?;
    module.add_class::<generators::Generators>()?;
    module.add_class::<loader::Source>()?;
    module.add_class::<loader::Engine>()?;
    module.add_class::<loader::Pass>()?;
    module.add_class::<loader::Plan>()?;
    module.add_class::<loader::Tensor>()?;
    module.add_class::<loader::Memory>()?;
    #[cfg(feature = "files")]
    {
        module.add_class::<lift::ByteTable>()?;
        module.add_class::<lift::Steps>()?;
        module.add_class::<lift::Picture>()?;
        module.add_function(wrap_pyfunction!(loader::image::image_text, module)?)?;
        module.add_function(wrap_pyfunction!(loader::image::draw_mix, module)?)?;
    }
    #[cfg(feature = "program")]
    module.add_function(wrap_pyfunction!(run_program, module)?)?;
    module.add_function(wrap_pyfunction!(panics::panic_on_purpose, module)?)?;
    module.add_function(wrap_pyfunction!(forks::before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(forks::after_fork_in_parent, module)?)?;
    module.add_function(wrap_pyfunction!(forks::after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(loader::ranks::ranks_from_env, module)?)?;
    module.add_function(wrap_pyfunction!(loader::ranks::merge_states, module)?)
}
