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
    pub const fn new(ring: R) -> Self {
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
        ring.wait_for_space(deadline, || ring.try_claim(max)).map(|spot| Claim { ring: &*self.0, spot })
    }

    /// Claims several tickets at once if any can be had now: up to `max` in a row, as many as are free.
    ///
    /// For tasks that are so small that a claim for each would cost more than they do. The first one may be what others
    /// have left of a ticket, the others are whole. With [`Delivery::Arrival`] it is always one.
    ///
    /// ```
    /// use slotline_core::ordered::{Config, Ring, Slot};
    ///
    /// let ring = Ring::inline([const { Slot::new(0) }; 8], Config::new());
    /// let (worker, mut consumer) = (ring.worker(), ring.consumer().expect("nobody has taken it yet"));
    /// for mut claim in worker.try_claim_many(3)? {
    ///     let ticket = claim.ticket();
    ///     *claim.get_mut().expect("the whole slot") = ticket * ticket;
    ///     claim.publish();
    /// }
    /// assert_eq!([(); 3].map(|()| *consumer.next().unwrap()), [0, 1, 4]);
    /// # Ok::<(), slotline_core::ordered::ClaimError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] if no slot is free, [`ClaimError::Ended`], [`ClaimError::Closed`].
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    #[inline]
    pub fn try_claim_many(&self, max: usize) -> Result<Claims<'_, R::Target>, ClaimError> {
        self.0.ring().try_claim_many(max).map(|row| Claims { ring: &*self.0, row })
    }

    /// As [`try_claim_many`](Self::try_claim_many), waiting for the first slot to become free.
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
        ring.wait_for_space(&Never, || ring.try_claim_many(max)).map(|row| Claims { ring: &*self.0, row })
    }

    /// Waits until there may be something to claim again after [`ClaimError::Ended`]: the next run, parts of a ticket that was
    /// begun in this one, or `Err(ClaimError::Closed)`.
    ///
    /// There are such parts with [`Delivery::Arrival`] only, where a claim may pass over a ticket that somebody is about to
    /// begin. See [`Ring::wake_all`].
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
            closed || !ring.is_over(cursor) || ring.delivery == Delivery::Arrival && ring.has_parts()
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

/// Where several claims are: the next one, how many there are with it, and the cursor at its ticket.
#[derive(Clone, Copy, Debug)]
struct Row {
    next: Spot,
    left: usize,
    cursor: usize,
}

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> Ring<B, W> {
    /// Repeats `attempt` until it says something else than [`ClaimError::Full`], or the deadline has passed.
    #[inline]
    fn wait_for_space<S>(
        &self,
        deadline: &impl Deadline,
        attempt: impl Fn() -> Result<S, ClaimError>,
    ) -> Result<S, ClaimError> {
        let mut outcome = attempt();
        if let Err(ClaimError::Full) = outcome {
            self.space.wait_until(deadline, || {
                // A `Wait` may ask once more after it was told that there is a claim, which must not be lost.
                if let Err(ClaimError::Full) = outcome {
                    outcome = attempt();
                }
                !matches!(outcome, Err(ClaimError::Full))
            });
        }
        outcome
    }

    #[inline]
    fn try_claim(&self, max: usize) -> Result<Spot, ClaimError> {
        match self.delivery {
            Delivery::InOrder => self.try_claim_in_order(max),
            Delivery::Arrival => self.try_claim_any(max),
        }
    }

    #[inline(always)]
    fn try_claim_in_order(&self, max: usize) -> Result<Spot, ClaimError> {
        let (cursor, count) = self.claim_in_order(|cursor, _| {
            let count = max.min(self.shape.parts - self.shape.part(cursor));
            (count, self.shape.advance(cursor, count))
        })?;
        Ok(self.spot(cursor, count))
    }

    #[inline]
    fn try_claim_many(&self, max: usize) -> Result<Row, ClaimError> {
        assert!(max > 0, "a claim needs at least one ticket");
        match self.delivery {
            Delivery::InOrder => {
                let (cursor, left) = self.claim_in_order(|cursor, limit| {
                    let (mut next, mut tickets) = (self.shape.next_ticket(cursor), 1);
                    while tickets < max && !self.is_over_at(next, limit) && self.is_free(next) {
                        (next, tickets) = (self.shape.next_ticket(next), tickets + 1);
                    }
                    (tickets, next)
                })?;
                Ok(Row { next: self.rest(cursor), left, cursor })
            }
            Delivery::Arrival => self.try_claim_any(self.shape.parts).map(|next| Row { next, left: 1, cursor: 0 }),
        }
    }

    /// Claims what `plan` chooses, given a cursor whose slot is free and the limit: it says how much, and where that
    /// moves the cursor. Gives the cursor from which on, and how much.
    #[inline(always)]
    fn claim_in_order(&self, plan: impl Fn(usize, usize) -> (usize, usize)) -> Result<(usize, usize), ClaimError> {
        let look = || self.cursor.load(Ordering::Acquire);
        let mut cursor = look();
        loop {
            if cursor & CLOSED != 0 {
                return Err(ClaimError::Closed);
            }
            // Acquire: as in `is_over`.
            let limit = self.limit.load(Ordering::Acquire);
            if self.is_over_at(cursor, limit) {
                return Err(ClaimError::Ended);
            }
            if !self.is_free(cursor) {
                // If somebody has claimed it since, that does not say that the next one is taken, too.
                match look() {
                    now if now == cursor => return Err(ClaimError::Full),
                    now => cursor = now,
                }
                continue;
            }
            let (much, next) = plan(cursor, limit);
            // Release: a worker that goes on from here takes over what this one saw of `open` (through the limit). Acquire: the
            // value may be the same as the one loaded and yet a later run's.
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
        let slot = self.slot(self.shape.slot(cursor));
        slot.state.load(Ordering::Acquire) == state(self.shape.lap(cursor), Status::Free)
    }

    /// What is left at the cursor of its ticket.
    #[inline]
    fn rest(&self, cursor: usize) -> Spot {
        self.spot(cursor, self.shape.parts - self.shape.part(cursor))
    }

    #[inline]
    fn spot(&self, cursor: usize, count: usize) -> Spot {
        let (slot, part) = (self.shape.slot(cursor), self.shape.part(cursor));
        Spot { slot, ticket: self.tickets_before(cursor), part, count }
    }
}

/// Claims of several tickets, one after the other.
///
/// Each [`Claim`] may be published when and in whatever order its holder likes. Those that were not taken when this is
/// dropped count as failed, as a [`Claim`] does that is dropped.
#[must_use = "dropping claims fails their tickets"]
pub struct Claims<'a, G: AnyRing> {
    ring: &'a G,
    row: Row,
}

impl<'a, G: AnyRing> Iterator for Claims<'a, G> {
    type Item = Claim<'a, G>;

    #[inline]
    fn next(&mut self) -> Option<Claim<'a, G>> {
        let (row, ring) = (&mut self.row, self.ring.ring());
        row.left = row.left.checked_sub(1)?;
        let spot = row.next;
        if row.left > 0 {
            row.cursor = ring.shape.next_ticket(row.cursor);
            row.next = ring.rest(row.cursor);
        }
        Some(Claim { ring: self.ring, spot })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.row.left, Some(self.row.left))
    }
}

impl<G: AnyRing> ExactSizeIterator for Claims<'_, G> {}

impl<G: AnyRing> Drop for Claims<'_, G> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<G: AnyRing> fmt::Debug for Claims<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("next", &self.row.next.ticket)
            .field("left", &self.row.left)
            .finish_non_exhaustive()
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
    /// 2⁴⁶ tickets and more on a 64-bit machine.
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
