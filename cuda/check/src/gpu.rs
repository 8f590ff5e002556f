//! A device as a training program uses it: through cudarc's safe interface, with the program's own
//! streams and kernels.

use std::ffi::c_void;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, LaunchConfig, PushKernelArg, result,
};
use slotline_cuda::{Device, Stream};

/// The PTX of the kernels, which `ptx.py` compiled from `check.cu`.
const KERNELS: &str = include_str!("../kernels/check.ptx");
/// The launch size of the kernel `fold`: few threads, so that it is slow.
const FOLD: LaunchConfig = LaunchConfig { grid_dim: (4, 1, 1), block_dim: (128, 1, 1), shared_mem_bytes: 0 };
const SPIN: LaunchConfig = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };

/// A device and its kernels.
#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    /// slotline's handle of the device.
    pub(crate) device: Device,
    context: Arc<CudaContext>,
    fold: CudaFunction,
    spin: CudaFunction,
}

impl Gpu {
    /// Opens the device with this number. The driver must have been probed.
    pub(crate) fn new(ordinal: usize) -> Result<Self> {
        let device = Device::new(ordinal)?;
        let context = CudaContext::new(ordinal)?;
        let module = context.load_module(KERNELS.into()).context("the driver does not accept PTX of CUDA 11.8")?;
        let (fold, spin) = (module.load_function("fold")?, module.load_function("spin")?);
        Ok(Self { device, context, fold, spin })
    }

    /// Returns how much of the device's memory is free, in bytes.
    pub(crate) fn free_bytes(&self) -> Result<usize> {
        self.context.bind_to_thread()?;
        Ok(result::mem_get_info()?.0)
    }

    /// Creates a stream that belongs to the program.
    pub(crate) fn stream(&self) -> Result<Training<'_>> {
        let own = self.context.new_stream()?;
        // SAFETY: the stream belongs to the device's primary context. `own` lives as long as
        // `seen`, and code that makes batches ready on the stream synchronizes it before it is
        // dropped.
        let seen = unsafe { Stream::from_raw(&self.device, own.cu_stream().cast::<c_void>()) };
        Ok(Training { gpu: self, own, seen })
    }

    /// Returns the legacy default stream. It waits for all other streams, and they wait for it,
    /// except for non-blocking streams such as slotline's copy stream.
    pub(crate) fn default_stream(&self) -> Training<'_> {
        let own = self.context.default_stream();
        Training { gpu: self, seen: Stream::legacy_default(&self.device), own }
    }
}

/// A stream that a program trains on.
#[derive(Debug)]
pub(crate) struct Training<'a> {
    gpu: &'a Gpu,
    own: Arc<CudaStream>,
    /// slotline's handle of the stream.
    pub(crate) seen: Stream,
}

impl Training<'_> {
    /// Keeps the stream busy for `nanos` nanoseconds.
    pub(crate) fn spin(&self, nanos: u64) -> Result<()> {
        // SAFETY: the kernel takes one u64 and touches no memory.
        unsafe { self.own.launch_builder(&self.gpu.spin).arg(&nanos).launch(SPIN) }?;
        Ok(())
    }

    /// Launches a kernel that reads device memory `slow.turns` times, with a pause of `slow.pause`
    /// before each turn. In each turn it adds the [`fold`](crate::fold::fold) of the memory, with
    /// `salt`, to `sums[at]`.
    ///
    /// # Safety
    ///
    /// `data` must be a multiple of 8, and `bytes` bytes must stay allocated there until the stream
    /// has run the kernel.
    pub(crate) unsafe fn fold(
        &self,
        (data, bytes): (u64, usize),
        salt: u64,
        slow: Slow,
        sums: &mut Sums,
        at: usize,
    ) -> Result<()> {
        let (bytes, Slow { turns, pause }) = (bytes as u64, slow);
        let mut sum = sums.0.slice_mut(at..=at);
        let mut launch = self.own.launch_builder(&self.gpu.fold);
        launch.arg(&data).arg(&bytes).arg(&salt).arg(&turns).arg(&pause).arg(&mut sum);
        // SAFETY: the parameters are those of the kernel; the caller ensures that the data is
        // allocated.
        unsafe { launch.launch(FOLD) }?;
        Ok(())
    }

    /// Allocates `count` sums, all 0.
    pub(crate) fn sums(&self, count: usize) -> Result<Sums> {
        Ok(Sums(self.own.alloc_zeros(count)?))
    }

    /// Waits until the stream has reached this point, and returns the sums.
    pub(crate) fn read(&self, sums: &Sums) -> Result<Vec<u64>> {
        let sums = self.own.clone_dtoh(&sums.0)?;
        self.own.synchronize()?;
        Ok(sums)
    }

    /// Allocates uninitialised device memory.
    pub(crate) fn memory(&self, bytes: usize) -> Result<CudaSlice<u8>> {
        // SAFETY: the memory is written before it is read.
        Ok(unsafe { self.own.alloc(bytes) }?)
    }

    /// Copies from the host to the start of the memory.
    ///
    /// # Safety
    ///
    /// `from` must not be written or freed until the stream has reached this point.
    pub(crate) unsafe fn copy(&self, from: &[u8], to: &CudaSlice<u8>) -> Result<()> {
        ensure!(from.len() <= to.len(), "{} bytes do not fit into {}", from.len(), to.len());
        let (to, _read) = to.device_ptr(&self.own);
        // SAFETY: `to` is large enough, nothing else uses it, and the caller keeps the source
        // unchanged.
        Ok(unsafe { result::memcpy_htod_async(to, from, self.own.cu_stream()) }?)
    }

    /// Copies device memory to the host, once the stream has reached this point.
    ///
    /// # Safety
    ///
    /// `bytes` bytes must be allocated at `data`.
    pub(crate) unsafe fn fetch(&self, data: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut copy = vec![0; bytes];
        let mut started = Ok(());
        if bytes > 0 {
            self.gpu.context.bind_to_thread()?;
            // SAFETY: the caller ensures that the source is allocated. `copy` lives until the
            // stream was waited for, and is leaked if that fails.
            started = unsafe { result::memcpy_dtoh_async(&mut copy, data, self.own.cu_stream()) };
        }
        if let Err(error) = started.and(self.own.synchronize()) {
            // The device may still write to `copy`.
            std::mem::forget(copy);
            return Err(error.into());
        }
        Ok(copy)
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        Ok(self.own.synchronize()?)
    }
}

/// The slowness of a kernel that reads memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slow {
    pub(crate) turns: u64,
    /// The pause before each turn, in nanoseconds.
    pub(crate) pause: u64,
}

/// Device memory in which kernels add up what they read.
#[derive(Debug)]
pub(crate) struct Sums(CudaSlice<u64>);
