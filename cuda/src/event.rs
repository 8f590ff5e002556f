//! Events: points in the work of streams.

use std::fmt;
use std::time::Duration;

use cudarc::driver::sys::{CUevent, CUevent_flags};

use crate::device::Device;
use crate::driver;
use crate::error::{DriverError, Error};
use crate::leak;
use crate::stream::Stream;

/// A point in a stream's work, without a time. One that was never recorded counts as reached.
pub(crate) struct Event {
    device: Device,
    raw: CUevent,
}

// SAFETY: an event is a handle that any thread may use.
unsafe impl Send for Event {}
// SAFETY: as above; nothing here changes.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new(device: &Device) -> Result<Self, DriverError> {
        Self::with(device, CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn with(device: &Device, flags: CUevent_flags) -> Result<Self, DriverError> {
        let mut raw = std::ptr::null_mut();
        let _entered = device.enter()?;
        // SAFETY: the driver writes the handle.
        device.call("cuEventCreate", || unsafe { driver::cuEventCreate(&mut raw, flags as u32) })?;
        Ok(Self { device: device.clone(), raw })
    }

    /// Means from now on what is on the stream now. The stream must be of the event's device.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: both are valid.
        stream.call("cuEventRecord", |stream| unsafe { driver::cuEventRecord(self.raw, stream) })
    }

    /// Lets the stream, of whichever device, go on only when the event as recorded last is reached. The host does not wait.
    pub(crate) fn wait_on(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: both are valid.
        stream.call("cuStreamWaitEvent", |stream| unsafe { driver::cuStreamWaitEvent(stream, self.raw, 0) })
    }

    /// Whether the event as recorded last is reached.
    pub(crate) fn is_done(&self) -> Result<bool, DriverError> {
        // SAFETY: a valid event.
        self.device.query("cuEventQuery", || unsafe { driver::cuEventQuery(self.raw) })
    }

    /// Waits until the event as recorded last is reached.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: a valid event.
        self.device.call("cuEventSynchronize", || unsafe { driver::cuEventSynchronize(self.raw) })
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("device", &self.device).field("raw", &self.raw).finish()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.is_lost() {
            return;
        }
        let raw = self.raw;
        // SAFETY: our own, and nobody has it any more. If it is not reached yet, the driver frees it when it is.
        if let Err(error) = self.device.call("cuEventDestroy", || unsafe { driver::cuEventDestroy_v2(raw) }) {
            leak::note_handle();
            tracing::warn!(%error, "an event is leaked");
        }
    }
}

/// A point in a stream's work, with the time at which it was reached by the device's clock: two of them tell what the work
/// between them took.
#[derive(Debug)]
pub struct TimedEvent(Event);

impl TimedEvent {
    /// An event that is not recorded yet.
    ///
    /// # Errors
    ///
    /// What the driver says if it refuses.
    pub fn new(device: &Device) -> Result<Self, Error> {
        Ok(Self(Event::with(device, CUevent_flags::CU_EVENT_DEFAULT)?))
    }

    /// Puts the event on a stream of its device, behind what is there. It forgets where it was before.
    ///
    /// # Errors
    ///
    /// What the driver says, for one if the stream is of another device.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        Ok(self.0.record(stream)?)
    }

    /// Waits until the stream has come to the event.
    ///
    /// # Errors
    ///
    /// What the driver says, which may be the error of a kernel or a copy that failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        Ok(self.0.synchronize()?)
    }

    /// The time from the other event to this one, to about half a microsecond; zero if this one was reached first.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_READY` if one of them is not reached yet, and `CUDA_ERROR_INVALID_HANDLE` if one was never recorded
    /// or they are of different devices.
    pub fn elapsed_since(&self, earlier: &Self) -> Result<Duration, Error> {
        let mut milliseconds = 0.0_f32;
        let (from, to) = (earlier.0.raw, self.0.raw);
        // SAFETY: the events are valid, and the driver writes the number.
        let call = || unsafe { driver::cuEventElapsedTime(&mut milliseconds, from, to) };
        self.0.device.call("cuEventElapsedTime", call)?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }
}
