//! [`Loan`]: which of two threads may use a value, decided with plain stores and no
//! read-modify-write.
//!
//! A value (such as the memory of a batch) has one owner, which lends it to one borrower at a time.
//! The borrower [gives it back](Loan::give_back), on any thread, and the owner may then
//! [take](Loan::take) it and lend it again. If the owner [goes away](Loan::abandon) first, the
//! value belongs to the borrower. A reference count would do the same with two atomic
//! read-modify-writes for each loan, which take longer than everything else that is done for a
//! small batch. Here the only read-modify-writes happen when the owner goes away, which it does
//! once.
//!
//! # Why the value is freed exactly once
//!
//! The borrower (B) runs the left column when it gives the value back. The owner (O) runs the right
//! one when it goes away.
//!
//! ```text
//! B1  state = RETURNING                    O1  owner = LEAVING
//! B2  light fence                          O2  heavy fence
//! B3  if owner == PRESENT:                 O3  if state is FREE: free the value
//!         state = FREE; done               O4  if state is LENT: swap owner for LEFT,
//! B4  swap owner for DONE,                         and free the value if it was DONE
//!     and free the value if it was LEFT    O5  if state is RETURNING: look again (O3),
//!                                                  and free the value if owner is DONE
//! ```
//!
//! The two fences work as a pair, like those of [`crate::wait`].
//!
//! - If O3 reads `FREE`, B has ended at B3 and touches nothing any more, so O alone has the value.
//! - If O4 reads `LENT`, B1 comes after O2, so B3 sees that O is leaving. Then B4 and O4 swap the
//!   same word, and the second one frees the value, which the first one no longer touches.
//! - At O5, B is between B1 and its end, which is a few instructions away. If B3 saw that O is
//!   present, `FREE` follows. Otherwise `DONE` follows at B4, where `owner` is not `LEFT`, so that
//!   B does not free the value.
//!
//! What the borrower did with the value happens before what the owner does: at B3 the borrower
//! stores `state` with release, and the owner loads it with acquire; the swaps at B4 and O4 acquire
//! and release. The same swaps order what the owner did before a borrower that frees the value.
//!
//! The model in `tests/models/loan.rs` checks this.

use crate::sync::{AtomicU32, Ordering};

/// State: the owner has the value and uses it.
const TAKEN: u32 = 0;
/// State: the owner has the value and does not use it.
const FREE: u32 = 1;
/// State: the borrower has the value.
const LENT: u32 = 2;
/// State: the borrower is giving the value back.
const RETURNING: u32 = 3;

/// Owner: the owner exists.
const PRESENT: u32 = 0;
/// Owner: the owner is going away.
const LEAVING: u32 = 1;
/// Owner: the owner went away while the value was lent.
const LEFT: u32 = 2;
/// Owner: the owner is going away, and the borrower has noticed that and has finished with the
/// value.
const DONE: u32 = 3;

/// The record of which side may use a value: its owner or a borrower. See the
/// [module documentation](self).
#[derive(Debug)]
pub struct Loan {
    /// `TAKEN`, `FREE`, `LENT` or `RETURNING`. Written by the side that has the value.
    state: AtomicU32,
    /// `PRESENT`, `LEAVING`, `LEFT` or `DONE`. Written when the owner goes away.
    owner: AtomicU32,
}

impl Loan {
    /// Creates the record of a value that its owner has: free if `free` is set, otherwise taken.
    pub fn new(free: bool) -> Self {
        Self { state: AtomicU32::new(if free { FREE } else { TAKEN }), owner: AtomicU32::new(PRESENT) }
    }

    /// Creates the record of a value that is lent and has no owner.
    pub fn without_owner() -> Self {
        Self { state: AtomicU32::new(LENT), owner: AtomicU32::new(LEFT) }
    }

    /// Returns whether the value is free. Any thread may ask, but for threads other than the
    /// owner's the answer may be out of date at once.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == FREE
    }

    /// Takes the value if it is free, and returns whether it was. Only the owner may call this.
    #[inline]
    pub fn take(&self) -> bool {
        let free = self.is_free();
        if free {
            self.state.store(TAKEN, Ordering::Relaxed);
        }
        free
    }

    /// Lends the value. Only the owner may call this, after it has taken the value.
    #[inline]
    pub fn lend(&self) {
        self.state.store(LENT, Ordering::Relaxed);
    }

    /// Makes a taken value free again. Only the owner may call this.
    #[inline]
    pub fn put_back(&self) {
        self.state.store(FREE, Ordering::Relaxed);
    }

    /// Gives the value back. Only the borrower may call this.
    ///
    /// If the result is `true`, the owner has gone away, and the borrower must free the value. If
    /// it is `false`, the borrower must not touch the value or this `Loan` afterwards.
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

    /// Ends the ownership. Only the owner may call this.
    ///
    /// If the result is `true`, the owner must free the value. If it is `false`, the borrower frees
    /// it, and the owner must not touch the value or this `Loan` afterwards.
    ///
    /// `heavy_fence` returns whether the fence could be executed. `pause` is called while a
    /// borrower is giving the value back, and returns whether to continue to wait for it. If either
    /// returns `false`, the value may never be freed.
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
