//! Arrival mode ([`Delivery::Arrival`](super::Delivery::Arrival)): the next ticket takes any free
//! slot, and the consumer takes any finished slot.

use super::claim::{ClaimError, ClaimedParts};
use super::position::{CLOSED, FLAG_BITS};
use super::slot::{OPENING, Status, UNOPENED, state};
use super::{Ring, Slot};
use crate::storage::Storage;
use crate::sync::Ordering;
use crate::wait::Wait;

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> Ring<B, W> {
    /// Claims up to `max` parts of a slot that is already open, or else of one that it opens with
    /// the next ticket.
    pub(super) fn try_claim_any(&self, max: usize) -> Result<ClaimedParts, ClaimError> {
        if self.cursor.load(Ordering::Acquire) & CLOSED != 0 {
            return Err(ClaimError::Closed);
        }
        self.join(max).map_or_else(|| self.open_slot(max), Ok)
    }

    /// Claims up to `max` parts of an open slot that has unclaimed parts.
    fn join(&self, max: usize) -> Option<ClaimedParts> {
        if self.shape.parts == 1 {
            return None;
        }
        for (index, slot) in self.slots.slots().iter().enumerate() {
            let mut part = slot.claims.load(Ordering::Relaxed);
            while part < self.shape.parts {
                let count = max.min(self.shape.parts - part);
                match slot.claims.compare_exchange_weak(part, part + count, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        return Some(ClaimedParts {
                            slot: index,
                            ticket: slot.ticket.load(Ordering::Relaxed),
                            part,
                            count,
                        });
                    }
                    Err(now) => part = now,
                }
            }
        }
        None
    }

    /// Opens a free slot for the next ticket and claims its first parts.
    fn open_slot(&self, max: usize) -> Result<ClaimedParts, ClaimError> {
        for (index, slot) in self.slots.slots().iter().enumerate() {
            if slot.claims.load(Ordering::Relaxed) != UNOPENED
                || slot.claims.compare_exchange(UNOPENED, OPENING, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue;
            }
            return match self.draw() {
                Ok(ticket) => {
                    slot.ticket.store(ticket, Ordering::Relaxed);
                    let count = max.min(self.shape.parts);
                    slot.claims.store(count, Ordering::Release);
                    Ok(ClaimedParts { slot: index, ticket, part: 0, count })
                }
                Err(error) => {
                    slot.claims.store(UNOPENED, Ordering::Release);
                    // A worker that found no free slot while this slot was being opened may have
                    // gone to sleep.
                    self.wake_all();
                    Err(error)
                }
            };
        }
        // Even if every slot is taken, an ended run must be distinguished from a run that waits for
        // space.
        let cursor = self.cursor.load(Ordering::Acquire);
        Err(if self.is_over(cursor) { ClaimError::Ended } else { ClaimError::Full })
    }

    /// Takes the next ticket from the cursor.
    fn draw(&self) -> Result<usize, ClaimError> {
        let mut cursor = self.cursor.load(Ordering::Acquire);
        loop {
            if cursor & CLOSED != 0 {
                return Err(ClaimError::Closed);
            }
            if self.is_over(cursor) {
                return Err(ClaimError::Ended);
            }
            let next = self.cursor_shape.next_ticket(cursor);
            // Both orderings are needed for the same reasons as in `claim_in_order`.
            match self.cursor.compare_exchange_weak(cursor, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.tell_if_last(next);
                    return Ok(self.tickets_before(cursor));
                }
                Err(now) => cursor = now,
            }
        }
    }

    /// Returns the index of the finished slot with the lowest ticket, and whether that ticket
    /// failed.
    pub(super) fn arrived(&self) -> Option<(usize, bool)> {
        let newest = self.tickets_before(self.cursor.load(Ordering::Relaxed));
        let (ready, failed) = (state(0, Status::Ready), state(0, Status::Failed));
        let finished = self.slots.slots().iter().enumerate().filter_map(|(index, slot)| {
            let now = slot.state.load(Ordering::Acquire);
            // The distance of the ticket from `newest` is compared, since it stays correct when
            // tickets wrap. The shift drops the bits that the cursor uses for flags. The number is
            // signed because tickets may have been drawn since `newest` was read.
            let age = (newest.wrapping_sub(slot.ticket.load(Ordering::Relaxed)) << FLAG_BITS) as isize;
            (now == ready || now == failed).then_some((age, index, now == failed))
        });
        finished.max().map(|(_, index, failed)| (index, failed))
    }

    /// Returns whether a claim could succeed now, of a new ticket or of a ticket that is already
    /// open.
    pub(super) fn has_room(&self) -> bool {
        let over = self.is_over(self.cursor.load(Ordering::Relaxed));
        self.slots.slots().iter().any(|slot| match slot.claims.load(Ordering::Relaxed) {
            UNOPENED => !over,
            part => part < self.shape.parts,
        })
    }

    /// Whether a ticket that was begun has parts left to claim.
    pub(super) fn has_parts(&self) -> bool {
        self.slots.slots().iter().any(|slot| slot.claims.load(Ordering::Relaxed) < self.shape.parts)
    }

    /// Whether every slot is leased, so that nothing more can arrive until one is released.
    pub(super) fn all_leased(&self) -> bool {
        let leased = state(0, Status::Leased);
        self.slots.slots().iter().all(|slot| slot.state.load(Ordering::Relaxed) == leased)
    }
}
