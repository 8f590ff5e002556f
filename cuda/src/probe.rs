//! What driver and devices there are.
//!
//! cudarc loads the driver's library at its first call and each function at that one's first call, and panics if there is
//! none. So nothing here calls it before [`load`] has seen the library and every function that is used.

use std::error::Error;
use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute, CUevent, CUresult};
use libloading::Library;

use crate::error::{DriverError, Unavailable};
use crate::numa;

/// The driver's functions that this crate calls.
const SYMBOLS: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyHtoDAsync_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// A CUDA driver, and what it has.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Driver {
    /// The latest CUDA version that it knows: major and minor.
    pub version: (u32, u32),
    /// Its devices, in its order: the first is device 0. There is at least one.
    pub devices: Vec<DeviceInfo>,
}

/// What the driver says of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its number among the driver's devices, from 0.
    pub ordinal: usize,
    /// What it is called.
    pub name: String,
    /// Bytes of its memory.
    pub memory: usize,
    /// Its compute capability: major and minor.
    pub compute_capability: (u32, u32),
    /// Its PCI address as text (`0000:3B:00.0`), if it has one.
    pub pci_address: Option<String>,
    /// The NUMA node of the host that it hangs on, if the system knows.
    pub numa_node: Option<u32>,
    /// Its identity, which stays the same whatever the order of the devices.
    pub uuid: Option<[u8; 16]>,
}

/// Says what driver and devices there are, without making a context. It never panics: machines without a device and
/// programs without a driver get an error that says what is missing.
///
/// The driver is asked anew each time, but loaded once: when that succeeded, it stays loaded.
///
/// # Errors
///
/// There is no driver, it is too old, it will not start, or it has no device.
///
/// ```
/// match slotline_cuda::probe() {
///     Ok(driver) => println!("CUDA {:?} with {} devices", driver.version, driver.devices.len()),
///     Err(reason) => println!("no device: {reason}"),
/// }
/// ```
pub fn probe() -> Result<Driver, Unavailable> {
    load()?;
    // The first call must be this one.
    // SAFETY: no pointers.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_ERROR_NO_DEVICE => return Err(Unavailable::NoDevice),
        code => checked("cuInit", code, None)?,
    }
    let (mut version, mut devices) = (0, 0);
    // SAFETY: the driver writes the number.
    checked("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) }, None)?;
    // SAFETY: the driver writes the number.
    checked("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut devices) }, None)?;
    if devices <= 0 {
        return Err(Unavailable::NoDevice);
    }
    let version = u32::try_from(version).unwrap_or_default();
    let devices = (0..devices).map(describe).collect::<Result<_, _>>()?;
    Ok(Driver { version: (version / 1000, version % 1000 / 10), devices })
}

fn describe(number: c_int) -> Result<DeviceInfo, DriverError> {
    let ordinal = number as usize;
    let device = handle(ordinal)?;
    let mut name: [c_char; 256] = [0; _];
    // SAFETY: the driver writes a string that ends within so many bytes.
    checked("cuDeviceGetName", unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), 256, device) }, Some(ordinal))?;
    let mut memory = 0;
    // SAFETY: the driver writes the number.
    checked("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut memory, device) }, Some(ordinal))?;
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: the driver writes the number.
        let code = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
        checked("cuDeviceGetAttribute", code, Some(ordinal)).map(|()| u32::try_from(value).unwrap_or_default())
    };
    let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let mut address: [c_char; 32] = [0; _];
    // SAFETY: the driver writes a string that ends within so many bytes.
    let code = unsafe { sys::cuDeviceGetPCIBusId(address.as_mut_ptr(), 32, device) };
    let pci_address = (code == CUresult::CUDA_SUCCESS).then(|| text(&address));
    let mut uuid = sys::CUuuid { bytes: [0; _] };
    // SAFETY: the driver writes the bytes.
    let code = unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) };
    Ok(DeviceInfo {
        ordinal,
        name: text(&name),
        memory,
        compute_capability: (major, minor),
        numa_node: pci_address.as_deref().and_then(numa::node),
        pci_address,
        uuid: (code == CUresult::CUDA_SUCCESS).then(|| uuid.bytes.map(|byte| byte as u8)),
    })
}

/// The driver's handle of a device, which [`probe`] has seen.
pub(crate) fn handle(ordinal: usize) -> Result<CUdevice, DriverError> {
    let mut device = 0;
    // SAFETY: the driver writes the handle.
    checked("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as c_int) }, Some(ordinal))?;
    Ok(device)
}

/// A string that the driver wrote; all of it if it forgot to end it.
fn text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&byte| byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or(String::from_utf8_lossy(&bytes), CStr::to_string_lossy).into_owned()
}

fn checked(call: &'static str, code: CUresult, device: Option<usize>) -> Result<(), DriverError> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(DriverError::new(call, code, device)) }
}

/// `cuEventElapsedTime`, whose name in cudarc depends on the version of CUDA, as other functions' do not.
pub(crate) type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;

/// The driver's library, loaded for good.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) elapsed_time: ElapsedTime,
}

/// Loads the driver's library and looks for every function that is used, unless that succeeded before.
pub(crate) fn load() -> Result<&'static Loaded, Unavailable> {
    static LOADED: OnceLock<Loaded> = OnceLock::new();
    if let Some(loaded) = LOADED.get() {
        return Ok(loaded);
    }
    let (name, library) = open()?;
    for symbol in SYMBOLS {
        // SAFETY: the function is only looked for.
        if unsafe { library.get::<unsafe extern "C" fn()>(*symbol) }.is_err() {
            return Err(Unavailable::MissingSymbol { library: name, symbol });
        }
    }
    // SAFETY: both are of that type. The second version is that of CUDA 12.8 and later.
    let elapsed_time = unsafe { library.get(b"cuEventElapsedTime_v2").or_else(|_| library.get(b"cuEventElapsedTime")) };
    let Ok(elapsed_time) = elapsed_time.map(|symbol| *symbol) else {
        return Err(Unavailable::MissingSymbol { library: name, symbol: "cuEventElapsedTime" });
    };
    // It must be there for as long as the process: cudarc keeps what it finds in it.
    std::mem::forget(library);
    Ok(LOADED.get_or_init(|| Loaded { elapsed_time }))
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
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_function_that_is_called_is_looked_for_first() {
        let mut called = BTreeSet::new();
        for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
            let source = fs::read_to_string(file.unwrap().path()).unwrap();
            for call in source.split("sys::cu").skip(1) {
                let end = call.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap();
                if call[end..].starts_with('(') {
                    called.insert(format!("cu{}", &call[..end]));
                }
            }
        }
        assert!(called.len() > 20, "the search works");
        called.retain(|name| !SYMBOLS.contains(&name.as_str()));
        assert_eq!(called, BTreeSet::new(), "are missing in SYMBOLS");
    }

    #[test]
    fn strings_of_the_driver_end_at_the_first_zero_or_at_the_end() {
        assert_eq!(text(&[b'a' as c_char, b'b' as c_char, 0, b'c' as c_char]), "ab");
        assert_eq!(text(&[b'a' as c_char, b'b' as c_char]), "ab");
        assert_eq!(text(&[0; 4]), "");
    }
}
