//! The consumer: the side that reads. The comments refer to the invariants I1 to I5 in the
//! documentation of [`super`].

use core::fmt;

use crossbeam_utils::CachePadded;

use super::cursor::Cursor;
use super::pace::Pace;
use super::ring::{AnyRing, CLOSED, CONSUMER_GONE, CONSUMER_TAKEN, Item, PRODUCER_GONE, ring};
use super::{Lease, LeaseChunk, NextError};
use crate::handle::Handle;
use crate::sync::Ordering;
use crate::wait::{Deadline, Never, Wait};

/// The consumer of a [`Ring`](super::Ring), which it accesses through the handle `R`. A ring has
/// only one consumer.
///
/// Each operation has three forms: `try_x` does not wait, `x` waits for as long as it takes, and
/// `x_until` waits up to a deadline. Once the consumer is dropped, the producer gets
/// [`ClaimError::Closed`](super::ClaimError::Closed).
pub struct Consumer<R: Handle<Target: AnyRing>> {
    /// The handle of the ring.
    pub(super) handle: R,
    /// The item to read next. Its limit is the latest known value of `tail`.
    pub(super) cursor: Cursor,
    /// How long the consumer pauses when it has caught up with the producer.
    pace: Pace,
    /// Aligns this struct so that no other data, such as the producer's, shares its cache line.
    /// Takes no space itself.
    _alone: CachePadded<()>,
}

impl<R: Handle<Target: AnyRing>> Consumer<R> {
    /// Takes the consumer's side of the ring behind `handle`. Returns `None` if it was taken
    /// already.
    ///
    /// # Panics
    ///
    /// If the ring has no slots.
    pub fn new(handle: R) -> Option<Self> {
        let ring = ring(&handle);
        if !ring.take(CONSUMER_TAKEN) {
            return None;
        }
        // The position has not moved since the ring was started, and `take` has acquired the store
        // that set it.
        let cursor = Cursor::new(ring.head.load(Ordering::Relaxed), ring.capacity());
        let pace = Pace::new(cursor.ticket(), cursor.capacity());
        Some(Self { handle, cursor, pace, _alone: CachePadded::new(()) })
    }

    /// Leases the next item, if there is one now.
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn try_next(&mut self) -> Result<Lease<'_, R>, NextError> {
        self.poll(1)?;
        Ok(Lease::new(self))
    }

    /// Leases the next item, waiting until there is one.
    ///
    /// # Errors
    ///
    /// [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator's items cannot borrow from it, as a lease does")]
    pub fn next(&mut self) -> Result<Lease<'_, R>, NextError> {
        self.next_until(&Never)
    }

    /// Leases the next item, waiting until there is one, or returns [`NextError::Empty`] at the
    /// deadline.
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn next_until(&mut self, deadline: &impl Deadline) -> Result<Lease<'_, R>, NextError> {
        self.poll_until(1, deadline)?;
        Ok(Lease::new(self))
    }

    /// Leases the next items: all that are ready now, up to `max`, and at least one (unless `max`
    /// is 0).
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn try_chunk(&mut self, max: usize) -> Result<LeaseChunk<'_, R>, NextError> {
        let len = self.poll(max)?;
        Ok(LeaseChunk::new(self, len))
    }

    /// Leases the next items, up to `max`, waiting until there is at least one.
    ///
    /// # Errors
    ///
    /// [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn chunk(&mut self, max: usize) -> Result<LeaseChunk<'_, R>, NextError> {
        self.chunk_until(max, &Never)
    }

    /// Leases the next items, up to `max`, waiting until there is at least one, or returns
    /// [`NextError::Empty`] at the deadline.
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn chunk_until(&mut self, max: usize, deadline: &impl Deadline) -> Result<LeaseChunk<'_, R>, NextError> {
        let len = self.poll_until(max, deadline)?;
        Ok(LeaseChunk::new(self, len))
    }

    /// Returns a reference to the next item, which stays in the ring.
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn peek(&mut self) -> Result<&Item<R>, NextError> {
        self.poll(1)?;
        // SAFETY: item `number` belongs to the consumer (I2) until it is released, and this borrow
        // must have ended before that.
        Ok(unsafe { &*ring(&self.handle).value(self.cursor.index()) })
    }

    /// Waits until there is a next item, and returns a reference to it, or [`NextError::Empty`] at
    /// the deadline. The item stays in the ring.
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn peek_until(&mut self, deadline: &impl Deadline) -> Result<&Item<R>, NextError> {
        self.poll_until(1, deadline)?;
        self.peek()
    }

    /// Returns the handle of the ring.
    pub fn ring(&self) -> &R {
        &self.handle
    }

    /// Closes the ring for both sides (see [`Ring::close`](super::Ring::close)).
    pub fn close(&self) {
        ring(&self.handle).close();
    }

    /// Returns whether no more items will come than those that are [`ready`](Self::ready). (If the
    /// ring was closed, these are not delivered either.)
    pub fn is_ended(&self) -> bool {
        ring(&self.handle).state.load(Ordering::Acquire) & (CLOSED | PRODUCER_GONE) != 0
    }

    /// Returns the number of the next item to be released, counted from 0 and wrapping.
    pub fn ticket(&self) -> usize {
        self.cursor.ticket()
    }

    /// Returns how many items are ready. This is a lower bound, as the producer may be publishing
    /// more.
    pub fn ready(&self) -> usize {
        ring(&self.handle).tail.load(Ordering::Relaxed).wrapping_sub(self.cursor.ticket())
    }

    /// Returns the number of slots.
    pub fn capacity(&self) -> usize {
        self.cursor.capacity()
    }

    #[inline]
    fn poll(&mut self, max: usize) -> Result<usize, NextError> {
        poll(&self.handle, &mut self.cursor, max)
    }

    /// Like [`poll`], but waits for the first item.
    #[inline]
    fn poll_until(&mut self, max: usize, deadline: &impl Deadline) -> Result<usize, NextError> {
        match self.poll(max) {
            Err(NextError::Empty) => self.wait(max, deadline),
            outcome => outcome,
        }
    }

    #[cold]
    fn wait(&mut self, max: usize, deadline: &impl Deadline) -> Result<usize, NextError> {
        let Self { handle, cursor, pace, .. } = self;
        // Chunks move few cache lines even without a pause.
        if max == 1 {
            pace.pause(cursor.ticket());
        }
        let mut outcome = Err(NextError::Empty);
        ring(handle).items.wait_until(deadline, || {
            outcome = poll(handle, cursor, max);
            outcome != Err(NextError::Empty)
        });
        outcome
    }

    /// Releases the slots of the next `n` items to the producer.
    #[inline]
    pub(super) fn release(&mut self, n: usize) {
        let first = self.cursor.ticket();
        let head = self.cursor.advance(n);
        let capacity = self.cursor.capacity();
        let ring = ring(&self.handle);
        // By I3 of the proof in `super`, the consumer's accesses to the values come before this
        // store.
        ring.head.store(head, Ordering::Release);
        // The producer can sleep only while the ring is full ("No lost wake-up" in the proof in
        // `super`).
        ring.space.notify(|| ring.tail.load(Ordering::Relaxed).wrapping_sub(first) == capacity);
    }
}

/// Returns how many items can be read, up to `max`. Reads the producer's position only if fewer are
/// known.
#[inline]
fn poll<R: Handle<Target: AnyRing>>(handle: &R, cursor: &mut Cursor, max: usize) -> Result<usize, NextError> {
    let ring = ring(handle);
    if cursor.available() < max {
        // Loaded before the tail, and with Acquire: if the producer has been dropped at this point,
        // the tail read below is final.
        let state = ring.state.load(Ordering::Acquire);
        if state & CLOSED != 0 {
            return Err(NextError::Closed);
        }
        // By I3, the producer no longer accesses what it has published.
        cursor.set_limit(ring.tail.load(Ordering::Acquire));
        if cursor.available() == 0 {
            return Err(if state & PRODUCER_GONE != 0 { NextError::Ended } else { NextError::Empty });
        }
    }
    Ok(cursor.available().min(max))
}

impl<R: Handle<Target: AnyRing>> Drop for Consumer<R> {
    fn drop(&mut self) {
        ring(&self.handle).leave(CONSUMER_GONE, PRODUCER_GONE);
    }
}

impl<R: Handle<Target: AnyRing>> fmt::Debug for Consumer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}
