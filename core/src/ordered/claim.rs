//! The workers' side of the ordered ring: claim, write in place, publish.

use core::fmt;
use core::mem::ManuallyDrop;

use super::claims::Claims;
use super::position::CLOSED;
use super::slot::{Status, state};
use super::{AnyRing, Delivery, Ring, Slot};
use crate::handle::Handle;
use crate::storage::Storage;
use crate::sync::Ordering;
use crate::wait::{Deadline, Never, Wait};

/// The reason why nothing was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// No slot is free, or, from a waiting method, none was free before the deadline passed.
    Full,
    /// The [run](super#runs) has no more tickets.
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

/// A worker of a ring. A ring may have any number of workers.
#[derive(Clone, Debug)]
pub struct Worker<R>(R);

impl<R: Handle<Target: AnyRing>> Worker<R> {
    /// Creates a worker on `ring`.
    pub const fn new(ring: R) -> Self {
        Self(ring)
    }

    /// Claims up to `max` [parts](super::Config::parts) of one slot, if any are available now.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] if no slot is free, [`ClaimError::Ended`] or [`ClaimError::Closed`].
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    #[inline(always)]
    pub fn try_claim(&self, max: usize) -> Result<Claim<'_, R::Target>, ClaimError> {
        assert!(max > 0, "a claim needs at least one part");
        let ring = &*self.0;
        // Not through `Ring::try_claim`, which would return its large result through memory: that
        // took 10 ns more per claim.
        match ring.ring().delivery {
            Delivery::InOrder => ring.ring().try_claim_in_order(max).map(|claimed| Claim { ring, claimed }),
            Delivery::Arrival => ring.ring().try_claim_any(max).map(|claimed| Claim { ring, claimed }),
        }
    }

    /// Claims up to `max` [parts](super::Config::parts) of one slot, waiting until a slot is free.
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

    /// Like [`claim`](Self::claim), but waits no longer than the deadline, and then returns
    /// [`ClaimError::Full`].
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
        ring.wait_for_space(deadline, || ring.try_claim(max)).map(|claimed| Claim { ring: &*self.0, claimed })
    }

    /// Claims several tickets at once, if any are available now: up to `max` consecutive ones, as
    /// many as have free slots.
    ///
    /// This is for tasks so small that a separate claim for each would cost more than the task
    /// itself. The first claim may be the rest of a ticket of which other workers have claimed some
    /// parts; the other claims are whole tickets. With [`Delivery::Arrival`] there is always one
    /// claim.
    ///
    /// ```
    /// use slotline_core::ordered::{Config, Ring, Slot};
    ///
    /// let ring = Ring::inline([const { Slot::new(0) }; 8], Config::new());
    /// let (worker, mut consumer) = (ring.worker(), ring.consumer().expect("the consumer was not taken before"));
    /// for mut claim in worker.try_claim_many(3)? {
    ///     let ticket = claim.ticket();
    ///     *claim.get_mut().expect("the claim has all parts") = ticket * ticket;
    ///     claim.publish();
    /// }
    /// assert_eq!([(); 3].map(|()| *consumer.next().unwrap()), [0, 1, 4]);
    /// # Ok::<(), slotline_core::ordered::ClaimError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] if no slot is free, [`ClaimError::Ended`] or [`ClaimError::Closed`].
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    #[inline(always)]
    pub fn try_claim_many(&self, max: usize) -> Result<Claims<'_, R::Target>, ClaimError> {
        self.0.ring().try_claim_many(max).map(|row| Claims::new(&*self.0, row))
    }

    /// Like [`try_claim_many`](Self::try_claim_many), but waits until the first slot is free.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Ended`] or [`ClaimError::Closed`].
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    #[inline]
    pub fn claim_many(&self, max: usize) -> Result<Claims<'_, R::Target>, ClaimError> {
        let ring = self.0.ring();
        ring.wait_for_space(&Never, || ring.try_claim_many(max)).map(|row| Claims::new(&*self.0, row))
    }

    /// Waits, after [`ClaimError::Ended`], until there may be something to claim again: tickets of
    /// the next run, or parts of a ticket that was begun in the ended run.
    ///
    /// Such parts exist only with [`Delivery::Arrival`], where a claim may skip a ticket that
    /// another worker is about to begin. See [`Ring::wake_all`].
    ///
    /// # Errors
    ///
    /// [`ClaimError::Closed`] if the ring is closed.
    pub fn wait_for_run(&self) -> Result<(), ClaimError> {
        let ring = self.0.ring();
        let mut closed = false;
        ring.space.wait_until(&Never, || {
            let cursor = ring.cursor.load(Ordering::Acquire);
            closed = cursor & CLOSED != 0;
            closed || !ring.is_over(cursor) || ring.delivery == Delivery::Arrival && ring.has_parts()
        });
        if closed { Err(ClaimError::Closed) } else { Ok(()) }
    }
}

/// The slot, ticket and parts of a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimedParts {
    pub(super) slot: usize,
    pub(super) ticket: usize,
    pub(super) part: usize,
    pub(super) count: usize,
}

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> Ring<B, W> {
    /// Returns a worker on this ring. Use [`Worker::new`] for other handles.
    pub fn worker(&self) -> Worker<&Self> {
        Worker::new(self)
    }

    /// Repeats `attempt` until it returns something other than [`ClaimError::Full`], or the
    /// deadline has passed.
    #[inline]
    fn wait_for_space<S>(
        &self,
        deadline: &impl Deadline,
        attempt: impl Fn() -> Result<S, ClaimError>,
    ) -> Result<S, ClaimError> {
        let mut outcome = attempt();
        if let Err(ClaimError::Full) = outcome {
            self.space.wait_until(deadline, || {
                // A `Wait` may call this closure once more after it returned `true`; the claim that
                // was made must not be lost.
                if let Err(ClaimError::Full) = outcome {
                    outcome = attempt();
                }
                !matches!(outcome, Err(ClaimError::Full))
            });
        }
        outcome
    }

    #[inline]
    fn try_claim(&self, max: usize) -> Result<ClaimedParts, ClaimError> {
        match self.delivery {
            Delivery::InOrder => self.try_claim_in_order(max),
            Delivery::Arrival => self.try_claim_any(max),
        }
    }

    #[inline(always)]
    fn try_claim_in_order(&self, max: usize) -> Result<ClaimedParts, ClaimError> {
        let (cursor, count) = self.claim_in_order(|cursor, _| {
            let count = max.min(self.shape.parts - self.shape.part(cursor));
            (count, self.shape.advance(cursor, count))
        })?;
        Ok(self.parts_at(cursor, count))
    }

    /// Claims what `plan` chooses. `plan` gets a cursor whose slot is free, and the limit; it
    /// returns how much to claim, and the cursor after that claim. Returns the cursor at the start
    /// of the claim, and how much was claimed.
    #[inline(always)]
    pub(super) fn claim_in_order<C>(
        &self,
        plan: impl Fn(usize, usize) -> (C, usize),
    ) -> Result<(usize, C), ClaimError> {
        let look = || self.cursor.load(Ordering::Acquire);
        let mut cursor = look();
        loop {
            if cursor & CLOSED != 0 {
                return Err(ClaimError::Closed);
            }
            // Acquire, as in `is_over`: a thread that sees the limit also sees what was written
            // before `open`.
            let limit = self.limit.load(Ordering::Acquire);
            if self.is_over_at(cursor, limit) {
                return Err(ClaimError::Ended);
            }
            if !self.is_free(cursor) {
                // Another worker may have claimed this slot since the cursor was read, and the next
                // slot may still be free.
                match look() {
                    now if now == cursor => return Err(ClaimError::Full),
                    now => cursor = now,
                }
                continue;
            }
            let (much, next) = plan(cursor, limit);
            // Release: a worker that continues from the new cursor sees everything that this worker
            // saw of the `open` call (through the limit). Acquire: the cursor may be equal to the
            // value loaded before and still belong to a later run.
            match self.cursor.compare_exchange_weak(cursor, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.tell_if_last(next);
                    return Ok((cursor, much));
                }
                Err(now) => cursor = now,
            }
        }
    }

    /// Whether the cursor's slot is free for the cursor's ticket.
    #[inline]
    fn is_free(&self, cursor: usize) -> bool {
        self.is_in(self.shape.slot(cursor), state(self.shape.lap(cursor), Status::Free))
    }

    /// Returns whether the state word of slot `index` is `state`.
    #[inline]
    pub(super) fn is_in(&self, index: usize, state: usize) -> bool {
        self.slot(index).state.load(Ordering::Acquire) == state
    }

    #[inline]
    fn parts_at(&self, cursor: usize, count: usize) -> ClaimedParts {
        let (slot, part) = (self.shape.slot(cursor), self.shape.part(cursor));
        ClaimedParts { slot, ticket: self.tickets_before(cursor), part, count }
    }
}

/// The right to write some [parts](super::Config::parts) of one slot, which its holder must then
/// publish.
///
/// If a claim is dropped without [`publish`](Self::publish), its parts count as failed, and the
/// consumer gets [`NextError::Failed`](super::NextError::Failed) in place of this ticket.
#[must_use = "dropping a claim fails its ticket"]
pub struct Claim<'a, G: AnyRing> {
    pub(super) ring: &'a G,
    pub(super) claimed: ClaimedParts,
}

impl<G: AnyRing> Claim<'_, G> {
    /// Returns the number of the task in this run, from 0. In an endless run it wraps: on a 64-bit
    /// machine after 2⁴⁶ tickets or more, or after fewer if a slot has more than 256 parts.
    #[inline]
    pub fn ticket(&self) -> usize {
        self.claimed.ticket
    }

    /// Returns the index of the slot, which is less than the ring's depth.
    #[inline]
    pub fn slot(&self) -> usize {
        self.claimed.slot
    }

    /// Returns the parts that were claimed, a range within `0..parts`.
    #[inline]
    pub fn parts(&self) -> core::ops::Range<usize> {
        self.claimed.part..self.claimed.part + self.claimed.count
    }

    /// Returns the slot's value, which is shared with the claims of its other parts.
    #[inline]
    pub fn get(&self) -> &G::Value
    where
        G::Value: Sync,
    {
        // SAFETY: while a part is claimed, only claims access the value (see the proof in `super`).
        // A claim gives out `&mut` only if it is the slot's only claim, and only while the claim is
        // borrowed mutably, which this shared borrow excludes.
        unsafe { &*self.ring.ring().slot(self.claimed.slot).value.read_ptr() }
    }

    /// Returns the slot's value, if this claim has all of its parts.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut G::Value> {
        let ring = self.ring.ring();
        // SAFETY: this claim has every part, so no other claim of the slot exists (see the proof in
        // `super`), and this borrow of the claim is exclusive.
        (self.claimed.count == ring.shape.parts)
            .then(|| unsafe { &mut *ring.slot(self.claimed.slot).value.write_ptr() })
    }

    /// Publishes the parts, whose contents are final now.
    #[inline]
    pub fn publish(self) {
        let claim = ManuallyDrop::new(self);
        claim.ring.ring().finish(claim.claimed.slot, claim.claimed.count, false);
    }
}

impl<G: AnyRing> Drop for Claim<'_, G> {
    fn drop(&mut self) {
        self.ring.ring().finish(self.claimed.slot, self.claimed.count, true);
    }
}

impl<G: AnyRing> fmt::Debug for Claim<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("ticket", &self.ticket()).field("parts", &self.parts()).finish_non_exhaustive()
    }
}
