//! Detection of the driver and its devices.

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute};

use crate::driver::{self, CUresult, load};
use crate::error::{DriverError, Unavailable};
use crate::numa;

/// A CUDA driver and its devices.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Driver {
    /// The latest CUDA version that the driver supports: major and minor.
    pub version: (u32, u32),
    /// The devices in the driver's order, so the first is device 0. There is at least one.
    pub devices: Vec<DeviceInfo>,
}

/// The properties of a device, as the driver reports them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The number of the device among the driver's devices, from 0.
    pub ordinal: usize,
    /// The name of the device.
    pub name: String,
    /// The size of its memory, in bytes.
    pub memory: usize,
    /// The compute capability: major and minor.
    pub compute_capability: (u32, u32),
    /// The PCI address as text (`0000:3B:00.0`), if the device has one.
    pub pci_address: Option<String>,
    /// The NUMA node of the host that the device is attached to, if the system knows it.
    pub numa_node: Option<u32>,
    /// The unique identifier, which does not depend on the order of the devices.
    pub uuid: Option<[u8; 16]>,
}

/// Reports the driver and its devices, without creating a context. This never panics: on a machine
/// without a device or a driver it returns an error that says what is missing.
///
/// The driver is queried on each call, but loaded only once: after a successful load it stays
/// loaded. A process that was forked after that cannot use the driver; this function then returns
/// `CUDA_ERROR_NOT_INITIALIZED` without calling it.
///
/// # Errors
///
/// Fails if there is no driver, or if it is too old, does not start, or has no device.
///
/// ```
/// match slotline_cuda::probe() {
///     Ok(driver) => println!("CUDA {:?} with {} devices", driver.version, driver.devices.len()),
///     Err(reason) => println!("no device: {reason}"),
/// }
/// ```
pub fn probe() -> Result<Driver, Unavailable> {
    load()?;
    // `cuInit` must be the first call.
    // SAFETY: the call takes no pointers.
    match unsafe { driver::cuInit(0) } {
        driver::NO_DEVICE => return Err(Unavailable::NoDevice),
        code => checked("cuInit", code, None)?,
    }
    let (mut version, mut devices) = (0, 0);
    // SAFETY: the driver writes the number.
    checked("cuDriverGetVersion", unsafe { driver::cuDriverGetVersion(&mut version) }, None)?;
    // SAFETY: the driver writes the number.
    checked("cuDeviceGetCount", unsafe { driver::cuDeviceGetCount(&mut devices) }, None)?;
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
    // SAFETY: the driver writes a terminated string of at most the given length.
    checked("cuDeviceGetName", unsafe { driver::cuDeviceGetName(name.as_mut_ptr(), 256, device) }, Some(ordinal))?;
    let mut memory = 0;
    // SAFETY: the driver writes the number.
    checked("cuDeviceTotalMem", unsafe { driver::cuDeviceTotalMem_v2(&mut memory, device) }, Some(ordinal))?;
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: the driver writes the number.
        let code = unsafe { driver::cuDeviceGetAttribute(&mut value, attribute, device) };
        checked("cuDeviceGetAttribute", code, Some(ordinal)).map(|()| u32::try_from(value).unwrap_or_default())
    };
    let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let mut address: [c_char; 32] = [0; _];
    // SAFETY: the driver writes a terminated string of at most the given length.
    let code = unsafe { driver::cuDeviceGetPCIBusId(address.as_mut_ptr(), 32, device) };
    let pci_address = (code == driver::SUCCESS).then(|| text(&address));
    let mut uuid = sys::CUuuid { bytes: [0; _] };
    // SAFETY: the driver writes the bytes.
    let code = unsafe { driver::cuDeviceGetUuid_v2(&mut uuid, device) };
    Ok(DeviceInfo {
        ordinal,
        name: text(&name),
        memory,
        compute_capability: (major, minor),
        numa_node: pci_address.as_deref().and_then(numa::node),
        pci_address,
        uuid: (code == driver::SUCCESS).then(|| uuid.bytes.map(|byte| byte as u8)),
    })
}

/// Returns the driver's handle of a device that [`probe`] has found.
pub(crate) fn handle(ordinal: usize) -> Result<CUdevice, DriverError> {
    let mut device = 0;
    // SAFETY: the driver writes the handle.
    checked("cuDeviceGet", unsafe { driver::cuDeviceGet(&mut device, ordinal as c_int) }, Some(ordinal))?;
    Ok(device)
}

/// Converts a string that the driver wrote. If it is not terminated, all bytes are used.
fn text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&byte| byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or(String::from_utf8_lossy(&bytes), CStr::to_string_lossy).into_owned()
}

fn checked(call: &'static str, code: CUresult, device: Option<usize>) -> Result<(), DriverError> {
    if code == driver::SUCCESS { Ok(()) } else { Err(DriverError::new(call, code, device)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_string_ends_at_the_first_zero_or_at_the_end() {
        assert_eq!(text(&[b'a' as c_char, b'b' as c_char, 0, b'c' as c_char]), "ab");
        assert_eq!(text(&[b'a' as c_char, b'b' as c_char]), "ab");
        assert_eq!(text(&[0; 4]), "");
    }
}
