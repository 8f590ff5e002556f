//! The workers' end: claim, write in place, publish.

use core::fmt;

use super::position::CLOSED;
use super::slot::{Status, state};
use super::{AnyRing, Delivery, Ring, Slot};
use crate::handle::Handle;
use crate::storage::Storage;
use crate::sync::Ordering;
use crate::wait::{Deadline, Never, Wait};

/// Why there is no claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// No slot is free now (or, from a waiting form, before the deadline passed).
    Full,
    /// The run has no more tickets.
    Ended,
    /// The ring was closed.
    Closed,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no slot is free",
            Self::Ended => "the run has no more tickets",
            Self::Closed => "the ring is closed",
        })
    }
}

impl core::error::Error for ClaimError {}

/// One of any number of workers on a ring.
#[derive(Clone, Debug)]
pub struct Worker<R>(R);

impl<R: Handle<Target: AnyRing>> Worker<R> {
    /// A worker on `ring`.
    pub fn new(ring: R) -> Self {
        Self(ring)
    }

    /// Claims at most `max` parts (of one slot) if any can be had now.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] if no slot is free, [`ClaimError::Ended`], [`ClaimError::Closed`].
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    #[inline(always)]
    pub fn try_claim(&self, max: usize) -> Result<Claim<'_, R::Target>, ClaimError> {
        assert!(max > 0, "a claim needs at least one part");
        let ring = &*self.0;
        // Not through `Ring::try_claim`: the way of so large a result through memory took 10 ns.
        match ring.ring().delivery {
            Delivery::InOrder => ring.ring().try_claim_in_order(max).map(|spot| Claim { ring, spot }),
            Delivery::Arrival => ring.ring().try_claim_any(max).map(|spot| Claim { ring, spot }),
        }
    }

    /// Claims at most `max` parts (of one slot), waiting for a slot to become free.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Ended`] or [`ClaimError::Closed`].
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    #[inline]
    pub fn claim(&self, max: usize) -> Result<Claim<'_, R::Target>, ClaimError> {
        self.claim_until(max, &Never)
    }

    /// As [`claim`](Self::claim), but no longer than the deadline, after which it is [`ClaimError::Full`].
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`], [`ClaimError::Ended`] or [`ClaimError::Closed`].
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    pub fn claim_until(&self, max: usize, deadline: &impl Deadline) -> Result<Claim<'_, R::Target>, ClaimError> {
        assert!(max > 0, "a claim needs at least one part");
        let ring = self.0.ring();
        let mut outcome = ring.try_claim(max);
        if let Err(ClaimError::Full) = outcome {
            ring.space.wait_until(deadline, || {
                outcome = ring.try_claim(max);
                !matches!(outcome, Err(ClaimError::Full))
            });
        }
        outcome.map(|spot| Claim { ring: &*self.0, spot })
    }

    /// Waits until there may be something to claim again after [`ClaimError::Ended`]: the next run, or
    /// `Err(ClaimError::Closed)`.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Closed`].
    pub fn wait_for_run(&self) -> Result<(), ClaimError> {
        let ring = self.0.ring();
        let mut closed = false;
        ring.space.wait_until(&Never, || {
            let cursor = ring.cursor.load(Ordering::Acquire);
            closed = cursor & CLOSED != 0;
            closed || !ring.is_over(cursor)
        });
        if closed { Err(ClaimError::Closed) } else { Ok(()) }
    }
}

/// Where a claim is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) slot: usize,
    pub(super) ticket: usize,
    pub(super) part: usize,
    pub(super) count: usize,
}

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> Ring<B, W> {
    #[inline]
    fn try_claim(&self, max: usize) -> Result<Spot, ClaimError> {
        match self.delivery {
            Delivery::InOrder => self.try_claim_in_order(max),
            Delivery::Arrival => self.try_claim_any(max),
        }
    }

    #[inline(always)]
    fn try_claim_in_order(&self, max: usize) -> Result<Spot, ClaimError> {
        let mut cursor = self.cursor.load(Ordering::Acquire);
        loop {
            if cursor & CLOSED != 0 {
                return Err(ClaimError::Closed);
            }
            if self.is_over(cursor) {
                return Err(ClaimError::Ended);
            }
            let (index, part) = (self.shape.slot(cursor), self.shape.part(cursor));
            let slot = self.slot(index);
            if slot.state.load(Ordering::Acquire) != state(self.shape.lap(cursor), Status::Free) {
                return Err(ClaimError::Full);
            }
            let count = max.min(self.shape.parts - part);
            let next = self.shape.advance(cursor, count);
            // Release: a worker that goes on from here takes over what this one saw of `open` (through the limit).
            match self.cursor.compare_exchange_weak(cursor, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.tell_if_last(next);
                    return Ok(Spot { slot: index, ticket: self.tickets_before(cursor), part, count });
                }
                Err(now) => cursor = now,
            }
        }
    }
}

/// The right to write some parts of one slot, and the duty to publish them.
///
/// Dropped without [`publish`](Self::publish), the parts count as failed, and the consumer gets
/// [`NextError::Failed`](super::NextError::Failed) in this ticket's place.
#[must_use = "dropping a claim fails its ticket"]
pub struct Claim<'a, G: AnyRing> {
    ring: &'a G,
    spot: Spot,
}

impl<G: AnyRing> Claim<'_, G> {
    /// The number of the task in this run, from 0. In an endless run it wraps with the position, after
    /// 2⁵⁰ tickets and more on a 64-bit machine.
    #[inline]
    pub fn ticket(&self) -> usize {
        self.spot.ticket
    }

    /// The index of the slot, below the ring's depth.
    #[inline]
    pub fn slot(&self) -> usize {
        self.spot.slot
    }

    /// The parts that were claimed, a range within `0..parts`.
    #[inline]
    pub fn parts(&self) -> core::ops::Range<usize> {
        self.spot.part..self.spot.part + self.spot.count
    }

    /// The slot's value, shared with the claims of its other parts.
    #[inline]
    pub fn get(&self) -> &G::Value
    where
        G::Value: Sync,
    {
        // SAFETY: while a part is claimed, only claims reach the value (see the module). A claim gives `&mut` only if
        // it is the only one, and then this borrow of it excludes that.
        unsafe { &*self.ring.ring().slot(self.spot.slot).value.read_ptr() }
    }

    /// The slot's value, if all its parts are this claim's.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut G::Value> {
        let ring = self.ring.ring();
        // SAFETY: this claim holds every part, so no other claim of the slot exists (see the module).
        (self.spot.count == ring.shape.parts).then(|| unsafe { &mut *ring.slot(self.spot.slot).value.write_ptr() })
    }

    /// Hands the parts on: they are as they shall be.
    #[inline]
    pub fn publish(self) {
        let claim = core::mem::ManuallyDrop::new(self);
        claim.ring.ring().finish(claim.spot.slot, claim.spot.count, false);
    }
}

impl<G: AnyRing> Drop for Claim<'_, G> {
    fn drop(&mut self) {
        self.ring.ring().finish(self.spot.slot, self.spot.count, true);
    }
}

impl<G: AnyRing> fmt::Debug for Claim<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("ticket", &self.ticket()).field("parts", &self.parts()).finish_non_exhaustive()
    }
}
