//! The driver's error codes, with their names in CUDA.

use std::ffi::CStr;

/// The result of a call; the error is a `CUresult`.
pub(super) type Outcome<T = ()> = Result<T, u32>;

macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        $(#[allow(dead_code, reason = "some are only used when a test injects them")]
        pub(super) const $name: u32 = $code;)*

        /// Returns a code's name and description.
        pub(super) fn describe(code: u32) -> Option<(&'static CStr, &'static CStr)> {
            let texts = match code {
                0 => (c"CUDA_SUCCESS".to_bytes_with_nul(), c"no error".to_bytes_with_nul()),
                $($code => (concat!("CUDA_ERROR_", stringify!($name), "\0").as_bytes(), concat!($text, "\0").as_bytes()),)*
                _ => return None,
            };
            CStr::from_bytes_with_nul(texts.0).ok().zip(CStr::from_bytes_with_nul(texts.1).ok())
        }
    };
}

codes! {
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    DEINITIALIZED = 4, "driver shutting down";
    NO_DEVICE = 100, "no CUDA-capable device is detected";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_IMAGE = 200, "device kernel image is invalid";
    INVALID_CONTEXT = 201, "invalid device context";
    NO_BINARY_FOR_GPU = 209, "no kernel image is available for execution on the device";
    ECC_UNCORRECTABLE = 214, "uncorrectable ECC error encountered";
    INVALID_PTX = 218, "a PTX JIT compilation failed";
    INVALID_HANDLE = 400, "invalid resource handle";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "device not ready";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    LAUNCH_TIMEOUT = 702, "the launch timed out and was terminated";
    CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "pointer does not correspond to a registered memory region";
    LAUNCH_FAILED = 719, "unspecified launch failure";
    NOT_SUPPORTED = 801, "operation not supported";
    UNKNOWN = 999, "unknown error";
}
