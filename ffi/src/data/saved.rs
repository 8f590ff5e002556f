//! Bytes that a callback saves in a loader's state. They are stored as hexadecimal text.

use std::fmt::Write;

use crate::abi::{SLOTLINE_ERROR_INVALID, SLOTLINE_OK, check, guarded, slotline_status};

/// Receives the bytes that a callback saves. The callback may use it until it returns.
#[derive(Debug)]
pub struct slotline_saved(pub(crate) String);

/// Appends bytes to those saved so far.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, or more bytes than fit in memory.
///
/// # Safety
///
/// `saved` must be NULL or the pointer that this callback received; `bytes` must point to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_saved_append(
    saved: *mut slotline_saved,
    bytes: *const u8,
    len: usize,
) -> slotline_status {
    guarded(SLOTLINE_ERROR_INVALID, || {
        // SAFETY: the caller guarantees that `saved` is NULL or valid, and that `bytes` points to `len` bytes.
        let (saved, bytes) = unsafe { (saved.as_mut(), check::slice(bytes, len, "bytes")) };
        let (Some(saved), Ok(bytes)) = (saved, bytes) else { return SLOTLINE_ERROR_INVALID };
        for byte in bytes {
            let _ = write!(saved.0, "{byte:02x}");
        }
        SLOTLINE_OK
    })
}

/// Decodes saved bytes; `None` if the text is damaged.
pub(crate) fn bytes(saved: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| match pair {
        [a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
            u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
        }
        _ => None,
    };
    saved.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_bytes_round_trip_and_other_text_is_refused() {
        let mut saved = slotline_saved(String::new());
        // SAFETY: each non-null pointer is valid for the length that is passed with it.
        unsafe {
            assert_eq!(slotline_saved_append(&mut saved, [0, 255, 16].as_ptr(), 3), SLOTLINE_OK);
            assert_eq!(slotline_saved_append(&mut saved, std::ptr::null(), 0), SLOTLINE_OK);
            assert_eq!(slotline_saved_append(&mut saved, std::ptr::null(), 1), SLOTLINE_ERROR_INVALID);
            assert_eq!(slotline_saved_append(std::ptr::null_mut(), [1].as_ptr(), 1), SLOTLINE_ERROR_INVALID);
        }
        assert_eq!((saved.0.as_str(), bytes(&saved.0)), ("00ff10", Some(vec![0, 255, 16])));
        assert_eq!((bytes("0"), bytes("zz"), bytes("é")), (None, None, None));
        assert_eq!(bytes("+1"), None);
    }
}
