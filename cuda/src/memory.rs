//! Memory on a device.

use crate::device::Device;
use crate::driver;
use crate::error::DriverError;
use crate::leak;

/// Uninitialised memory on a device. If it is dropped without [`free`](Self::free), it is leaked,
/// since code that unwinds cannot know whether the device still uses it.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    device: Device,
    start: u64,
    len: usize,
    /// Whether the device is known to no longer use it.
    unused: bool,
}

impl DeviceMemory {
    /// Allocates `len` bytes, at least one, which the driver aligns to 256 bytes.
    pub(crate) fn new(device: &Device, len: usize) -> Result<Self, DriverError> {
        let len = len.max(1);
        let mut start = 0;
        let _entered = device.enter()?;
        // SAFETY: the driver writes the address.
        device.call("cuMemAlloc", || unsafe { driver::cuMemAlloc_v2(&mut start, len) })?;
        Ok(Self { device: device.clone(), start, len, unused: false })
    }

    /// Returns the address on the device.
    pub(crate) fn ptr(&self) -> u64 {
        self.start
    }

    /// Returns whether this process was forked from the one that owns the memory.
    pub(crate) fn is_lost(&self) -> bool {
        self.device.is_lost()
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Frees the memory. The device must not use it any more.
    pub(crate) fn free(mut self) {
        self.unused = true;
    }

    fn give_back(&self) -> Result<(), DriverError> {
        let _entered = self.device.enter()?;
        // SAFETY: this value owns the memory, and nothing uses it any more (`free`).
        self.device.call("cuMemFree", || unsafe { driver::cuMemFree_v2(self.start) })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.device.is_lost() {
            return;
        }
        if !self.unused {
            leak::note_device(self.len);
            self.device.keep();
        } else if let Err(error) = self.give_back() {
            leak::note_device(self.len);
            tracing::warn!(%error, bytes = self.len, "device memory is leaked");
        }
    }
}
