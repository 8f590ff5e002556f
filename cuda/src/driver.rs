//! The driver's functions that this crate calls.
//!
//! cudarc declares them, too, but with an enum for the answer: a number that is none of its values, such as a later driver may
//! give, would be undefined behaviour. Here it is a number. And cudarc panics where a function is missing; here [`load`] has
//! looked for all of them before one is called.

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

/// What a call answers: a `CUresult`, which may be one that cudarc does not know.
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

/// The driver's library, loaded for good.
struct Loaded {
    functions: Functions,
    /// The process that loaded it.
    process: Process,
}

/// Null, or a box's that was leaked. Not a `OnceLock`: a child whose parent was forked in the middle of it would wait forever.
static LOADED: AtomicPtr<Loaded> = AtomicPtr::new(null_mut());

fn loaded() -> Option<&'static Loaded> {
    // SAFETY: null, or a box's that was leaked.
    unsafe { LOADED.load(Ordering::Acquire).as_ref() }
}

/// Declares functions of the driver by their names in its library, or a newer one that is taken where it is there.
macro_rules! functions {
    ($($name:ident $(or $newer:literal)? ($($argument:ident: $type:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> CUresult,)*
        }

        impl Functions {
            /// Looks for all; the name of one that is missing.
            fn find(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the function is of this type (`cuda.h`).
                        let found = unsafe { library.get(stringify!($name)) };
                        // SAFETY: as above.
                        $(let found = unsafe { library.get($newer) }.or(found);)?
                        *found.map_err(|_| stringify!($name))?
                    },)*
                })
            }
        }

        $(
            /// The driver's function of this name.
            ///
            /// # Safety
            ///
            /// As CUDA's documentation has it.
            ///
            /// # Panics
            ///
            /// If no driver was [loaded](load).
            #[allow(non_snake_case)]
            pub(crate) unsafe fn $name($($argument: $type),*) -> CUresult {
                let loaded = loaded().expect("the driver is loaded before it is called");
                // SAFETY: the caller's word.
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

/// Loads the driver's library, with every function that is used, unless that succeeded before.
pub(crate) fn load() -> Result<(), Unavailable> {
    if let Some(loaded) = loaded() {
        // A driver that was started in the parent does not work in the child, and a thread that is gone may have its locks.
        return if loaded.process.is_this() { Ok(()) } else { Err(DriverError::forked("cuInit", None).into()) };
    }
    let process = Process::this();
    let (name, library) = open()?;
    let functions = Functions::find(&library);
    let functions = functions.map_err(|symbol| Unavailable::MissingSymbol { library: name, symbol })?;
    // It must be there for as long as the process.
    std::mem::forget(library);
    // Another thread may have been first; then both are the same.
    LOADED.store(Box::leak(Box::new(Loaded { functions, process })), Ordering::Release);
    Ok(())
}

/// The library by the first of cudarc's names that can be loaded, so that cudarc finds the same one.
fn open() -> Result<(String, Library), Unavailable> {
    let tried: Vec<String> = ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates).collect();
    let mut reason = None;
    for name in &tried {
        // SAFETY: a driver's library may be loaded; what else has its name, we cannot know.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok((name.clone(), library)),
            Err(error) => {
                let error = error.source().map_or_else(|| error.to_string(), |source| source.to_string());
                // That a file is there but is no good says more than that another one is missing.
                if reason.is_none() || !error.contains("No such file") {
                    reason = Some(error);
                }
            }
        }
    }
    Err(Unavailable::NoLibrary { tried, reason: reason.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn no_function_is_called_by_cudarc_s_declaration() {
        let mut calls = 0;
        for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
            let path = file.unwrap().path();
            let source = fs::read_to_string(&path).unwrap();
            assert!(!source.contains(concat!("sys", "::cu")), "{}", path.display());
            calls += source.matches(concat!("driver", "::cu")).count();
        }
        assert!(calls > 20, "the search works");
    }
}
