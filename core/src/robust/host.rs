//! The host's side: assign, wait, look, and recover what a worker left behind.

use core::ops::Deref;

use super::word::{CLAIMED, DONE, FAILED, FREE, IDLE, Owner, POSITION, owned, position_of, status_of, unowned};
use super::{ANY, AWAITED, HINT, Ring, Word};
use crate::sync::Ordering;
use crate::wait::{Deadline, Wait};

/// What the host finds in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Some parts are not finished.
    Pending,
    /// All parts were published.
    Ready,
    /// All parts are finished, and some of them failed.
    Failed,
    /// A word has a value that no worker writes there. A worker wrote over the ring's memory.
    Corrupt,
}

/// What becomes of a part whose owner has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Another worker can claim it.
    Redo,
    /// It counts as failed.
    Fail,
}

impl<M: Deref<Target = [Word]>, W: Wait> Ring<M, W> {
    /// Assigns a slot to a ticket, so that workers can claim its parts. [`call_workers`](Self::call_workers) then wakes
    /// those that sleep.
    ///
    /// The host must have taken what was in the slot, and must not have assigned the ticket before. With
    /// [`Delivery::InOrder`](crate::ordered::Delivery::InOrder) ticket `t` belongs to slot `t mod depth`.
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

    /// Looks at a slot that was assigned to a ticket. If all parts are finished, no worker writes to it any more.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    #[inline]
    pub fn look(&self, slot: usize, ticket: u64) -> Look {
        let (mut pending, mut failed) = (false, false);
        for word in self.parts(slot) {
            let word = word.load(Ordering::Acquire);
            match status_of(word) {
                _ if position_of(word) != ticket => return Look::Corrupt,
                FREE | CLAIMED => pending = true,
                DONE => {}
                FAILED => failed = true,
                _ => return Look::Corrupt,
            }
        }
        match (pending, failed) {
            (true, _) => Look::Pending,
            (false, true) => Look::Failed,
            (false, false) => Look::Ready,
        }
    }

    /// Whether [`look`](Self::look) would find something other than [`Look::Pending`].
    #[inline]
    pub(super) fn is_finished(&self, slot: usize, ticket: u64) -> bool {
        self.look(slot, ticket) != Look::Pending
    }

    /// Waits until `ready` returns true; `false` if the deadline passed first. `ready` is called again whenever the
    /// last part of ticket `awaited` was published (`None`: of any ticket), after a [recovery](Self::recover), and when
    /// the ring is closed.
    pub fn wait(&self, awaited: Option<u64>, deadline: &impl Deadline, ready: impl FnMut() -> bool) -> bool {
        self.words[AWAITED].store(awaited.unwrap_or(ANY), Ordering::Relaxed);
        self.items.wait_until(deadline, ready)
    }

    /// Takes back the parts of a slot that no worker has claimed, and returns how many others are not finished. They
    /// will be; then the slot can be assigned to another ticket.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn withdraw(&self, slot: usize, ticket: u64) -> usize {
        let (free, idle) = (unowned(ticket, FREE), unowned(ticket, IDLE));
        let claimed = |word: &&Word| {
            let outcome = word.compare_exchange(free, idle, Ordering::Relaxed, Ordering::Acquire);
            outcome.is_err_and(|now| position_of(now) == ticket && status_of(now) == CLAIMED)
        };
        self.parts(slot).iter().filter(claimed).count()
    }

    /// Sets the ticket from which workers look for work, which must be done before the first ticket of a run is
    /// assigned if tickets were left out before it.
    ///
    /// # Panics
    ///
    /// If the ticket is 2⁴⁸ or more.
    pub fn start_at(&self, ticket: u64) {
        assert!(ticket <= POSITION, "the ring has run out of tickets");
        self.set_hint(|_| ticket);
    }

    /// Changes the hint and its generation, so that no worker that read it before can move it.
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

    /// Frees or fails what a worker left claimed, and wakes both sides. Returns the number of its parts.
    ///
    /// The worker must have ended: none of its instructions may be executed from now on. `assigned` returns every slot
    /// that is assigned to a ticket, with that ticket; `decide` returns what becomes of a part, by ticket and part.
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
        let (mut left, mut lowest) = (0, None::<u64>);
        for (slot, ticket) in assigned {
            for (part, word) in self.parts(slot).iter().enumerate() {
                if word.load(Ordering::Relaxed) != owned(ticket, owner, CLAIMED) {
                    continue;
                }
                left += 1;
                let new = match decide(ticket, part) {
                    Recovery::Redo => {
                        lowest = Some(lowest.unwrap_or(ticket).min(ticket));
                        unowned(ticket, FREE)
                    }
                    Recovery::Fail => owned(ticket, owner, FAILED),
                };
                word.store(new, Ordering::Release);
            }
        }
        if let Some(lowest) = lowest {
            self.set_hint(|hint| hint.min(lowest));
        }
        self.space.notify(|| true);
        self.items.notify(|| true);
        left
    }
}
