//! The side that reads.

use core::fmt;

use crossbeam_utils::CachePadded;

use super::cursor::Cursor;
use super::pace::Pace;
use super::ring::{AnyRing, CLOSED, CONSUMER_GONE, CONSUMER_TAKEN, PRODUCER_GONE, ring};
use super::{Item, Lease, LeaseChunk, NextError};
use crate::handle::Handle;
use crate::sync::Ordering;
use crate::wait::{Deadline, Never, Wait};

/// The one consumer of a [`Ring`](super::Ring), which it reaches through the handle `R`.
///
/// Each operation comes in three forms: `try_x` doesn't wait, `x` waits for as long as it takes, `x_until` waits up
/// to a deadline. Once the consumer is dropped, the producer gets [`ClaimError::Closed`](super::ClaimError::Closed).
pub struct Consumer<R: Handle<Target: AnyRing>> {
    /// The way to the ring.
    pub(super) handle: R,
    /// Item to read next; its limit is `tail` as last seen.
    pub(super) cursor: Cursor,
    /// How it waits.
    pace: Pace,
    /// Takes no space, but keeps other data, such as the other side, off this one's cache line.
    _alone: CachePadded<()>,
}

impl<R: Handle<Target: AnyRing>> Consumer<R> {
    /// Takes the consumer's side of the ring behind `handle`; `None` if it was taken already.
    ///
    /// # Panics
    ///
    /// If the ring has no slots.
    pub fn new(handle: R) -> Option<Self> {
        let ring = ring(&handle);
        if !ring.take(CONSUMER_TAKEN) {
            return None;
        }
        // Not moved since the (re)start, which `take` has seen.
        let cursor = Cursor::new(ring.head.load(Ordering::Relaxed), ring.capacity());
        let pace = Pace::new(cursor.ticket(), cursor.capacity());
        Some(Self { handle, cursor, pace, _alone: CachePadded::new(()) })
    }

    /// The next item, if there is one now.
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn try_next(&mut self) -> Result<Lease<'_, R>, NextError> {
        self.poll(1)?;
        Ok(Lease::new(self))
    }

    /// The next item, once there is one.
    ///
    /// # Errors
    ///
    /// [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator's items can't borrow it, as a lease does")]
    pub fn next(&mut self) -> Result<Lease<'_, R>, NextError> {
        self.next_until(&Never)
    }

    /// The next item, once there is one, or [`NextError::Empty`] at the deadline.
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn next_until(&mut self, deadline: &impl Deadline) -> Result<Lease<'_, R>, NextError> {
        self.poll_until(1, deadline)?;
        Ok(Lease::new(self))
    }

    /// The next items: all that there are now, up to `max`, and at least one (unless `max` is 0).
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn try_chunk(&mut self, max: usize) -> Result<LeaseChunk<'_, R>, NextError> {
        let len = self.poll(max)?;
        Ok(LeaseChunk::new(self, len))
    }

    /// The next items, up to `max`, once there is at least one.
    ///
    /// # Errors
    ///
    /// [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn chunk(&mut self, max: usize) -> Result<LeaseChunk<'_, R>, NextError> {
        self.chunk_until(max, &Never)
    }

    /// The next items, up to `max`, once there is at least one, or [`NextError::Empty`] at the deadline.
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn chunk_until(&mut self, max: usize, deadline: &impl Deadline) -> Result<LeaseChunk<'_, R>, NextError> {
        let len = self.poll_until(max, deadline)?;
        Ok(LeaseChunk::new(self, len))
    }

    /// A look at the next item, which stays in the ring.
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn peek(&mut self) -> Result<&Item<R>, NextError> {
        self.poll(1)?;
        // SAFETY: item `number` is the consumer's (I2) until it is released, for which this borrow must have ended.
        Ok(unsafe { &*ring(&self.handle).value(self.cursor.index()) })
    }

    /// A look at the next item, which stays in the ring, once there is one, or [`NextError::Empty`] at the deadline.
    ///
    /// # Errors
    ///
    /// [`NextError::Empty`], [`NextError::Ended`] or [`NextError::Closed`].
    #[inline]
    pub fn peek_until(&mut self, deadline: &impl Deadline) -> Result<&Item<R>, NextError> {
        self.poll_until(1, deadline)?;
        self.peek()
    }

    /// The way to the ring.
    pub fn ring(&self) -> &R {
        &self.handle
    }

    /// Ends everything for both sides (see [`Ring::close`](super::Ring::close)).
    pub fn close(&self) {
        ring(&self.handle).close();
    }

    /// Whether no item will come besides those that are [`ready`](Self::ready) (none of these either, if the ring was
    /// closed).
    pub fn is_ended(&self) -> bool {
        ring(&self.handle).state.load(Ordering::Acquire) & (CLOSED | PRODUCER_GONE) != 0
    }

    /// The number of the next item to be released, counted from 0 and wrapping.
    pub fn ticket(&self) -> usize {
        self.cursor.ticket()
    }

    /// How many items are ready, at least: the producer may be publishing more.
    pub fn ready(&self) -> usize {
        ring(&self.handle).tail.load(Ordering::Relaxed).wrapping_sub(self.cursor.ticket())
    }

    /// How many slots there are.
    pub fn capacity(&self) -> usize {
        self.cursor.capacity()
    }

    #[inline]
    fn poll(&mut self, max: usize) -> Result<usize, NextError> {
        poll(&self.handle, &mut self.cursor, max)
    }

    /// As [`poll`], but waits for the first item.
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
        // Runs of items move few lines as it is.
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

    /// Gives the slots of the next `n` items back to the producer.
    #[inline]
    pub(super) fn release(&mut self, n: usize) {
        let first = self.cursor.ticket();
        let head = self.cursor.advance(n);
        let capacity = self.cursor.capacity();
        let ring = ring(&self.handle);
        // I3: the values were used before.
        ring.head.store(head, Ordering::Release);
        // The producer can sleep only while the ring is full ("No lost wake-up" in the module's proof).
        ring.space.notify(|| ring.tail.load(Ordering::Relaxed).wrapping_sub(first) == capacity);
    }
}

/// How many items there are to read, up to `max`; looks for more only if fewer than that are known of.
#[inline]
fn poll<R: Handle<Target: AnyRing>>(handle: &R, cursor: &mut Cursor, max: usize) -> Result<usize, NextError> {
    let ring = ring(handle);
    if cursor.available() < max {
        // Before the tail, and Acquire, so that a producer that is gone here has a final tail below.
        let state = ring.state.load(Ordering::Acquire);
        if state & CLOSED != 0 {
            return Err(NextError::Closed);
        }
        // I3: what the producer published, it will not touch any more.
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
