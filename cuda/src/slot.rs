//! The memory of one batch on the device, and who uses it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;
use heapless::Vec as InlineVec;
use slotline::sample::Place;

use crate::Device;
use crate::error::{DriverError, Error};
use crate::event::Event;
use crate::memory::DeviceMemory;
use crate::pinned::Seams;
use crate::stream::Stream;
use crate::wait::Grace;

/// How many streams can use one batch.
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

/// A place for each stream that has used the slot.
type Uses = InlineVec<Use, MOST_STREAMS>;

/// The memory of one batch on the device. It has one owner: the loader, or the batch that the user has.
#[derive(Debug)]
pub(crate) struct Slot {
    /// `None` once it is given up.
    memory: Option<DeviceMemory>,
    /// Streams that use it, or used it last. Locked, since the threads of several streams may share a batch.
    uses: Mutex<Uses>,
    /// The last copy into it, if there was one.
    pub(crate) copied: Option<Arc<Copied>>,
    /// Where the fields of its batch are.
    pub(crate) places: Vec<Place>,
    pub(crate) indices: Vec<i64>,
    /// Why nobody can tell any more when it is no longer used.
    pub(crate) lost: Option<DriverError>,
}

impl Slot {
    pub(crate) fn new(device: &Device, bytes: usize, fields: usize, rows: usize) -> Result<Self, Error> {
        let first = Use { consumed: Event::new(device)?, stream: None };
        Ok(Self {
            memory: Some(DeviceMemory::new(device, bytes.max(1))?),
            uses: Mutex::new(Uses::from_iter([first])),
            copied: None,
            places: Vec::with_capacity(fields),
            indices: Vec::with_capacity(rows),
            lost: None,
        })
    }

    /// Its address on the device.
    pub(crate) fn ptr(&self) -> u64 {
        self.memory.as_ref().map_or(0, DeviceMemory::ptr)
    }

    /// Has `stream` wait for the copy, and notes that it uses the slot from then on.
    pub(crate) fn ready_on(&self, device: &Device, stream: &Stream) -> Result<(), Error> {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.iter().any(|used| used.stream.as_ref() == Some(stream)) {
            return Ok(());
        }
        if !uses.iter().any(|used| used.stream.is_none()) {
            if uses.is_full() {
                return Err(Error::TooManyStreams { most: MOST_STREAMS });
            }
            let _ = uses.push(Use { consumed: Event::new(device)?, stream: None });
        }
        if let Some(copied) = &self.copied {
            copied.wait_on(stream)?;
        }
        if let Some(free) = uses.iter_mut().find(|used| used.stream.is_none()) {
            free.stream = Some(stream.clone());
        }
        Ok(())
    }

    /// Notes that only `stream` uses the slot, which comes after all that others did.
    pub(crate) fn used_by(&mut self, stream: &Stream) {
        let uses = self.uses();
        uses.iter_mut().for_each(|used| used.stream = None);
        uses[0].stream = Some(stream.clone());
    }

    /// Marks, on all streams that use the slot, where they are done with it. If that fails, the slot is lost.
    pub(crate) fn release(&mut self) -> Result<(), DriverError> {
        let mark = |used: &mut Use| used.stream.as_ref().map_or(Ok(()), |stream| used.consumed.record(stream));
        let outcome = self.uses().iter_mut().try_for_each(mark);
        self.lost = outcome.clone().err();
        outcome
    }

    /// Has the copy stream wait until nobody uses the slot any more.
    pub(crate) fn wait_on(&mut self, copies: &Stream) -> Result<(), DriverError> {
        let uses = self.uses();
        for used in uses.iter().filter(|used| used.stream.is_some()) {
            used.consumed.wait_on(copies)?;
        }
        // Not one by one: if a wait is refused nothing is copied, and no copy tells that the others were reached.
        uses.iter_mut().for_each(|used| used.stream = None);
        Ok(())
    }

    /// Begins a copy into the slot: one call of the driver, and one more for each seam among the bytes.
    ///
    /// # Safety
    ///
    /// The bytes must be page-locked, and be neither written nor freed until the copy is done; and nobody may read the slot from
    /// when `stream` comes to the copy until then.
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
            stream.call("cuMemcpyHtoDAsync", |stream| unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, len, stream) })?;
            (to, left) = (to + len as u64, rest);
        }
        Ok(())
    }

    /// Waits until nothing uses the memory any more, and frees it; or leaks it.
    pub(crate) fn settle(&mut self, grace: &Grace) {
        if self.memory.is_none() {
            return;
        }
        match grace.poll(|| self.is_unused()) {
            Ok(()) => self.memory = None,
            Err(why) => {
                tracing::warn!("a batch's memory on the device is leaked, since it may still be used: {why}");
                self.leak();
            }
        }
    }

    /// Gives up the memory for good, since something may still use it.
    pub(crate) fn leak(&mut self) {
        if let Some(memory) = self.memory.take() {
            memory.leak();
        }
    }

    fn uses(&mut self) -> &mut Uses {
        self.uses.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing uses the memory any more.
    fn is_unused(&mut self) -> Result<bool, DriverError> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        for used in self.uses().iter().filter(|used| used.stream.is_some()) {
            if !used.consumed.is_done()? {
                return Ok(false);
            }
        }
        self.copied.as_ref().map_or(Ok(true), |copied| copied.is_done())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.settle(&Grace::new());
    }
}
