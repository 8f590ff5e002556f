//! The place of a ticket: its slot, and the values of the slot's state word while the slot has the
//! ticket.

use super::slot::{Status, state};
use super::{Ring, Slot};
use crate::storage::Storage;
use crate::sync::Ordering;
use crate::wait::Wait;

/// A ticket, its slot and its state. Advancing this to the next ticket is faster than deriving
/// these values from a position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slot: usize,
    pub(super) ticket: usize,
    /// The slot's state once the ticket is finished.
    pub(super) ready: usize,
}

impl Place {
    /// Returns the place of the ticket that a position belongs to.
    #[inline]
    pub(super) fn at<T, B: Storage<Slot = Slot<T>>, W: Wait>(ring: &Ring<B, W>, position: usize) -> Self {
        let ready = state(ring.shape.lap(position), Status::Ready);
        Self { slot: ring.shape.slot(position), ticket: ring.tickets_before(position), ready }
    }

    /// Moves to the next ticket.
    #[inline(always)]
    pub(super) fn advance<T, B: Storage<Slot = Slot<T>>, W: Wait>(&mut self, ring: &Ring<B, W>) {
        (self.slot, self.ticket) = (self.slot + 1, self.ticket.wrapping_add(1));
        if self.slot >= ring.shape.depth {
            let lap = ring.shape.lap_near(self.lap(), 1);
            (self.slot, self.ready) = (0, state(lap, Status::Ready));
            // In the lap in which the run began, the ticket number must be computed from the
            // position, because ticket numbers wrap with the lap.
            if lap == ring.shape.lap(ring.start.load(Ordering::Relaxed)) {
                self.ticket = ring.tickets_before(self.position(ring));
            }
        }
    }

    /// Returns the position of the first part.
    #[inline]
    pub(super) fn position<B, W>(self, ring: &Ring<B, W>) -> usize {
        ring.shape.at(self.lap(), self.slot)
    }

    /// Returns the lap, which a state word holds above its status.
    #[inline]
    pub(super) fn lap(self) -> usize {
        self.ready >> 2
    }

    /// Returns the slot's state while the ticket can be claimed.
    #[inline]
    pub(super) fn free(self) -> usize {
        self.ready ^ Status::Ready as usize ^ Status::Free as usize
    }

    /// Returns the slot's state if a claim of the ticket failed.
    #[inline]
    pub(super) fn failed(self) -> usize {
        self.ready ^ Status::Ready as usize ^ Status::Failed as usize
    }
}
