//! The memory of one batch on the device, and who uses it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use slotline::sample::Place;

use crate::Device;
use crate::driver;
use crate::error::{DriverError, Error};
use crate::event::Event;
use crate::memory::DeviceMemory;
use crate::pinned::Seams;
use crate::stream::Stream;
use crate::wait::Grace;

/// How many streams a batch can be made ready on.
pub(crate) const MOST_STREAMS: usize = 4;

/// The event that a copy is done, shared by whoever waits for it.
#[derive(Debug)]
pub(crate) struct Copied {
    event: Event,
    /// Whether that was seen already, so that nobody need ask the driver.
    seen: AtomicBool,
}

impl Copied {
    pub(crate) fn new(device: &Device) -> Result<Self, DriverError> {
        Ok(Self { event: Event::new(device)?, seen: AtomicBool::new(true) })
    }

    /// Marks the end of what `stream` was given so far. Nobody may be waiting for an earlier mark.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        self.seen.store(false, Ordering::Relaxed);
        self.event.record(stream)
    }

    /// Whether it was seen that the copy is done.
    pub(crate) fn was_seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    /// Whether the copy is done.
    pub(crate) fn is_done(&self) -> Result<bool, DriverError> {
        let done = self.was_seen() || self.event.is_done()?;
        if done {
            self.note_seen();
        }
        Ok(done)
    }

    /// Notes that the copy is done.
    pub(crate) fn note_seen(&self) {
        self.seen.store(true, Ordering::Relaxed);
    }

    /// Has `stream` wait for it. What is done already needs no waiting: all that the stream is given from now on is later.
    fn wait_on(&self, stream: &Stream) -> Result<(), DriverError> {
        if self.was_seen() { Ok(()) } else { self.event.wait_on(stream) }
    }
}

/// A stream's use of a slot.
#[derive(Debug)]
struct Use {
    /// Recorded when the slot is released.
    consumed: Event,
    stream: Option<Stream>,
}

/// The streams that use a slot, or used it last.
#[derive(Debug)]
struct Uses {
    /// A place for each.
    streams: Vec<Use>,
    end: End,
}

/// Whether the noted streams and their events will tell when a slot is no longer used.
#[derive(Debug)]
enum End {
    Known,
    /// A call that sees to that has not returned. Seen by others only if it panicked.
    Open,
    /// Such a call has failed.
    Refused(DriverError),
}

impl Uses {
    /// Notes one more stream, of which nothing may be noted yet.
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

    /// Why nobody can tell when the slot is no longer used.
    fn lost(&self) -> Option<DriverError> {
        match &self.end {
            End::Known => None,
            End::Open => Some(DriverError::interrupted("cuEventRecord")),
            End::Refused(error) => Some(error.clone()),
        }
    }

    /// Runs what the end depends on. If it fails or panics, or something before it did, the slot is lost.
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

/// The memory of one batch on the device. It has one owner: the loader, or the batch that the user has.
#[derive(Debug)]
pub(crate) struct Slot {
    /// `None` once it is given up.
    memory: Option<DeviceMemory>,
    /// Locked, since the threads of several streams may share a batch.
    uses: Mutex<Uses>,
    /// The last copy into it, if there was one.
    pub(crate) copied: Option<Arc<Copied>>,
    /// Where the fields of its batch are.
    pub(crate) places: Vec<Place>,
    pub(crate) indices: Vec<i64>,
}

impl Slot {
    pub(crate) fn new(device: &Device, bytes: usize, fields: usize, rows: usize) -> Result<Self, Error> {
        let mut streams = Vec::with_capacity(MOST_STREAMS);
        streams.push(Use { consumed: Event::new(device)?, stream: None });
        Ok(Self {
            memory: Some(DeviceMemory::new(device, bytes.max(1))?),
            uses: Mutex::new(Uses { streams, end: End::Known }),
            copied: None,
            places: Vec::with_capacity(fields),
            indices: Vec::with_capacity(rows),
        })
    }

    /// Its address on the device.
    pub(crate) fn ptr(&self) -> u64 {
        self.memory.as_ref().map_or(0, DeviceMemory::ptr)
    }

    /// Whether this process was forked from the one that has it.
    pub(crate) fn is_lost(&self) -> bool {
        self.memory.as_ref().is_some_and(DeviceMemory::is_lost)
    }

    /// Has `stream` wait for the copy, and notes that it uses the slot from then on.
    pub(crate) fn ready_on(&self, device: &Device, stream: &Stream) -> Result<(), Error> {
        // Before the lock, which a thread that is gone may hold.
        device.check_not_forked("cuStreamWaitEvent")?;
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.has(stream) {
            return Ok(());
        }
        if uses.streams.iter().filter(|used| used.stream.is_some()).count() >= MOST_STREAMS {
            return Err(Error::TooManyStreams { most: MOST_STREAMS });
        }
        if let Some(copied) = &self.copied {
            copied.wait_on(stream)?;
        }
        Ok(uses.note(device, stream)?)
    }

    /// Notes that `stream`, too, has used the slot, however many streams there are. If that fails, the slot is lost.
    pub(crate) fn also_used_by(&self, device: &Device, stream: &Stream) -> Result<(), DriverError> {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.has(stream) { Ok(()) } else { uses.settle_end(|uses| uses.note(device, stream)) }
    }

    /// Notes that only `stream` uses the slot, which comes after all that others did.
    pub(crate) fn used_by(&mut self, stream: &Stream) {
        let streams = &mut self.uses().streams;
        streams.iter_mut().for_each(|used| used.stream = None);
        streams[0].stream = Some(stream.clone());
    }

    /// Marks, on all streams that use the slot, where they are done with it. If that fails, the slot is lost.
    pub(crate) fn release(&mut self) -> Result<(), DriverError> {
        let mark = |used: &mut Use| used.stream.as_ref().map_or(Ok(()), |stream| used.consumed.record(stream));
        self.uses().settle_end(|uses| uses.streams.iter_mut().try_for_each(mark))
    }

    /// Why nobody can tell any more when it is no longer used.
    pub(crate) fn lost(&mut self) -> Option<DriverError> {
        self.uses().lost()
    }

    /// Has the copy stream wait until nobody uses the slot any more.
    pub(crate) fn wait_on(&mut self, copies: &Stream) -> Result<(), DriverError> {
        let streams = &mut self.uses().streams;
        for used in streams.iter().filter(|used| used.stream.is_some()) {
            used.consumed.wait_on(copies)?;
        }
        // Not one by one: if a wait is refused nothing is copied, and no copy tells that the others were reached.
        streams.iter_mut().for_each(|used| used.stream = None);
        Ok(())
    }

    /// Begins a copy into the slot: one call of the driver, and one more for each seam among the bytes.
    ///
    /// # Safety
    ///
    /// The bytes must be neither written nor freed until the copy is done (of memory that is not page-locked the driver makes a
    /// copy of its own before it returns); and nobody may read the slot from when `stream` comes to the copy until then.
    ///
    /// # Panics
    ///
    /// If there are more bytes than the slot has.
    pub(crate) unsafe fn copy_from(&self, bytes: &[u8], seams: Seams, stream: &Stream) -> Result<(), DriverError> {
        let Some(memory) = &self.memory else { return Ok(()) };
        assert!(bytes.len() <= memory.len());
        let (mut to, mut left) = (memory.ptr(), bytes);
        while !left.is_empty() {
            let (now, rest) = left.split_at(left.len().min(seams.next(left.as_ptr().addr())));
            let (from, len) = (now.as_ptr().cast(), now.len());
            // SAFETY: the caller's word; there is room.
            let copy = |stream| unsafe { driver::cuMemcpyHtoDAsync_v2(to, from, len, stream) };
            stream.call("cuMemcpyHtoDAsync", copy)?;
            (to, left) = (to + len as u64, rest);
        }
        Ok(())
    }

    /// Waits until nothing uses the memory any more, and frees it; or leaks it.
    pub(crate) fn settle(&mut self, grace: &Grace) {
        // Taken first: if anything here panics, the memory is leaked by unwinding.
        let Some(memory) = self.memory.take() else { return };
        match grace.poll(|| self.is_unused()) {
            Ok(()) => memory.free(),
            Err(why) => {
                drop(memory);
                tracing::warn!("a batch's memory on the device is leaked, since it may still be used: {why}");
            }
        }
    }

    /// Gives up the memory for good, since something may still use it.
    pub(crate) fn leak(&mut self) {
        self.memory = None;
    }

    fn uses(&mut self) -> &mut Uses {
        self.uses.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing uses the memory any more.
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
        self.settle(&Grace::new());
    }
}
