//! Bytes and strings that are returned to the caller.

use std::ptr::null;

use super::guard::free;

/// Bytes that are owned by the caller that received them. Any thread may read them. A NUL follows
/// the bytes, so that text can be used as a C string.
#[derive(Debug)]
pub struct slotline_bytes(Vec<u8>);

impl slotline_bytes {
    pub(crate) fn new(bytes: impl Into<Vec<u8>>) -> Self {
        let mut bytes = bytes.into();
        bytes.push(0);
        Self(bytes)
    }
}

/// Returns the bytes, which are valid until the object is freed. NULL for NULL.
///
/// # Safety
///
/// `bytes` must be NULL or an object that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_bytes_data(bytes: *const slotline_bytes) -> *const u8 {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { bytes.as_ref() }.map_or(null(), |bytes| bytes.0.as_ptr())
}

/// Returns the number of bytes, without the NUL that follows them. 0 for NULL.
///
/// # Safety
///
/// The same as for `slotline_bytes_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_bytes_len(bytes: *const slotline_bytes) -> usize {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { bytes.as_ref() }.map_or(0, |bytes| bytes.0.len() - 1)
}

/// Frees the bytes. Does nothing for NULL. Can be called from any thread.
///
/// # Safety
///
/// The same as for `slotline_bytes_data`; the bytes must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_bytes_free(bytes: *mut slotline_bytes) {
    // SAFETY: the library created the object in a box, and the caller transfers its ownership.
    unsafe { free(bytes) }
}
