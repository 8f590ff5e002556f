//! Where Rust ends: no panic goes on into C.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use crate::check;
use crate::error::slotline_error;
use crate::failure::Failure;
use crate::status::{SLOTLINE_OK, SLOTLINE_PANIC, slotline_status};

/// Runs the body of a fallible function. What it fails with, or panics with, goes to `*error`, unless that is NULL.
///
/// `*error` becomes NULL if nothing fails.
///
/// # Safety
///
/// `error` must be NULL, or aligned and writable: the header says so of every pointer, and nothing could be said to a caller whose
/// `error` is not.
#[inline(always)]
pub(crate) unsafe fn boundary(
    error: *mut *mut slotline_error,
    body: impl FnOnce() -> Result<slotline_status, Failure>,
) -> slotline_status {
    // What a panic leaves half done is the loader's, which says for itself how it goes on, or is dropped by the unwinding.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => {
            if !error.is_null() {
                // SAFETY: the caller's word.
                unsafe { error.write(null_mut()) };
            }
            return status;
        }
        Ok(Err(failure)) => failure,
        Err(panic) => panicked(panic),
    };
    // SAFETY: the caller's word.
    unsafe { report(error, failure) }
}

/// Runs a constructor: what it makes goes to `*out`, as a handle, or what it fails with, or panics with, to `*error`.
///
/// # Safety
///
/// `out` and `error` must be NULL or writable.
pub(crate) unsafe fn made<T>(
    out: *mut *mut T,
    error: *mut *mut slotline_error,
    make: impl FnOnce() -> Result<T, Failure>,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            // First, for what it takes over.
            let thing = make();
            let out = check::place(out, null_mut(), "out")?;
            *out = Box::into_raw(Box::new(thing?));
            Ok(SLOTLINE_OK)
        })
    }
}

#[cold]
unsafe fn report(error: *mut *mut slotline_error, failure: Failure) -> slotline_status {
    let status = failure.status;
    if !error.is_null() {
        // SAFETY: the caller's word.
        unsafe { error.write(slotline_error::boxed(failure)) };
    }
    status
}

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> Failure {
    let message = panic_message(&*panic).to_owned();
    // What a panic carries may panic when it is dropped.
    std::mem::forget(panic);
    Failure::new(SLOTLINE_PANIC, format!("slotline panicked: {message}"))
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Runs the body of a function that cannot fail; a panic gives `otherwise`.
#[inline(always)]
pub(crate) fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        std::mem::forget(panic);
        otherwise
    })
}
