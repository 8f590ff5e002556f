//! A user pointer and the function that drops it.

use std::ffi::c_void;

/// Drops a user pointer. It may run on any thread.
pub type slotline_drop = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// A user pointer owned by the library, which passes it to the user's `drop` function once.
#[derive(Debug)]
pub(crate) struct Owner {
    user: *mut c_void,
    drop: slotline_drop,
}

// SAFETY: a user who passes a pointer with callbacks allows the callbacks to use it on any thread,
// concurrently; a user who passes memory allows any thread to read it. `drop` may run on any
// thread.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    /// Takes ownership of a pointer.
    pub(crate) fn new(user: *mut c_void, drop: slotline_drop) -> Self {
        Self { user, drop }
    }

    /// Returns the pointer.
    pub(crate) fn user(&self) -> *mut c_void {
        self.user
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: the user passed this function for the pointer, and it is called only once.
            unsafe { drop(self.user) };
        }
    }
}
