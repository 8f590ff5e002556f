//! An iterator over the batches of one pass.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyException, PyRuntimeWarning};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use slotline::loader::{BadSample, OnError, OnHeld};
use slotline::{Batch, Error, sample::Dynamic};
use slotline_python_shielded::shielded;

use super::engine::PassSlot;
use super::failure;
use super::map::Functions;
use super::options::Options;
use super::output::Output;
use crate::detached::detached;

/// How long a thread waits before it checks for signals, such as that of Ctrl-C.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Does what Python does between two instructions: checks for signals and, in an interpreter
/// without a global lock, frees objects of this thread that another thread has dropped. Batches are
/// among them, and a loop may be waiting for their memory.
pub(crate) fn look_up(py: Python<'_>) -> PyResult<()> {
    py.check_signals()?;
    py.eval(c"None", None, None).map(drop)
}

/// An iterator over the batches of one pass. Several threads may share it; each batch goes to one
/// of them.
#[pyclass(module = "slotline", frozen)]
pub(crate) struct Pass {
    slot: Arc<PassSlot>,
    output: Arc<Output>,
    /// How long the loop waits for a batch; zero for no limit.
    timeout: Duration,
    on_held: OnHeld,
    /// Whether loads by the loop's own thread may take long.
    may_be_slow: bool,
    /// What the warning at the end of the pass says about samples that could not be read; none if it is `Raise`.
    on_error: OnError,
    /// The number of samples that could not be read before this pass.
    bad_before: u64,
    /// Set before the engine is released. While the engine's lock is held and this is not set, the
    /// engine runs this pass: other threads may end the pass and begin the next one while this
    /// thread waits.
    over: AtomicBool,
    functions: Functions,
    /// What makes the loop's object of a batch.
    finish: Option<Finish>,
    /// Outcomes that were not delivered because a signal handler raised an exception; the last one
    /// is delivered first.
    returned: Mutex<Vec<Outcome>>,
    /// Whether `returned` may contain any, which is faster to check.
    has_returned: AtomicBool,
    /// The number of the latest batch, or of the one in whose place an error was raised; `NO_BATCH` for others.
    latest: AtomicUsize,
}

const NO_BATCH: usize = usize::MAX;

/// A batch for Python, or the error in its place, with the number of the batch.
type Outcome = (Result<Py<PyAny>, Box<PyErr>>, Option<usize>);

/// A function that is called with each batch, the seed and the number of the pass, and the number of the batch.
pub(crate) struct Finish {
    pub(crate) function: Py<PyAny>,
    pub(crate) seed: u64,
    pub(crate) epoch: u32,
}

/// The next batch, or the error in its place; `None` at the end.
pub(crate) type Next = Option<Result<Batch<Dynamic>, Error>>;

impl Pass {
    /// Creates the iterator over the pass that the engine in this slot has begun.
    pub(crate) fn new(
        slot: Arc<PassSlot>,
        output: Arc<Output>,
        options: &Options,
        functions: Functions,
        finish: Option<Finish>,
        warns: bool,
    ) -> Self {
        let Options { timeout, on_held, num_workers, in_order, .. } = *options;
        let on_error = if warns { options.on_error } else { OnError::Raise };
        let loads = num_workers == 0 || in_order && timeout.is_zero();
        let may_be_slow = loads && slot.helper.is_needed;
        let (over, has_returned, returned) = (AtomicBool::new(false), AtomicBool::new(false), Mutex::default());
        let bad_before = if on_error == OnError::Raise { 0 } else { slot.bad_samples().0 };
        let latest = AtomicUsize::new(NO_BATCH);
        Self {
            slot,
            output,
            timeout,
            on_held,
            may_be_slow,
            on_error,
            bad_before,
            over,
            functions,
            finish,
            returned,
            has_returned,
            latest,
        }
    }

    /// Returns the next batch if it is ready, without waiting.
    fn ready(&self) -> Next {
        if self.may_be_slow && self.slot.helper.is_used() {
            return None;
        }
        let mut engine = self.slot.try_lock()?;
        if self.is_over() || !engine.loader.is_ready() {
            return None;
        }
        // There may be no memory for the batch, so do not wait for it.
        engine.loader.next_within(Duration::ZERO)
    }

    /// Returns whether the error only means that the batch is not ready yet.
    fn is_late(&self, error: &Error) -> bool {
        match error {
            Error::Timeout { .. } => true,
            Error::Held { .. } => self.on_held == OnHeld::Wait,
            _ => false,
        }
    }

    /// Waits for the next batch, or loads it, while other threads may run Python.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        let begun = Instant::now();
        loop {
            let left = match self.timeout {
                Duration::ZERO => SLICE,
                timeout => timeout.saturating_sub(begun.elapsed()),
            };
            let patience = SLICE.min(left);
            let helper = &self.slot.helper;
            let is_asked = self.may_be_slow && (helper.is_used() || helper.is_due());
            let next = detached(py, || {
                if !is_asked {
                    let mut engine = self.slot.lock();
                    // Another thread may have handed a load over meanwhile. If this one then saw the
                    // end, it would leave the engine, and with it the batch of that load.
                    if !(self.may_be_slow && helper.is_used()) {
                        return Some(if self.is_over() { None } else { engine.loader.help_within(patience) });
                    }
                }
                helper.load(&self.slot, patience, &self.over)
            });
            if self.may_be_slow {
                helper.add_to_budget(begun.elapsed());
            }
            let Some(next) = next else {
                look_up(py)?;
                continue;
            };
            match next {
                Some(Ok(batch)) => return Ok(Some(self.made(py, batch))),
                Some(Err(error))
                    if self.is_late(&error) && left > patience || self.timeout.is_zero() && self.is_late(&error) =>
                {
                    look_up(py)?;
                }
                Some(Err(error)) => return Ok(Some(self.failed(py, error))),
                None => return Ok(None),
            }
        }
    }

    /// Takes the next batch. Returns `None` at the end, and an error if a signal handler raises
    /// one.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        match self.ready() {
            Some(Ok(batch)) => Ok(Some(self.made(py, batch))),
            Some(Err(error)) if !self.is_late(&error) => Ok(Some(self.failed(py, error))),
            _ => self.wait(py),
        }
    }

    fn made(&self, py: Python<'_>, batch: Batch<Dynamic>) -> Outcome {
        let number = batch.batch_index();
        (self.output.make(py, batch).map(Bound::unbind).map_err(Box::new), Some(number))
    }

    fn returned(&self) -> MutexGuard<'_, Vec<Outcome>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn put_back(&self, outcome: Outcome) {
        self.slot.returned().extend(outcome.1);
        self.returned().push(outcome);
        self.has_returned.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn take_returned(&self) -> Option<Outcome> {
        let mut returned = self.returned();
        let taken = returned.pop();
        self.has_returned.store(!returned.is_empty(), Ordering::Relaxed);
        drop(returned);
        if let Some((_, Some(number))) = taken {
            self.slot.returned().retain(|&returned| returned != number);
        }
        taken
    }

    #[cold]
    fn failed(&self, py: Python<'_>, error: Error) -> Outcome {
        let error = match error {
            Error::Timeout { task, busy, .. } => Error::Timeout { after: self.timeout, task, busy },
            error => error,
        };
        (Err(Box::new(failure::run(py, &error))), failure::batch(&error))
    }

    /// Ends the pass after its last batch, and issues a warning about samples that could not be
    /// read.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let what = match self.on_error {
            OnError::Skip(_) => "left out",
            OnError::Replace(_) => "replaced by others",
            _ => "",
        };
        let (bad, last) = if what.is_empty() { (0, None) } else { self.slot.bad_samples() };
        self.leave();
        let bad = bad - self.bad_before;
        let Some(BadSample { index, message, .. }) = last.filter(|_| bad > 0) else { return Ok(()) };
        let message = format!(
            "{bad} samples of this pass were {what}, since they could not be read; the last one was sample {index}: \
             {message}; stats() lists them"
        );
        let message = CString::new(message.replace('\0', " "))?;
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Releases the engine for the loader's next pass.
    fn leave(&self) {
        if !self.over.swap(true, Ordering::Relaxed) {
            self.slot.leave();
        }
    }
}

#[shielded]
#[pymethods]
impl Pass {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let returned = if self.has_returned.load(Ordering::Relaxed) { self.take_returned() } else { None };
        if returned.is_none() && self.is_over() {
            return Ok(None);
        }
        if !self.slot.is_here() {
            return Err(failure::forked(py));
        }
        let outcome = match returned {
            Some(returned) => returned,
            None => match self.take(py)? {
                Some(outcome) => outcome,
                None => {
                    self.end(py)?;
                    return Ok(None);
                }
            },
        };
        let finished = match (&outcome, &self.finish) {
            ((Ok(batch), Some(number)), Some(Finish { function, seed, epoch })) => {
                Some(function.bind(py).call1((batch, *seed, *epoch, *number)))
            }
            _ => None,
        };
        // Python checks for signals before the program stores the returned value. If a handler
        // raised then, the batch would be lost. It may also have raised in a function of the program.
        let raised = match &finished {
            Some(Err(raised)) if !raised.is_instance_of::<PyException>(py) => Err(raised.clone_ref(py)),
            _ => py.check_signals(),
        };
        if let Err(raised) = raised {
            self.put_back(outcome);
            return Err(raised);
        }
        self.latest.store(outcome.1.unwrap_or(NO_BATCH), Ordering::Relaxed);
        match finished {
            Some(finished) => finished.map(Some),
            None => outcome.0.map(|batch| Some(batch.into_bound(py))).map_err(|error| *error),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.functions.traverse(&visit)?;
        self.finish.as_ref().map_or(Ok(()), |finish| visit.call(&finish.function))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.remaining(py)
    }

    /// Returns the number of batches that the loop has not received yet.
    fn remaining(&self, py: Python<'_>) -> PyResult<usize> {
        if self.is_over() {
            return Ok(0);
        }
        self.slot.left().ok_or_else(|| failure::forked(py))?.ok_or_else(failure::no_len)
    }

    /// The number of the batch that came last, or in whose place an error was raised.
    #[getter]
    fn latest(&self) -> Option<usize> {
        Some(self.latest.load(Ordering::Relaxed)).filter(|&number| number != NO_BATCH)
    }

    /// Ends the pass: the threads stop, and no more batches come. Dropping the iterator does the
    /// same.
    fn close(&self) {
        self.leave();
        self.returned().clear();
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.leave();
    }
}
