//! The workers' side: claim parts, write their contents (which are stored outside the ring),
//! publish them.

use core::fmt;
use core::ops::{Deref, Range};

use super::word::{CLAIMED, DONE, FAILED, FREE, IDLE, Owner, POSITION, owned, position_of, status_of, unowned};
use super::{ANY, AWAITED, HINT, Ring, Word};
use crate::ordered::{ClaimError, Delivery};
use crate::sync::Ordering;
use crate::wait::{Deadline, Wait};

/// The parts of a slot that were claimed together.
#[derive(Clone, Copy, Debug)]
struct ClaimedParts {
    slot: usize,
    position: u64,
    part: usize,
    count: usize,
}

/// The result of trying to claim parts of a ticket.
enum Found {
    /// Some parts were claimed. The `bool` is true if no other part of the ticket is free or about
    /// to be assigned.
    Claimed(ClaimedParts, bool),
    /// All parts have owners, or the host has assigned the slot to this later ticket.
    Taken(u64),
    /// The host has not assigned this ticket yet.
    NotYet,
}

impl<M: Deref<Target = [Word]>, W: Wait> Ring<M, W> {
    /// Claims up to `max` parts of one slot for a worker, if any are free now.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] if no part is free, or [`ClaimError::Closed`].
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    #[inline]
    pub fn try_claim(&self, owner: Owner, max: usize) -> Result<Claim<'_, M, W>, ClaimError> {
        assert!(max > 0, "a claim needs at least one part");
        self.find(owner, max).map(|claimed| Claim { ring: self, owner, claimed })
    }

    /// Works like [`try_claim`](Self::try_claim), but waits until a part is free or the deadline
    /// has passed.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Full`] after the deadline, or [`ClaimError::Closed`].
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    pub fn claim(&self, owner: Owner, max: usize, deadline: &impl Deadline) -> Result<Claim<'_, M, W>, ClaimError> {
        assert!(max > 0, "a claim needs at least one part");
        let mut outcome = self.find(owner, max);
        if let Err(ClaimError::Full) = outcome {
            self.space.wait_until(deadline, || {
                // A `Wait` may call this closure once more after it returned `true`; the claim that
                // was made must not be lost.
                if let Err(ClaimError::Full) = outcome {
                    outcome = self.find(owner, max);
                }
                !matches!(outcome, Err(ClaimError::Full))
            });
        }
        outcome.map(|claimed| Claim { ring: self, owner, claimed })
    }

    #[inline]
    fn find(&self, owner: Owner, max: usize) -> Result<ClaimedParts, ClaimError> {
        if self.is_closed() {
            return Err(ClaimError::Closed);
        }
        let claimed = match self.delivery {
            Delivery::InOrder => self.find_in_order(owner, max),
            Delivery::Arrival => self.find_any(owner, max),
        };
        claimed.ok_or(ClaimError::Full)
    }

    #[inline]
    fn find_in_order(&self, owner: Owner, max: usize) -> Option<ClaimedParts> {
        let (hint, depth) = (self.hint(), self.shape.depth as u64);
        let mut position = hint & POSITION;
        loop {
            match self.claim_from(self.slot_of(position), position, owner, max) {
                Found::Claimed(claimed, all) => {
                    self.pass(hint, position + u64::from(all));
                    return Some(claimed);
                }
                // The host takes tickets in order. When the host assigns a slot, all tickets up to
                // the slot's previous ticket are done.
                Found::Taken(_) if position == POSITION => return None,
                Found::Taken(ticket) => position = (position + 1).max((ticket + 1).saturating_sub(depth)),
                Found::NotYet => {
                    self.pass(hint, position);
                    return None;
                }
            }
        }
    }

    /// Moves the hint (the ticket from which workers look for free parts) from `hint` on to `to`,
    /// unless another thread has changed it.
    #[inline]
    fn pass(&self, hint: u64, to: u64) {
        let new = hint & !POSITION | to.min(POSITION);
        if new != hint {
            let _ = self.words[HINT].compare_exchange(hint, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Claims up to `max` parts of a slot that is assigned to a ticket: the first free part, and
    /// the free parts right after it.
    #[inline]
    fn claim_from(&self, slot: usize, position: u64, owner: Owner, max: usize) -> Found {
        let (free, claimed) = (unowned(position, FREE), owned(position, owner, CLAIMED));
        let (mut part, mut count, mut earlier, mut latest) = (0, 0, false, position);
        for (at, word) in self.parts(slot).iter().enumerate() {
            let mut now = word.load(Ordering::Relaxed);
            if now == free {
                match word.compare_exchange(free, claimed, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        part = if count == 0 { at } else { part };
                        count += 1;
                        if count == max {
                            break;
                        }
                        continue;
                    }
                    Err(changed) => now = changed,
                }
            }
            if count > 0 {
                break;
            }
            earlier |= position_of(now) < position || status_of(now) == IDLE;
            latest = latest.max(position_of(now));
        }
        match (count, earlier) {
            (0, true) => Found::NotYet,
            (0, false) => Found::Taken(latest),
            _ => {
                let all = !earlier && part + count == self.shape.parts;
                Found::Claimed(ClaimedParts { slot, position, part, count }, all)
            }
        }
    }

    /// Claims parts of the lowest ticket that has free ones, in any slot.
    fn find_any(&self, owner: Owner, max: usize) -> Option<ClaimedParts> {
        loop {
            let free_in = |slot: usize| {
                let words = self.parts(slot).iter().map(|word| word.load(Ordering::Relaxed));
                words
                    .filter(|&word| word == unowned(position_of(word), FREE))
                    .map(|word| (position_of(word), slot))
                    .min()
            };
            let (position, slot) = (0..self.shape.depth).filter_map(free_in).min()?;
            if let Found::Claimed(claimed, _) = self.claim_from(slot, position, owner, max) {
                return Some(claimed);
            }
        }
    }

    fn finish(&self, owner: Owner, claimed: ClaimedParts, status: u64) {
        let ClaimedParts { slot, position, part, count } = claimed;
        for word in &self.parts(slot)[part..part + count] {
            word.store(owned(position, owner, status), Ordering::Release);
        }
        self.items.notify(|| {
            let awaited = self.words[AWAITED].load(Ordering::Relaxed);
            (awaited == position || awaited == ANY) && self.is_finished(slot, position)
        });
    }
}

/// The right to write some [parts](super::Shape::parts) of a slot, which its holder must then
/// publish.
///
/// If a claim is dropped without [`publish`](Self::publish), its parts count as failed. If its
/// process vanishes, they stay claimed until the host [recovers](Ring::recover) them.
#[must_use = "dropping a claim fails its parts"]
pub struct Claim<'r, M: Deref<Target = [Word]>, W: Wait> {
    ring: &'r Ring<M, W>,
    owner: Owner,
    claimed: ClaimedParts,
}

impl<M: Deref<Target = [Word]>, W: Wait> Claim<'_, M, W> {
    /// Returns the ticket that the host assigned to the slot.
    #[inline]
    pub fn ticket(&self) -> u64 {
        self.claimed.position
    }

    /// Returns the index of the slot, which is less than the ring's depth.
    #[inline]
    pub fn slot(&self) -> usize {
        self.claimed.slot
    }

    /// Returns the parts that were claimed, a range within `0..parts`.
    #[inline]
    pub fn parts(&self) -> Range<usize> {
        self.claimed.part..self.claimed.part + self.claimed.count
    }

    /// Publishes the parts, whose contents are final now.
    #[inline]
    pub fn publish(self) {
        let claim = core::mem::ManuallyDrop::new(self);
        claim.ring.finish(claim.owner, claim.claimed, DONE);
    }
}

impl<M: Deref<Target = [Word]>, W: Wait> Drop for Claim<'_, M, W> {
    fn drop(&mut self) {
        #[cfg(loom)]
        if crate::sync::vanish::has_vanished() {
            return;
        }
        self.ring.finish(self.owner, self.claimed, FAILED);
    }
}

impl<M: Deref<Target = [Word]>, W: Wait> fmt::Debug for Claim<'_, M, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("ticket", &self.ticket()).field("parts", &self.parts()).finish_non_exhaustive()
    }
}
