//! What a call came to, as a number.

use std::ffi::c_char;

/// What a call came to: `SLOTLINE_OK`, `SLOTLINE_END`, or an error. There may be more of them in later versions.
pub type slotline_status = i32;

/// It is done.
pub const SLOTLINE_OK: slotline_status = 0;
/// The pass is over. There is no error object.
pub const SLOTLINE_END: slotline_status = 1;
/// An argument is wrong: a null pointer, a struct that is too short, a number out of range, a text that is not UTF-8.
pub const SLOTLINE_INVALID: slotline_status = 2;
/// There is no such loader: options that exclude each other, memory, threads.
pub const SLOTLINE_BUILD: slotline_status = 3;
/// A file cannot be read.
pub const SLOTLINE_SOURCE: slotline_status = 4;
/// A sample could not be read, or not be collated. The pass goes on with the next batch.
pub const SLOTLINE_SAMPLE: slotline_status = 5;
/// A panic in slotline, stopped at the boundary: a bug. If it has an index, the pass goes on.
pub const SLOTLINE_PANIC: slotline_status = 6;
/// More bad samples than `on_error` allows. The pass goes on.
pub const SLOTLINE_BAD_SAMPLES: slotline_status = 7;
/// No batch within the timeout. The next call waits again.
pub const SLOTLINE_TIMEOUT: slotline_status = 8;
/// Batches that were not freed leave no room for the next one. Free one and ask again.
pub const SLOTLINE_HELD: slotline_status = 9;
/// `worker_init` failed in a worker. The pass goes on with the others.
pub const SLOTLINE_WORKER_INIT: slotline_status = 10;
/// A sampler failed. The pass is over.
pub const SLOTLINE_SAMPLER: slotline_status = 11;
/// A state that is damaged, or does not fit the loader.
pub const SLOTLINE_STATE: slotline_status = 12;
/// The loader was stopped, or its process was forked, and the workers are not in this one.
pub const SLOTLINE_STOPPED: slotline_status = 13;
/// A CUDA device, or its driver.
pub const SLOTLINE_DEVICE: slotline_status = 14;

/// The version of this header. A library with another one cannot be used with it.
pub const SLOTLINE_ABI_VERSION: u32 = 1;

/// The version of the library's header, to be compared with `SLOTLINE_ABI_VERSION`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn slotline_abi_version() -> u32 {
    SLOTLINE_ABI_VERSION
}

/// The library's version, such as "0.1.0". Any thread; the text is there for ever.
#[unsafe(no_mangle)]
pub extern "C" fn slotline_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
