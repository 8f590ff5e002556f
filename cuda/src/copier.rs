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
//!
//! The same holds if something panics on the way, such as a subscriber that a warning goes to: both slots are in a [`Copying`]
//! before the driver is called, and unwinding past one of these leaks what it has.

use std::any::Any;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use slotline::arena::Memory;
use slotline::loader::State;
use slotline::sample::{Dynamic, Field};
use slotline::{Batch, Loader};

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
pub(crate) struct Copier {
    device: Device,
    stream: Stream,
    fields: Arc<[Field]>,
    /// Slots that nobody has.
    idle: Vec<Slot>,
    /// What is to be delivered, in order.
    queue: VecDeque<Next>,
    /// Copies that were not seen to be done, oldest first.
    copying: VecDeque<Copying>,
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
    /// The memory that the host's slots are in, and where copies must be parted.
    arena: Arc<Arena>,
    seams: Seams,
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

/// The memory that the host's slots are in.
#[derive(Debug)]
struct Arena {
    bytes: usize,
    locked_by: Device,
    /// Whether that was noted as leaked.
    leaked: AtomicBool,
}

impl Arena {
    /// Notes that it is leaked, since a batch in it is never dropped.
    fn leak(&self) {
        if !self.leaked.swap(true, Ordering::Relaxed) {
            leak::note_host(self.bytes);
            // It has a hold on its device, too.
            self.locked_by.keep();
        }
    }
}

/// A copy that is not known to be done. Dropped without [`done`](Self::done), it leaks what the copy may still use.
#[derive(Debug)]
struct Copying {
    /// `None` once it is done.
    host: Option<Batch<Dynamic>>,
    /// `None` if it cannot be told from what else is on the stream.
    copied: Option<Arc<Copied>>,
    /// The device slot, unless it could be delivered.
    slot: Option<Slot>,
    arena: Arc<Arena>,
}

/// The memory of a loader's batches, if it is page-locked.
pub(crate) fn page_locked(host: &Loader) -> Option<&Pinned> {
    (host.memory()? as &dyn Any).downcast_ref()
}

impl Copier {
    /// Takes the memory of `slots` batches of a loader, which has its own in `memory`.
    pub(crate) fn new(host: &Loader, memory: &Pinned, device: &Device, slots: usize) -> Result<Self, Error> {
        let fields: Arc<[Field]> = host.fields().into_iter().flatten().cloned().collect();
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
            arena: Arc::new(Arena {
                bytes: memory.len(),
                locked_by: memory.device().clone(),
                leaked: AtomicBool::new(false),
            }),
            seams: memory.seams(),
            timeout: None,
            waits_for_release: false,
            resumable: false,
        })
    }

    /// Whether this is the loader that it was made for, or one that is the same to it.
    pub(crate) fn is_made_for(&self, host: &Loader) -> bool {
        page_locked(host).is_some_and(|memory| {
            (self.seams.start(), self.arena.bytes) == (memory.start().addr().get(), memory.len())
                && self.most == (host.batch_bytes(), host.batch_size())
                && host.fields().into_iter().flatten().eq(self.fields.iter())
        })
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

    fn take_in(&mut self, mut slot: Slot) -> Result<(), Error> {
        let Some(source) = slot.lost() else {
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
                for copying in self.copying.drain(..=place) {
                    if let Some(copied) = &copying.copied {
                        copied.note_seen();
                    }
                    self.idle.extend(copying.done());
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

    /// Fails if this process was forked from the one with the device. To ask for slots that were returned could take forever.
    pub(crate) fn check_not_forked(&self) -> Result<(), Error> {
        if self.device.is_lost() { Err(slotline::Error::Forked.into()) } else { Ok(()) }
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
        let Some(oldest) = self.copying.front() else { return Ok(()) };
        let outcome = match poll(self.timeout, || oldest.is_done(&self.stream)) {
            Ok(true) => Ok(()),
            Ok(false) => {
                return Err(Error::Timeout { after: self.timeout.unwrap_or_default(), task: oldest.host().task() });
            }
            Err(source) if source.is_passing() => return Err(source.into()),
            Err(source) => Err(Unsettled::Driver(source)),
        };
        self.end_first(outcome)
    }

    /// Lets go of the oldest copy, which is done; or nobody can say when it is.
    fn end_first(&mut self, outcome: Result<(), Unsettled>) -> Result<(), Error> {
        let Some(first) = self.copying.pop_front() else { return Ok(()) };
        match outcome {
            Ok(()) => self.idle.extend(first.done()),
            Err(why) => return Err(self.give_up(first, why)),
        }
        Ok(())
    }

    /// Has a batch copied, and queues what comes of it. There must be [room](Self::has_room).
    pub(crate) fn copy(&mut self, host: Batch<Dynamic>, state: Option<State>) {
        let about = About { task: host.task(), epoch: host.epoch() };
        let outcome = self.submit(host).map(|slot| (slot, about));
        self.queue.push_back(Next { outcome, state });
    }

    /// Queues an error in the place of a batch.
    pub(crate) fn fail(&mut self, error: slotline::Error, state: Option<State>) {
        self.queue.push_back(Next { outcome: Err(error.into()), state });
    }

    /// Gives a copy to the driver, and the slot that it goes to.
    fn submit(&mut self, host: Batch<Dynamic>) -> Result<Slot, Error> {
        let slot = self.idle.last_mut().expect("there is room");
        let (columns, task) = (host.columns(), host.task());
        slot.places.clear();
        slot.places.extend((0..columns.len()).filter_map(|i| columns.place(i)));
        slot.indices.clear();
        slot.indices.extend_from_slice(host.indices());
        if let Some(i) = slot.places.iter().position(|place| place.spilled) {
            return Err(Error::Spilled { task, field: self.fields[i].to_string() });
        }
        slot.wait_on(&self.stream).map_err(|source| Error::Copy { task, source })?;
        let free = self.events.iter_mut().position(|event| Arc::get_mut(event).is_some());
        let copied = self.events[free.expect("there are more events than copies and slots")].clone();

        // From here on the copy may have begun, whatever fails or panics.
        let copying = Copying { host: Some(host), copied: None, slot: self.idle.pop(), arena: self.arena.clone() };
        self.copying.push_back(copying);
        let copying = self.copying.back_mut().expect("pushed just now");
        let begun = match &copying.slot {
            // SAFETY: the batch keeps its bytes from being written or freed until `copied` is reached: `copying` has it. The slot
            // is at least as long, and nobody reads it from `wait_on` until then.
            Some(slot) => unsafe { slot.copy_from(copying.host().columns().bytes(), self.seams, &self.stream) },
            None => Ok(()),
        };
        let marked = copied.record(&self.stream);
        copying.copied = marked.is_ok().then(|| copied.clone());
        begun.and(marked).map_err(|source| Error::Copy { task, source })?;
        let mut slot = copying.slot.take().expect("taken out only here");
        slot.copied = Some(copied);
        Ok(slot)
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
    fn give_up(&mut self, copying: Copying, why: Unsettled) -> Error {
        let error = Error::Leaked { task: copying.host().task(), bytes: self.arena.bytes, why: why.to_string() };
        if copying.slot.is_some() {
            self.slots -= 1;
            if let Unsettled::Driver(source) = why {
                self.lost = Some(source);
            }
        }
        drop(copying);
        tracing::warn!("{error}");
        error
    }

    /// Sees all copies to their ends, within [`GRACE`](slotline::loader::GRACE).
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        let grace = Grace::new();
        let mut outcome = Ok(());
        while let Some(oldest) = self.copying.front() {
            let ended = grace.poll(|| oldest.is_done(&self.stream));
            outcome = self.end_first(ended).and(outcome);
        }
        self.begin();
        self.idle.extend(self.returned.try_iter());
        for mut slot in self.idle.drain(..) {
            slot.settle(&grace);
        }
        outcome
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        if self.device.is_lost() {
            // A thread that is gone may be in the channel, and either end would wait for it.
            let (_, nothing) = sync_channel(0);
            return mem::forget((self.back.clone(), mem::replace(&mut self.returned, nothing)));
        }
        // What it leaks it warns of.
        let _ = self.close();
    }
}

impl Copying {
    fn host(&self) -> &Batch<Dynamic> {
        self.host.as_ref().expect("it has its batch until it is done")
    }

    fn is_done(&self, stream: &Stream) -> Result<bool, DriverError> {
        match &self.copied {
            Some(copied) => copied.is_done(),
            None => stream.query(),
        }
    }

    /// Gives the host's slot back, since the copy is done; and the device slot, if it was not delivered.
    fn done(mut self) -> Option<Slot> {
        self.host = None;
        self.slot.take()
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            mem::forget(host);
            if self.arena.locked_by.is_lost() {
                // It is the parent's, for whom nothing is lost.
                return;
            }
            if let Some(slot) = &mut self.slot {
                slot.leak();
            }
            self.arena.leak();
        }
    }
}
