//! The process's default generator. The tests of this program run one at a time, as each counts what is drawn from it.

mod draws;
#[cfg(feature = "serde")]
mod resume;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test uses the default generator.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
