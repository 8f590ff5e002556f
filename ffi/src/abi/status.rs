//! Status codes.

use std::ffi::c_char;

pub use self::slotline_status::*;

/// The result of a call: `SLOTLINE_OK`, `SLOTLINE_END`, or an error. Later versions may add values.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum slotline_status {
    /// The call succeeded.
    SLOTLINE_OK = 0,
    /// The pass has ended. There is no error object.
    SLOTLINE_END = 1,
    /// An argument is invalid: a null pointer, a struct that is too short, a number out of range,
    /// or a string that is not UTF-8.
    SLOTLINE_ERROR_INVALID = 2,
    /// The loader cannot be built: options exclude each other, or memory or threads are not available.
    SLOTLINE_ERROR_BUILD = 3,
    /// A file cannot be read.
    SLOTLINE_ERROR_SOURCE = 4,
    /// A sample could not be read. The pass continues with the next batch.
    SLOTLINE_ERROR_SAMPLE = 5,
    /// slotline panicked, which is a bug; the panic was caught at the C boundary. If the error has an index, the pass continues.
    SLOTLINE_ERROR_PANIC = 6,
    /// There were more bad samples than `on_error` allows. The pass continues.
    SLOTLINE_ERROR_BAD_SAMPLES = 7,
    /// No batch was ready within the timeout. The next call waits for the same batch again.
    SLOTLINE_ERROR_TIMEOUT = 8,
    /// The batches that were not freed leave no memory for the next one. Free one and try again.
    SLOTLINE_ERROR_HELD = 9,
    /// `worker_init` failed in a worker. The pass continues with the other workers.
    SLOTLINE_ERROR_WORKER_INIT = 10,
    /// A sampler failed. The pass has ended.
    SLOTLINE_ERROR_SAMPLER = 11,
    /// A state is damaged, or does not match the loader.
    SLOTLINE_ERROR_STATE = 12,
    /// The loader was stopped, or the process was forked and the workers are not in this process.
    SLOTLINE_ERROR_STOPPED = 13,
    /// A CUDA device or its driver failed.
    SLOTLINE_ERROR_DEVICE = 14,
    /// The worker processes ended or could not start, or a worker ended because of a bug in
    /// slotline. The loader returns no more batches.
    SLOTLINE_ERROR_WORKER_DIED = 15,
    /// The collate function failed, although all of its samples could be read. The pass continues
    /// with the next batch.
    SLOTLINE_ERROR_COLLATE = 16,
}

/// The version of this header. It works only with a library of the same version.
pub const SLOTLINE_ABI_VERSION: u32 = 1;

/// Returns the header version that the library was built with, to compare with `SLOTLINE_ABI_VERSION`. Can be called from any
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn slotline_abi_version() -> u32 {
    SLOTLINE_ABI_VERSION
}

/// Returns the library's version, such as "0.1.0". The string is never freed. Can be called from any thread.
#[unsafe(no_mangle)]
pub extern "C" fn slotline_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
