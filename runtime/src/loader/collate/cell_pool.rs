//! The memory of a loader's batches, which circulates between the rings and the user.
//!
//! The memory of each batch is a cell. A slot of a ring refers to a cell, and the thread that has the slot writes the
//! batch into that cell. The consumer, which takes the batch for the user, leaves a free cell in the slot and releases
//! the slot at once. So a batch can be kept for as long as it is wanted: it has its own cell, and the ring continues
//! with the others.
//!
//! The pool of cells holds the spare cells, which are those in no slot. Each of them is lent to a batch or is free, as its
//! [loan](slotline_core::loan) says. Only the consumer takes spare cells, and only free ones. A batch that is dropped, on
//! any thread, gives its cell back with release, and the consumer takes it with acquire. So no thread writes into a cell
//! before all reads of the last batch in it, and a cell is in use once at a time. A batch may outlive its loader, and
//! then keeps its cell.
//!
//! There are as many spare cells as batches that the user may [hold](crate::loader::Builder::hold) while it asks for
//! another one. If more are kept, the pool of cells [grows](CellPool::grow) by one cell at a time, which is used again like the
//! others.

use std::fmt;
use std::sync::Arc;

use slotline_core::wait::Wait;

use crate::BoxError;
use crate::loader::collate::cell::{Cell, CellOwner, Lease, Watch};
use crate::loader::collate::on_held::OnHeld;
use crate::loader::collate::poison::{AddressSanitizer, Poison};
use crate::loader::collate::storage::Storage;
use crate::loader::collate::tag::Tag;
use crate::loader::error::guard::dispose;
use crate::loader::error::warning::Warning;
use crate::wait::{Until, Waiter};

/// The minimum number of spare cells that are checked before the pool of cells grows. A caller that collects thousands of
/// batches would otherwise have all of them checked for each further one. So a few free cells may be missed.
const SCAN: usize = 64;

/// Makes the memory of one more batch. Returns its size in bytes, and possibly a warning.
pub(crate) type Make<P> = Box<dyn FnMut() -> Result<(P, usize, Option<Warning>), BoxError> + Send>;

/// Makes additional memory for a loader.
pub(crate) struct ExtraMemory<P> {
    pub(crate) make: Make<P>,
    /// The size of the largest additional batch so far, in bytes, and at least what one requests.
    pub(crate) bytes: usize,
}

impl<P> Drop for ExtraMemory<P> {
    fn drop(&mut self) {
        // A value that the user's closure captures may panic when it is dropped.
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
    /// Where the search for a free cell begins: at the last one that was found. If its batch was dropped, it is used again
    /// first, so that a loop that keeps one batch at a time leaves the memory of the others, and the caches, alone. With
    /// AddressSanitizer, at the one after it: the cells are used in turn, so that the memory of a dropped batch stays
    /// poisoned for as long as possible.
    next: usize,
    /// The number of batches that may be held in the initial cells while another one is asked for, and the number of
    /// initial cells.
    hold: usize,
    cells: usize,
    single: bool,
    more: ExtraMemory<P>,
    /// The number of spare cells that a search checks, or `hold + 1` if that is more.
    scan_limit: usize,
    /// After a search of all cells that found none: how many further searches check only `scan_limit` of them.
    partial_scans_left: usize,
    /// Whether the last search did.
    was_partial: bool,
    /// Where the consumer waits for a free cell.
    released: Arc<Waiter>,
    waits: bool,
    sanitizer: Option<AddressSanitizer>,
}

impl<P> CellPool<P> {
    /// Makes a cell for each payload. The first `placed` cells are for the slots of rings, and are returned with the
    /// pool. With the others, `hold` batches can be held while another one is asked for.
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
        let places = payloads.by_ref().take(placed).map(|payload| cell_pool.cell(payload, false)).collect();
        for payload in payloads {
            cell_pool.spare.push(cell_pool.cell(payload, true));
        }
        (cell_pool, places)
    }

    fn cell(&self, payload: P, free: bool) -> CellOwner<P>
    where
        P: Storage,
    {
        let released = self.waits.then(|| self.released.clone());
        let poison = self.sanitizer.zip(payload.region()).and_then(|(by, region)| Poison::of(region, by));
        let watch = (released.is_some() || poison.is_some()).then_some(Watch { poison, released });
        CellOwner::new(payload, free, self.single, watch)
    }

    /// The number of batches that the loader was built for: those in rings, and those that may be held.
    pub(crate) fn depth(&self) -> usize {
        self.cells
    }

    /// The number of batches that can be held in the loader's initial memory while another one is asked for.
    pub(crate) fn hold(&self) -> usize {
        self.hold
    }

    /// Takes a free spare cell, and returns its place.
    #[inline(always)]
    pub(crate) fn find(&mut self) -> Option<usize> {
        let place = self.next;
        if self.spare.get(place).is_some_and(|cell| cell.take()) {
            self.next = self.after(place);
            return Some(place);
        }
        self.search()
    }

    #[cold]
    #[inline(never)]
    fn search(&mut self) -> Option<usize> {
        let count = self.spare.len();
        // If no more than `hold` batches are kept, one of these is free.
        let mut scanned = count.min(self.scan_limit.max(self.hold + 1));
        let free = |&place: &usize| self.spare[place].take();
        let mut place = (0..scanned).map(|i| (self.next + i) % count).find(free);
        self.was_partial = place.is_none() && scanned < count;
        if self.was_partial && self.partial_scans_left == 0 {
            place = (scanned..count).map(|i| (self.next + i) % count).find(free);
            (scanned, self.was_partial) = (count, false);
            // Not each time, or a loop that collects batches would have all of them checked for each further one.
            self.partial_scans_left = if place.is_none() { count / SCAN } else { 0 };
        } else if self.was_partial {
            self.partial_scans_left -= 1;
        }
        self.next = place.map_or((self.next + scanned) % count.max(1), |place| self.after(place));
        place
    }

    /// Returns where the next search begins after one that found the cell at `place`.
    #[inline(always)]
    fn after(&self, place: usize) -> usize {
        if self.sanitizer.is_some() { (place + 1) % self.spare.len() } else { place }
    }

    /// Takes a free spare cell.
    #[inline(always)]
    pub(crate) fn find_cell(&mut self) -> Option<&CellOwner<P>> {
        let place = self.find()?;
        Some(&self.spare[place])
    }

    /// Replaces a cell in a slot with a free one, and returns a lease on it; `None` if there is no free one.
    #[inline]
    pub(crate) fn exchange(&mut self, placed: &mut CellOwner<P>) -> Option<Lease<P>> {
        let place = self.find()?;
        Some(self.exchange_with(place, placed))
    }

    /// Replaces a cell in a slot with the one that was [found](Self::find), and returns a lease on it.
    #[inline(always)]
    pub(crate) fn exchange_with(&mut self, place: usize, placed: &mut CellOwner<P>) -> Lease<P> {
        std::mem::swap(&mut self.spare[place], placed);
        self.spare[place].lend()
    }

    /// Makes a lease on a cell that stays in its slot. The slot must be [refilled](Self::refill) before it is released.
    pub(crate) fn share(placed: &CellOwner<P>) -> Lease<P> {
        placed.lend()
    }

    /// Makes a slot whose cell was [shared](Self::share) refer to a free cell, if there is one.
    pub(crate) fn refill(&mut self, placed: &mut CellOwner<P>) -> bool {
        // The slot's batch was dropped.
        if placed.take() {
            return true;
        }
        let place = self.find();
        place.inspect(|&place| std::mem::swap(&mut self.spare[place], placed)).is_some()
    }

    /// Makes the next search check all spare cells; `false` if the last one did.
    pub(crate) fn search_all(&mut self) -> bool {
        self.partial_scans_left = 0;
        std::mem::take(&mut self.was_partial)
    }

    /// The bytes that growing takes.
    pub(crate) fn growth(&self) -> usize {
        self.more.bytes + Cell::<P>::SIZE
    }

    /// Makes one more cell, which is free, and returns its size in bytes; `None` if that is more than `most`.
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

    /// Waits until there is a free cell, or `or` returns true after a [notification](Self::released); `false` if the
    /// deadline passed first.
    pub(crate) fn wait(&self, deadline: &Until, or: impl Fn() -> bool) -> bool {
        self.released.wait_until(deadline, || self.spare.iter().any(|cell| cell.is_free()) || or())
    }

    /// The waiter on which the consumer waits for a free cell.
    pub(crate) fn released(&self) -> &Arc<Waiter> {
        &self.released
    }

    /// Describes the batches that are kept in spare cells.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Tag> {
        self.spare.iter().filter(|cell| !cell.is_free()).map(|cell| cell.tag())
    }
}
