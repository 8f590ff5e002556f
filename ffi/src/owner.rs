//! A pointer of the caller's with what it is to be dropped by.

use std::ffi::c_void;

/// Drops a user's pointer. It may run on any thread.
pub type slotline_drop = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// A user's pointer, which is ours now; dropped once, by the user's function.
#[derive(Debug)]
pub(crate) struct Owner {
    user: *mut c_void,
    drop: slotline_drop,
}

// SAFETY: whoever hands over a pointer with callbacks says that these may use it on any thread, several at once; whoever
// hands over memory, that it may be read so. Both may be dropped on any thread.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    /// Takes a pointer over.
    pub(crate) fn new(user: *mut c_void, drop: slotline_drop) -> Self {
        Self { user, drop }
    }

    /// The pointer.
    pub(crate) fn user(&self) -> *mut c_void {
        self.user
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: the pointer was handed over together with this function, and this is the only time.
            unsafe { drop(self.user) };
        }
    }
}
