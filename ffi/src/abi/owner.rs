//! A user pointer and the function that drops it.

use std::ffi::c_void;

/// Drops a user pointer. It may run on any thread.
pub type slotline_drop = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// A user pointer that the library owns. It is dropped once, by the user's function.
#[derive(Debug)]
pub(crate) struct Owner {
    user: *mut c_void,
    drop: slotline_drop,
}

// SAFETY: a user who hands over a pointer with callbacks agrees that the callbacks may use it on any thread, and several at
// once; a user who hands over memory agrees that any thread may read it. Both may be dropped on any thread.
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
            // SAFETY: the pointer was handed over together with this function, which is called only once.
            unsafe { drop(self.user) };
        }
    }
}
