//! The producer: the side that writes. The comments refer to the invariants I1 to I5 in the
//! documentation of [`super`].

use core::fmt;

use crossbeam_utils::CachePadded;

use super::cursor::Cursor;
use super::pace::Pace;
use super::ring::{AnyRing, CLOSED, CONSUMER_GONE, Item, PRODUCER_GONE, PRODUCER_TAKEN, ring};
use super::{Claim, ClaimChunk, ClaimError, PushError};
use crate::handle::Handle;
use crate::sync::Ordering;
use crate::wait::{Deadline, Never, Wait};

/// The producer of a [`Ring`](super::Ring), which it accesses through the handle `R`. A ring has
/// only one producer.
///
/// Each operation has three forms: `try_x` does not wait, `x` waits for as long as it takes, and
/// `x_until` waits up to a deadline. Dropping the producer ends the stream: the consumer gets what
/// was published and then [`NextError::Ended`](super::NextError::Ended).
pub struct Producer<R: Handle<Target: AnyRing>> {
    /// The handle of the ring.
    pub(super) handle: R,
    /// The item to write next. Its limit is the latest known value of `head`, plus the capacity.
    pub(super) cursor: Cursor,
    /// How long the producer pauses when it has caught up with the consumer.
    pace: Pace,
    /// Aligns this struct so that no other data, such as the consumer's, shares its cache line.
    /// Takes no space itself.
    _alone: CachePadded<()>,
}

impl<R: Handle<Target: AnyRing>> Producer<R> {
    /// Takes the producer's side of the ring behind `handle`. Returns `None` if it was taken
    /// already.
    ///
    /// # Panics
    ///
    /// If the ring has no slots.
    pub fn new(handle: R) -> Option<Self> {
        let ring = ring(&handle);
        if !ring.take(PRODUCER_TAKEN) {
            return None;
        }
        // The position has not moved since the ring was started, and `take` has acquired the store
        // that set it.
        let cursor = Cursor::new(ring.tail.load(Ordering::Relaxed), ring.capacity());
        let pace = Pace::new(cursor.ticket(), cursor.capacity());
        Some(Self { handle, cursor, pace, _alone: CachePadded::new(()) })
    }

    /// Claims the next free slot, if there is one now.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] or [`ClaimError::Closed`].
    #[inline]
    pub fn try_claim(&mut self) -> Result<Claim<'_, R>, ClaimError> {
        self.poll(1)?;
        Ok(Claim::new(self))
    }

    /// Claims the next free slot, waiting until there is one.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Closed`].
    #[inline]
    pub fn claim(&mut self) -> Result<Claim<'_, R>, ClaimError> {
        self.claim_until(&Never)
    }

    /// Claims the next free slot, waiting until there is one, or returns [`ClaimError::Full`] at
    /// the deadline.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] or [`ClaimError::Closed`].
    #[inline]
    pub fn claim_until(&mut self, deadline: &impl Deadline) -> Result<Claim<'_, R>, ClaimError> {
        self.poll_until(1, deadline)?;
        Ok(Claim::new(self))
    }

    /// Claims the next free slots: all that are free now, up to `max`, and at least one (unless
    /// `max` is 0).
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] or [`ClaimError::Closed`].
    #[inline]
    pub fn try_claim_chunk(&mut self, max: usize) -> Result<ClaimChunk<'_, R>, ClaimError> {
        let len = self.poll(max)?;
        Ok(ClaimChunk::new(self, len))
    }

    /// Claims the next free slots, up to `max`, waiting until there is at least one.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Closed`].
    #[inline]
    pub fn claim_chunk(&mut self, max: usize) -> Result<ClaimChunk<'_, R>, ClaimError> {
        self.claim_chunk_until(max, &Never)
    }

    /// Claims the next free slots, up to `max`, waiting until there is at least one, or returns
    /// [`ClaimError::Full`] at the deadline.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] or [`ClaimError::Closed`].
    #[inline]
    pub fn claim_chunk_until(&mut self, max: usize, deadline: &impl Deadline) -> Result<ClaimChunk<'_, R>, ClaimError> {
        let len = self.poll_until(max, deadline)?;
        Ok(ClaimChunk::new(self, len))
    }

    /// Writes `value` into the next free slot, where it replaces what was there, and publishes it.
    ///
    /// # Errors
    ///
    /// The value, with [`ClaimError::Full`] or [`ClaimError::Closed`].
    #[inline]
    pub fn try_push(&mut self, value: Item<R>) -> Result<(), PushError<Item<R>>> {
        fill(self.try_claim(), value)
    }

    /// Writes `value` into the next free slot, waiting until there is one, and publishes it.
    ///
    /// # Errors
    ///
    /// The value, with [`ClaimError::Closed`].
    #[inline]
    pub fn push(&mut self, value: Item<R>) -> Result<(), PushError<Item<R>>> {
        fill(self.claim(), value)
    }

    /// Writes `value` into the next free slot, waiting until there is one, and publishes it.
    /// Returns the value at the deadline.
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

    /// Returns the handle of the ring.
    pub fn ring(&self) -> &R {
        &self.handle
    }

    /// Closes the ring for both sides (see [`Ring::close`](super::Ring::close)).
    pub fn close(&self) {
        ring(&self.handle).close();
    }

    /// Whether the ring is closed or its consumer was dropped, so that items published now will not
    /// be read.
    pub fn is_closed(&self) -> bool {
        ring(&self.handle).is_closed()
    }

    /// Returns the number of the next item to be published, counted from 0 and wrapping.
    pub fn ticket(&self) -> usize {
        self.cursor.ticket()
    }

    /// Returns how many slots are free. This is a lower bound, as the consumer may be releasing
    /// more.
    pub fn free(&self) -> usize {
        let used = self.cursor.ticket().wrapping_sub(ring(&self.handle).head.load(Ordering::Relaxed));
        self.cursor.capacity() - used
    }

    /// Returns the number of slots.
    pub fn capacity(&self) -> usize {
        self.cursor.capacity()
    }

    #[inline]
    fn poll(&mut self, max: usize) -> Result<usize, ClaimError> {
        poll(&self.handle, &mut self.cursor, max)
    }

    /// Like [`poll`], but waits for the first slot.
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
        // Chunks move few cache lines even without a pause.
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

    /// Publishes the next `n` items.
    #[inline]
    pub(super) fn publish(&mut self, n: usize) {
        let first = self.cursor.ticket();
        let tail = self.cursor.advance(n);
        let ring = ring(&self.handle);
        // By I3 of the proof in `super`, the producer's accesses to the values come before this
        // store.
        ring.tail.store(tail, Ordering::Release);
        // The consumer can sleep only while the ring is empty ("No lost wake-up" in the proof in
        // `super`).
        ring.items.notify(|| ring.head.load(Ordering::Relaxed) == first);
    }
}

/// Returns how many slots can be claimed, up to `max`. Reads the consumer's position only if fewer
/// are known.
#[inline]
fn poll<R: Handle<Target: AnyRing>>(handle: &R, cursor: &mut Cursor, max: usize) -> Result<usize, ClaimError> {
    let ring = ring(handle);
    if cursor.available() < max {
        if ring.state.load(Ordering::Acquire) & (CLOSED | CONSUMER_GONE) != 0 {
            return Err(ClaimError::Closed);
        }
        // By I3, the consumer no longer accesses what it has released.
        cursor.set_limit(ring.head.load(Ordering::Acquire).wrapping_add(cursor.capacity()));
        if cursor.available() == 0 {
            return Err(ClaimError::Full);
        }
    }
    Ok(cursor.available().min(max))
}

/// Writes `value` into the claimed slot and publishes it.
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
