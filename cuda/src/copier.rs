//! Batches on their way from the host's slots to the device's.
//!
//! # The protocol
//!
//! A batch is written into a host slot by workers, copied into a device slot by the copy engine, and read there by kernels.
//! Host slots and device slots are gated separately, each in both directions; `h` is the host slot of a batch, `d` its device
//! slot:
//!
//! 1. *h is not written while it is copied.* The [`Copying`] entry has the host's batch, the lease on `h`, until `copied` was
//!    seen to be reached: the ring gives `h` to no worker before that.
//! 2. *d is not written while it is read.* Before the copy into `d`, the copy stream waits for the `consumed` events of the
//!    batch before in `d`, one for each stream that used it ([`Slot::wait_on`]). They were recorded when that batch was
//!    released, and `d` comes back here only after that ([`Slot::release`]).
//! 3. *d is not read before it is written.* The caller's stream waits for `copied` ([`Slot::ready_on`]).
//! 4. *d is released when it was read.* `consumed` is recorded on the caller's stream, behind the kernels that it was given.
//!
//! Two copies into the same `d` are in order because all copies are on one stream; so a batch that nobody made ready needs no
//! `consumed`. A `copied` event belongs to the batch, not to a slot: it is recorded again only when neither an entry nor a
//! device slot refers to it. The host waits for nothing but `copied`, and only when it would else have more copies on the way than
//! there is room for.
//!
//! # When the driver fails
//!
//! What may still be read or written is never freed. If a copy was given to the driver and cannot be marked, its host slot and
//! its device slot stay here until the copy stream is idle; if not even that can be found out, both are leaked, with the arena
//! that the host slot is in, and the error says so.

use std::any::Any;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use slotline::Batch;
use slotline::arena::Memory;
use slotline::loader::{BatchLoader, State};
use slotline::sample::Field;

use crate::batch::{About, DeviceBatch};
use crate::device::Device;
use crate::error::{DriverError, Error};
use crate::leak;
use crate::pinned::{Pinned, Seams};
use crate::slot::{Copied, Slot};
use crate::stream::Stream;
use crate::wait::{Grace, Unsettled, poll};

/// The device slots of a loader, and the copies into them.
#[derive(Debug)]
pub(crate) struct Copier<D> {
    device: Device,
    stream: Stream,
    fields: Arc<[Field]>,
    /// Slots that nobody has.
    idle: Vec<Slot>,
    /// What is to be delivered, in order.
    queue: VecDeque<Next>,
    /// Copies that were not seen to be done, oldest first.
    copying: VecDeque<Copying<D>>,
    /// How many of them there may be for another one to begin.
    most_copying: usize,
    events: Vec<Arc<Copied>>,
    back: SyncSender<Slot>,
    returned: Receiver<Slot>,
    /// Slots that were not lost, and the last one that was.
    slots: usize,
    lost: Option<DriverError>,
    /// The most bytes and samples of a batch.
    most: (usize, usize),
    /// Bytes of the memory that the host's slots are in, by which device it was locked, and where copies must be parted.
    arena: usize,
    locked_by: Device,
    seams: Seams,
    /// Whether that was noted as leaked.
    leaked_arena: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) waits_for_release: bool,
    pub(crate) resumable: bool,
}

/// What a pass gives next.
#[derive(Debug)]
pub(crate) struct Next {
    outcome: Result<(Slot, About), Error>,
    /// Where the host's pass was when this had been taken from it.
    pub(crate) state: Option<State>,
}

/// A copy that is not known to be done.
#[derive(Debug)]
struct Copying<D> {
    host: Batch<D>,
    /// `None` if it cannot be told from what else is on the stream.
    copied: Option<Arc<Copied>>,
    /// The device slot, if it could not be delivered.
    slot: Option<Slot>,
}

impl<D> Copier<D> {
    /// Takes the memory of `slots` batches of a loader, which has its own in `memory`.
    pub(crate) fn new<L: BatchLoader<Dataset = D>>(
        host: &L,
        memory: &Pinned,
        device: &Device,
        slots: usize,
    ) -> Result<Self, Error> {
        let fields: Arc<[Field]> = host.fields().cloned().collect();
        let (bytes, rows) = (host.batch_bytes(), host.batch_size());
        let idle = (0..slots).map(|_| Slot::new(device, bytes, fields.len(), rows)).collect::<Result<_, _>>()?;
        // Each slot can refer to one, each copy to another, and one is recorded.
        let events: Result<Vec<_>, _> = (0..=2 * slots).map(|_| Ok(Arc::new(Copied::new(device)?))).collect();
        let (back, returned) = sync_channel(slots);
        Ok(Self {
            device: device.clone(),
            stream: Stream::new(device)?,
            fields,
            idle,
            queue: VecDeque::with_capacity(slots + 1),
            copying: VecDeque::with_capacity(slots + 1),
            most_copying: host.most_held().min(slots - 1),
            events: events.map_err(|error: DriverError| error)?,
            back,
            returned,
            slots,
            lost: None,
            most: (bytes, rows),
            arena: memory.len(),
            locked_by: memory.device().clone(),
            seams: memory.seams(),
            leaked_arena: false,
            timeout: None,
            waits_for_release: false,
            resumable: false,
        })
    }

    /// Whether this is the loader that it was made for, or one that is the same to it.
    pub(crate) fn is_made_for<L: BatchLoader<Dataset = D>>(&self, host: &L) -> bool {
        let memory = host.memory();
        (memory as &dyn Any).is::<Pinned>()
            && (self.seams.start(), self.arena) == (memory.start().addr().get(), memory.len())
            && self.most == (host.batch_bytes(), host.batch_size())
            && host.fields().eq(self.fields.iter())
    }

    /// Begins a pass. What is left of one before is thrown away: copies into its slots are on the copy stream, and so before
    /// those that come.
    pub(crate) fn begin(&mut self) {
        let left = self.queue.drain(..).filter_map(|next| next.outcome.ok());
        self.idle.extend(left.map(|(slot, _)| slot));
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Takes back what was released, and looks whether copies are done.
    ///
    /// As long as copies are ahead of the kernels that is one question for several batches: about the newest copy, since those
    /// before it on the stream are done if it is, and none until a batch is to be delivered that this did not answer.
    pub(crate) fn collect(&mut self) -> Result<(), Error> {
        self.take_back()?;
        let copied = |next: &Next| next.outcome.as_ref().ok().and_then(|(slot, _)| slot.copied.clone());
        if self.queue.front().and_then(copied).is_some_and(|front| !front.was_seen())
            && let Some(newest) = self.queue.iter().rev().find_map(copied)
        {
            self.end_copies_up_to(&newest)?;
        }
        while let Some(oldest) = self.copying.front().filter(|_| self.copying.len() > self.most_copying) {
            let Some(copied) = oldest.copied.clone() else { break };
            if !self.end_copies_up_to(&copied)? {
                break;
            }
        }
        Ok(())
    }

    fn take_back(&mut self) -> Result<(), Error> {
        while let Ok(slot) = self.returned.try_recv() {
            self.take_in(slot)?;
        }
        Ok(())
    }

    fn take_in(&mut self, slot: Slot) -> Result<(), Error> {
        let Some(source) = slot.lost.clone() else {
            self.idle.push(slot);
            return Ok(());
        };
        self.slots -= 1;
        self.lost = Some(source.clone());
        Err(Error::Lost { left: self.slots, source })
    }

    /// Waits until a batch is dropped; whether one was.
    fn wait_for_release(&mut self) -> Result<bool, Error> {
        let returned = match self.timeout {
            Some(timeout) => self.returned.recv_timeout(timeout).ok(),
            None => self.returned.recv().ok(),
        };
        returned.map_or(Ok(false), |slot| self.take_in(slot).map(|()| true))
    }

    /// Whether this copy is done; then so are those before it on the stream.
    fn end_copies_up_to(&mut self, copied: &Arc<Copied>) -> Result<bool, Error> {
        let is_it = |other: &Option<Arc<Copied>>| other.as_ref().is_some_and(|other| Arc::ptr_eq(other, copied));
        let Some(place) = self.copying.iter().position(|copying| is_it(&copying.copied)) else { return Ok(true) };
        match copied.is_done() {
            Ok(false) => Ok(false),
            Err(source) if source.is_passing() => Ok(false),
            Ok(true) => {
                for done in self.copying.drain(..=place) {
                    done.copied.inspect(|copied| copied.note_seen());
                    self.idle.extend(done.slot);
                }
                Ok(true)
            }
            Err(source) => {
                let mut copying = self.copying.remove(place).expect("a place of it");
                let is_its = |next: &Next| next.outcome.as_ref().is_ok_and(|(slot, _)| is_it(&slot.copied));
                let Some(i) = self.queue.iter().position(is_its) else {
                    return Err(self.give_up(copying, Unsettled::Driver(source)));
                };
                // The error comes in the place of the batch.
                let next = self.queue.remove(i).expect("a place of it");
                copying.slot = next.outcome.ok().map(|(slot, _)| slot);
                let outcome = Err(self.give_up(copying, Unsettled::Driver(source)));
                self.queue.insert(i, Next { outcome, state: next.state });
                Ok(false)
            }
        }
    }

    /// Whether there is nothing to deliver.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether another copy can begin.
    pub(crate) fn has_room(&self) -> bool {
        !self.idle.is_empty() && self.copying.len() <= self.most_copying
    }

    /// Waits until another copy can begin.
    pub(crate) fn make_room(&mut self) -> Result<(), Error> {
        while !self.has_room() {
            let stuck = self.idle.is_empty() && self.copying.iter().all(|copying| copying.slot.is_none());
            if stuck {
                if self.waits_for_release && self.slots > 0 && self.wait_for_release()? {
                    continue;
                }
                return Err(match self.lost.clone().filter(|_| self.slots == 0) {
                    Some(source) => Error::Lost { left: 0, source },
                    None => Error::Held { slots: self.slots },
                });
            }
            self.end_oldest_copy()?;
        }
        Ok(())
    }

    /// Whether there are copies that were not seen to be done.
    pub(crate) fn is_copying(&self) -> bool {
        !self.copying.is_empty()
    }

    /// Waits until no copy is on its way.
    pub(crate) fn end_copies(&mut self) -> Result<(), Error> {
        while !self.copying.is_empty() {
            self.end_oldest_copy()?;
        }
        Ok(())
    }

    /// Waits for the oldest copy, if there is one.
    fn end_oldest_copy(&mut self) -> Result<(), Error> {
        let Some(oldest) = self.copying.pop_front() else { return Ok(()) };
        match poll(self.timeout, || oldest.is_done(&self.stream)) {
            Ok(true) => self.idle.extend(oldest.slot),
            Ok(false) => {
                let error = Error::Timeout { after: self.timeout.unwrap_or_default(), task: oldest.host.task() };
                self.copying.push_front(oldest);
                return Err(error);
            }
            Err(source) if source.is_passing() => {
                self.copying.push_front(oldest);
                return Err(source.into());
            }
            Err(source) => return Err(self.give_up(oldest, Unsettled::Driver(source))),
        }
        Ok(())
    }

    /// Has a batch copied, and queues what comes of it. There must be [room](Self::has_room).
    pub(crate) fn copy(&mut self, host: Batch<D>, state: Option<State>) {
        let about = About { task: host.task(), epoch: host.epoch() };
        let outcome = self.submit(host).map(|slot| (slot, about));
        self.queue.push_back(Next { outcome, state });
    }

    /// Queues an error in the place of a batch.
    pub(crate) fn fail(&mut self, error: slotline::Error, state: Option<State>) {
        self.queue.push_back(Next { outcome: Err(error.into()), state });
    }

    /// Gives a copy to the driver, and the slot that it goes to.
    fn submit(&mut self, host: Batch<D>) -> Result<Slot, Error> {
        let mut slot = self.idle.pop().expect("there is room");
        let (columns, task) = (host.columns(), host.task());
        slot.places.clear();
        slot.places.extend((0..columns.len()).filter_map(|i| columns.place(i)));
        slot.indices.clear();
        slot.indices.extend_from_slice(host.indices());
        if let Some(i) = slot.places.iter().position(|place| place.spilled) {
            self.idle.push(slot);
            return Err(Error::Spilled { task, field: self.fields[i].to_string() });
        }
        if let Err(source) = slot.wait_on(&self.stream) {
            self.idle.push(slot);
            return Err(Error::Copy { task, source });
        }
        let free = self.events.iter_mut().position(|event| Arc::get_mut(event).is_some());
        let copied = self.events[free.expect("there are more events than copies and slots")].clone();
        // SAFETY: the bytes are in page-locked memory, and the batch keeps them from being written until `copied` is reached;
        // the slot is at least as long, and nobody reads it from `wait_on` until then.
        let begun = unsafe { slot.copy_from(columns.bytes(), self.seams, &self.stream) };
        match (begun, copied.record(&self.stream)) {
            (Ok(()), Ok(())) => {
                slot.copied = Some(copied.clone());
                self.copying.push_back(Copying { host, copied: Some(copied), slot: None });
                Ok(slot)
            }
            // It may have begun all the same.
            (begun, marked) => {
                let copied = marked.is_ok().then_some(copied);
                let source = begun.and(marked).expect_err("one of them failed");
                self.copying.push_back(Copying { host, copied, slot: Some(slot) });
                Err(Error::Copy { task, source })
            }
        }
    }

    /// What is to be delivered next.
    pub(crate) fn pop(&mut self) -> Option<Next> {
        self.queue.pop_front()
    }

    /// The batch of what is delivered.
    pub(crate) fn deliver(&self, next: Next) -> Result<DeviceBatch, Error> {
        let (slot, about) = next.outcome?;
        Ok(DeviceBatch::new(slot, about, self.device.clone(), self.fields.clone(), self.back.clone()))
    }

    /// Leaks what a copy that nobody can wait for may use.
    fn give_up(&mut self, copying: Copying<D>, why: Unsettled) -> Error {
        let task = copying.host.task();
        mem::forget(copying.host);
        if !mem::replace(&mut self.leaked_arena, true) {
            leak::note_host(self.arena);
            // It has a hold on its device, too.
            self.locked_by.keep();
        }
        if let Some(mut slot) = copying.slot {
            self.slots -= 1;
            if let Unsettled::Driver(source) = &why {
                self.lost = Some(source.clone());
            }
            slot.leak();
        }
        let error = Error::Leaked { task, bytes: self.arena, why: why.to_string() };
        tracing::warn!("{error}");
        error
    }

    /// Sees all copies to their ends, within [`GRACE`](slotline::loader::GRACE).
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        let grace = Grace::new();
        let mut outcome = Ok(());
        while let Some(copying) = self.copying.pop_front() {
            if let Err(why) = grace.poll(|| copying.is_done(&self.stream)) {
                outcome = Err(self.give_up(copying, why));
            }
        }
        self.begin();
        self.idle.extend(self.returned.try_iter());
        for mut slot in self.idle.drain(..) {
            slot.settle(&grace);
        }
        outcome
    }
}

impl<D> Drop for Copier<D> {
    fn drop(&mut self) {
        // What it leaks it warns of.
        let _ = self.close();
    }
}

impl<D> Copying<D> {
    fn is_done(&self, stream: &Stream) -> Result<bool, DriverError> {
        match &self.copied {
            Some(copied) => copied.is_done(),
            None => stream.query(),
        }
    }
}
