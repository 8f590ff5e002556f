//! The one place that swaps core's atomics for loom's.
//!
//! Under `--cfg loom` every atomic, fence and cell of the rings is loom's, so that the models in `tests/` explore
//! their interleavings; otherwise they are core's own and this module costs nothing.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Tells the processor, or loom, that this thread waits for another one.
#[inline]
pub(crate) fn spin_hint() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
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

    /// A pointer for reading: under loom this moment counts as a read.
    #[inline]
    pub(crate) fn read_ptr(&self) -> *const T {
        #[cfg(not(loom))]
        return self.0.get();
        #[cfg(loom)]
        return self.0.with(|p| p);
    }

    /// A pointer for writing: under loom this moment counts as a write.
    #[inline]
    pub(crate) fn write_ptr(&self) -> *mut T {
        #[cfg(not(loom))]
        return self.0.get();
        #[cfg(loom)]
        return self.0.with_mut(|p| p);
    }
}

/// Declares a constructor that is `const` where the atomics allow it (everywhere but under loom).
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$meta])* $vis const fn $($rest)*
        #[cfg(loom)]
        $(#[$meta])* $vis fn $($rest)*
    };
}
pub(crate) use const_unless_loom;
