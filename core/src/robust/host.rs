//! The host's side: assign slots, wait for them, look at them, and recover parts that an ended
//! worker had claimed.

use core::ops::Deref;

use super::word::{
    CLAIMED, DONE, FAILED, FREE, IDLE, Owner, POSITION, owned, owner_of, position_of, status_of, unowned,
};
use super::{ANY, AWAITED, HINT, Ring, Word};
use crate::sync::{Ordering, fence};
use crate::wait::{Deadline, Wait};

/// The state in which the host finds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotStatus {
    /// Some [parts](super::Shape::parts) of the slot are not finished.
    Pending,
    /// All parts were published.
    Ready,
    /// All parts are finished, and some of them failed.
    Failed,
    /// A word has a value that no side writes there for this ticket, so a worker has overwritten
    /// the ring's memory. (This is also the result if parts were [withdrawn](Ring::withdraw), or if
    /// the slot is assigned to another ticket.)
    Corrupt,
}

/// The action for a part whose worker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Another worker can claim the part.
    Redo,
    /// The part counts as failed.
    Fail,
}

impl<M: Deref<Target = [Word]>, W: Wait> Ring<M, W> {
    /// Assigns a slot to a ticket, so that workers can claim its parts.
    /// [`call_workers`](Self::call_workers) then wakes sleeping workers.
    ///
    /// The slot must be new, taken or withdrawn, and the ticket must be new. With
    /// [`Delivery::InOrder`](crate::ordered::Delivery::InOrder) ticket `t` belongs to slot
    /// `t mod depth`, and the host takes tickets in order: it assigns `t + depth` only after it has
    /// taken all tickets up to `t`.
    ///
    /// # Panics
    ///
    /// If there is no such slot, or the ticket is 2⁴⁸ or more.
    #[inline]
    pub fn assign(&self, slot: usize, ticket: u64) {
        assert!(ticket <= POSITION, "the ring has run out of tickets");
        for word in self.parts(slot) {
            word.store(unowned(ticket, FREE), Ordering::Release);
        }
    }

    /// Wakes workers that wait for something to claim.
    #[inline]
    pub fn call_workers(&self) {
        self.space.notify(|| true);
    }

    /// Returns the state of a slot that was assigned to a ticket. If all parts are finished, no
    /// worker writes to the slot any more.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    #[inline]
    pub fn slot_status(&self, slot: usize, ticket: u64) -> SlotStatus {
        let (mut pending, mut failed) = (false, false);
        for word in self.parts(slot) {
            let word = word.load(Ordering::Acquire);
            match status_of(word) {
                FREE if word != unowned(ticket, FREE) => return SlotStatus::Corrupt,
                _ if position_of(word) != ticket => return SlotStatus::Corrupt,
                FREE | CLAIMED => pending = true,
                DONE => {}
                FAILED => failed = true,
                _ => return SlotStatus::Corrupt,
            }
        }
        match (pending, failed) {
            (true, _) => SlotStatus::Pending,
            (false, true) => SlotStatus::Failed,
            (false, false) => SlotStatus::Ready,
        }
    }

    /// Returns the parts of a slot that failed, with the number of the worker that had each of
    /// them.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn failed(&self, slot: usize, ticket: u64) -> impl Iterator<Item = (usize, u16)> {
        self.owned_parts(slot, ticket, FAILED)
    }

    /// Returns the parts of a slot that are claimed and not finished, with the number of the worker
    /// that has each of them.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn claimed(&self, slot: usize, ticket: u64) -> impl Iterator<Item = (usize, u16)> {
        self.owned_parts(slot, ticket, CLAIMED)
    }

    fn owned_parts(&self, slot: usize, ticket: u64, status: u64) -> impl Iterator<Item = (usize, u16)> {
        let words = self.parts(slot).iter().map(|word| word.load(Ordering::Relaxed)).enumerate();
        let found = words.filter(move |&(_, word)| position_of(word) == ticket && status_of(word) == status);
        found.map(|(part, word)| (part, owner_of(word)))
    }

    /// Returns whether [`slot_status`](Self::slot_status) would return something other than
    /// [`SlotStatus::Pending`].
    #[inline]
    pub(super) fn is_finished(&self, slot: usize, ticket: u64) -> bool {
        self.slot_status(slot, ticket) != SlotStatus::Pending
    }

    /// Waits until `ready` returns true. Returns `false` if the deadline passed first.
    ///
    /// `ready` is called again whenever the last part of ticket `awaited` was published or failed
    /// (with `None`: of any ticket), after a [recovery](Self::recover), and when the ring is
    /// closed. Only one thread may wait at a time.
    pub fn wait(&self, awaited: Option<u64>, deadline: &impl Deadline, ready: impl FnMut() -> bool) -> bool {
        self.words[AWAITED].store(awaited.unwrap_or(ANY), Ordering::Relaxed);
        self.items.wait_until(deadline, ready)
    }

    /// Takes back the parts of a slot that no worker has claimed, and returns how many of the other
    /// parts are not finished.
    ///
    /// When the result is 0, no worker writes to the slot any more, and it can be assigned to
    /// another ticket after [`start_at`](Self::start_at). Until then call this again, since a
    /// recovery may have freed parts.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn withdraw(&self, slot: usize, ticket: u64) -> usize {
        let (free, idle) = (unowned(ticket, FREE), unowned(ticket, IDLE));
        for word in self.parts(slot) {
            let _ = word.compare_exchange(free, idle, Ordering::Relaxed, Ordering::Relaxed);
        }
        // For a publisher that finishes another part of the slot, there are two cases: it sees that
        // these parts are withdrawn and wakes the host, or the loop below sees its part as
        // finished.
        fence(Ordering::SeqCst);
        let unfinished = |word: &&Word| {
            let now = word.load(Ordering::Acquire);
            now == free || position_of(now) == ticket && status_of(now) == CLAIMED
        };
        self.parts(slot).iter().filter(unfinished).count()
    }

    /// Sets the ticket from which workers look for work: the first one of a run.
    ///
    /// This must be called before that ticket is assigned if earlier tickets were withdrawn or left
    /// out, since workers stop at such tickets. It may be called only when all parts of earlier
    /// tickets are finished or withdrawn.
    ///
    /// # Panics
    ///
    /// If the ticket is 2⁴⁸ or more.
    pub fn start_at(&self, ticket: u64) {
        assert!(ticket <= POSITION, "the ring has run out of tickets");
        self.set_hint(|_| ticket);
    }

    /// Changes the hint (the ticket from which workers look for free parts) and increments its
    /// generation number, so that no worker that read the hint before can move it.
    fn set_hint(&self, change: impl Fn(u64) -> u64) {
        let mut hint = self.words[HINT].load(Ordering::Relaxed);
        loop {
            let generation = (hint & !POSITION).wrapping_add(POSITION + 1);
            let new = generation | change(hint & POSITION);
            match self.words[HINT].compare_exchange(hint, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => hint = now,
            }
        }
    }

    /// Makes workers look for free parts of all assigned tickets again, and wakes both sides. This
    /// has an effect only if a process has overwritten the ring's words by mistake.
    ///
    /// `assigned` returns every slot that is assigned to a ticket, with that ticket. Any thread may
    /// call this at any time, except during [`start_at`](Self::start_at).
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn remind(&self, assigned: impl IntoIterator<Item = (usize, u64)>) {
        let is_free = |&(slot, ticket): &(usize, u64)| {
            self.parts(slot).iter().any(|word| word.load(Ordering::Relaxed) == unowned(ticket, FREE))
        };
        let free = assigned.into_iter().filter(is_free).map(|(_, ticket)| ticket);
        drop(Freed { ring: self, lowest: free.min() });
    }

    /// Frees or fails the parts that an ended worker had claimed, and wakes both sides. Returns the
    /// number of these parts.
    ///
    /// The worker must have ended: none of its instructions may be executed from now on, and no
    /// other worker may use its number before this returns. `assigned` returns every slot that is
    /// assigned to a ticket, with that ticket. `decide` is called with a ticket and a part, and
    /// returns what to do with that part. Any thread may call this at any time except during
    /// [`start_at`](Self::start_at), since it changes only the words of the ended worker, and the
    /// hint.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn recover(
        &self,
        owner: Owner,
        assigned: impl IntoIterator<Item = (usize, u64)>,
        mut decide: impl FnMut(u64, usize) -> Recovery,
    ) -> usize {
        let (mut left, mut freed) = (0, Freed { ring: self, lowest: None });
        for (slot, ticket) in assigned {
            for (part, word) in self.parts(slot).iter().enumerate() {
                if word.load(Ordering::Relaxed) != owned(ticket, owner, CLAIMED) {
                    continue;
                }
                left += 1;
                let new = match decide(ticket, part) {
                    Recovery::Redo => {
                        freed.lowest = Some(freed.lowest.unwrap_or(ticket).min(ticket));
                        unowned(ticket, FREE)
                    }
                    Recovery::Fail => owned(ticket, owner, FAILED),
                };
                word.store(new, Ordering::Release);
            }
        }
        left
    }
}

/// A guard that sets the hint (the ticket from which workers look for free parts) back and wakes
/// both sides at the end of a recovery, also if a closure of the caller panics.
struct Freed<'r, M: Deref<Target = [Word]>, W: Wait> {
    ring: &'r Ring<M, W>,
    /// The lowest ticket with a part that was freed.
    lowest: Option<u64>,
}

impl<M: Deref<Target = [Word]>, W: Wait> Drop for Freed<'_, M, W> {
    fn drop(&mut self) {
        if let Some(lowest) = self.lowest {
            self.ring.set_hint(|hint| hint.min(lowest));
        }
        self.ring.space.notify(|| true);
        self.ring.items.notify(|| true);
    }
}
