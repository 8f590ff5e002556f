//! The one place that swaps std's locks, atomics and threads for those of a model checker.
//!
//! In a plain build they are std's own. With `--cfg shuttle` they are shuttle's, whose random schedules `tests/schedules.rs`
//! explores; with `--cfg delays` each operation of an atomic comes after a random delay (see `slotline_core::sync`).

#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, mpsc},
    thread, thread_local,
};

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, mpsc},
    thread, thread_local,
};

/// Atomics, and the fence between them.
pub(crate) mod atomic {
    #[cfg(shuttle)]
    pub(crate) use shuttle::sync::atomic::fence;
    #[cfg(any(shuttle, delays))]
    pub(crate) use slotline_core::sync::watched::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
    #[cfg(not(shuttle))]
    pub(crate) use std::sync::atomic::fence;
    #[cfg(not(any(shuttle, delays)))]
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
}
