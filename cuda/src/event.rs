//! Events: points in the work of streams.

use std::fmt;
use std::time::Duration;

use cudarc::driver::sys::{CUevent, CUevent_flags};

use crate::device::Device;
use crate::driver;
use crate::error::{DriverError, Error};
use crate::leak;
use crate::stream::Stream;

/// A point in a stream's work, without a timestamp. An event that was never recorded counts as
/// reached.
pub(crate) struct Event {
    device: Device,
    raw: CUevent,
}

// SAFETY: the driver allows an event handle to be used on any thread.
unsafe impl Send for Event {}
// SAFETY: as for `Send`, and the fields never change.
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

    /// Records the event after the work that is on the stream now. The stream must belong to the
    /// event's device.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        stream.await_earlier_work()?;
        // SAFETY: the event and the stream are valid until they are dropped.
        stream.call("cuEventRecord", |stream| unsafe { driver::cuEventRecord(self.raw, stream) })
    }

    /// Makes the stream, which may be of any device, wait until the latest recording of the event
    /// is reached. The host does not wait.
    pub(crate) fn wait_on(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: the event and the stream are valid until they are dropped.
        stream.call("cuStreamWaitEvent", |stream| unsafe { driver::cuStreamWaitEvent(stream, self.raw, 0) })
    }

    /// Returns whether the latest recording of the event is reached.
    pub(crate) fn is_done(&self) -> Result<bool, DriverError> {
        // SAFETY: the event is valid until it is dropped.
        self.device.query("cuEventQuery", || unsafe { driver::cuEventQuery(self.raw) })
    }

    /// Waits until the latest recording of the event is reached.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the event is valid until it is dropped.
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
        // SAFETY: this value owns the event, and nothing uses the handle any more. If the event is
        // not reached yet, the driver frees it once it is.
        if let Err(error) = self.device.call("cuEventDestroy", || unsafe { driver::cuEventDestroy_v2(raw) }) {
            leak::note_handle();
            tracing::warn!(%error, "an event is leaked");
        }
    }
}

/// A point in a stream's work, with the time of the device's clock at which it was reached. Two of
/// them measure the duration of the work between them.
#[derive(Debug)]
pub struct TimedEvent(Event);

impl TimedEvent {
    /// Creates an event that is not recorded yet.
    ///
    /// # Errors
    ///
    /// Returns the driver's error.
    pub fn new(device: &Device) -> Result<Self, Error> {
        Ok(Self(Event::with(device, CUevent_flags::CU_EVENT_DEFAULT)?))
    }

    /// Records the event on a stream of its device, after the work that is already there. It
    /// replaces an earlier recording.
    ///
    /// # Errors
    ///
    /// Returns the driver's error, for example if the stream belongs to another device.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        Ok(self.0.record(stream)?)
    }

    /// Waits until the stream has reached the event.
    ///
    /// # Errors
    ///
    /// Returns the driver's error, which may be the error of a kernel or a copy that failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        Ok(self.0.synchronize()?)
    }

    /// Returns the time from `earlier` to this event, with a resolution of about half a
    /// microsecond; zero if this event was reached first.
    ///
    /// # Errors
    ///
    /// Returns `CUDA_ERROR_NOT_READY` if one of the two events is not reached yet, and
    /// `CUDA_ERROR_INVALID_HANDLE` if one was never recorded or they belong to different devices.
    pub fn elapsed_since(&self, earlier: &Self) -> Result<Duration, Error> {
        let mut milliseconds = 0.0_f32;
        let (from, to) = (earlier.0.raw, self.0.raw);
        // SAFETY: the events are valid, and the driver writes the number.
        let call = || unsafe { driver::cuEventElapsedTime(&mut milliseconds, from, to) };
        self.0.device.call("cuEventElapsedTime", call)?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }
}
