//! Panics as exceptions.
//!
//! Without this, a panic would be PyO3's `PanicException`, which is no `Exception`: a loop that handles errors would not
//! handle it, and a worker would end without a word.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;
use slotline_python_shielded::shielded;

use crate::loader::failure;

/// Panics, for a test of what follows.
#[shielded]
#[pyfunction]
pub(crate) fn panic_on_purpose(message: &str) -> usize {
    panic!("{message}")
}

/// Runs the code of a function that Python calls; a panic becomes a `slotline.Error`. All of them are run by this: see
/// [`slotline_python_shielded`].
pub(crate) fn shielded<T>(code: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|panic| {
        let message =
            panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let message = format!("slotline has a defect: {}; please report it", message.unwrap_or("a panic"));
        // Dropping what was thrown may panic again.
        std::mem::forget(panic);
        Err(Python::attach(|py| failure::defect(py, message)))
    })
}
