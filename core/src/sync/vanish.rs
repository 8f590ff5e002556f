//! Workers that *vanish* in models: a thread stops before one of its operations and cleans nothing
//! up, like a process that is killed.

use std::boxed::Box;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

loom::thread_local! {
    /// The number of operations that this thread still executes before it vanishes; `None` if it
    /// does not vanish.
    static LEFT: Cell<Option<usize>> = Cell::new(None);
    static VANISHED: Cell<bool> = Cell::new(false);
}

/// The payload with which a vanishing thread unwinds.
struct Vanished;

/// Runs `worker` on this thread, until it has executed this many operations. Returns whether it
/// vanished. Destructors run while the thread unwinds, but the destructors of claims do nothing.
pub fn vanish_after(operations: usize, worker: impl FnOnce()) -> bool {
    LEFT.with(|left| left.set(Some(operations)));
    let outcome = catch_unwind(AssertUnwindSafe(worker));
    LEFT.with(|left| left.set(None));
    match outcome {
        Ok(()) => false,
        Err(payload) if payload.is::<Vanished>() => true,
        Err(payload) => resume_unwind(payload),
    }
}

/// Whether this thread has vanished.
pub fn has_vanished() -> bool {
    VANISHED.with(Cell::get)
}

/// Counts an operation, and unwinds the thread if it is to vanish at this operation.
pub(super) fn step() {
    LEFT.with(|left| match left.get() {
        None => {}
        Some(0) => {
            left.set(None);
            VANISHED.with(|vanished| vanished.set(true));
            resume_unwind(Box::new(Vanished));
        }
        Some(more) => left.set(Some(more - 1)),
    });
}
