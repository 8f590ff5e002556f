//! Claims of several tickets in a row.

use core::fmt;
use core::mem::ManuallyDrop;

use super::claim::{Claim, ClaimError, ClaimedParts};
use super::place::Place;
use super::position::{NOWHERE, SEALED, flags};
use super::{AnyRing, Delivery, Ring, Slot};
use crate::storage::Storage;
use crate::wait::Wait;

/// Several claims in a row: the place (ticket and slot) of the next claim, its first part, and how
/// many claims are left, including the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    next: Place,
    part: usize,
    left: usize,
}

impl Row {
    /// Takes the next claim from the row.
    #[inline(always)]
    fn take<G: AnyRing>(&mut self, ring: &G) -> Option<ClaimedParts> {
        self.left = self.left.checked_sub(1)?;
        let ring = ring.ring();
        let Place { slot, ticket, .. } = self.next;
        let claimed = ClaimedParts { slot, ticket, part: self.part, count: ring.shape.parts - self.part };
        if self.left > 0 {
            self.next.advance(ring);
            self.part = 0;
        }
        Some(claimed)
    }
}

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> Ring<B, W> {
    /// Claims up to `max` tickets in a row, as many as have free slots.
    #[inline(always)]
    pub(super) fn try_claim_many(&self, max: usize) -> Result<Row, ClaimError> {
        assert!(max > 0, "a claim needs at least one ticket");
        match self.delivery {
            Delivery::InOrder => {
                let (cursor, (mut next, left)) = self.claim_in_order(|cursor, limit| {
                    let start = self.shape.ticket_start(cursor);
                    let most = match limit {
                        // In a sealed run, only the rest of an open ticket can be claimed.
                        _ if cursor & SEALED != 0 => 1,
                        NOWHERE => max,
                        limit => max.min(self.shape.tickets_between(start, limit)),
                    };
                    let first = Place::at(self, start);
                    let (mut end, mut tickets) = (first, 1);
                    end.advance(self);
                    while tickets < most && self.is_in(end.slot, end.free()) {
                        end.advance(self);
                        tickets += 1;
                    }
                    ((first, tickets), end.position(self) | flags(cursor))
                })?;
                // Read only after the cursor was moved: before that, a run with the same number may
                // have begun (see the proof in the documentation of the `ordered` module).
                next.ticket = self.tickets_before(self.shape.ticket_start(cursor));
                Ok(Row { next, part: self.shape.part(cursor), left })
            }
            Delivery::Arrival => self.try_claim_any(self.shape.parts).map(|claimed| {
                let next = Place { slot: claimed.slot, ticket: claimed.ticket, ready: 0 };
                Row { next, part: claimed.part, left: 1 }
            }),
        }
    }
}

/// An iterator over claims of several consecutive tickets.
///
/// The claims may be published at any time and in any order. If this iterator is dropped, the
/// claims that were not taken from it count as failed, just like a [`Claim`] that is dropped.
#[must_use = "dropping claims fails their tickets"]
pub struct Claims<'a, G: AnyRing> {
    ring: &'a G,
    row: Row,
}

impl<'a, G: AnyRing> Claims<'a, G> {
    #[inline(always)]
    pub(super) fn new(ring: &'a G, row: Row) -> Self {
        Self { ring, row }
    }

    /// Calls `fill` with each ticket and its value, and publishes it, the first ticket after all
    /// others.
    ///
    /// This is the fastest way to do tasks that take a few nanoseconds. While the tickets are
    /// written, the consumer waits for the first of them, so it does not read the cache lines of
    /// the others. So it gets none of the tickets before all of them are finished.
    ///
    /// If `fill` panics, the ticket that it was called for fails, and so do those after it.
    ///
    /// ```
    /// use slotline_core::ordered::{Config, Ring, Slot};
    ///
    /// let ring = Ring::inline([const { Slot::new(0) }; 8], Config::new());
    /// let (worker, mut consumer) = (ring.worker(), ring.consumer().expect("the consumer was not taken before"));
    /// worker.try_claim_many(3)?.publish_each(|ticket, value| *value = ticket * ticket);
    /// assert_eq!([(); 3].map(|()| *consumer.next().unwrap()), [0, 1, 4]);
    /// # Ok::<(), slotline_core::ordered::ClaimError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If a slot has more than one part.
    #[inline(always)]
    pub fn publish_each(self, mut fill: impl FnMut(usize, &mut G::Value)) {
        assert!(self.ring.ring().shape.parts == 1, "publish_each needs slots of one part; publish each claim instead");
        let Claims { ring, mut row } = *ManuallyDrop::new(self);
        let mut filling = Filling { ring, row, filled: 0 };
        while let Some(claimed) = row.take(ring) {
            // SAFETY: the slot has one part, and its claim was not given out, so no other code
            // accesses the value until this function, or `filling`, has finished the claim.
            fill(claimed.ticket, unsafe { &mut *ring.ring().slot(claimed.slot).value.write_ptr() });
            filling.filled += 1;
            if filling.filled > 1 {
                ring.ring().finish(claimed.slot, 1, false);
            }
        }
    }
}

/// The claims of a row that [`Claims::publish_each`] is filling. Each claim but the first is
/// published when it is filled.
///
/// When this guard is dropped, it publishes the first claim if it was filled, and fails the claims
/// that were not filled.
struct Filling<'a, G: AnyRing> {
    ring: &'a G,
    row: Row,
    filled: usize,
}

impl<G: AnyRing> Drop for Filling<'_, G> {
    #[inline(always)]
    fn drop(&mut self) {
        let (ring, mut row) = (self.ring, self.row);
        if self.filled < row.left {
            for _ in 0..self.filled {
                row.take(ring);
            }
            drop(Claims { ring, row });
        }
        if self.filled > 0 {
            ring.ring().finish(self.row.next.slot, 1, false);
        }
    }
}

impl<'a, G: AnyRing> Iterator for Claims<'a, G> {
    type Item = Claim<'a, G>;

    #[inline(always)]
    fn next(&mut self) -> Option<Claim<'a, G>> {
        let (ring, claimed) = (self.ring, self.row.take(self.ring)?);
        Some(Claim { ring, claimed })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.row.left, Some(self.row.left))
    }
}

impl<G: AnyRing> ExactSizeIterator for Claims<'_, G> {}

impl<G: AnyRing> Drop for Claims<'_, G> {
    // Inline and without a reference to `self`, so that the fields can be in registers.
    #[inline(always)]
    fn drop(&mut self) {
        if self.row.left > 0 {
            fail(self.ring, self.row);
        }
    }
}

/// Drops the claims of a row unpublished.
#[cold]
fn fail<G: AnyRing>(ring: &G, row: Row) {
    let mut claims = ManuallyDrop::new(Claims { ring, row });
    claims.by_ref().for_each(drop);
}

impl<G: AnyRing> fmt::Debug for Claims<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("next", &self.row.next.ticket)
            .field("left", &self.row.left)
            .finish_non_exhaustive()
    }
}
