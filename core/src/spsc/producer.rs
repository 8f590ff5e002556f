//! The side that writes.

use core::fmt;

use crossbeam_utils::CachePadded;

use super::cursor::Cursor;
use super::pace::Pace;
use super::ring::{AnyRing, CLOSED, CONSUMER_GONE, PRODUCER_GONE, PRODUCER_TAKEN, ring};
use super::{Claim, ClaimChunk, ClaimError, Item, PushError};
use crate::handle::Handle;
use crate::sync::Ordering;
use crate::wait::{Deadline, Never, Wait};

/// The one producer of a [`Ring`](super::Ring), which it reaches through the handle `R`.
///
/// Each operation comes in three forms: `try_x` doesn't wait, `x` waits for as long as it takes, `x_until` waits up
/// to a deadline. Dropping the producer ends the stream: the consumer gets what was published and then
/// [`NextError::Ended`](super::NextError::Ended).
pub struct Producer<R: Handle<Target: AnyRing>> {
    /// The way to the ring.
    pub(super) handle: R,
    /// Item to write next; its limit is `head + capacity` as last seen.
    pub(super) cursor: Cursor,
    /// How it waits.
    pace: Pace,
    /// Takes no space, but keeps other data, such as the other side, off this one's cache line.
    _alone: CachePadded<()>,
}

impl<R: Handle<Target: AnyRing>> Producer<R> {
    /// Takes the producer's side of the ring behind `handle`; `None` if it was taken already.
    ///
    /// # Panics
    ///
    /// If the ring has no slots.
    pub fn new(handle: R) -> Option<Self> {
        let ring = ring(&handle);
        if !ring.take(PRODUCER_TAKEN) {
            return None;
        }
        // Not moved since the (re)start, which `take` has seen.
        let cursor = Cursor::new(ring.tail.load(Ordering::Relaxed), ring.capacity());
        let pace = Pace::new(cursor.ticket(), cursor.capacity());
        Some(Self { handle, cursor, pace, _alone: CachePadded::new(()) })
    }

    /// The next free slot, if there is one now.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] or [`ClaimError::Closed`].
    #[inline]
    pub fn try_claim(&mut self) -> Result<Claim<'_, R>, ClaimError> {
        self.poll(1)?;
        Ok(Claim::new(self))
    }

    /// The next free slot, once there is one.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Closed`].
    #[inline]
    pub fn claim(&mut self) -> Result<Claim<'_, R>, ClaimError> {
        self.claim_until(&Never)
    }

    /// The next free slot, once there is one, or [`ClaimError::Full`] at the deadline.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] or [`ClaimError::Closed`].
    #[inline]
    pub fn claim_until(&mut self, deadline: &impl Deadline) -> Result<Claim<'_, R>, ClaimError> {
        self.poll_until(1, deadline)?;
        Ok(Claim::new(self))
    }

    /// The next free slots: all that there are now, up to `max`, and at least one (unless `max` is 0).
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] or [`ClaimError::Closed`].
    #[inline]
    pub fn try_claim_chunk(&mut self, max: usize) -> Result<ClaimChunk<'_, R>, ClaimError> {
        let len = self.poll(max)?;
        Ok(ClaimChunk::new(self, len))
    }

    /// The next free slots, up to `max`, once there is at least one.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Closed`].
    #[inline]
    pub fn claim_chunk(&mut self, max: usize) -> Result<ClaimChunk<'_, R>, ClaimError> {
        self.claim_chunk_until(max, &Never)
    }

    /// The next free slots, up to `max`, once there is at least one, or [`ClaimError::Full`] at the deadline.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] or [`ClaimError::Closed`].
    #[inline]
    pub fn claim_chunk_until(&mut self, max: usize, deadline: &impl Deadline) -> Result<ClaimChunk<'_, R>, ClaimError> {
        let len = self.poll_until(max, deadline)?;
        Ok(ClaimChunk::new(self, len))
    }

    /// Puts `value` into the next free slot in place of what was there, and publishes it.
    ///
    /// # Errors
    ///
    /// The value, with [`ClaimError::Full`] or [`ClaimError::Closed`].
    #[inline]
    pub fn try_push(&mut self, value: Item<R>) -> Result<(), PushError<Item<R>>> {
        fill(self.try_claim(), value)
    }

    /// Puts `value` into the next free slot, once there is one, and publishes it.
    ///
    /// # Errors
    ///
    /// The value, with [`ClaimError::Closed`].
    #[inline]
    pub fn push(&mut self, value: Item<R>) -> Result<(), PushError<Item<R>>> {
        fill(self.claim(), value)
    }

    /// Puts `value` into the next free slot, once there is one, and publishes it; gives it back at the deadline.
    ///
    /// # Errors
    ///
    /// The value, with [`ClaimError::Full`] or [`ClaimError::Closed`].
    #[inline]
    pub fn push_until(&mut self, value: Item<R>, deadline: &impl Deadline) -> Result<(), PushError<Item<R>>> {
        fill(self.claim_until(deadline), value)
    }

    /// Ends the stream; the same as dropping the producer.
    pub fn finish(self) {}

    /// The way to the ring.
    pub fn ring(&self) -> &R {
        &self.handle
    }

    /// Ends everything for both sides (see [`Ring::close`](super::Ring::close)).
    pub fn close(&self) {
        ring(&self.handle).close();
    }

    /// Whether nothing that is published now will be read.
    pub fn is_closed(&self) -> bool {
        ring(&self.handle).state.load(Ordering::Relaxed) & (CLOSED | CONSUMER_GONE) != 0
    }

    /// The number of the next item to be published, counted from 0 and wrapping.
    pub fn ticket(&self) -> usize {
        self.cursor.ticket()
    }

    /// How many slots are free, at least: the consumer may be releasing more.
    pub fn free(&self) -> usize {
        let used = self.cursor.ticket().wrapping_sub(ring(&self.handle).head.load(Ordering::Relaxed));
        self.cursor.capacity() - used
    }

    /// How many slots there are.
    pub fn capacity(&self) -> usize {
        self.cursor.capacity()
    }

    #[inline]
    fn poll(&mut self, max: usize) -> Result<usize, ClaimError> {
        poll(&self.handle, &mut self.cursor, max)
    }

    /// As [`poll`], but waits for the first slot.
    #[inline]
    fn poll_until(&mut self, max: usize, deadline: &impl Deadline) -> Result<usize, ClaimError> {
        match self.poll(max) {
            Err(ClaimError::Full) => self.wait(max, deadline),
            outcome => outcome,
        }
    }

    #[cold]
    fn wait(&mut self, max: usize, deadline: &impl Deadline) -> Result<usize, ClaimError> {
        let Self { handle, cursor, pace, .. } = self;
        // Runs of items move few lines as it is.
        if max == 1 {
            pace.pause(cursor.ticket());
        }
        let mut outcome = Err(ClaimError::Full);
        ring(handle).space.wait_until(deadline, || {
            outcome = poll(handle, cursor, max);
            outcome != Err(ClaimError::Full)
        });
        outcome
    }

    /// Gives the next `n` items to the consumer.
    #[inline]
    pub(super) fn publish(&mut self, n: usize) {
        let first = self.cursor.ticket();
        let tail = self.cursor.advance(n);
        let ring = ring(&self.handle);
        // I3: the values were written before.
        ring.tail.store(tail, Ordering::Release);
        // The consumer can sleep only while the ring is empty ("No lost wake-up" in the module's proof).
        ring.items.notify(|| ring.head.load(Ordering::Relaxed) == first);
    }
}

/// How many slots there are to claim, up to `max`; looks for more only if fewer than that are known of.
#[inline]
fn poll<R: Handle<Target: AnyRing>>(handle: &R, cursor: &mut Cursor, max: usize) -> Result<usize, ClaimError> {
    let ring = ring(handle);
    if cursor.available() < max {
        if ring.state.load(Ordering::Acquire) & (CLOSED | CONSUMER_GONE) != 0 {
            return Err(ClaimError::Closed);
        }
        // I3: what the consumer released, it will not touch any more.
        cursor.set_limit(ring.head.load(Ordering::Acquire).wrapping_add(cursor.capacity()));
        if cursor.available() == 0 {
            return Err(ClaimError::Full);
        }
    }
    Ok(cursor.available().min(max))
}

/// Assigns and publishes.
#[inline]
fn fill<R: Handle<Target: AnyRing>>(
    claim: Result<Claim<'_, R>, ClaimError>,
    value: Item<R>,
) -> Result<(), PushError<Item<R>>> {
    match claim {
        Ok(mut claim) => {
            *claim = value;
            claim.publish();
            Ok(())
        }
        Err(reason) => Err(PushError { value, reason }),
    }
}

impl<R: Handle<Target: AnyRing>> Drop for Producer<R> {
    fn drop(&mut self) {
        ring(&self.handle).leave(PRODUCER_GONE, CONSUMER_GONE);
    }
}

impl<R: Handle<Target: AnyRing>> fmt::Debug for Producer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}
