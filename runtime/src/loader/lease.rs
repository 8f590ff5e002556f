//! The hold on a finished batch.

use std::fmt;
use std::sync::Arc;

use slotline_core::ordered;

use super::lanes::Taken;
use super::ring::Ring;

/// The hold on a finished batch's memory, wherever it is; dropped, it gives the memory back.
#[doc(hidden)]
pub enum Lease<P> {
    /// A slot of the ring that all workers share, and the number of the batch.
    Slot(ordered::Lease<Arc<Ring<P>>>, usize),
    /// Memory taken out of a worker's own ring, likewise.
    Taken(Taken<P>, usize),
}

impl<P> Lease<P> {
    /// What the user's samples made.
    #[inline]
    pub(super) fn payload(&self) -> &P {
        match self {
            Self::Slot(lease, _) => &lease.payload,
            Self::Taken(taken, _) => &taken.payload,
        }
    }

    /// The number of the batch.
    #[inline]
    pub(super) fn task(&self) -> usize {
        match self {
            Self::Slot(_, task) | Self::Taken(_, task) => *task,
        }
    }
}

impl<P> fmt::Debug for Lease<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("task", &self.task()).finish_non_exhaustive()
    }
}
