//! Copies batches from the host's slots to the device's slots.
//!
//! # The protocol
//!
//! Workers write a batch into a host slot, the copy engine copies it into a device slot, and
//! kernels read it there. Neither slot may be written while it is read, or read while it is
//! written. With `h` for the host slot of a batch and `d` for its device slot:
//!
//! 1. *h is not written while it is copied.* The [`Copying`] entry holds the host's batch, the
//!    lease on `h`, until the event `copied`, the end of the copy, was observed to be reached. The
//!    ring does not give `h` to a worker before that.
//! 2. *d is not written while it is read.* Before the copy into `d`, the copy stream waits for the
//!    `consumed` events of the previous batch in `d`, one for each stream that used it
//!    ([`Slot::wait_on`]). They were recorded when that batch was released, and `d` is returned
//!    here only after that ([`Slot::release`]).
//! 3. *d is not read before it is written.* The caller's stream waits for `copied`
//!    ([`Slot::ready_on`]).
//! 4. *d is released after it was read.* The event `consumed` is recorded on the caller's stream,
//!    after the kernels that were launched there.
//!
//! Two copies into the same `d` are ordered because all copies are on one stream, so a batch that
//! was never made ready needs no `consumed` event. A `copied` event belongs to the batch, not to a
//! slot: it is recorded again only when neither a `Copying` entry nor a device slot refers to it.
//! The host waits only for `copied` events, and only if too many copies would be in progress
//! otherwise.
//!
//! # When the driver fails
//!
//! Memory that may still be read or written is never freed. If the end of a started copy cannot be
//! recorded, its host slot and its device slot stay reserved until the copy stream is idle. If even
//! that cannot be determined, both slots are leaked, together with the arena that contains the host
//! slot, and the error says so.
//!
//! The same holds if something panics meanwhile, such as a subscriber that receives a warning. Both
//! slots are moved into a [`Copying`] before the driver is called, and a `Copying` that is dropped
//! by unwinding leaks them.

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
use crate::wait::{GracePeriod, Unsettled, poll};

/// The device slots of a loader, and the copies into them.
#[derive(Debug)]
pub(crate) struct Copier {
    device: Device,
    stream: Stream,
    fields: Arc<[Field]>,
    /// Free slots, in the order of their release. The first one is used next, since its last reader
    /// ends before those of the others. A copy into the slot that was released last would have to
    /// wait for the current step.
    idle: VecDeque<Slot>,
    /// The items to deliver, in order.
    queue: VecDeque<Next>,
    /// Copies that may still be in progress, oldest first.
    copying: VecDeque<Copying>,
    /// The maximum number of copies in progress at which another one may start.
    most_copying: usize,
    events: Vec<Arc<Copied>>,
    back: SyncSender<Slot>,
    returned: Receiver<Slot>,
    /// The number of slots, without those that were lost.
    slots: usize,
    /// The error of the last slot that was lost.
    lost: Option<DriverError>,
    /// The maximum size of a batch, in bytes and in samples.
    most: (usize, usize),
    /// The memory that contains the host's slots.
    arena: Arc<Arena>,
    /// The places at which copies from that memory must be split.
    seams: Seams,
    pub(crate) timeout: Option<Duration>,
    /// The maximum time that freeing memory waits for copies and for readers of the slots.
    close_timeout: Duration,
    pub(crate) waits_for_release: bool,
    pub(crate) resumable: bool,
}

/// The next item of a pass.
#[derive(Debug)]
pub(crate) struct Next {
    outcome: Result<(Slot, About), Error>,
    /// The state of the host's pass right after this item was taken from it.
    pub(crate) state: Option<State>,
}

/// The memory that contains the host's slots.
#[derive(Debug)]
struct Arena {
    bytes: usize,
    locked_by: Device,
    /// Whether the memory was counted as leaked.
    leaked: AtomicBool,
}

impl Arena {
    /// Counts the arena as leaked, since a batch in it is never dropped.
    fn leak(&self) {
        if !self.leaked.swap(true, Ordering::Relaxed) {
            leak::note_host(self.bytes);
            // The leaked memory also keeps its device alive.
            self.locked_by.keep();
        }
    }
}

/// A copy that may still be in progress. If it is dropped without [`done`](Self::done), it leaks
/// the memory that the copy may still use.
#[derive(Debug)]
struct Copying {
    /// The batch on the host; `None` once the copy is done.
    host: Option<Batch<Dynamic>>,
    /// The event at the end of the copy. `None` if it could not be recorded; the copy is then done
    /// once the stream is idle.
    copied: Option<Arc<Copied>>,
    /// The device slot, unless the batch was delivered.
    slot: Option<Slot>,
    arena: Arc<Arena>,
}

/// Returns the memory of a loader's batches, if it is page-locked.
pub(crate) fn page_locked(host: &Loader) -> Option<&Pinned> {
    (host.memory()? as &dyn Any).downcast_ref()
}

impl Copier {
    /// Allocates device memory for `slots` batches of a loader whose own batches are in `memory`.
    pub(crate) fn new(host: &Loader, memory: &Pinned, device: &Device, slots: usize) -> Result<Self, Error> {
        let fields: Arc<[Field]> = host.fields().into_iter().flatten().cloned().collect();
        let (bytes, rows, close_timeout) = (host.batch_bytes(), host.batch_size(), host.close_timeout());
        let idle = (0..slots)
            .map(|_| Slot::new(device, bytes, fields.len(), rows, close_timeout))
            .collect::<Result<_, _>>()?;
        // One event for each slot, one for each copy, and one that is being recorded.
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
            close_timeout,
            waits_for_release: false,
            resumable: false,
        })
    }

    /// Returns whether this is the loader that the copier was made for, or an equivalent one.
    pub(crate) fn is_made_for(&self, host: &Loader) -> bool {
        page_locked(host).is_some_and(|memory| {
            (self.seams.start(), self.arena.bytes) == (memory.start().addr().get(), memory.len())
                && self.most == (host.batch_bytes(), host.batch_size())
                && host.fields().into_iter().flatten().eq(self.fields.iter())
        })
    }

    /// Starts a pass. Remaining batches of an earlier pass are discarded. Copies into their slots
    /// come before the new ones, since all copies are on the same stream.
    pub(crate) fn begin(&mut self) {
        let left = self.queue.drain(..).filter_map(|next| next.outcome.ok());
        self.idle.extend(left.map(|(slot, _)| slot));
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Takes back released slots, and checks whether copies are done.
    ///
    /// If copies are ahead of the kernels, one query of the driver covers several batches: it asks
    /// about the newest copy, and if that is done, so are all earlier copies on the stream. The
    /// next query is made only when a batch to deliver was not covered by the last query, or when
    /// another copy cannot start because too many may still be in progress.
    pub(crate) fn collect(&mut self) -> Result<(), Error> {
        self.take_back()?;
        let copied = |next: &Next| next.outcome.as_ref().ok().and_then(|(slot, _)| slot.copied.clone());
        let is_front_unseen = self.queue.front().and_then(copied).is_some_and(|front| !front.was_seen());
        if (is_front_unseen || self.copying.len() > self.most_copying)
            && let Some(newest) = self.copying.iter().rev().find_map(|copying| copying.copied.clone())
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
            self.idle.push_back(slot);
            return Ok(());
        };
        self.slots -= 1;
        self.lost = Some(source.clone());
        Err(Error::Lost { left: self.slots, source })
    }

    /// Waits until a batch is dropped. Returns `false` if no batch was dropped within the timeout.
    fn wait_for_release(&mut self) -> Result<bool, Error> {
        let returned = match self.timeout {
            Some(timeout) => self.returned.recv_timeout(timeout).ok(),
            None => self.returned.recv().ok(),
        };
        returned.map_or(Ok(false), |slot| self.take_in(slot).map(|()| true))
    }

    /// Returns whether this copy is done; if so, the copies before it on the stream are done too.
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
                let mut copying = self.copying.remove(place).expect("the index is in range");
                let is_its = |next: &Next| next.outcome.as_ref().is_ok_and(|(slot, _)| is_it(&slot.copied));
                let Some(i) = self.queue.iter().position(is_its) else {
                    return Err(self.give_up(copying, Unsettled::Driver(source)));
                };
                // The error is delivered in place of the batch.
                let next = self.queue.remove(i).expect("the index is in range");
                copying.slot = next.outcome.ok().map(|(slot, _)| slot);
                let outcome = Err(self.give_up(copying, Unsettled::Driver(source)));
                self.queue.insert(i, Next { outcome, state: next.state });
                Ok(false)
            }
        }
    }

    /// Returns whether there is nothing to deliver.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether another copy can start.
    pub(crate) fn has_room(&self) -> bool {
        !self.idle.is_empty() && self.copying.len() <= self.most_copying
    }

    /// Waits until another copy can start, if necessary.
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
            self.wait_for_oldest_copy()?;
        }
        Ok(())
    }

    /// Returns whether there are copies that may still be in progress.
    pub(crate) fn is_copying(&self) -> bool {
        !self.copying.is_empty()
    }

    /// Returns an error if this process was forked from the one that owns the device. In a forked
    /// process, receiving returned slots could block forever.
    pub(crate) fn check_not_forked(&self) -> Result<(), Error> {
        if self.device.is_lost() { Err(slotline::Error::Forked.into()) } else { Ok(()) }
    }

    /// Waits until no copy is in progress.
    pub(crate) fn wait_for_copies(&mut self) -> Result<(), Error> {
        while !self.copying.is_empty() {
            self.wait_for_oldest_copy()?;
        }
        Ok(())
    }

    /// Waits for the oldest copy, if there is one.
    fn wait_for_oldest_copy(&mut self) -> Result<(), Error> {
        let Some(oldest) = self.copying.front() else { return Ok(()) };
        let outcome = match poll(self.timeout, || oldest.is_done(&self.stream)) {
            Ok(true) => Ok(()),
            Ok(false) => {
                return Err(Error::Timeout {
                    after: self.timeout.unwrap_or_default(),
                    task: oldest.host().batch_index(),
                });
            }
            Err(source) if source.is_passing() => return Err(source.into()),
            Err(source) => Err(Unsettled::Driver(source)),
        };
        self.end_first(outcome)
    }

    /// Removes the oldest copy. Releases its slots if `outcome` is `Ok`, and otherwise gives the
    /// copy up.
    fn end_first(&mut self, outcome: Result<(), Unsettled>) -> Result<(), Error> {
        let Some(first) = self.copying.pop_front() else { return Ok(()) };
        match outcome {
            Ok(()) => self.idle.extend(first.done()),
            Err(why) => return Err(self.give_up(first, why)),
        }
        Ok(())
    }

    /// Starts the copy of a batch, and queues the result. There must be [room](Self::has_room).
    pub(crate) fn copy(&mut self, host: Batch<Dynamic>, state: Option<State>) {
        let about = About { task: host.batch_index(), epoch: host.epoch() };
        let outcome = self.submit(host).map(|slot| (slot, about));
        self.queue.push_back(Next { outcome, state });
    }

    /// Queues an error instead of a batch.
    pub(crate) fn fail(&mut self, error: slotline::Error, state: Option<State>) {
        self.queue.push_back(Next { outcome: Err(error.into()), state });
    }

    /// Starts a copy, and returns the device slot that it goes to.
    fn submit(&mut self, host: Batch<Dynamic>) -> Result<Slot, Error> {
        let slot = self.idle.front_mut().expect("the caller ensures that there is room");
        let (columns, task) = (host.columns(), host.batch_index());
        slot.places.clear();
        slot.places.extend((0..columns.len()).filter_map(|i| columns.field_bytes(i)));
        slot.indices.clear();
        slot.indices.extend_from_slice(host.indices());
        if let Some(i) = slot.places.iter().position(|place| place.spilled) {
            return Err(Error::Spilled { task, field: self.fields[i].to_string() });
        }
        slot.wait_on(&self.stream).map_err(|source| Error::Copy { task, source })?;
        let free = self.events.iter_mut().position(|event| Arc::get_mut(event).is_some());
        let copied = self.events[free.expect("there are more events than copies and slots")].clone();

        // From here on the copy may have started, even if a call fails or panics.
        let copying =
            Copying { host: Some(host), copied: None, slot: self.idle.pop_front(), arena: self.arena.clone() };
        self.copying.push_back(copying);
        let copying = self.copying.back_mut().expect("it was pushed above");
        let started = match &copying.slot {
            // SAFETY: `copying` holds the batch, whose lease keeps its bytes from being written or
            // freed until `copied` is reached. The slot is at least as long, and nothing reads it
            // from `wait_on` until then.
            Some(slot) => unsafe { slot.copy_from(copying.host().columns().bytes(), self.seams, &self.stream) },
            None => Ok(()),
        };
        let marked = copied.record(&self.stream);
        copying.copied = marked.is_ok().then(|| copied.clone());
        started.and(marked).map_err(|source| Error::Copy { task, source })?;
        let mut slot = copying.slot.take().expect("the slot is taken out only here");
        slot.copied = Some(copied);
        Ok(slot)
    }

    /// Removes and returns the next item to deliver.
    pub(crate) fn pop(&mut self) -> Option<Next> {
        self.queue.pop_front()
    }

    /// Turns a queued item into a batch or its error.
    pub(crate) fn deliver(&self, next: Next) -> Result<DeviceBatch, Error> {
        let (slot, about) = next.outcome?;
        Ok(DeviceBatch::new(slot, about, self.device.clone(), self.fields.clone(), self.back.clone()))
    }

    /// Gives up a copy whose end cannot be determined, and leaks the memory that it may use.
    fn give_up(&mut self, copying: Copying, why: Unsettled) -> Error {
        let error = Error::Leaked { task: copying.host().batch_index(), bytes: self.arena.bytes, why: why.to_string() };
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

    /// Waits for all copies to end, within the host loader's `close_timeout`.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        let grace = GracePeriod::new(self.close_timeout);
        let mut outcome = Ok(());
        while let Some(oldest) = self.copying.front() {
            let ended = grace.poll(|| oldest.is_done(&self.stream));
            outcome = self.end_first(ended).and(outcome);
        }
        self.begin();
        self.idle.extend(self.returned.try_iter());
        for mut slot in self.idle.drain(..) {
            slot.free_when_unused(&grace);
        }
        outcome
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        if self.device.is_lost() {
            // At the fork, another thread of the parent may have been inside the channel. That
            // thread does not exist in this process, and dropping either end of the channel would
            // wait for it.
            let (_, nothing) = sync_channel(0);
            return mem::forget((self.back.clone(), mem::replace(&mut self.returned, nothing)));
        }
        // `close` logs a warning for everything that it leaks.
        let _ = self.close();
    }
}

impl Copying {
    fn host(&self) -> &Batch<Dynamic> {
        self.host.as_ref().expect("a copy has its batch until it is done")
    }

    fn is_done(&self, stream: &Stream) -> Result<bool, DriverError> {
        match &self.copied {
            Some(copied) => copied.is_done(),
            None => stream.query(),
        }
    }

    /// Releases the host's slot, since the copy is done. Returns the device slot if the batch was
    /// not delivered.
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
                // The memory belongs to the parent process, so nothing is lost.
                return;
            }
            if let Some(slot) = &mut self.slot {
                slot.leak();
            }
            self.arena.leak();
        }
    }
}
