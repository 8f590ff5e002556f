//! Strings from C.

use std::ffi::{CStr, c_char};

/// Returns a string that ends with a NUL; `None` for NULL.
///
/// # Safety
///
/// The same as for `text`.
pub(crate) unsafe fn c_str<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    // SAFETY: `pointer` is not null, so the caller guarantees that it points to a string that ends with a NUL.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
}

/// Returns a callback's message; bytes that are not UTF-8 are replaced.
///
/// # Safety
///
/// `message` must be NULL or end with a NUL.
pub(crate) unsafe fn message_text(message: *const c_char) -> String {
    // SAFETY: the caller guarantees that `message` is NULL or ends with a NUL.
    unsafe { c_str(message) }.map_or_else(|| "no message".to_owned(), |text| text.to_string_lossy().into_owned())
}
