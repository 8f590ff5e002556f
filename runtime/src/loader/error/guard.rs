//! Runs user code that may panic, at places where a panic must not propagate.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::BoxError;
use crate::loader::error::failure::Cause;

/// Runs user code and returns its error, or the message of its panic.
#[inline(always)]
pub(crate) fn guarded<T>(code: impl FnOnce() -> Result<T, BoxError>) -> Result<T, Cause> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(outcome) => outcome.map_err(Cause::from),
        Err(panic) => Err(Cause::Panic(take_message(panic))),
    }
}

/// Runs user code and returns its error; a panic becomes an error, too.
pub(crate) fn probe<T>(code: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    guarded(code).map_err(Cause::into_error)
}

/// Runs the loader's own code, and returns an error if it panics. User code that it calls is
/// already [guarded].
///
/// The return value goes through memory, so it should be empty, or one or two machine words.
#[inline(always)]
pub(crate) fn caught<T>(code: impl FnOnce() -> T) -> Result<T, Cause> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| Cause::Panic(take_message(panic)))
}

/// Runs user code whose panic is not an error of any batch. The panic is caught after the panic
/// hook has reported it.
pub(crate) fn catch_panic(code: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(code)) {
        take_message(panic);
    }
}

/// Drops a user's value and catches a panic in its `drop`.
pub(crate) fn dispose<T>(value: T) {
    catch_panic(|| drop(value));
}

/// Drops several values of the user, each separately: a second panic while the first one unwinds
/// would abort the process.
pub(crate) fn dispose_each<T>(values: impl IntoIterator<Item = T>) {
    values.into_iter().for_each(dispose);
}

/// Returns the message of a panic, if its payload is a string.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// Returns the message of a panic and drops its payload. A payload that panics when it is dropped
/// would end the thread, so it is dropped under guard, and the payload of that second panic is
/// leaked.
#[cold]
pub(crate) fn take_message(panic: Box<dyn Any + Send>) -> String {
    let message = panic_message(&*panic);
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
    message
}
