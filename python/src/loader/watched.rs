//! Opening files on a separate thread, while the calling thread checks for signals.
//!
//! Python handles signals, such as Ctrl-C's, in the main thread. If a handler raises an exception, the call raises it at
//! once, and the separate thread ends when it next waits for a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
#[cfg(feature = "files")]
use slotline_sources::stoppable;

use super::pass::SLICE;
use crate::detached::detached;

/// Calls `open`, which may take long, on a separate thread, and returns its result.
pub(crate) fn watched<T: Send + 'static>(py: Python<'_>, open: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    let (send, mut receive) = sync_channel(1);
    let stop = Arc::<AtomicBool>::default();
    let thread = std::thread::Builder::new().name("slotline-open".to_owned()).spawn({
        let stop = Arc::clone(&stop);
        move || _ = send.send(stoppable(&stop, open))
    })?;
    loop {
        let received;
        (receive, received) = detached(py, move || {
            let received = receive.recv_timeout(SLICE);
            (receive, received)
        });
        match received {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals().inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return match thread.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(()) => Err(PyRuntimeError::new_err("the thread that opens files has ended without an outcome")),
                };
            }
        }
    }
}

/// Calls `open`. Without the feature `files`, it does not wait for a server, so it cannot be stopped.
#[cfg(not(feature = "files"))]
fn stoppable<T>(_: &Arc<AtomicBool>, open: impl FnOnce() -> T) -> T {
    open()
}
