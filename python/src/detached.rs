//! Running code while other threads may run Python.

use std::ffi::CStr;
use std::sync::LazyLock;

use pyo3::{Python, ffi};

/// As [`Python::detach`], also in a daemon thread of free-threaded CPython 3.13.
///
/// Before 3.14, CPython ends a thread that attaches while the interpreter is ending, by an exception
/// that unwinds its stack. PyO3 makes such a thread wait instead, but version 0.28, the last one for 3.13t, does so
/// only in `PyGILState_Ensure`: from `PyEval_RestoreThread`, with which it attaches after this code,
/// the exception would abort the process. This remains possible if the interpreter begins to end
/// between the two.
pub(crate) fn detached<T: Send>(py: Python<'_>, code: impl Send + FnOnce() -> T) -> T {
    py.detach(|| {
        let result = code();
        if *IS_FREE_THREADED {
            // SAFETY: Python knows this thread, which is not attached, and both calls are a pair.
            unsafe { ffi::PyGILState_Release(ffi::PyGILState_Ensure()) };
        }
        result
    })
}

static IS_FREE_THREADED: LazyLock<bool> = LazyLock::new(|| {
    // SAFETY: the text is static.
    let version = unsafe { CStr::from_ptr(ffi::Py_GetVersion()) };
    version.to_string_lossy().contains("free-threading")
});
