//! Values that the main loop passes to the interrupt.

use core::cell::RefCell;

use cortex_m::interrupt::{self, Mutex};

/// A place for one value, which the interrupt's job uses.
pub struct Shared<T>(Mutex<RefCell<Option<T>>>);

impl<T> Shared<T> {
    pub const fn empty() -> Self {
        Self(Mutex::new(RefCell::new(None)))
    }

    pub fn put(&self, value: T) {
        // The previous value is dropped outside of the critical section: it may be a side of a ring, whose drop
        // notifies.
        drop(interrupt::free(|cs| self.0.borrow(cs).replace(Some(value))));
    }

    pub fn take(&self) -> Option<T> {
        interrupt::free(|cs| self.0.borrow(cs).take())
    }

    /// Calls `job` with the value, if there is one. Use this only in the interrupt, which is never interrupted.
    pub fn with(&self, job: impl FnOnce(&mut T)) {
        interrupt::free(|cs| self.0.borrow(cs).borrow_mut().as_mut().map(job));
    }
}
