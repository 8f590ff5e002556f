//! The memory of a link loader's batches, which go round between the workers' rings and the user.
//!
//! The memory of each batch is a cell with a number. A number has one owner at a time: a slot of a worker's ring, the
//! user's batch, or nobody, which the cell's `free` flag says. The consumer, who alone looks for free cells, exchanges a
//! finished one in a ring for a free one; a batch that is dropped, on whatever thread, sets its cell's flag.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use slotline_core::wait::Wait;

use crate::loader::collate::slot_state::SlotState;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::wait::{Until, Waiter};

/// The cells of one loader.
pub(crate) struct Slab<P> {
    cells: Box<[Cell<P>]>,
    /// Where the consumer waits for a free cell.
    released: Waiter,
}

struct Cell<P> {
    free: AtomicBool,
    work: SlotState<P>,
}

impl<P> Slab<P> {
    /// Bytes of a cell, beside what its payload refers to.
    pub(crate) const CELL: usize = size_of::<Cell<P>>();

    /// A cell for each payload; the first `owned` ones are somebody's already.
    pub(crate) fn new(payloads: Vec<P>, owned: usize, released: Waiter) -> Self {
        let cell = |(i, payload)| Cell { free: AtomicBool::new(i >= owned), work: SlotState::new(payload) };
        Self { cells: payloads.into_iter().enumerate().map(cell).collect(), released }
    }

    /// How many cells there are.
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    /// What is in cell `i`, for its owner.
    #[inline]
    pub(crate) fn work(&self, i: usize) -> &SlotState<P> {
        &self.cells[i].work
    }

    /// Takes a free cell. For the consumer only: two at once could take the same one.
    pub(crate) fn take_free(&self) -> Option<usize> {
        let i = self.cells.iter().position(|cell| cell.free.load(Ordering::Acquire))?;
        self.cells[i].free.store(false, Ordering::Relaxed);
        Some(i)
    }

    /// Waits until there is a free cell, or `or` says so after a [`wake`](Self::wake); `false` if the deadline passed first.
    pub(crate) fn wait_for_free(&self, deadline: &Until, or: impl Fn() -> bool) -> bool {
        let free = || self.cells.iter().any(|cell| cell.free.load(Ordering::Acquire));
        self.released.wait_until(deadline, || free() || or())
    }

    /// Has who waits for a free cell look again.
    pub(crate) fn wake(&self) {
        self.released.notify(|| true);
    }

    /// Gives cell `i` back.
    pub(crate) fn release(&self, i: usize) {
        self.cells[i].free.store(true, Ordering::Release);
        self.released.notify(|| true);
    }
}

/// A cell that is the user's.
#[doc(hidden)]
pub struct Taken<P> {
    slab: Arc<Slab<P>>,
    cell: usize,
}

impl<P> Taken<P> {
    /// The hold on a cell that the caller owns.
    pub(crate) fn new(slab: Arc<Slab<P>>, cell: usize) -> Self {
        Self { slab, cell }
    }
}

impl<P> Deref for Taken<P> {
    type Target = SlotState<P>;

    #[inline]
    fn deref(&self) -> &SlotState<P> {
        self.slab.work(self.cell)
    }
}

impl<P> Drop for Taken<P> {
    fn drop(&mut self) {
        self.slab.release(self.cell);
    }
}

impl<P> fmt::Debug for Taken<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken").field("cell", &self.cell).finish_non_exhaustive()
    }
}
