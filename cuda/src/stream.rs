//! Streams: our own, and the training loop's.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{self, CUstream};

use crate::device::Device;
use crate::driver::{self, CUresult};
use crate::error::{DriverError, Error};
use crate::event::Event;
use crate::leak;

/// The handles that stand for streams of whichever context is current.
const NULL: usize = 0;
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// A stream of a device: work that is done in order. Clones are the same stream.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    device: Device,
    raw: CUstream,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Destroyed with the last clone.
    Owned,
    /// Somebody else's.
    Borrowed,
    /// The null stream or the legacy default one, which is the same unless a program was built with per-thread streams.
    Default,
    /// That of the thread with this number.
    PerThread(u64),
}

/// A number of this thread that no other thread has, or had.
///
/// `thread::current` panics once the thread's locals are destroyed, and a batch may be dropped after that, by a C++
/// `thread_local` or the destructor of a pthread key. A constant without a destructor is there until the thread ends.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

// SAFETY: a stream is a handle that any thread may use.
unsafe impl Send for Inner {}
// SAFETY: as above; nothing here changes.
unsafe impl Sync for Inner {}

impl Stream {
    /// A new stream, which does not wait for the default stream nor the other way round (`CU_STREAM_NON_BLOCKING`).
    ///
    /// # Errors
    ///
    /// What the driver says if it refuses.
    pub fn new(device: &Device) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let _entered = device.enter()?;
        // SAFETY: the driver writes the handle.
        device.call("cuStreamCreate", || unsafe { driver::cuStreamCreate(&mut raw, flags) })?;
        Ok(Self::with(device, raw, Kind::Owned))
    }

    /// Somebody else's stream by its handle, a `CUstream` or `cudaStream_t`, such as `torch.cuda.Stream.cuda_stream`. It
    /// will not be destroyed. The handles 0, 1 and 2 mean the device's default streams, as in CUDA.
    ///
    /// # Safety
    ///
    /// The handle must be valid, of the device's primary context, and not be destroyed before all clones of this stream and
    /// all batches that were made ready on it are dropped.
    pub unsafe fn from_raw(device: &Device, raw: *mut c_void) -> Self {
        match raw.addr() {
            NULL | LEGACY => Self::with(device, raw.cast(), Kind::Default),
            PER_THREAD => Self::per_thread_default(device),
            _ => Self::with(device, raw.cast(), Kind::Borrowed),
        }
    }

    /// The legacy default stream, which CUDA programs use if they name none: PyTorch's, too, outside of
    /// `torch.cuda.stream(…)`. It takes one driver call more than others whenever it is used.
    pub fn legacy_default(device: &Device) -> Self {
        Self::with(device, std::ptr::without_provenance_mut(LEGACY), Kind::Default)
    }

    /// The default stream of this thread, for programs that were built with one for each thread
    /// (`--default-stream per-thread`). Used on another thread, it waits and is waited for as the legacy default stream,
    /// which is in order with it. It takes one driver call more than others whenever it is used.
    pub fn per_thread_default(device: &Device) -> Self {
        Self::with(device, std::ptr::without_provenance_mut(PER_THREAD), Kind::PerThread(this_thread()))
    }

    fn with(device: &Device, raw: CUstream, kind: Kind) -> Self {
        Self(Arc::new(Inner { device: device.clone(), raw, kind }))
    }

    /// The handle: a `CUstream`, which is a `cudaStream_t`, too.
    pub fn as_raw(&self) -> *mut c_void {
        self.0.raw.cast()
    }

    /// The device that it is of.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Waits until all that was put on the stream is done.
    ///
    /// # Errors
    ///
    /// What the driver says, which may be the error of a kernel or a copy that failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        if let Some(mark) = self.mark()? {
            return Ok(mark.synchronize()?);
        }
        // SAFETY: a valid stream.
        Ok(self.call("cuStreamSynchronize", |stream| unsafe { driver::cuStreamSynchronize(stream) })?)
    }

    /// Whether all that was put on the stream is done.
    ///
    /// # Errors
    ///
    /// What the driver says, which may be the error of a kernel or a copy that failed.
    pub fn is_idle(&self) -> Result<bool, Error> {
        Ok(self.query()?)
    }

    pub(crate) fn query(&self) -> Result<bool, DriverError> {
        if let Some(mark) = self.mark()? {
            return mark.is_done();
        }
        let _entered = self.enter()?;
        let raw = self.handle();
        // SAFETY: a valid stream.
        self.device().query("cuStreamQuery", || unsafe { driver::cuStreamQuery(raw) })
    }

    /// Makes a call with this stream's handle: only in here does it mean this stream.
    pub(crate) fn call(
        &self,
        name: &'static str,
        mut call: impl FnMut(CUstream) -> CUresult,
    ) -> Result<(), DriverError> {
        let _entered = self.enter()?;
        let raw = self.handle();
        self.device().call(name, || call(raw))
    }

    /// The default streams' handles stand for those of the context that is current.
    fn enter(&self) -> Result<Option<crate::call::Entered<'_>>, DriverError> {
        let explicit = matches!(self.0.kind, Kind::Owned | Kind::Borrowed);
        if explicit { Ok(None) } else { self.device().enter().map(Some) }
    }

    /// On another thread, the handle of a thread's default stream stands for that other thread's. The legacy default stream
    /// waits for all of them, and they wait for it.
    fn handle(&self) -> CUstream {
        if self.is_elsewhere() { std::ptr::without_provenance_mut(LEGACY) } else { self.0.raw }
    }

    /// The legacy default stream is idle while another one is not: what tells of that one is an event that comes after it.
    fn mark(&self) -> Result<Option<Event>, DriverError> {
        if !self.is_elsewhere() {
            return Ok(None);
        }
        let mark = Event::new(self.device())?;
        mark.record(self)?;
        Ok(Some(mark))
    }

    /// Whether it is another thread's default stream.
    fn is_elsewhere(&self) -> bool {
        matches!(self.0.kind, Kind::PerThread(owner) if owner != this_thread())
    }
}

/// Streams are equal if they are one.
impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        let per_thread = |stream: &Self| matches!(stream.0.kind, Kind::PerThread(_)).then_some(stream.0.kind);
        (self.device(), self.0.raw, per_thread(self)) == (other.device(), other.0.raw, per_thread(other))
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { device, raw, kind } = &*self.0;
        f.debug_struct("Stream").field("device", device).field("raw", raw).field("kind", kind).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.kind != Kind::Owned || self.device.is_lost() {
            return;
        }
        let raw = self.raw;
        // SAFETY: our own, and nobody has it any more. What is still on it will be done first.
        if let Err(error) = self.device.call("cuStreamDestroy", || unsafe { driver::cuStreamDestroy_v2(raw) }) {
            leak::note_handle();
            tracing::warn!(%error, "a stream is leaked");
        }
    }
}
