//! The arguments of callbacks, and how callbacks report errors.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use slotline::{BoxError, WorkerInfo};

use super::cause::Cause;
use super::guard::guarded;
use super::owner::slotline_drop;

/// Receives the reason why a callback fails. The callback may use it until it returns.
#[derive(Debug, Default)]
pub struct slotline_failure {
    cause: Option<Cause>,
}

/// Sets the message of a failing callback. The message is UTF-8 and is copied. The callback must then return a nonzero value.
/// Does nothing for NULL.
///
/// # Safety
///
/// `failure` must be NULL or the pointer that this callback received; `message` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_fail(failure: *mut slotline_failure, message: *const c_char) {
    // SAFETY: the caller upholds the contract of the longer form, which is the same.
    unsafe { slotline_fail_with(failure, message, null_mut(), std::ptr::null(), None) }
}

/// Works like `slotline_fail`, and attaches an object of the user, such as an exception.
/// `slotline_error_payload` of the resulting error returns the object. `type` identifies the
/// object's type, such as "my_library.exception"; it is copied.
///
/// Takes ownership of `payload`, unless that is NULL. `drop` is called once, on any thread: when
/// the error is freed, when the error is dropped without being returned (for example with its
/// loader), or immediately if `failure` is NULL. A worker process transfers only the message.
///
/// # Safety
///
/// The same as for `slotline_fail`; `type` must be NULL or end with a NUL; any thread may call `drop` with `payload`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_fail_with(
    failure: *mut slotline_failure,
    message: *const c_char,
    payload: *mut c_void,
    r#type: *const c_char,
    drop: slotline_drop,
) {
    guarded((), || {
        // SAFETY: the caller guarantees that the strings are NULL or end with a NUL, and that `drop` can be called.
        let cause = unsafe { Cause::from_c(message, payload, r#type, drop) };
        // SAFETY: the caller guarantees that `failure` is NULL or the pointer that this callback received.
        if let Some(failure) = unsafe { failure.as_mut() } {
            failure.cause = Some(cause);
        }
    });
}

/// Runs a callback that returns 0 on success.
pub(crate) fn call(what: &str, callback: impl FnOnce(*mut slotline_failure) -> i32) -> Result<(), BoxError> {
    match answer(callback)? {
        0 => Ok(()),
        code => Err(format!("{what} returned {code}").into()),
    }
}

/// Runs a callback, and returns its return value, or the reason that it set with `slotline_fail`.
pub(crate) fn answer(callback: impl FnOnce(*mut slotline_failure) -> i32) -> Result<i32, Cause> {
    let mut failure = slotline_failure::default();
    let code = callback(&mut failure);
    failure.cause.map_or(Ok(code), Err)
}

/// Describes the worker that runs a callback, which may use this struct until it returns. Later
/// versions may add fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_worker {
    /// The size of this struct in the library.
    pub struct_size: usize,
    /// The index of the worker, from 0; -1 if there are no workers and the calling thread loads the
    /// batches.
    pub id: i64,
    /// The number of workers.
    pub num_workers: usize,
    /// The worker's seed in this pass: the seed of the pass plus the worker's index. 0 if there are
    /// no workers.
    pub seed: u64,
}

impl From<Option<WorkerInfo>> for slotline_worker {
    fn from(worker: Option<WorkerInfo>) -> Self {
        let (id, num_workers, seed) = worker.map_or((-1, 0, 0), |w| (w.id() as i64, w.num_workers(), w.seed()));
        Self { struct_size: size_of::<Self>(), id, num_workers, seed }
    }
}
