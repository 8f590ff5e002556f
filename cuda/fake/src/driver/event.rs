//! Events. Each record of an event creates a mark, which is reached when the stream has come to the
//! record. A wait refers to the latest mark at the time of the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::code::{INVALID_HANDLE, NOT_READY, Outcome};
use super::stream::Work;
use super::{Driver, Handle};
use crate::control::Skip;

pub(super) struct Event {
    device: usize,
    timed: bool,
    latest: Option<Mark>,
}

/// The number of the step at which a record was reached, or 0 before that. It is accessed only
/// under the driver's lock, and is atomic only so that it can be shared.
#[derive(Clone, Default)]
pub(super) struct Mark(Arc<AtomicU64>);

impl Mark {
    pub(super) fn reach(&self, now: u64) {
        self.0.store(now, Relaxed);
    }

    pub(super) fn is_reached(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}

impl Event {
    pub(super) fn device(&self) -> usize {
        self.device
    }
}

const DISABLE_TIMING: u32 = 2;

impl Driver {
    pub(super) fn create_event(&mut self, flags: u32) -> Outcome<Handle> {
        let device = self.current()?;
        let handle = self.handle();
        self.events.insert(handle, Event { device, timed: flags & DISABLE_TIMING == 0, latest: None });
        Ok(handle)
    }

    /// Destroys the event. Records and waits that are already enqueued are not affected.
    pub(super) fn destroy_event(&mut self, event: Handle) -> Outcome {
        self.find_event(event)?;
        self.events.remove(&event);
        Ok(())
    }

    pub(super) fn record(&mut self, event: Handle, stream: Handle) -> Outcome {
        let stream = self.find_by_handle(stream)?;
        let skipped = self.skips(Skip::Consumed) && !self.streams[&stream].carries_copies();
        let device = self.streams[&stream].device();
        let event = self.events.get_mut(&event).filter(|event| event.device == device).ok_or(INVALID_HANDLE)?;
        if skipped {
            return Ok(());
        }
        let mark = Mark::default();
        event.latest = Some(mark.clone());
        self.enqueue(stream, Work::Record(mark));
        Ok(())
    }

    pub(super) fn wait_event(&mut self, stream: Handle, event: Handle) -> Outcome {
        let stream = self.find_by_handle(stream)?;
        let mark = self.events.get(&event).ok_or(INVALID_HANDLE)?.latest.clone();
        let gate = if self.streams[&stream].carries_copies() { Skip::CopyWait } else { Skip::TrainingWait };
        if let Some(mark) = mark.filter(|mark| !mark.is_reached() && !self.skips(gate)) {
            self.enqueue(stream, Work::Wait(mark));
        }
        Ok(())
    }

    pub(super) fn query_event(&mut self, event: Handle) -> Outcome {
        match &self.find_event(event)?.latest {
            Some(mark) if !mark.is_reached() && !self.skips(Skip::HostWait) => Err(NOT_READY),
            _ => Ok(()),
        }
    }

    pub(super) fn synchronize_event(&mut self, event: Handle) -> Outcome {
        match self.find_event(event)?.latest.clone() {
            Some(mark) if !self.skips(Skip::HostWait) => self.run_until(|_| mark.is_reached())?,
            _ => {}
        }
        self.find_event(event).map(drop)
    }

    /// Returns the time between two events in milliseconds. A step counts as a microsecond.
    pub(super) fn elapsed(&mut self, start: Handle, end: Handle) -> Outcome<f32> {
        self.current()?;
        let reached = |handle| {
            let event = self.events.get(&handle).filter(|event| event.timed).ok_or(INVALID_HANDLE)?;
            let mark = event.latest.as_ref().ok_or(INVALID_HANDLE)?;
            if mark.is_reached() { Ok(mark.0.load(Relaxed)) } else { Err(NOT_READY) }
        };
        let (start, end) = (reached(start)?, reached(end)?);
        Ok((end as f64 - start as f64) as f32 / 1000.0)
    }

    /// Returns the event, for a call that uses no other object.
    fn find_event(&self, event: Handle) -> Outcome<&Event> {
        let known = self.events.get(&event);
        self.check_context_for(known.map(Event::device))?;
        known.ok_or(INVALID_HANDLE)
    }
}
