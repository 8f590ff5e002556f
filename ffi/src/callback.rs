//! What callbacks are given, and how they say what went wrong.

use std::ffi::c_char;

use slotline::{BoxError, WorkerInfo};

use crate::boundary::guarded;
use crate::check;

/// Where a callback says why it fails; lent to it until it returns.
#[derive(Debug, Default)]
pub struct slotline_failure {
    message: Option<String>,
}

/// Says why a callback fails, in UTF-8, which is copied. It must then return something other than 0. Does nothing with NULL.
///
/// # Safety
///
/// `failure` must be NULL or what this callback was given; `message` NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_fail(failure: *mut slotline_failure, message: *const c_char) {
    guarded((), || {
        // SAFETY: the caller's word.
        if let Some(failure) = unsafe { failure.as_mut() } {
            // SAFETY: the caller's word.
            failure.message = Some(unsafe { words(message) });
        }
    });
}

/// What a callback says, as well as it can be read.
///
/// # Safety
///
/// `message` must be NULL or end with a NUL.
pub(crate) unsafe fn words(message: *const c_char) -> String {
    // SAFETY: the caller's word.
    unsafe { check::lossy(message) }.unwrap_or_else(|| "no message".to_owned())
}

/// Calls a callback that gives 0, or fails.
pub(crate) fn call(what: &str, callback: impl FnOnce(*mut slotline_failure) -> i32) -> Result<(), BoxError> {
    match answer(callback)? {
        0 => Ok(()),
        code => Err(format!("{what} gave {code}").into()),
    }
}

/// Calls a callback, and gives what it gives, unless it says why it fails.
pub(crate) fn answer(callback: impl FnOnce(*mut slotline_failure) -> i32) -> Result<i32, BoxError> {
    let mut failure = slotline_failure::default();
    let code = callback(&mut failure);
    match (failure.message, code) {
        (Some(message), _) => Err(message.into()),
        (None, code) => Ok(code),
    }
}

/// Which worker runs a callback; lent to it until it returns. Later versions may have more fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_worker {
    /// The size of this struct in the library.
    pub struct_size: usize,
    /// Its number, from 0; -1 if there are no workers, and the thread that asks for batches does all.
    pub id: i64,
    /// How many workers there are.
    pub num_workers: usize,
    /// Its seed in this pass: the pass's own, and its number more. 0 if there are no workers.
    pub seed: u64,
}

impl From<Option<WorkerInfo>> for slotline_worker {
    fn from(worker: Option<WorkerInfo>) -> Self {
        let (id, num_workers, seed) = worker.map_or((-1, 0, 0), |w| (w.id() as i64, w.num_workers(), w.seed()));
        Self { struct_size: size_of::<Self>(), id, num_workers, seed }
    }
}
