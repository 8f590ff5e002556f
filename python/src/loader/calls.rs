//! Calls of the program's Python code from the engine's threads.
//!
//! A thread that the interpreter does not know is registered with it at its first call, and until the thread ends. So
//! what Python keeps for each thread, such as the attributes of a `threading.local`, is kept between calls.
//!
//! The interpreter ends a thread that attaches while the interpreter itself ends, which would unwind the engine. So the
//! last calls end before that, and later ones fail without attaching.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use pyo3::{ffi, intern};
use slotline::BoxError;

use crate::detached::detached;

/// The number of calls that have begun and not ended, and `CLOSED` if the interpreter is about to end.
static CALLS: AtomicUsize = AtomicUsize::new(0);
const CLOSED: usize = 1 << (usize::BITS - 1);

thread_local! {
    static REGISTERED: Option<Registered> = Registered::new();
}

/// A call that has begun.
struct Call;

impl Call {
    /// Returns `None` if the interpreter is about to end.
    fn begin() -> Option<Self> {
        let more = |calls: usize| (calls & CLOSED == 0).then_some(calls + 1);
        CALLS.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Self)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // In the child of a fork, the parent's calls do not count.
        let fewer = |calls: usize| (calls & !CLOSED > 0).then(|| calls - 1);
        _ = CALLS.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
    }
}

/// The registration of a thread that Python has not started.
struct Registered {
    thread: *mut ffi::PyThreadState,
    state: ffi::PyGILState_STATE,
}

impl Registered {
    /// Registers this thread, unless the interpreter knows it. Call it during a [`Call`], in a thread that is not attached.
    fn new() -> Option<Self> {
        // SAFETY: the interpreter does not end during a call.
        if !unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
            return None;
        }
        // SAFETY: as above, and the thread is attached by the first of these calls and detached by the second one.
        unsafe {
            let state = ffi::PyGILState_Ensure();
            Some(Self { thread: ffi::PyEval_SaveThread(), state })
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(_call) = Call::begin() else { return };
        // SAFETY: the interpreter does not end during a call, and this thread is not attached. Both values are those of
        // `new` in this thread.
        unsafe {
            ffi::PyEval_RestoreThread(self.thread);
            ffi::PyGILState_Release(self.state);
        }
    }
}

/// The exception of the program's code, as the error of a sample.
pub(super) struct Raised {
    message: String,
    pub(super) error: PyErr,
}

impl std::fmt::Debug for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Raised {}

/// Attaches this thread to the interpreter and runs `call`, which may call the program's code.
pub(super) fn attached<T>(call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, BoxError> {
    let _call = Call::begin().ok_or("the program is ending")?;
    _ = REGISTERED.try_with(|_| ());
    // The message is made here, since other code that reads it may be unable to attach.
    Python::attach(|py| call(py).map_err(|error| Raised { message: error.to_string(), error }.into()))
}

/// Has Python end the calls before the interpreter ends, and forget those of the parent process after a fork.
pub(super) fn watch(py: Python<'_>) -> PyResult<()> {
    static WATCHED: PyOnceLock<()> = PyOnceLock::new();
    WATCHED.get_or_try_init(py, || {
        let end = |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| close(args.py());
        py.import("atexit")?.call_method1("register", (PyCFunction::new_closure(py, None, None, end)?,))?;
        let forget = |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
            CALLS.fetch_and(CLOSED, Ordering::AcqRel);
        };
        let hook = PyDict::new(py);
        hook.set_item(intern!(py, "after_in_child"), PyCFunction::new_closure(py, None, None, forget)?)?;
        py.import("os")?.call_method("register_at_fork", (), Some(&hook)).map(drop)
    })?;
    Ok(())
}

/// Waits until all calls have ended. Later ones fail.
fn close(py: Python<'_>) -> PyResult<()> {
    CALLS.fetch_or(CLOSED, Ordering::AcqRel);
    while CALLS.load(Ordering::Acquire) != CLOSED {
        detached(py, || std::thread::sleep(Duration::from_millis(1)));
        py.check_signals()?;
    }
    Ok(())
}
