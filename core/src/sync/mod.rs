//! The only place that replaces the atomics of the standard `core` library, and the system's futex,
//! with those of a model checker.
//!
//! In a normal build, the atomics and cells of the rings are those of `core`, and this module costs
//! nothing. Three build configurations replace them with [watched](self::watched) ones, whose
//! operations can be intercepted:
//!
//! - `--cfg loom`: loom's atomics, so that the models in `tests/` explore their interleavings, also
//!   with one ordering weakened at a time (`mutants`);
//! - `--cfg shuttle`: shuttle's atomics, for random schedules of whole loaders;
//! - `--cfg delays`: those of `core`, with a random delay before each operation.

#[cfg(delays)]
pub mod delays;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub(crate) mod futex;
#[cfg(all(feature = "std", any(loom, shuttle)))]
pub(crate) mod modelled;
#[cfg(loom)]
pub mod mutants;
#[cfg(loom)]
pub mod vanish;
#[cfg(any(loom, shuttle, delays))]
pub mod watched;

#[cfg(not(any(loom, shuttle, delays)))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
#[cfg(all(target_has_atomic = "64", not(any(loom, shuttle, delays))))]
pub(crate) use core::sync::atomic::{AtomicU64, fence};
#[cfg(any(loom, shuttle, delays))]
pub(crate) use watched::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Tells the processor, or the model checker, that this thread is waiting for another one.
#[inline]
pub(crate) fn spin_hint() {
    #[cfg(not(any(loom, shuttle)))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
}

/// A cell whose accesses loom checks for races.
#[derive(Debug)]
pub(crate) struct Cell<T>(#[cfg(not(loom))] core::cell::UnsafeCell<T>, #[cfg(loom)] loom::cell::UnsafeCell<T>);

impl<T> Cell<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    /// Returns a pointer for reading. Under loom, this call counts as a read.
    #[inline]
    pub(crate) fn read_ptr(&self) -> *const T {
        #[cfg(not(loom))]
        return self.0.get();
        #[cfg(loom)]
        return self.0.with(|p| p);
    }

    /// Returns a pointer for writing. Under loom, this call counts as a write.
    #[inline]
    pub(crate) fn write_ptr(&self) -> *mut T {
        #[cfg(not(loom))]
        return self.0.get();
        #[cfg(loom)]
        return self.0.with_mut(|p| p);
    }
}

/// Declares a constructor that is `const`, except with the atomics of a model checker, which cannot
/// be made or dropped in a `const fn`.
macro_rules! const_unless_modelled {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        #[cfg(not(any(loom, shuttle)))]
        $(#[$meta])* $vis const fn $($rest)*
        #[cfg(any(loom, shuttle))]
        $(#[$meta])* $vis fn $($rest)*
    };
}
pub(crate) use const_unless_modelled;
