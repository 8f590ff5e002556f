//! One slot: a value that is made once and written again and again, and the words that say who may touch it.

use core::fmt;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicUsize, Cell, Ordering, const_unless_modelled};

/// What a slot's state word says, beside its lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Status {
    /// Parts of this lap may be claimed; whoever holds them writes.
    Free = 0,
    /// All parts are published; the consumer's until released.
    Ready = 1,
    /// As `Ready`, but some part's claim was dropped unpublished.
    Failed = 2,
    /// Arrival mode only: the consumer has taken it.
    Leased = 3,
}

/// A state word: two bits of status below the lap.
#[inline]
pub(super) const fn state(lap: usize, status: Status) -> usize {
    (lap << 2) | status as usize
}

/// Arrival mode, `Slot::claims`: no ticket yet, anyone may bring one.
pub(super) const UNOPENED: usize = usize::MAX;
/// Arrival mode, `Slot::claims`: somebody is about to bring a ticket.
pub(super) const OPENING: usize = usize::MAX - 1;

/// One slot of an [ordered ring](super::Ring): the value, and its protocol words on the same cache line.
///
/// A slot can be used by one ring after another. Each ring starts it anew and keeps only its value.
pub struct Slot<T> {
    /// `state(lap, status)`. Written by the last part of a lap, and by the release.
    pub(super) state: AtomicUsize,
    /// Parts of this lap that were finished, and in the upper half of the word those of them that failed.
    /// 0 between laps.
    pub(super) finished: AtomicUsize,
    /// Arrival mode: the next part to claim in `0..parts`, `parts` if none is left, `UNOPENED` or `OPENING`.
    pub(super) claims: AtomicUsize,
    /// Arrival mode: the ticket. Written by the opener, who has the slot to himself; read by holders of claims and
    /// leases.
    pub(super) ticket: AtomicUsize,
    pub(super) value: Cell<T>,
    /// Aligns the slot as `CachePadded` aligns what it holds.
    _padding: CachePadded<()>,
}

// SAFETY: the slot gives out its value through claims and leases only, and the ring's protocol (see `super`) lets
// either one side reach it mutably or, where `T: Sync`, several claims reach it shared. Both move `T` between threads.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    const_unless_modelled! {
        /// A slot with its value, which claims and leases will reuse.
        pub fn new(value: T) -> Self {
            Self {
                state: AtomicUsize::new(state(0, Status::Free)),
                finished: AtomicUsize::new(0),
                claims: AtomicUsize::new(UNOPENED),
                ticket: AtomicUsize::new(0),
                value: Cell::new(value),
                _padding: CachePadded::new(()),
            }
        }
    }

    const_unless_modelled! {
        /// Makes the slot free, whatever another ring left in it.
        pub(super) fn renew(&mut self) {
            self.state = AtomicUsize::new(state(0, Status::Free));
            self.finished = AtomicUsize::new(0);
            self.claims = AtomicUsize::new(UNOPENED);
            self.ticket = AtomicUsize::new(0);
        }
    }

    const HALF: u32 = usize::BITS / 2;

    /// Counts `count` more parts as finished; once all `parts` are, whether any of them failed.
    #[inline]
    pub(super) fn finish(&self, count: usize, parts: usize, failed: bool) -> Option<bool> {
        if count == parts {
            return Some(failed);
        }
        let add = count | if failed { count << Self::HALF } else { 0 };
        let before = self.finished.fetch_add(add, Ordering::AcqRel);
        let after = before.wrapping_add(add);
        let low = (1 << Self::HALF) - 1;
        (after & low == parts).then(|| {
            self.finished.store(0, Ordering::Relaxed);
            after >> Self::HALF != 0
        })
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Ordering::Relaxed);
        let status = ["free", "ready", "failed", "leased"][state & 3];
        f.debug_struct("Slot").field("lap", &(state >> 2)).field("status", &status).finish_non_exhaustive()
    }
}
