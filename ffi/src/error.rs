//! The error object of a call that failed.

use std::ffi::{CString, c_char};
use std::ptr::null;

use crate::boundary::guarded;
use crate::failure::Failure;
use crate::status::{SLOTLINE_OK, slotline_status};

/// Why a call failed. It belongs to whoever got it, and may be read by any thread.
#[derive(Debug)]
pub struct slotline_error {
    status: slotline_status,
    message: CString,
    index: i64,
    task: i64,
    worker: i64,
}

impl slotline_error {
    #[cold]
    pub(crate) fn boxed(failure: Failure) -> *mut Self {
        let mut message = failure.message;
        message.retain(|c| c != '\0');
        let number = |value: Option<usize>| value.map_or(-1, |value| i64::try_from(value).unwrap_or(i64::MAX));
        Box::into_raw(Box::new(Self {
            status: failure.status,
            message: CString::new(message).unwrap_or_default(),
            index: number(failure.index),
            task: number(failure.task),
            worker: number(failure.worker),
        }))
    }
}

/// The status that came with it; `SLOTLINE_OK` for NULL.
///
/// # Safety
///
/// `error` must be NULL or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_code(error: *const slotline_error) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.map_or(SLOTLINE_OK, |error| error.status)
}

/// What happened, at what, why, and what to do: the whole chain of causes, in UTF-8. It lives as long as the error; NULL for
/// NULL.
///
/// # Safety
///
/// As of `slotline_error_code`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_message(error: *const slotline_error) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.map_or(null(), |error| error.message.as_ptr())
}

/// The dataset index of the sample at fault; -1 if there is none.
///
/// # Safety
///
/// As of `slotline_error_code`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_index(error: *const slotline_error) -> i64 {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.map_or(-1, |error| error.index)
}

/// The number of the batch in its pass; -1 if there is none.
///
/// # Safety
///
/// As of `slotline_error_code`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_task(error: *const slotline_error) -> i64 {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.map_or(-1, |error| error.task)
}

/// The number of the worker that it happened in; -1 if it was the calling thread, or nobody knows.
///
/// # Safety
///
/// As of `slotline_error_code`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_worker(error: *const slotline_error) -> i64 {
    // SAFETY: the caller's word.
    unsafe { error.as_ref() }.map_or(-1, |error| error.worker)
}

/// Frees an error; NULL is fine. Any thread.
///
/// # Safety
///
/// As of `slotline_error_code`; nobody may use it from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_free(error: *mut slotline_error) {
    if !error.is_null() {
        // SAFETY: it was made by `boxed`, and the caller gives it up.
        guarded((), || drop(unsafe { Box::from_raw(error) }));
    }
}
