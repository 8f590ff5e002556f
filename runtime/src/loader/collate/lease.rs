//! The hold on a finished batch.

use std::fmt;
use std::sync::Arc;

use slotline_core::ordered;

use crate::loader::backend::shared::worker::Ring;
use crate::loader::collate::slab::Taken;
use crate::loader::collate::slot_state::SlotState;

/// The hold on a finished batch's memory, wherever it is; dropped, it gives the memory back.
#[doc(hidden)]
pub enum Lease<P> {
    /// A slot of the ring that all workers share.
    Slot(ordered::Lease<Arc<Ring<P>>>),
    /// Memory taken out of a worker's own ring.
    Taken(Taken<P>),
}

impl<P> Lease<P> {
    /// What the user's samples made.
    #[inline]
    pub(crate) fn payload(&self) -> &P {
        match self {
            Self::Slot(lease) => &lease.payload,
            Self::Taken(taken) => &taken.payload,
        }
    }

    /// That, and what went wrong.
    pub(crate) fn work(&self) -> &SlotState<P> {
        match self {
            Self::Slot(lease) => lease,
            Self::Taken(taken) => taken,
        }
    }
}

impl<P> fmt::Debug for Lease<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}
