//! Handling of panics, and of misuse that would corrupt memory.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Runs the body of a function that cannot fail, and returns `otherwise` if it panics.
#[inline(always)]
pub(crate) fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        std::mem::forget(panic);
        otherwise
    })
}

/// Drops an object that the library created in a box. Does nothing for NULL.
///
/// # Safety
///
/// `object` must be NULL or come from `Box::into_raw`, and must not be used afterwards.
pub(crate) unsafe fn free<T>(object: *mut T) {
    if !object.is_null() {
        // SAFETY: the caller upholds this function's safety contract.
        guarded((), || drop(unsafe { Box::from_raw(object) }));
    }
}

/// Aborts the process because an object was freed twice, which would otherwise corrupt memory.
#[cold]
pub(crate) fn freed_twice(what: &str) -> ! {
    eprintln!("slotline: a {what} was freed twice; free each once");
    std::process::abort();
}
