//! A slot: a value that is created once and then reused, and the words that control access to it.

use core::fmt;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicUsize, Cell, Ordering, const_unless_modelled};

/// The status in a slot's state word, which also holds the lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Status {
    /// Parts of this lap may be claimed, and are written by the holders of the claims.
    Free = 0,
    /// All parts are published; the slot belongs to the consumer until it is released.
    Ready = 1,
    /// Like `Ready`, but the claim of at least one part was dropped unpublished.
    Failed = 2,
    /// Arrival mode only: the consumer has taken the slot.
    Leased = 3,
}

/// Returns a state word: two bits of status below the lap.
#[inline]
pub(super) const fn state(lap: usize, status: Status) -> usize {
    (lap << 2) | status as usize
}

/// The value of `Slot::claims` (arrival mode) while the slot has no ticket and any worker may open
/// it.
pub(super) const UNOPENED: usize = usize::MAX;
/// The value of `Slot::claims` (arrival mode) while a worker is opening the slot and draws a ticket
/// for it.
pub(super) const OPENING: usize = usize::MAX - 1;

/// One slot of an [ordered ring](super::Ring): the value, and its protocol words on the same cache
/// line.
///
/// A slot can be used by several rings in turn. Each ring resets it and keeps only its value.
pub struct Slot<T> {
    /// The result of the function `state(lap, status)`. Written when the last part of a lap is
    /// finished, and on release.
    pub(super) state: AtomicUsize,
    /// The number of parts of this lap that are finished and, in the upper half of the word, the
    /// number of those that failed. 0 between laps.
    pub(super) finished: AtomicUsize,
    /// Arrival mode: the next part to claim in `0..parts`, `parts` if none is left, `UNOPENED` or
    /// `OPENING`.
    pub(super) claims: AtomicUsize,
    /// Arrival mode: the ticket. Written by the worker that opens the slot, while it has exclusive
    /// access; read by the holders of claims and leases.
    pub(super) ticket: AtomicUsize,
    pub(super) value: Cell<T>,
    /// Gives the slot the alignment of `CachePadded`.
    _padding: CachePadded<()>,
}

// SAFETY: the slot's value is accessible only through claims and leases, and the ring's protocol
// (see `super`) gives either one side mutable access or, where `T: Sync`, several claims shared
// access. Both move `T` between threads, for which `T: Send` is required.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    const_unless_modelled! {
        /// Creates a slot with its value, which claims and leases will reuse.
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
        /// Resets the slot to free, regardless of the state that another ring left it in.
        pub(super) fn renew(&mut self) {
            self.state = AtomicUsize::new(state(0, Status::Free));
            self.finished = AtomicUsize::new(0);
            self.claims = AtomicUsize::new(UNOPENED);
            self.ticket = AtomicUsize::new(0);
        }
    }

    const HALF: u32 = usize::BITS / 2;

    /// Adds `count` to the number of finished parts. If all `parts` are finished then, returns
    /// whether any of them failed; otherwise returns `None`.
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
