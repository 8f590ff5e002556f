//! What the main loop leaves for the interrupt.

use core::cell::RefCell;

use cortex_m::interrupt::{self, Mutex};

/// A place for one value, which the interrupt's job takes up.
pub struct Shared<T>(Mutex<RefCell<Option<T>>>);

impl<T> Shared<T> {
    pub const fn empty() -> Self {
        Self(Mutex::new(RefCell::new(None)))
    }

    pub fn put(&self, value: T) {
        // What was there is dropped by itself: it may be the side of a ring, which notifies.
        drop(interrupt::free(|cs| self.0.borrow(cs).replace(Some(value))));
    }

    pub fn take(&self) -> Option<T> {
        interrupt::free(|cs| self.0.borrow(cs).take())
    }

    /// Does something with the value, if there is one: only in the interrupt, which nothing interrupts.
    pub fn with(&self, job: impl FnOnce(&mut T)) {
        interrupt::free(|cs| self.0.borrow(cs).borrow_mut().as_mut().map(job));
    }
}
