//! The memory of a loader's batches, which moves between the slots of the rings and the user.
//!
//! The memory of each batch is a cell. A slot of a ring refers to a cell, and the thread that has
//! the slot writes the batch into that cell. When the consumer takes the batch for the user, it
//! puts a free cell into the slot and releases the slot at once. So a batch can be kept for any
//! time: it has a cell of its own, and the ring continues with the other cells.
//!
//! The pool contains the spare cells, which are those in no slot. Each spare cell is free or lent
//! to a batch, as its [loan](slotline_core::loan) says. Only the consumer takes cells from the
//! pool. A batch that is dropped, on any thread, gives its cell back with release ordering, and the
//! consumer takes the cell with acquire ordering. Therefore no thread writes into a cell before all
//! reads of the previous batch in it, and no cell is used twice at a time. A batch may outlive its
//! loader, and then keeps its cell.
//!
//! There are as many spare cells as the number of batches that the user may
//! [hold](crate::loader::Builder::hold) while it asks for another one. If it keeps more, the pool
//! [grows](CellPool::grow) by one cell at a time, and uses these cells like the others.

use std::fmt;
use std::sync::Arc;

use slotline_core::wait::Wait;

use crate::BoxError;
use crate::loader::collate::cell::{Cell, CellOwner, Lease, ReleaseHooks};
use crate::loader::collate::on_held::OnHeld;
use crate::loader::collate::poison::{AddressSanitizer, Poison};
use crate::loader::collate::storage::Storage;
use crate::loader::collate::tag::Tag;
use crate::loader::error::guard::dispose;
use crate::loader::error::warning::Warning;
use crate::wait::{Until, Waiter};

/// The least number of spare cells that a search checks before the pool grows. Without such a
/// limit, a caller that collects thousands of batches would have all of them checked for each
/// further one. With it, some free cells may be missed.
const SCAN: usize = 64;

/// Makes the memory of one more batch. Returns its size in bytes, and possibly a warning.
pub(crate) type Make<P> = Box<dyn FnMut() -> Result<(P, usize, Option<Warning>), BoxError> + Send>;

/// Makes additional memory for a loader.
pub(crate) struct ExtraMemory<P> {
    pub(crate) make: Make<P>,
    /// The size in bytes of the largest additional batch so far, and at least the size that is
    /// requested for one.
    pub(crate) bytes: usize,
}

impl<P> Drop for ExtraMemory<P> {
    fn drop(&mut self) {
        // A value that the user's closure captures may panic in its `drop`.
        dispose(std::mem::replace(&mut self.make, Box::new(|| Err("no more memory can be made".into()))));
    }
}

impl<P> fmt::Debug for ExtraMemory<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtraMemory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The spare cells of a loader.
pub(crate) struct CellPool<P> {
    spare: Vec<CellOwner<P>>,
    /// The index where the search for a free cell begins: the index of the cell that was found
    /// last. If its batch was dropped, its cell is used again first, so a loop that keeps one batch
    /// at a time does not touch the memory of the others, nor fill the caches with it. With
    /// AddressSanitizer it is the next index, so that all cells are used in turn and the memory of
    /// a dropped batch stays poisoned for as long as possible.
    next: usize,
    /// The number of batches that the user may hold in the initial cells while it asks for another
    /// one, and the number of initial cells.
    hold: usize,
    cells: usize,
    single: bool,
    more: ExtraMemory<P>,
    /// The number of spare cells that a search checks (at least `hold + 1`).
    scan_limit: usize,
    /// The number of further searches that check only `scan_limit` cells. Set when a search of all
    /// cells found none.
    partial_scans_left: usize,
    /// Whether the last search checked only `scan_limit` cells and found none.
    was_partial: bool,
    /// The waiter on which the consumer waits for a free cell.
    released: Arc<Waiter>,
    waits: bool,
    sanitizer: Option<AddressSanitizer>,
}

impl<P> CellPool<P> {
    /// Makes a cell for each payload. The first `placed` cells are for the slots of rings, and are
    /// returned with the pool. The others are spare, and allow the user to hold `hold` batches
    /// while it asks for another one.
    pub(crate) fn new(
        payloads: Vec<P>,
        (placed, hold): (usize, usize),
        single: bool,
        more: ExtraMemory<P>,
        on_held: OnHeld,
        released: Waiter,
    ) -> (Self, Vec<CellOwner<P>>)
    where
        P: Storage,
    {
        let (cells, spare) = (payloads.len(), payloads.len() - placed);
        let (released, waits) = (Arc::new(released), on_held == OnHeld::Wait);
        let scan_limit = if on_held == OnHeld::Grow { SCAN } else { usize::MAX };
        let (next, spare, sanitizer) = (0, Vec::with_capacity(spare), AddressSanitizer::find());
        let mut cell_pool = Self {
            spare,
            next,
            hold,
            cells,
            single,
            more,
            scan_limit,
            partial_scans_left: 0,
            was_partial: false,
            released,
            waits,
            sanitizer,
        };
        let mut payloads = payloads.into_iter();
        let slot_cells = payloads.by_ref().take(placed).map(|payload| cell_pool.cell(payload, false)).collect();
        for payload in payloads {
            cell_pool.spare.push(cell_pool.cell(payload, true));
        }
        (cell_pool, slot_cells)
    }

    fn cell(&self, payload: P, free: bool) -> CellOwner<P>
    where
        P: Storage,
    {
        let released = self.waits.then(|| self.released.clone());
        let poison = self.sanitizer.zip(payload.region()).and_then(|(by, region)| Poison::of(region, by));
        let hooks = (released.is_some() || poison.is_some()).then_some(ReleaseHooks { poison, released });
        CellOwner::new(payload, free, self.single, hooks)
    }

    /// The number of batches that fit into the initial memory: those in rings, and those that the
    /// user may hold.
    pub(crate) fn depth(&self) -> usize {
        self.cells
    }

    /// The number of batches that the user can hold in the initial memory while it asks for another
    /// one.
    pub(crate) fn hold(&self) -> usize {
        self.hold
    }

    /// Takes a free spare cell, and returns its index in the pool.
    #[inline(always)]
    pub(crate) fn find(&mut self) -> Option<usize> {
        let index = self.next;
        if self.spare.get(index).is_some_and(|cell| cell.take()) {
            self.next = self.after(index);
            return Some(index);
        }
        self.search()
    }

    #[cold]
    #[inline(never)]
    fn search(&mut self) -> Option<usize> {
        let count = self.spare.len();
        // If no more than `hold` batches are kept, one of the first `hold + 1` cells is free.
        let mut scanned = count.min(self.scan_limit.max(self.hold + 1));
        let free = |&index: &usize| self.spare[index].take();
        let mut index = (0..scanned).map(|i| (self.next + i) % count).find(free);
        self.was_partial = index.is_none() && scanned < count;
        if self.was_partial && self.partial_scans_left == 0 {
            index = (scanned..count).map(|i| (self.next + i) % count).find(free);
            (scanned, self.was_partial) = (count, false);
            // Repeat a search of all cells only after `count / SCAN` partial ones: a loop that
            // collects batches would otherwise have all of them checked for each further one.
            self.partial_scans_left = if index.is_none() { count / SCAN } else { 0 };
        } else if self.was_partial {
            self.partial_scans_left -= 1;
        }
        self.next = index.map_or((self.next + scanned) % count.max(1), |index| self.after(index));
        index
    }

    /// Returns the index where the next search begins, after one that found the cell at `index`.
    #[inline(always)]
    fn after(&self, index: usize) -> usize {
        if self.sanitizer.is_some() { (index + 1) % self.spare.len() } else { index }
    }

    /// Takes a free spare cell.
    #[inline(always)]
    pub(crate) fn find_cell(&mut self) -> Option<&CellOwner<P>> {
        let index = self.find()?;
        Some(&self.spare[index])
    }

    /// Puts a free cell into a slot, and returns a lease on the slot's previous cell; `None` if no
    /// cell is free.
    #[inline]
    pub(crate) fn exchange(&mut self, placed: &mut CellOwner<P>) -> Option<Lease<P>> {
        let index = self.find()?;
        Some(self.exchange_with(index, placed))
    }

    /// Puts the cell that was [found](Self::find) at `index` into a slot, and returns a lease on
    /// the slot's previous cell.
    #[inline(always)]
    pub(crate) fn exchange_with(&mut self, index: usize, placed: &mut CellOwner<P>) -> Lease<P> {
        std::mem::swap(&mut self.spare[index], placed);
        self.spare[index].lend()
    }

    /// Makes a lease on a cell that stays in its slot. The slot must be [refilled](Self::refill)
    /// before it is released.
    pub(crate) fn share(placed: &CellOwner<P>) -> Lease<P> {
        placed.lend()
    }

    /// Makes a slot whose cell was [shared](Self::share) refer to a free cell. Returns `false` if
    /// there is none.
    pub(crate) fn refill(&mut self, placed: &mut CellOwner<P>) -> bool {
        // If the batch in the slot was dropped, its cell is free again.
        if placed.take() {
            return true;
        }
        let index = self.find();
        index.inspect(|&index| std::mem::swap(&mut self.spare[index], placed)).is_some()
    }

    /// Makes the next search check all spare cells. Returns `false` if the last search already did
    /// so.
    pub(crate) fn search_all(&mut self) -> bool {
        self.partial_scans_left = 0;
        std::mem::take(&mut self.was_partial)
    }

    /// The bytes that one more cell takes.
    pub(crate) fn growth(&self) -> usize {
        self.more.bytes + Cell::<P>::SIZE
    }

    /// Makes one more cell, which is free, and returns its size in bytes. Returns `None` if that is
    /// more than `most`.
    pub(crate) fn grow(&mut self, most: usize) -> Result<Option<(usize, Option<Warning>)>, BoxError>
    where
        P: Storage,
    {
        let (payload, bytes, warning) = (self.more.make)()?;
        self.more.bytes = self.more.bytes.max(bytes);
        let cell = self.cell(payload, true);
        let bytes = bytes.saturating_add(Cell::<P>::SIZE);
        if bytes > most {
            return Ok(None);
        }
        self.next = self.spare.len();
        self.spare.push(cell);
        Ok(Some((bytes, warning)))
    }

    /// Waits until a cell is free, or until `or` returns true after a
    /// [notification](Self::released). Returns `false` if the deadline passed first.
    pub(crate) fn wait(&self, deadline: &Until, or: impl Fn() -> bool) -> bool {
        self.released.wait_until(deadline, || self.spare.iter().any(|cell| cell.is_free()) || or())
    }

    /// The waiter on which the consumer waits for a free cell.
    pub(crate) fn released(&self) -> &Arc<Waiter> {
        &self.released
    }

    /// Returns the descriptions of the batches that are kept in spare cells.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Tag> {
        self.spare.iter().filter(|cell| !cell.is_free()).map(|cell| cell.tag())
    }
}
