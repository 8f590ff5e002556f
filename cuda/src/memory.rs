//! Memory of a device.

use cudarc::driver::sys;

use crate::device::Device;
use crate::error::DriverError;
use crate::leak;

/// Bytes on a device, not initialised.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    device: Device,
    start: u64,
    len: usize,
    leaked: bool,
}

impl DeviceMemory {
    /// At least one byte, aligned to 256 as the driver does it.
    pub(crate) fn new(device: &Device, len: usize) -> Result<Self, DriverError> {
        let len = len.max(1);
        let mut start = 0;
        let _entered = device.enter()?;
        // SAFETY: the driver writes the address.
        device.call("cuMemAlloc", || unsafe { sys::cuMemAlloc_v2(&mut start, len) })?;
        Ok(Self { device: device.clone(), start, len, leaked: false })
    }

    /// The address on the device.
    pub(crate) fn ptr(&self) -> u64 {
        self.start
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Never gives the memory back, as the device may still use it.
    pub(crate) fn leak(mut self) {
        leak::note_device(self.len);
        self.device.keep();
        self.leaked = true;
    }

    fn free(&self) -> Result<(), DriverError> {
        let _entered = self.device.enter()?;
        // SAFETY: our own, and nobody has it any more.
        self.device.call("cuMemFree", || unsafe { sys::cuMemFree_v2(self.start) })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        if let Err(error) = self.free() {
            leak::note_device(self.len);
            tracing::warn!(%error, bytes = self.len, "device memory is leaked");
        }
    }
}
