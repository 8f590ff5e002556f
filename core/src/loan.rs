//! Lends a thing and gets it back, with stores and no read-modify-write.
//!
//! A thing has one owner, which lends it to one borrower at a time. A borrower [gives it back](Loan::give_back), on any
//! thread, and the owner may then [take](Loan::take) it and lend it again. If the owner goes first, the thing belongs to
//! the borrower. A reference count would do the same with two atomic read-modify-writes for each loan, which take longer
//! than all else that is done for a small batch. Here the owner, which goes only once, pays for both.
//!
//! # Why it is freed once
//!
//! The borrower (B), when it gives the thing back, and the owner (O), when it goes while the thing is lent, run
//!
//! ```text
//! B1  state = RETURNING                    O1  owner = LEAVING
//! B2  light fence                          O2  heavy fence
//! B3  if owner == PRESENT:                 O3  if state is FREE: free the thing
//!         state = FREE; done               O4  if state is LENT: swap owner for LEFT,
//! B4  swap owner for DONE,                         and free the thing if it was DONE
//!     and free the thing if it was LEFT    O5  if state is RETURNING: look again (O3),
//!                                                  and free the thing if owner is DONE
//! ```
//!
//! The fences pair, as those of [`crate::wait`] do.
//!
//! - If O3 reads `FREE`, B has ended at B3 and touches nothing any more, so O has the thing alone.
//! - If O4 reads `LENT`, B1 comes after O2, so B3 sees that O is leaving. Then B4 and O4 swap the same word, and the
//!   second one frees the thing, which the first one touches no more.
//! - At O5, B is between B1 and its end, which is a few instructions away. If B3 saw that O is present, `FREE` follows.
//!   Otherwise `DONE` follows at B4, where `owner` is not `LEFT`, so that B does not free the thing.
//!
//! What the borrower did with the thing happens before what the owner does: at B3 it releases `state`, which the owner
//! acquires; at B4 and O4 the swaps acquire and release. The same swaps order what the owner did before a borrower that
//! frees the thing.
//!
//! `tests/models/loan.rs` checks this.

use crate::sync::{AtomicU32, Ordering};

/// The owner has it, and uses it.
const TAKEN: u32 = 0;
/// The owner has it, and does not use it.
const FREE: u32 = 1;
/// The borrower has it.
const LENT: u32 = 2;
/// The borrower is giving it back.
const RETURNING: u32 = 3;

/// The owner exists.
const PRESENT: u32 = 0;
/// The owner is about to go.
const LEAVING: u32 = 1;
/// The owner has gone while the thing was lent.
const LEFT: u32 = 2;
/// The borrower has noticed that the owner goes, and has finished.
const DONE: u32 = 3;

/// Who has a thing: its owner, or a borrower. See the [module documentation](self).
#[derive(Debug)]
pub struct Loan {
    /// Written by the side that has the thing.
    state: AtomicU32,
    /// Written when the owner goes.
    owner: AtomicU32,
}

impl Loan {
    /// A thing that its owner has, which is free or taken.
    pub fn new(free: bool) -> Self {
        Self { state: AtomicU32::new(if free { FREE } else { TAKEN }), owner: AtomicU32::new(PRESENT) }
    }

    /// A thing that is lent and has no owner.
    pub fn without_owner() -> Self {
        Self { state: AtomicU32::new(LENT), owner: AtomicU32::new(LEFT) }
    }

    /// Whether the thing is free. For any thread; only the owner's answer lasts.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == FREE
    }

    /// Takes the thing if it is free. For the owner.
    #[inline]
    pub fn take(&self) -> bool {
        let free = self.is_free();
        if free {
            self.state.store(TAKEN, Ordering::Relaxed);
        }
        free
    }

    /// Lends the thing. For the owner, which has taken it.
    #[inline]
    pub fn lend(&self) {
        self.state.store(LENT, Ordering::Relaxed);
    }

    /// Makes a thing that was taken free again. For the owner.
    #[inline]
    pub fn put_back(&self) {
        self.state.store(FREE, Ordering::Relaxed);
    }

    /// Gives the thing back. For the borrower, which must not touch it afterwards, nor this, unless the result is `true`:
    /// then the owner has gone, and the borrower must free the thing.
    #[inline]
    pub fn give_back(&self, light_fence: impl FnOnce()) -> bool {
        self.state.store(RETURNING, Ordering::Relaxed);
        light_fence();
        if self.owner.load(Ordering::Relaxed) == PRESENT {
            self.state.store(FREE, Ordering::Release);
            return false;
        }
        self.give_back_late()
    }

    #[cold]
    fn give_back_late(&self) -> bool {
        self.owner.swap(DONE, Ordering::AcqRel) == LEFT
    }

    /// Ends the ownership. For the owner, which must free the thing if the result is `true`, and must otherwise not touch
    /// it afterwards, nor this: then the borrower frees it.
    ///
    /// `heavy_fence` returns whether it could be executed. `pause` is called while a borrower is giving the thing back,
    /// and returns whether to continue to wait for it. If either returns `false`, the thing may never be freed.
    pub fn abandon(&self, heavy_fence: impl FnOnce() -> bool, mut pause: impl FnMut() -> bool) -> bool {
        if matches!(self.state.load(Ordering::Acquire), TAKEN | FREE) {
            return true;
        }
        self.owner.store(LEAVING, Ordering::Relaxed);
        if !heavy_fence() {
            return false;
        }
        loop {
            match self.state.load(Ordering::Acquire) {
                LENT => return self.owner.swap(LEFT, Ordering::AcqRel) == DONE,
                RETURNING if self.owner.load(Ordering::Acquire) == DONE => return true,
                RETURNING if pause() => {}
                RETURNING => return false,
                _ => return true,
            }
        }
    }
}
