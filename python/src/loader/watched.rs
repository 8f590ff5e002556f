//! Opening files on a thread, while the program's looks for signals.
//!
//! Python handles signals, such as that of Ctrl-C, in the main thread. If a handler raises, the exception is the outcome at
//! once, and the thread ends when it next waits for a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
#[cfg(feature = "files")]
use slotline_sources::stoppable;

use super::pass::SLICE;

/// Does what may take long, and returns its outcome.
pub(crate) fn watched<T: Send + 'static>(py: Python<'_>, open: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    let (send, mut receive) = sync_channel(1);
    let stop = Arc::<AtomicBool>::default();
    let thread = std::thread::Builder::new().name("slotline-open".to_owned()).spawn({
        let stop = Arc::clone(&stop);
        move || _ = send.send(stoppable(&stop, open))
    })?;
    loop {
        let received;
        (receive, received) = py.detach(move || {
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

/// Opens what waits for no server.
#[cfg(not(feature = "files"))]
fn stoppable<T>(_: &Arc<AtomicBool>, open: impl FnOnce() -> T) -> T {
    open()
}
