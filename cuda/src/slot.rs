//! The device memory of one batch, and the streams that use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use slotline::sample::FieldBytes;

use crate::Device;
use crate::driver;
use crate::error::{DriverError, Error};
use crate::event::Event;
use crate::memory::DeviceMemory;
use crate::pinned::Seams;
use crate::stream::Stream;
use crate::wait::GracePeriod;

/// The maximum number of streams that a batch can be made ready on.
pub(crate) const MAX_STREAMS: usize = 4;

/// The event that marks the end of a copy, shared by everything that waits for it.
#[derive(Debug)]
pub(crate) struct Copied {
    event: Event,
    /// Whether the copy was already observed to be done, so that the driver does not need to be
    /// asked.
    seen: AtomicBool,
}

impl Copied {
    pub(crate) fn new(device: &Device) -> Result<Self, DriverError> {
        Ok(Self { event: Event::new(device)?, seen: AtomicBool::new(true) })
    }

    /// Marks the end of the work that `stream` was given so far. No code may still be waiting for
    /// an earlier mark.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        self.seen.store(false, Ordering::Relaxed);
        self.event.record(stream)
    }

    /// Returns whether the copy was already observed to be done.
    pub(crate) fn was_seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    /// Returns whether the copy is done, asking the driver if necessary.
    pub(crate) fn is_done(&self) -> Result<bool, DriverError> {
        let done = self.was_seen() || self.event.is_done()?;
        if done {
            self.note_seen();
        }
        Ok(done)
    }

    /// Records that the copy is done.
    pub(crate) fn note_seen(&self) {
        self.seen.store(true, Ordering::Relaxed);
    }

    /// Makes `stream` wait for the copy. If the copy is known to be done no wait is needed, since
    /// everything that the stream is given from now on comes later.
    fn wait_on(&self, stream: &Stream) -> Result<(), DriverError> {
        if self.was_seen() { Ok(()) } else { self.event.wait_on(stream) }
    }
}

/// A stream's use of a slot.
#[derive(Debug)]
struct Use {
    /// The event that is recorded when the slot is released.
    consumed: Event,
    stream: Option<Stream>,
}

/// The streams that use a slot, or that used it before it was released.
#[derive(Debug)]
struct Uses {
    /// One entry for each stream; entries are reused.
    streams: Vec<Use>,
    end: End,
}

/// Whether the recorded streams and their events show when the device has finished with a slot.
#[derive(Debug)]
enum End {
    Known,
    /// A call that records the end has not returned. If other code observes this, the call has
    /// panicked.
    Open,
    /// A call that records the end has failed.
    Refused(DriverError),
}

impl Uses {
    /// Records one more stream, which must not be recorded yet.
    fn note(&mut self, device: &Device, stream: &Stream) -> Result<(), DriverError> {
        let free = match self.streams.iter().position(|used| used.stream.is_none()) {
            Some(free) => free,
            None => {
                self.streams.push(Use { consumed: Event::new(device)?, stream: None });
                self.streams.len() - 1
            }
        };
        self.streams[free].stream = Some(stream.clone());
        Ok(())
    }

    fn has(&self, stream: &Stream) -> bool {
        self.streams.iter().any(|used| used.stream.as_ref() == Some(stream))
    }

    /// Returns the reason why the end of the slot's use cannot be determined, if there is one.
    fn lost(&self) -> Option<DriverError> {
        match &self.end {
            End::Known => None,
            End::Open => Some(DriverError::interrupted("cuEventRecord")),
            End::Refused(error) => Some(error.clone()),
        }
    }

    /// Makes the calls that record the end of the slot's use. If one of them fails or panics, or an
    /// earlier one did, the slot is lost.
    fn settle_end(&mut self, run: impl FnOnce(&mut Self) -> Result<(), DriverError>) -> Result<(), DriverError> {
        if let Some(error) = self.lost() {
            return Err(error);
        }
        self.end = End::Open;
        let outcome = run(self);
        self.end = outcome.clone().map_or_else(End::Refused, |()| End::Known);
        outcome
    }
}

/// The device memory of one batch. It has one owner: the loader, or the batch that was delivered to
/// the user.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The memory; `None` once it was freed or leaked.
    memory: Option<DeviceMemory>,
    /// The streams, behind a lock, since threads that use different streams may share a batch.
    uses: Mutex<Uses>,
    /// The last copy into the slot, if there was one.
    pub(crate) copied: Option<Arc<Copied>>,
    /// The positions of the batch's fields in the memory.
    pub(crate) places: Vec<FieldBytes>,
    pub(crate) indices: Vec<i64>,
    /// The maximum time that dropping the slot waits for its users.
    close_timeout: Duration,
}

impl Slot {
    pub(crate) fn new(
        device: &Device,
        bytes: usize,
        fields: usize,
        rows: usize,
        close_timeout: Duration,
    ) -> Result<Self, Error> {
        let mut streams = Vec::with_capacity(MAX_STREAMS);
        streams.push(Use { consumed: Event::new(device)?, stream: None });
        Ok(Self {
            memory: Some(DeviceMemory::new(device, bytes.max(1))?),
            uses: Mutex::new(Uses { streams, end: End::Known }),
            copied: None,
            places: Vec::with_capacity(fields),
            indices: Vec::with_capacity(rows),
            close_timeout,
        })
    }

    /// Returns the device address.
    pub(crate) fn ptr(&self) -> u64 {
        self.memory.as_ref().map_or(0, DeviceMemory::ptr)
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, DeviceMemory::len)
    }

    /// Returns whether this process was forked from the one that owns the memory.
    pub(crate) fn is_lost(&self) -> bool {
        self.memory.as_ref().is_some_and(DeviceMemory::is_lost)
    }

    /// Makes `stream` wait for the copy, and records that it uses the slot from then on.
    pub(crate) fn ready_on(&self, device: &Device, stream: &Stream) -> Result<(), Error> {
        // This check comes before the lock: in a forked process, a thread that does not exist there
        // may hold it.
        device.check_not_forked("cuStreamWaitEvent")?;
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.has(stream) {
            return Ok(());
        }
        if uses.streams.iter().filter(|used| used.stream.is_some()).count() >= MAX_STREAMS {
            return Err(Error::TooManyStreams { most: MAX_STREAMS });
        }
        if let Some(copied) = &self.copied {
            copied.wait_on(stream)?;
        }
        Ok(uses.note(device, stream)?)
    }

    /// Records that `stream` has used the slot too, without a limit on the number of streams. If
    /// that fails, the slot is lost.
    pub(crate) fn also_used_by(&self, device: &Device, stream: &Stream) -> Result<(), DriverError> {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.has(stream) { Ok(()) } else { uses.settle_end(|uses| uses.note(device, stream)) }
    }

    /// Records that only `stream` uses the slot. The caller ensures that the work of this stream
    /// comes after the work of the other streams that use the slot.
    pub(crate) fn used_by(&mut self, stream: &Stream) {
        let streams = &mut self.uses().streams;
        streams.iter_mut().for_each(|used| used.stream = None);
        streams[0].stream = Some(stream.clone());
    }

    /// Records the end of the slot's use on all streams that use it. If that fails, the slot is
    /// lost.
    pub(crate) fn release(&mut self) -> Result<(), DriverError> {
        let mark = |used: &mut Use| used.stream.as_ref().map_or(Ok(()), |stream| used.consumed.record(stream));
        self.uses().settle_end(|uses| uses.streams.iter_mut().try_for_each(mark))
    }

    /// Returns the reason why the end of the slot's use cannot be determined, if there is one.
    pub(crate) fn lost(&mut self) -> Option<DriverError> {
        self.uses().lost()
    }

    /// Makes the copy stream wait until nothing uses the slot any more.
    pub(crate) fn wait_on(&mut self, copies: &Stream) -> Result<(), DriverError> {
        let streams = &mut self.uses().streams;
        for used in streams.iter().filter(|used| used.stream.is_some()) {
            used.consumed.wait_on(copies)?;
        }
        // The streams are cleared only after all waits. If one wait is refused, nothing is copied,
        // and then no copy could show that the other events were reached.
        streams.iter_mut().for_each(|used| used.stream = None);
        Ok(())
    }

    /// Starts a copy into the slot. It takes one driver call, and one more for each boundary
    /// ([`Seams`]) within the bytes.
    ///
    /// # Safety
    ///
    /// The bytes must be neither written nor freed until the copy is done. (If the memory is not
    /// page-locked, the driver copies it to a staging buffer before it returns.) Nothing may read
    /// the slot from the time when `stream` reaches the copy until the copy is done.
    ///
    /// # Panics
    ///
    /// Panics if the bytes are longer than the slot.
    pub(crate) unsafe fn copy_from(&self, bytes: &[u8], seams: Seams, stream: &Stream) -> Result<(), DriverError> {
        let Some(memory) = &self.memory else { return Ok(()) };
        assert!(bytes.len() <= memory.len());
        let (mut to, mut left) = (memory.ptr(), bytes);
        while !left.is_empty() {
            let (now, rest) = left.split_at(left.len().min(seams.next(left.as_ptr().addr())));
            let (from, len) = (now.as_ptr().cast(), now.len());
            // SAFETY: the caller keeps `bytes` unchanged and the slot unread until the copy is
            // done, and the assertion above ensures that the destination is long enough.
            let copy = |stream| unsafe { driver::cuMemcpyHtoDAsync_v2(to, from, len, stream) };
            stream.call("cuMemcpyHtoDAsync", copy)?;
            (to, left) = (to + len as u64, rest);
        }
        Ok(())
    }

    /// Waits until nothing uses the memory any more, and frees it. Leaks it if that does not happen
    /// within the limit.
    pub(crate) fn free_when_unused(&mut self, grace: &GracePeriod) {
        // The memory is taken out first, so that it is leaked if anything here panics.
        let Some(memory) = self.memory.take() else { return };
        match grace.poll(|| self.is_unused()) {
            Ok(()) => memory.free(),
            Err(why) => {
                drop(memory);
                tracing::warn!("the device memory of a batch is leaked, since it may still be in use: {why}");
            }
        }
    }

    /// Leaks the memory, since something may still use it.
    pub(crate) fn leak(&mut self) {
        self.memory = None;
    }

    fn uses(&mut self) -> &mut Uses {
        self.uses.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether nothing uses the memory any more.
    fn is_unused(&mut self) -> Result<bool, DriverError> {
        if let Some(error) = self.lost() {
            return Err(error);
        }
        for used in self.uses().streams.iter().filter(|used| used.stream.is_some()) {
            if !used.consumed.is_done()? {
                return Ok(false);
            }
        }
        self.copied.as_ref().map_or(Ok(true), |copied| copied.is_done())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.is_lost() {
            return;
        }
        self.free_when_unused(&GracePeriod::new(self.close_timeout));
    }
}
