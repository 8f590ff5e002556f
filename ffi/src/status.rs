//! Status codes.

use std::ffi::c_char;

/// The result of a call: `SLOTLINE_OK`, `SLOTLINE_END`, or an error. Later versions may add values.
pub type slotline_status = i32;

/// The call succeeded.
pub const SLOTLINE_OK: slotline_status = 0;
/// The pass has ended. There is no error object.
pub const SLOTLINE_END: slotline_status = 1;
/// An argument is invalid: a null pointer, a struct that is too short, a number out of range, or a string that is not UTF-8.
pub const SLOTLINE_INVALID: slotline_status = 2;
/// The loader cannot be built: options exclude each other, or memory or threads are not available.
pub const SLOTLINE_BUILD: slotline_status = 3;
/// A file cannot be read.
pub const SLOTLINE_SOURCE: slotline_status = 4;
/// A sample could not be read. The pass continues with the next batch.
pub const SLOTLINE_SAMPLE: slotline_status = 5;
/// slotline panicked, which is a bug; the panic was caught at the C boundary. If the error has an index, the pass continues.
pub const SLOTLINE_PANIC: slotline_status = 6;
/// There were more bad samples than `on_error` allows. The pass continues.
pub const SLOTLINE_BAD_SAMPLES: slotline_status = 7;
/// No batch was ready within the timeout. The next call waits for the same batch again.
pub const SLOTLINE_TIMEOUT: slotline_status = 8;
/// The batches that were not freed leave no memory for the next one. Free one and try again.
pub const SLOTLINE_HELD: slotline_status = 9;
/// `worker_init` failed in a worker. The pass continues with the other workers.
pub const SLOTLINE_WORKER_INIT: slotline_status = 10;
/// A sampler failed. The pass has ended.
pub const SLOTLINE_SAMPLER: slotline_status = 11;
/// A state is damaged, or does not match the loader.
pub const SLOTLINE_STATE: slotline_status = 12;
/// The loader was stopped, or the process was forked and the workers are not in this process.
pub const SLOTLINE_STOPPED: slotline_status = 13;
/// A CUDA device or its driver failed.
pub const SLOTLINE_DEVICE: slotline_status = 14;
/// The worker processes ended or could not start, or a worker ended because of a bug in slotline. Nothing more comes from the
/// loader.
pub const SLOTLINE_WORKER_DIED: slotline_status = 15;
/// The collate function failed, without a sample that could not be read. The pass continues with the next batch.
pub const SLOTLINE_COLLATE: slotline_status = 16;

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
