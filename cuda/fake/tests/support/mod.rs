//! Driver calls for tests: by name, with raw handles and numeric codes.
#![allow(dead_code, unused_macros, unused_imports, reason = "each test uses some of it")]

use std::ffi::c_void;

pub(crate) use cudarc::driver::sys;
use sys::{CUdeviceptr, CUevent, CUstream};

/// Makes a driver call and returns its code, 0 on success.
macro_rules! cu {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: the fake driver checks its arguments, and the memory that tests pass outlives its
        // copies.
        let result = unsafe { crate::support::sys::$name($($arg),*) };
        result as u32
    }};
}
pub(crate) use cu;

pub(crate) const NON_BLOCKING: u32 = 1;
pub(crate) const NO_TIMING: u32 = 2;
pub(crate) const PORTABLE: u32 = 1;

pub(crate) const NOT_READY: u32 = 600;

/// Retains the primary context of a device once more, and makes it current.
pub(crate) fn context(ordinal: i32) {
    assert_eq!(cu!(cuInit(0)), 0);
    let mut context = std::ptr::null_mut();
    assert_eq!(cu!(cuDevicePrimaryCtxRetain(&mut context, ordinal)), 0);
    assert_eq!(cu!(cuCtxSetCurrent(context)), 0);
}

pub(crate) fn stream(flags: u32) -> CUstream {
    let mut stream = std::ptr::null_mut();
    assert_eq!(cu!(cuStreamCreate(&mut stream, flags)), 0);
    stream
}

pub(crate) fn event() -> CUevent {
    let mut event = std::ptr::null_mut();
    assert_eq!(cu!(cuEventCreate(&mut event, NO_TIMING)), 0);
    event
}

pub(crate) fn device_memory(bytes: usize) -> CUdeviceptr {
    let mut start = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&mut start, bytes)), 0);
    start
}

/// Allocates page-locked memory through the driver.
pub(crate) fn host_memory(bytes: usize) -> *mut u8 {
    let mut start = std::ptr::null_mut();
    assert_eq!(cu!(cuMemHostAlloc(&mut start, bytes, PORTABLE)), 0);
    start.cast()
}

pub(crate) fn write(to: *mut u8, bytes: usize, value: u8) {
    // SAFETY: tests pass memory of at least `bytes` bytes.
    unsafe { std::ptr::write_bytes(to, value, bytes) };
}

pub(crate) fn to_device(to: CUdeviceptr, from: *const u8, bytes: usize, stream: CUstream) -> u32 {
    cu!(cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream))
}

pub(crate) fn bytes_on_device(from: CUdeviceptr, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0u8; bytes];
    assert_eq!(cu!(cuMemcpyDtoH_v2(copy.as_mut_ptr().cast::<c_void>(), from, bytes)), 0);
    copy
}
