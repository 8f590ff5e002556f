//! Bytes and texts that were made for the caller.

use std::ptr::null;

use crate::boundary::guarded;

/// Bytes that belong to whoever got them; any thread may read them. Behind them is a NUL, so that a text can be used as such.
#[derive(Debug)]
pub struct slotline_bytes(Vec<u8>);

impl slotline_bytes {
    pub(crate) fn boxed(bytes: impl Into<Vec<u8>>) -> *mut Self {
        let mut bytes = bytes.into();
        bytes.push(0);
        Box::into_raw(Box::new(Self(bytes)))
    }
}

/// The bytes, which live as long as the object. NULL for NULL.
///
/// # Safety
///
/// `bytes` must be NULL or an object that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_bytes_data(bytes: *const slotline_bytes) -> *const u8 {
    // SAFETY: the caller's word.
    unsafe { bytes.as_ref() }.map_or(null(), |bytes| bytes.0.as_ptr())
}

/// How many there are, without the NUL behind them. 0 for NULL.
///
/// # Safety
///
/// As of `slotline_bytes_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_bytes_len(bytes: *const slotline_bytes) -> usize {
    // SAFETY: the caller's word.
    unsafe { bytes.as_ref() }.map_or(0, |bytes| bytes.0.len() - 1)
}

/// Frees them; NULL is fine. Any thread.
///
/// # Safety
///
/// As of `slotline_bytes_data`; nobody may use them from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_bytes_free(bytes: *mut slotline_bytes) {
    if !bytes.is_null() {
        // SAFETY: it was made by `boxed`, and the caller gives it up.
        guarded((), || drop(unsafe { Box::from_raw(bytes) }));
    }
}
