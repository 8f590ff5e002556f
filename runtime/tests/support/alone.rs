//! A lock for tests that must not run at the same time as others of their program.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test that calls this is running, and returns a guard that makes others
/// wait.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
