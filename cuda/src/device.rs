//! A device, by its primary context.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{CUcontext, CUdevice};
use slotline::BoxError;
use slotline::fork::Process;

use crate::driver;
use crate::error::{DriverError, Error};
use crate::leak;
use crate::pinned::Pinned;
use crate::probe::{DeviceInfo, handle, probe};

/// A CUDA device, by its primary context: the one that CUDA's runtime, PyTorch and cudarc use, so that streams, events and
/// memory are theirs as well as ours.
///
/// Clones are the same device, and so are two of the same number. It can be used on any thread, and leaves the context that
/// is current there as it is; a thread that has none may be left with the device's. The primary context is kept until the
/// last clone, and whatever was made with it, is dropped.
///
/// CUDA does not survive a fork. In a forked process every call with a device of its parent's is the error
/// `CUDA_ERROR_NOT_INITIALIZED`, for which the driver is not called; and what was made with it is given back by the parent only:
/// dropping it does nothing.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    info: DeviceInfo,
    device: CUdevice,
    context: CUcontext,
    /// Whether something in the context may still be at work.
    kept: AtomicBool,
    process: Process,
}

// SAFETY: a context is a handle that any thread may use.
unsafe impl Send for Inner {}
// SAFETY: as above; nothing here changes but by atomics.
unsafe impl Sync for Inner {}

impl Device {
    /// The device with this number, from 0, in the driver's order.
    ///
    /// # Errors
    ///
    /// There is no driver or no such device, or the driver will not make its context.
    ///
    /// ```
    /// use slotline_cuda::{Device, Error, Stream};
    ///
    /// let device = match Device::new(0) {
    ///     Err(Error::Unavailable(reason)) => {
    ///         println!("{reason}");
    ///         return Ok(());
    ///     }
    ///     device => device?,
    /// };
    /// println!("{}, compute capability {:?}", device.name(), device.info().compute_capability);
    /// let stream = Stream::new(&device)?;
    /// assert!(stream.is_idle()?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new(ordinal: usize) -> Result<Self, Error> {
        let mut devices = probe()?.devices;
        if ordinal >= devices.len() {
            return Err(Error::NoSuchDevice { ordinal, devices: devices.len() });
        }
        let device = handle(ordinal)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver writes the context.
        let code = unsafe { driver::cuDevicePrimaryCtxRetain(&mut context, device) };
        if code != driver::SUCCESS {
            return Err(DriverError::new("cuDevicePrimaryCtxRetain", code, Some(ordinal)).into());
        }
        Ok(Self(Arc::new(Inner {
            info: devices.swap_remove(ordinal),
            device,
            context,
            kept: AtomicBool::new(false),
            process: Process::this(),
        })))
    }

    /// Its number.
    pub fn ordinal(&self) -> usize {
        self.0.info.ordinal
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.0.info.name
    }

    /// The NUMA node of the host that it hangs on, if the system knows.
    pub fn numa_node(&self) -> Option<u32> {
        self.0.info.numa_node
    }

    /// All that the driver says of it.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// Waits until the device has done all that was asked of it in its primary context.
    ///
    /// # Errors
    ///
    /// What the driver says, which may be the error of a kernel or a copy that failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        let _entered = self.enter()?;
        // SAFETY: no pointers.
        Ok(self.call("cuCtxSynchronize", || unsafe { driver::cuCtxSynchronize() })?)
    }

    /// Where a loader's batches shall be, for its builder's `memory`: page-locked memory that this device reads without a
    /// copy between, as [`Pinned::registered`] makes it.
    pub fn pinned(&self) -> impl FnMut(usize) -> Result<Pinned, BoxError> + Send + use<> + 'static {
        let device = self.clone();
        move |bytes| Ok(Pinned::registered(&device, bytes)?)
    }

    /// Never releases the primary context: that would wait for work which may never end, and free what it works on.
    pub(crate) fn keep(&self) {
        if !self.0.kept.swap(true, Ordering::Relaxed) {
            leak::note_handle();
        }
    }

    /// Whether this process was forked from the one that has the device. It must not call the driver, whose locks may be held
    /// by threads that it has not; nor give back what is its parent's.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        !self.0.process.is_this()
    }

    pub(crate) fn context(&self) -> CUcontext {
        self.0.context
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.ordinal() == other.ordinal()
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, {})", self.ordinal(), self.name())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if *self.kept.get_mut() || !self.process.is_this() {
            return;
        }
        // SAFETY: retained by `new`, and whatever was made with it is gone: it holds a clone.
        let code = unsafe { driver::cuDevicePrimaryCtxRelease_v2(self.device) };
        if code != driver::SUCCESS {
            let error = DriverError::new("cuDevicePrimaryCtxRelease", code, Some(self.info.ordinal));
            leak::note_handle();
            tracing::warn!(%error, "a device's primary context is leaked");
        }
    }
}
