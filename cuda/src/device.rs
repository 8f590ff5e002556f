//! A device, represented by its primary context.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUcontext, CUdevice};
use slotline::BoxError;
use slotline::fork::Process;

use crate::driver;
use crate::error::{DriverError, Error};
use crate::leak;
use crate::pinned::Pinned;
use crate::probe::{DeviceInfo, handle, probe};

/// A CUDA device, represented by its primary context. CUDA's runtime, PyTorch and cudarc use the
/// same context, so they share streams, events and memory with slotline.
///
/// Clones refer to the same device, and so do two values with the same number. A device can be used
/// on any thread. Methods do not change the thread's current context, except that they may set the
/// device's context on a thread that has none. The primary context is retained until the last
/// clone, and everything that was created with it, is dropped.
///
/// CUDA does not survive a fork. In a forked process every call with a device of its parent fails
/// with `CUDA_ERROR_NOT_INITIALIZED`, without calling the driver. Only the parent releases what was
/// created with the device: dropping it in the child does nothing.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    info: DeviceInfo,
    device: CUdevice,
    context: CUcontext,
    /// Whether the context must not be released, because work in it may still be running.
    kept: AtomicBool,
    process: Process,
}

// SAFETY: the driver allows a context handle to be used on any thread.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`, and the only field that changes is atomic.
unsafe impl Sync for Inner {}

impl Device {
    /// Returns the device with this number, from 0, in the driver's order.
    ///
    /// # Errors
    ///
    /// Fails if there is no driver, if the device does not exist, or if the driver cannot create
    /// its context.
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

    /// Returns the device of a context of cudarc, such as the one of a program's own streams and
    /// memory. The context may be dropped afterwards.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotPrimary`] for another context than the one that `CudaContext::new`
    /// returns, and the errors of [`new`](Self::new).
    pub fn from_context(context: &Arc<CudaContext>) -> Result<Self, Error> {
        let device = Self::new(context.ordinal())?;
        device.check_context(context)?;
        Ok(device)
    }

    /// Checks that a context of cudarc is this device's primary context.
    pub(crate) fn check_context(&self, context: &CudaContext) -> Result<(), Error> {
        let is_primary = context.cu_ctx() == self.context();
        if is_primary { Ok(()) } else { Err(Error::NotPrimary { device: self.ordinal() }) }
    }

    /// Returns the number of the device.
    pub fn ordinal(&self) -> usize {
        self.0.info.ordinal
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.0.info.name
    }

    /// Returns the NUMA node of the host that the device is attached to, if the system knows it.
    pub fn numa_node(&self) -> Option<u32> {
        self.0.info.numa_node
    }

    /// Returns everything that the driver reports about the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// Waits until the device has finished all work in its primary context.
    ///
    /// # Errors
    ///
    /// Returns the driver's error, which may be the error of a kernel or a copy that failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        Ok(self.wait()?)
    }

    pub(crate) fn wait(&self) -> Result<(), DriverError> {
        let _entered = self.enter()?;
        // SAFETY: the call takes no pointers.
        self.call("cuCtxSynchronize", || unsafe { driver::cuCtxSynchronize() })
    }

    /// Returns a function for the `memory` option of a loader's builder that puts the batches into
    /// page-locked memory, made by [`Pinned::registered`]. The device reads this memory directly,
    /// without an intermediate copy.
    pub fn pinned(&self) -> impl FnMut(usize) -> Result<Pinned, BoxError> + Send + use<> + 'static {
        let device = self.clone();
        move |bytes| Ok(Pinned::registered(&device, bytes)?)
    }

    /// Like [`pinned`](Self::pinned), but the memory is shared with processes that are forked from
    /// this one. This is for [worker processes](slotline::loader::Builder::processes), which write
    /// batches into it. These processes must not use CUDA.
    pub fn pinned_shared(&self) -> impl FnMut(usize) -> Result<Pinned, BoxError> + Send + use<> + 'static {
        let device = self.clone();
        move |bytes| Ok(Pinned::shared(&device, bytes)?)
    }

    /// Keeps the primary context forever. Releasing it would wait for work that may never end, and
    /// would free memory that the work uses.
    pub(crate) fn keep(&self) {
        if !self.0.kept.swap(true, Ordering::Relaxed) {
            leak::note_handle();
        }
    }

    /// Returns whether this process was forked from the one that owns the device. A forked process
    /// must not call the driver, whose locks may be held by threads that do not exist there, and
    /// must not release objects of its parent.
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
        // SAFETY: `new` retained the context, and everything that was created with it is dropped,
        // since each such value holds a clone.
        let code = unsafe { driver::cuDevicePrimaryCtxRelease_v2(self.device) };
        if code != driver::SUCCESS {
            let error = DriverError::new("cuDevicePrimaryCtxRelease", code, Some(self.info.ordinal));
            leak::note_handle();
            tracing::warn!(%error, "a device's primary context is leaked");
        }
    }
}
