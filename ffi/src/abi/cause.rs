//! The reason why a callback failed: its message, and an object that the user attached.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;
use std::{error, fmt};

use super::owner::{Owner, slotline_drop};
use super::text::{c_str, message_text};

/// The reason why a callback failed, as it is passed on to the caller of the loader.
#[derive(Debug)]
pub(crate) struct Cause {
    message: String,
    pub(crate) payload: Option<Arc<Payload>>,
    /// Whether a collate callback failed, rather than a callback of the dataset.
    pub(crate) collates: bool,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for Cause {}

/// An object that the user attached to a failure, such as a C++ exception. It is dropped once, with
/// the last error that contains it.
#[derive(Debug)]
pub(crate) struct Payload {
    owner: Owner,
    /// The name that the user gave to the object's type.
    kind: CString,
}

impl Payload {
    /// Returns the object if it is of this type.
    pub(crate) fn get(&self, kind: &CStr) -> Option<*mut c_void> {
        (*self.kind == *kind).then(|| self.owner.user())
    }
}

impl Cause {
    /// Creates a cause with only a message.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), payload: None, collates: false }
    }

    /// Creates a cause from a message, and takes ownership of `payload` unless that is NULL.
    ///
    /// # Safety
    ///
    /// `message` and `kind` must be NULL or end with a NUL; `drop` must be NULL or a function that can be called with
    /// `payload` on any thread.
    pub(crate) unsafe fn from_c(
        message: *const c_char,
        payload: *mut c_void,
        kind: *const c_char,
        drop: slotline_drop,
    ) -> Self {
        // Take ownership first, so that the object is dropped in any case.
        let owner = (!payload.is_null()).then(|| Owner::new(payload, drop));
        // SAFETY: the caller guarantees that `message` and `kind` are NULL or end with a NUL.
        let (message, kind) = unsafe { (message_text(message), c_str(kind).unwrap_or_default()) };
        let payload = owner.map(|owner| Arc::new(Payload { owner, kind: kind.to_owned() }));
        Self { message, payload, collates: false }
    }

    /// Returns the same cause, marked as a failure of a collate callback.
    pub(crate) fn of_collate(self) -> Self {
        Self { collates: true, ..self }
    }
}

/// Returns the cause in a chain of errors, if a callback's failure is among them.
pub(crate) fn find<'e>(first: Option<&'e (dyn error::Error + 'static)>) -> Option<&'e Cause> {
    std::iter::successors(first, |error| error.source()).find_map(|error| error.downcast_ref())
}
