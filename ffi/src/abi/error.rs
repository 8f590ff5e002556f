//! The error object of a failed call.

use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use super::cause::Payload;
use super::failure::Failure;
use super::guard::{free, guarded};
use super::status::{SLOTLINE_ERROR_COLLATE, SLOTLINE_ERROR_INVALID, SLOTLINE_OK, slotline_status};
use super::text::{c_str, message_text};

/// Describes why a call failed. It belongs to the caller that received it, and any thread may read it.
#[derive(Debug)]
pub struct slotline_error {
    status: slotline_status,
    message: CString,
    index: i64,
    task: i64,
    worker: i64,
    payload: Option<Arc<Payload>>,
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
            payload: failure.payload,
        }))
    }
}

/// Creates an error, for libraries on top of slotline that report their own failures in the same
/// way. `code` is one of the errors in `slotline_status`; for any other number this returns NULL.
/// The message is UTF-8 and is copied. The caller frees the error.
///
/// # Safety
///
/// `message` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_new(code: i32, message: *const c_char) -> *mut slotline_error {
    if !(SLOTLINE_ERROR_INVALID as i32..=SLOTLINE_ERROR_COLLATE as i32).contains(&code) {
        return null_mut();
    }
    // SAFETY: all numbers from the first to the last error are values of the enum.
    let code = unsafe { std::mem::transmute::<i32, slotline_status>(code) };
    // SAFETY: the caller guarantees that `message` is NULL or ends with a NUL.
    guarded(null_mut(), || slotline_error::boxed(Failure::new(code, unsafe { message_text(message) })))
}

/// Returns the status of the failed call; `SLOTLINE_OK` for NULL.
///
/// # Safety
///
/// `error` must be NULL or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_code(error: *const slotline_error) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { error.as_ref() }.map_or(SLOTLINE_OK, |error| error.status)
}

/// Returns the message with the whole chain of causes, in UTF-8: what failed, where, why, and how
/// to fix it. The string is valid until the error is freed. NULL for NULL.
///
/// # Safety
///
/// The same as for `slotline_error_code`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_message(error: *const slotline_error) -> *const c_char {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { error.as_ref() }.map_or(null(), |error| error.message.as_ptr())
}

/// Returns the dataset index of the sample that failed; -1 if the error is not about one sample.
///
/// # Safety
///
/// The same as for `slotline_error_code`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_index(error: *const slotline_error) -> i64 {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { error.as_ref() }.map_or(-1, |error| error.index)
}

/// Returns the number of the failed batch in its pass; -1 if the error is not about one batch.
///
/// # Safety
///
/// The same as for `slotline_error_code`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_task(error: *const slotline_error) -> i64 {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { error.as_ref() }.map_or(-1, |error| error.task)
}

/// Returns the index of the worker that failed; -1 if it was the calling thread, or if it is
/// unknown.
///
/// # Safety
///
/// The same as for `slotline_error_code`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_worker(error: *const slotline_error) -> i64 {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { error.as_ref() }.map_or(-1, |error| error.worker)
}

/// Returns the object that a failing callback attached with `slotline_fail_with` or
/// `slotline_sample_fail_with`, if it was attached with the same `type`; otherwise NULL. It is
/// owned by the error. NULL for NULL.
///
/// # Safety
///
/// The same as for `slotline_error_code`; `type` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_payload(error: *const slotline_error, r#type: *const c_char) -> *mut c_void {
    // SAFETY: the caller upholds this function's safety contract.
    let (error, kind) = unsafe { (error.as_ref(), c_str(r#type)) };
    let payload = error.and_then(|error| error.payload.as_ref());
    payload.zip(kind).and_then(|(payload, kind)| payload.get(kind)).unwrap_or(null_mut())
}

/// Frees an error. Does nothing for NULL. Can be called from any thread.
///
/// # Safety
///
/// The same as for `slotline_error_code`; the error must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_error_free(error: *mut slotline_error) {
    // SAFETY: `boxed` created the error, and the caller transfers its ownership.
    unsafe { free(error) }
}
