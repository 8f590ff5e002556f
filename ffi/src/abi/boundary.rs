//! The boundary between Rust and C: no panic unwinds into C.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use super::check;
use super::error::slotline_error;
use super::failure::Failure;
use super::guard::panic_message;
use super::status::{SLOTLINE_ERROR_PANIC, SLOTLINE_OK, slotline_status};

/// Runs the body of a fallible function. If it fails or panics, `*error` receives an error object, unless `error` is NULL.
///
/// If it succeeds, `*error` becomes NULL.
///
/// # Safety
///
/// `error` must be NULL, or aligned and writable. The header requires this of every pointer, and a violation could not be
/// reported without a valid `error`.
#[inline(always)]
pub(crate) unsafe fn boundary(
    error: *mut *mut slotline_error,
    body: impl FnOnce() -> Result<slotline_status, Failure>,
) -> slotline_status {
    // Unwind safety: a panic leaves only the loader in an intermediate state, and the loader either
    // defines how it continues after a panic, or is dropped by the unwinding.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => {
            if !error.is_null() {
                // SAFETY: the caller guarantees that `error` is NULL or writable, and it is not NULL.
                unsafe { error.write(null_mut()) };
            }
            return status;
        }
        Ok(Err(failure)) => failure,
        Err(panic) => panicked(panic),
    };
    // SAFETY: the caller guarantees that `error` is NULL or writable.
    unsafe { report(error, failure) }
}

/// Runs the body of a fallible function whose only status is success. See [`boundary`].
///
/// # Safety
///
/// The same as for `boundary`.
#[inline(always)]
pub(crate) unsafe fn done(
    error: *mut *mut slotline_error,
    body: impl FnOnce() -> Result<(), Failure>,
) -> slotline_status {
    // SAFETY: the caller upholds the same contract.
    unsafe { boundary(error, || body().map(|()| SLOTLINE_OK)) }
}

/// Runs a constructor. On success, `*out` receives a handle to the new object; if it fails or
/// panics, `*error` receives an error object.
///
/// # Safety
///
/// `out` and `error` must be NULL or writable.
pub(crate) unsafe fn made<T>(
    out: *mut *mut T,
    error: *mut *mut slotline_error,
    make: impl FnOnce() -> Result<T, Failure>,
) -> slotline_status {
    // SAFETY: the caller guarantees that `out` and `error` are NULL or writable.
    unsafe {
        done(error, || {
            // If `make` panics, `*out` stays NULL. An invalid `out` is reported only after `make`,
            // which must take ownership of the user's pointers in any case.
            let place = check::place(out, null_mut(), "out").map(drop);
            let thing = make();
            place?;
            *out = Box::into_raw(Box::new(thing?));
            Ok(())
        })
    }
}

#[cold]
unsafe fn report(error: *mut *mut slotline_error, failure: Failure) -> slotline_status {
    let status = failure.status;
    if !error.is_null() {
        // SAFETY: the caller guarantees that `error` is NULL or writable, and it is not NULL.
        unsafe { error.write(slotline_error::boxed(failure)) };
    }
    status
}

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> Failure {
    let message = panic_message(&*panic).to_owned();
    // Dropping a panic's payload may panic again.
    std::mem::forget(panic);
    Failure::new(
        SLOTLINE_ERROR_PANIC,
        format!("slotline panicked: {message}; this is a bug in slotline, please report it"),
    )
}
