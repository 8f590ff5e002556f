//! Why a callback failed: its message, and an object of the user that travels with it.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;
use std::{error, fmt};

use super::owner::{Owner, slotline_drop};
use super::text::{c_str, message_text};

/// The reason why a callback failed, on its way to the caller of the loader.
#[derive(Debug)]
pub(crate) struct Cause {
    message: String,
    pub(crate) payload: Option<Arc<Payload>>,
    /// Whether it comes from a collate callback, and not from the dataset.
    pub(crate) collates: bool,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for Cause {}

/// An object of the user, such as a C++ exception. It is dropped once, with the last error that has it.
#[derive(Debug)]
pub(crate) struct Payload {
    owner: Owner,
    /// What the user calls objects of this type.
    kind: CString,
}

impl Payload {
    /// Returns the object if it is of this type.
    pub(crate) fn get(&self, kind: &CStr) -> Option<*mut c_void> {
        (*self.kind == *kind).then(|| self.owner.user())
    }
}

impl Cause {
    /// Makes a cause with a message only.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), payload: None, collates: false }
    }

    /// Makes a cause of a message, and takes ownership of an object, unless that is NULL.
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
        // First, so that the object is dropped whatever happens.
        let owner = (!payload.is_null()).then(|| Owner::new(payload, drop));
        // SAFETY: the caller guarantees that `message` and `kind` are NULL or end with a NUL.
        let (message, kind) = unsafe { (message_text(message), c_str(kind).unwrap_or_default()) };
        let payload = owner.map(|owner| Arc::new(Payload { owner, kind: kind.to_owned() }));
        Self { message, payload, collates: false }
    }

    /// The same cause, as one of a collate callback.
    pub(crate) fn of_collate(self) -> Self {
        Self { collates: true, ..self }
    }
}

/// Returns the cause in a chain of errors, if a callback's failure is among them.
pub(crate) fn find<'e>(first: Option<&'e (dyn error::Error + 'static)>) -> Option<&'e Cause> {
    std::iter::successors(first, |error| error.source()).find_map(|error| error.downcast_ref())
}
