//! Worker processes that a command starts.

use std::ffi::c_void;

use crate::abi::slotline_failure;
use crate::data::dataset::slotline_dataset;

/// Makes the dataset of a worker from the `len` bytes of `spawn_setup`, which are lent to the callback. Returns 0 and the
/// dataset in `*out`, which the library then owns, or fails with `slotline_fail`.
pub type slotline_make_dataset = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        setup: *const u8,
        len: usize,
        out: *mut *mut slotline_dataset,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// Becomes a worker, if a loader has started this process as one (`spawn` in `slotline_options`); otherwise returns at once.
///
/// Call this at the start of `main`: what comes before it runs in each worker, and what comes after it does not. A worker makes
/// its dataset with `make`, which is called with `user`, reads samples until the loader is freed or its process ends, and then
/// ends its own process with `exit`, so that this function does not return. The dataset's drop functions run before that, unless
/// the worker is killed.
///
/// The dataset must have the length and the fields of the loader's, but may be of another kind. It must not be a stream. If it
/// differs, or if `make` is NULL or fails, `SLOTLINE_ERROR_WORKER_DIED` of the loader says why.
///
/// The process takes its standard input for this, which is empty from then on, and ignores SIGINT, since a terminal sends that to
/// all processes of a program. No other thread may change the environment during this call. Only Linux has such workers; on
/// other systems this function always returns at once.
///
/// # Safety
///
/// `make` must be NULL or a function that can be called with `user`, and no other thread may change the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_work_if_spawned(make: slotline_make_dataset, user: *mut c_void) {
    #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
    // SAFETY: the caller upholds the same contract.
    crate::abi::guarded((), || unsafe { crate::loader::processes::work(make, user) });
    #[cfg(not(all(target_os = "linux", not(any(shuttle, delays)))))]
    let _ = (make, user);
}
