//! Streams: those that slotline creates, and those of the training loop.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{self, CUstream};

use crate::device::Device;
use crate::driver::{self, CUresult};
use crate::error::{DriverError, Error};
use crate::event::Event;
use crate::leak;

/// The handles that represent the default streams of the current context.
const NULL: usize = 0;
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// A stream of a device: a queue of work that runs in order. Clones refer to the same stream.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    device: Device,
    raw: CUstream,
    kind: Kind,
    /// A stream of cudarc, which this keeps from being destroyed.
    owner: Option<Arc<CudaStream>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Created by this crate. Destroyed with the last clone.
    Owned,
    /// Owned by other code, which also destroys it.
    Borrowed,
    /// The null stream or the legacy default stream; they are the same unless a program was built
    /// with per-thread streams.
    Default,
    /// The default stream of the thread with this number.
    PerThread(u64),
}

/// Returns the number of this thread, which no other thread has or had.
///
/// `thread::current` panics once the thread's locals are destroyed, and a batch may be dropped
/// after that, by a C++ `thread_local` or the destructor of a pthread key. A const-initialised
/// thread local without a destructor stays accessible until the thread ends.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            is_ending();
        }
        number.get()
    })
}

/// Returns whether this thread has begun to destroy its thread-local variables. This works only if
/// the thread has called the function before that, too.
fn is_ending() -> bool {
    /// A thread-local variable with a destructor, which is inaccessible once destruction has begun.
    struct Local;
    impl Drop for Local {
        fn drop(&mut self) {}
    }
    thread_local! {
        static LOCAL: Local = const { Local };
    }
    LOCAL.try_with(|_| ()).is_err()
}

// SAFETY: the driver allows a stream handle to be used on any thread.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`, and the fields never change.
unsafe impl Sync for Inner {}

impl Stream {
    /// Creates a new stream. It does not wait for the default stream, and the default stream does
    /// not wait for it (`CU_STREAM_NON_BLOCKING`).
    ///
    /// # Errors
    ///
    /// Returns the driver's error.
    pub fn new(device: &Device) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let _entered = device.enter()?;
        // SAFETY: the driver writes the handle.
        device.call("cuStreamCreate", || unsafe { driver::cuStreamCreate(&mut raw, flags) })?;
        Ok(Self::with(device, raw, Kind::Owned))
    }

    /// Wraps an existing stream by its handle, a `CUstream` or `cudaStream_t` such as
    /// `torch.cuda.Stream.cuda_stream`. The stream is not destroyed on drop. The handles 0, 1 and 2
    /// refer to the device's default streams, as in CUDA.
    ///
    /// # Safety
    ///
    /// The handle must be valid and belong to the device's primary context, and the stream must not
    /// be destroyed before all clones of this value and all batches that were made ready on it are
    /// dropped.
    pub unsafe fn from_raw(device: &Device, raw: *mut c_void) -> Self {
        Self::existing(device, raw.cast(), None)
    }

    /// Wraps a stream of cudarc, and keeps it alive. Views of a batch do not need this:
    /// [`views`](crate::DeviceBatch::views) takes cudarc's stream itself.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotPrimary`] if the stream does not belong to the device's primary context.
    pub fn from_cudarc(device: &Device, stream: &Arc<CudaStream>) -> Result<Self, Error> {
        device.check_context(stream.context())?;
        Ok(Self::existing(device, stream.cu_stream(), Some(stream.clone())))
    }

    /// Returns the legacy default stream, which CUDA programs use if they name none, and PyTorch
    /// uses outside of `torch.cuda.stream(…)`. Each use takes one more driver call than with other
    /// streams.
    pub fn legacy_default(device: &Device) -> Self {
        Self::with(device, std::ptr::without_provenance_mut(LEGACY), Kind::Default)
    }

    /// Returns the default stream of this thread, for programs that were built with a default
    /// stream for each thread (`--default-stream per-thread`). Each use takes one more driver call
    /// than with other streams.
    ///
    /// On another thread, this value stands for the legacy default stream, which waits for the
    /// per-thread stream, and for which the per-thread stream waits.
    pub fn per_thread_default(device: &Device) -> Self {
        Self::with(device, std::ptr::without_provenance_mut(PER_THREAD), Kind::PerThread(this_thread()))
    }

    fn with(device: &Device, raw: CUstream, kind: Kind) -> Self {
        Self(Arc::new(Inner { device: device.clone(), raw, kind, owner: None }))
    }

    /// Wraps a stream that other code owns.
    fn existing(device: &Device, raw: CUstream, owner: Option<Arc<CudaStream>>) -> Self {
        let kind = match raw.addr() {
            NULL | LEGACY => Kind::Default,
            PER_THREAD => Kind::PerThread(this_thread()),
            _ => Kind::Borrowed,
        };
        Self(Arc::new(Inner { device: device.clone(), raw, kind, owner }))
    }

    /// Returns the handle, a `CUstream`, which is the same as a `cudaStream_t`.
    pub fn as_raw(&self) -> *mut c_void {
        self.0.raw.cast()
    }

    /// Returns the device of the stream.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Waits until all work that was put on the stream is done.
    ///
    /// # Errors
    ///
    /// Returns the driver's error, which may be the error of a kernel or a copy that failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        if let Some(mark) = self.mark()? {
            return Ok(mark.synchronize()?);
        }
        // SAFETY: the stream is valid until it is dropped.
        Ok(self.call("cuStreamSynchronize", |stream| unsafe { driver::cuStreamSynchronize(stream) })?)
    }

    /// Returns whether all work that was put on the stream is done.
    ///
    /// # Errors
    ///
    /// Returns the driver's error, which may be the error of a kernel or a copy that failed.
    pub fn is_idle(&self) -> Result<bool, Error> {
        Ok(self.query()?)
    }

    pub(crate) fn query(&self) -> Result<bool, DriverError> {
        if let Some(mark) = self.mark()? {
            return mark.is_done();
        }
        let _entered = self.enter()?;
        let raw = self.handle();
        // SAFETY: the stream is valid until it is dropped.
        self.device().query("cuStreamQuery", || unsafe { driver::cuStreamQuery(raw) })
    }

    /// Makes sure that an event that is recorded on this stream comes after all work that the
    /// stream was given.
    ///
    /// The driver has thread-local variables too. Once a thread has destroyed them, its default
    /// stream may be a new one, which does not wait for the work of the old one. In that case this
    /// waits for all work of the device.
    pub(crate) fn await_earlier_work(&self) -> Result<(), DriverError> {
        let is_replaced = matches!(self.0.kind, Kind::PerThread(owner) if owner == this_thread()) && is_ending();
        if is_replaced { self.device().wait() } else { Ok(()) }
    }

    /// Makes a call with this stream's handle, which is guaranteed to refer to this stream only
    /// during the call.
    pub(crate) fn call(
        &self,
        name: &'static str,
        mut call: impl FnMut(CUstream) -> CUresult,
    ) -> Result<(), DriverError> {
        let _entered = self.enter()?;
        let raw = self.handle();
        self.device().call(name, || call(raw))
    }

    /// Enters the device's context if necessary: the handles of the default streams refer to the
    /// current context's streams.
    fn enter(&self) -> Result<Option<crate::call::Entered<'_>>, DriverError> {
        let explicit = matches!(self.0.kind, Kind::Owned | Kind::Borrowed);
        if explicit { Ok(None) } else { self.device().enter().map(Some) }
    }

    /// Returns the handle to use on this thread. For another thread's default stream this is the
    /// handle of the legacy default stream, since the per-thread handle would refer to the default
    /// stream of this thread. The legacy default stream waits for all per-thread streams, and they
    /// wait for it.
    fn handle(&self) -> CUstream {
        if self.is_elsewhere() { std::ptr::without_provenance_mut(LEGACY) } else { self.0.raw }
    }

    /// Returns an event after the work of another thread's default stream. It is needed because the
    /// legacy default stream can be idle while that stream is not. Returns `None` if the stream can
    /// be queried directly.
    fn mark(&self) -> Result<Option<Event>, DriverError> {
        if !self.is_elsewhere() {
            return Ok(None);
        }
        let mark = Event::new(self.device())?;
        mark.record(self)?;
        Ok(Some(mark))
    }

    /// Returns whether this is another thread's default stream.
    fn is_elsewhere(&self) -> bool {
        matches!(self.0.kind, Kind::PerThread(owner) if owner != this_thread())
    }
}

/// Streams are equal if they are the same stream.
impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        let per_thread = |stream: &Self| matches!(stream.0.kind, Kind::PerThread(_)).then_some(stream.0.kind);
        (self.device(), self.0.raw, per_thread(self)) == (other.device(), other.0.raw, per_thread(other))
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { device, raw, kind, .. } = &*self.0;
        f.debug_struct("Stream").field("device", device).field("raw", raw).field("kind", kind).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.device.is_lost() {
            // Only the parent process destroys its streams.
            return mem::forget(self.owner.take());
        }
        if self.kind != Kind::Owned {
            return;
        }
        let raw = self.raw;
        // SAFETY: this value owns the stream, and nothing uses the handle any more. The driver
        // finishes the work that is still on it.
        if let Err(error) = self.device.call("cuStreamDestroy", || unsafe { driver::cuStreamDestroy_v2(raw) }) {
            leak::note_handle();
            tracing::warn!(%error, "a stream is leaked");
        }
    }
}
