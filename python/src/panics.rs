//! Conversion of panics to exceptions.
//!
//! PyO3 itself raises `PanicException`, which is not an `Exception`: a loop that handles errors
//! would not catch it, and a worker would end without a message.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use slotline_python_shielded::shielded;

use crate::loader::failure;

/// Panics, so that a test can check the conversion.
#[shielded]
#[pyfunction]
pub(crate) fn panic_on_purpose(message: &str) -> usize {
    panic!("{message}")
}

/// Makes a thread wait forever that Python ends while it runs this package's code.
///
/// Before 3.14, CPython ends a daemon thread by unwinding its stack, when it runs Python while the
/// interpreter is ending. It may do so in a function of the program that this package has called, and
/// the process would crash if that reached `catch_unwind`. CPython 3.11 itself crashes once part of
/// the stack is unwound, so threads wait from 3.13 on only.
struct ParkOnUnwind;

/// Whether threads that Python ends wait.
static WAITS: AtomicBool = AtomicBool::new(false);

/// Finds out which version of Python runs, when the module is imported.
pub(crate) fn set_version(py: Python<'_>) {
    WAITS.store(py.version_info() >= (3, 13), Ordering::Relaxed);
}

impl Drop for ParkOnUnwind {
    fn drop(&mut self) {
        while WAITS.load(Ordering::Relaxed) && !std::thread::panicking() {
            std::thread::park();
        }
    }
}

/// Runs the code of a function that Python calls, and turns a panic into a `slotline.Error`. The
/// attribute macro [`slotline_python_shielded`] wraps all such functions.
pub(crate) fn shielded<T>(code: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let guarded = || {
        let guard = ParkOnUnwind;
        let result = code();
        std::mem::forget(guard);
        result
    };
    catch_unwind(AssertUnwindSafe(guarded)).unwrap_or_else(|panic| {
        let message =
            panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let message = format!("slotline has a defect: {}; please report it", message.unwrap_or("a panic"));
        // Dropping the payload may panic again.
        std::mem::forget(panic);
        Err(Python::attach(|py| failure::defect(py, message)))
    })
}
