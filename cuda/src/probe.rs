//! What driver and devices there are.

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute};

use crate::driver::{self, CUresult, load};
use crate::error::{DriverError, Unavailable};
use crate::numa;

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
/// The driver is asked anew each time, but loaded once: when that succeeded, it stays loaded. In a process that was forked
/// after that, which cannot use it, it is not asked: the error is the driver's `CUDA_ERROR_NOT_INITIALIZED`.
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
    // SAFETY: the driver writes a string that ends within so many bytes.
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
    // SAFETY: the driver writes a string that ends within so many bytes.
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

/// The driver's handle of a device, which [`probe`] has seen.
pub(crate) fn handle(ordinal: usize) -> Result<CUdevice, DriverError> {
    let mut device = 0;
    // SAFETY: the driver writes the handle.
    checked("cuDeviceGet", unsafe { driver::cuDeviceGet(&mut device, ordinal as c_int) }, Some(ordinal))?;
    Ok(device)
}

/// A string that the driver wrote; all of it if it forgot to end it.
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
    fn strings_of_the_driver_end_at_the_first_zero_or_at_the_end() {
        assert_eq!(text(&[b'a' as c_char, b'b' as c_char, 0, b'c' as c_char]), "ab");
        assert_eq!(text(&[b'a' as c_char, b'b' as c_char]), "ab");
        assert_eq!(text(&[0; 4]), "");
    }
}
