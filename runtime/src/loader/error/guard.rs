//! Code of the user's that may panic, run where a panic must not go on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::BoxError;
use crate::loader::error::failure::Cause;

/// Runs code of the user's: its error, or its panic in words.
#[inline(always)]
pub(crate) fn guarded<T>(code: impl FnOnce() -> Result<T, BoxError>) -> Result<T, Cause> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(outcome) => outcome.map_err(Cause::Error),
        Err(panic) => Err(Cause::Panic(last_words(panic))),
    }
}

/// Runs code of the user's: its error, with a panic as one.
pub(crate) fn probe<T>(code: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    guarded(code).map_err(Cause::into_error)
}

/// Runs code of the loader's own that has [guarded] what is the user's in it, and fails if a panic gets out all the same.
///
/// What the code gives goes through memory. So it had better be nothing, or a word or two.
#[inline(always)]
pub(crate) fn caught<T>(code: impl FnOnce() -> T) -> Result<T, Cause> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| Cause::Panic(last_words(panic)))
}

/// Runs code of the user's whose panic is no batch's error: the panic hook has said it.
pub(crate) fn quietly(code: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(code)) {
        last_words(panic);
    }
}

/// Drops what is the user's, come what may.
pub(crate) fn dispose<T>(value: T) {
    quietly(|| drop(value));
}

/// Drops several such values. Together they could not be: a second panic while the first one unwinds ends the process.
pub(crate) fn dispose_each<T>(values: impl IntoIterator<Item = T>) {
    values.into_iter().for_each(dispose);
}

/// What a panic said, if it said it in words.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// What a panic said, and its end. A payload that panics when it is dropped would take the thread with it, and so it is
/// dropped under guard, and the second payload not at all.
#[cold]
pub(crate) fn last_words(panic: Box<dyn Any + Send>) -> String {
    let message = panic_message(&*panic);
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
    message
}
