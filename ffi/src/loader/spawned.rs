//! Worker processes that a command starts.

use std::ffi::c_void;

use crate::abi::slotline_failure;
use crate::data::dataset::slotline_dataset;

/// Creates the dataset of a worker from the `len` bytes of `spawn_setup`, which are valid until it
/// returns. Returns 0 and a dataset in `*out`, which the library then owns, or another value after
/// setting the reason with `slotline_fail`.
pub type slotline_make_dataset = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        setup: *const u8,
        len: usize,
        out: *mut *mut slotline_dataset,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// Runs as a worker if a loader has started this process as one (`spawn` in `slotline_options`);
/// otherwise returns immediately.
///
/// Call this at the start of `main`: code before the call runs in each worker, code after it does
/// not. A worker creates its dataset by calling `make` with `user`, reads samples until the loader
/// is freed or the loader's process ends, and then ends its own process with `exit`, so that this
/// function does not return. Before that, the dataset's drop functions run, unless the worker is
/// killed.
///
/// The dataset must have the same length and fields as the loader's, but may be of another kind. It
/// must not be a stream. If it differs, or if `make` is NULL or fails, the loader returns
/// `SLOTLINE_ERROR_WORKER_DIED` with the reason.
///
/// The worker uses its standard input for this, which is empty from then on. It ignores SIGINT,
/// since a terminal sends that to all processes of a program. No other thread may change the
/// environment during this call. Such workers are supported only on Linux; on other systems this
/// function always returns immediately.
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
