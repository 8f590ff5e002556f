//! The driver functions that this crate calls.
//!
//! cudarc declares them too, but with an enum as the return type. If a later driver returned a
//! number that is not a value of the enum, that would be undefined behaviour, so here the return
//! type is a number. In addition, cudarc panics if a function is missing, whereas [`load`] looks up
//! all functions before any is called.

use std::error::Error;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUresult as Known, CUstream, CUuuid,
};
use libloading::Library;
use slotline::fork::Process;

use crate::error::{DriverError, Unavailable};

/// The return value of a call: a `CUresult`, possibly one that cudarc does not know.
pub(crate) type CUresult = u32;

pub(crate) const SUCCESS: CUresult = Known::CUDA_SUCCESS as u32;
pub(crate) const NOT_INITIALIZED: CUresult = Known::CUDA_ERROR_NOT_INITIALIZED as u32;
pub(crate) const NO_DEVICE: CUresult = Known::CUDA_ERROR_NO_DEVICE as u32;
pub(crate) const INVALID_CONTEXT: CUresult = Known::CUDA_ERROR_INVALID_CONTEXT as u32;
pub(crate) const NOT_READY: CUresult = Known::CUDA_ERROR_NOT_READY as u32;
pub(crate) const CONTEXT_IS_DESTROYED: CUresult = Known::CUDA_ERROR_CONTEXT_IS_DESTROYED as u32;
pub(crate) const ALREADY_REGISTERED: CUresult = Known::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED as u32;
pub(crate) const CAPTURE_UNSUPPORTED: CUresult = Known::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as u32;
pub(crate) const UNKNOWN: CUresult = Known::CUDA_ERROR_UNKNOWN as u32;

/// The driver's library, which is never unloaded.
struct Loaded {
    functions: Functions,
    /// The process that loaded the library.
    process: Process,
}

/// Null, or a pointer to a leaked box. This is not a `OnceLock`, since a child forked while the
/// parent initialises it would wait forever.
static LOADED: AtomicPtr<Loaded> = AtomicPtr::new(null_mut());

fn loaded() -> Option<&'static Loaded> {
    // SAFETY: the pointer is null or comes from a leaked box, which is never freed.
    unsafe { LOADED.load(Ordering::Acquire).as_ref() }
}

/// Declares driver functions by their names in the library. Where a newer name is given, it is used
/// if the library has it.
macro_rules! functions {
    ($($name:ident $(or $newer:literal)? ($($argument:ident: $type:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> CUresult,)*
        }

        impl Functions {
            /// Looks up all functions. On failure, returns the name of the missing one.
            fn find(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the function is of this type (`cuda.h`).
                        let found = unsafe { library.get(stringify!($name)) };
                        // SAFETY: this function is of this type, too (`cuda.h`).
                        $(let found = unsafe { library.get($newer) }.or(found);)?
                        *found.map_err(|_| stringify!($name))?
                    },)*
                })
            }
        }

        $(
            /// Calls the driver's function of this name.
            ///
            /// # Safety
            ///
            /// The requirements of this function in CUDA's documentation apply.
            ///
            /// # Panics
            ///
            /// Panics if no driver was [loaded](load).
            #[allow(non_snake_case)]
            pub(crate) unsafe fn $name($($argument: $type),*) -> CUresult {
                let loaded = loaded().expect("`load` must succeed before the driver is called");
                // SAFETY: the caller upholds this function's safety contract, the requirements of
                // CUDA's documentation.
                unsafe { (loaded.functions.$name)($($argument),*) }
            }
        )*
    };
}

functions! {
    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxSynchronize();
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetPCIBusId(address: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    cuDriverGetVersion(version: *mut c_int);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    cuEventElapsedTime or "cuEventElapsedTime_v2" (milliseconds: *mut f32, from: CUevent, to: CUevent);
    cuEventQuery(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventSynchronize(event: CUevent);
    cuGetErrorName(code: CUresult, name: *mut *const c_char);
    cuGetErrorString(code: CUresult, text: *mut *const c_char);
    cuInit(flags: c_uint);
    cuMemAlloc_v2(start: *mut CUdeviceptr, bytes: usize);
    cuMemFreeHost(start: *mut c_void);
    cuMemFree_v2(start: CUdeviceptr);
    cuMemHostAlloc(start: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(start: *mut c_void);
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamQuery(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
}

/// Loads the driver's library and looks up every function in use, unless that succeeded before.
pub(crate) fn load() -> Result<(), Unavailable> {
    if let Some(loaded) = loaded() {
        // A driver that was initialised in the parent does not work in the child, and a thread that
        // does not exist in the child may hold its locks.
        return if loaded.process.is_this() { Ok(()) } else { Err(DriverError::forked("cuInit", None).into()) };
    }
    let process = Process::this();
    let (name, library) = open()?;
    let functions = Functions::find(&library);
    let functions = functions.map_err(|symbol| Unavailable::MissingSymbol { library: name, symbol })?;
    // The library must stay loaded for the lifetime of the process.
    std::mem::forget(library);
    // If another thread stored its value first, this one replaces it; both are equal.
    LOADED.store(Box::leak(Box::new(Loaded { functions, process })), Ordering::Release);
    Ok(())
}

/// The names of the library, in the order in which cudarc tries them, so that both find the same
/// library. (cudarc's own list does not exist if a crate such as candle makes cudarc link the
/// library.)
const NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so", "libcuda.so.1"] };

/// Opens the library by the first name that can be loaded.
fn open() -> Result<(String, Library), Unavailable> {
    let mut reason = None;
    for &name in NAMES {
        // SAFETY: the initialisers of a CUDA driver library are safe to run. A different library
        // with the same name is beyond the control of this crate.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok((name.to_owned(), library)),
            Err(error) => {
                let error = error.source().map_or_else(|| error.to_string(), |source| source.to_string());
                // An error about a file that exists but cannot be loaded is more useful than one
                // about a missing file.
                if reason.is_none() || !error.contains("No such file") {
                    reason = Some(error);
                }
            }
        }
    }
    let tried = NAMES.iter().map(|&name| name.to_owned()).collect();
    Err(Unavailable::NoLibrary { tried, reason: reason.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn cudarc_s_function_declarations_are_not_used() {
        let mut calls = 0;
        for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
            let path = file.unwrap().path();
            let source = fs::read_to_string(&path).unwrap();
            assert!(!source.contains(concat!("sys", "::cu")), "{}", path.display());
            calls += source.matches(concat!("driver", "::cu")).count();
        }
        assert!(calls > 20, "the search finds the calls");
    }
}
