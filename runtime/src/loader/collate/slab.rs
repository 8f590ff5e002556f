//! The memory of a loader's batches, which goes round between the rings and the user.
//!
//! The memory of each batch is a cell. A slot of a ring refers to a cell, and whoever has the slot writes the batch into it.
//! The consumer, which takes the batch for the user, leaves a free cell in the slot and gives the slot back at once. So a
//! batch can be kept for as long as it is wanted: it has its cell, and the ring goes on with the others.
//!
//! The slab has the cells that are in no slot, the spare ones. Each of them is a batch's, or nobody's, which its flag `free`
//! says. Only the consumer takes spare cells, and only free ones; a batch that is dropped, on whatever thread, sets the flag
//! of its cell with release, and the consumer reads it with acquire. So nobody writes into a cell before all reads of the
//! last batch in it, and a cell has one owner at a time. A cell is counted (`Arc`): a batch may outlive its loader, and then
//! its cell goes with it.
//!
//! There are as many spare cells as the user said that it would [hold](crate::loader::Builder::hold) while it asks for another batch.
//! When more are kept, the slab [grows](Slab::grow) by one cell at a time, which is used again like the others.

use std::fmt;
use std::sync::Arc;

use slotline_core::wait::Wait;

use crate::BoxError;
use crate::loader::collate::batch::Tag;
use crate::loader::collate::on_held::OnHeld;
use crate::loader::collate::slot_state::SlotState;
use crate::loader::error::guard::dispose;
use crate::loader::error::warning::Warning;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::wait::{Until, Waiter};

/// How many spare cells are looked at, at least, before the slab grows. Someone who collects thousands of batches would else
/// have all of them looked at for each further one; so a few free ones may be passed over.
const LOOKS: usize = 64;

/// The memory of one batch.
pub(crate) struct Cell<P> {
    /// Whether it is nobody's. Of spare cells only.
    free: AtomicBool,
    work: SlotState<P>,
    /// Which batch is in it, written when the consumer takes it for the user.
    task: AtomicUsize,
    rows: AtomicUsize,
    epoch: AtomicUsize,
    single: bool,
    /// Who is to hear that it is free.
    released: Option<Arc<Waiter>>,
}

impl<P> Cell<P> {
    /// Bytes of a cell, beside what its payload refers to.
    pub(crate) const SIZE: usize = size_of::<Self>() + 2 * size_of::<usize>();

    /// The batch in it, for its owner.
    #[inline]
    pub(crate) fn work(&self) -> &SlotState<P> {
        &self.work
    }

    /// Gives the cell back, for its owner.
    #[inline]
    fn release(&self) {
        self.free.store(true, Ordering::Release);
        if let Some(released) = &self.released {
            released.notify(|| true);
        }
    }

    /// Takes the cell if it is nobody's. For the consumer only.
    #[inline]
    fn take(&self) -> bool {
        let free = self.is_free();
        if free {
            self.free.store(false, Ordering::Relaxed);
        }
        free
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.free.load(Ordering::Acquire)
    }

    /// Which batch is in it.
    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        Tag {
            task: self.task.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            single: self.single,
            epoch: self.epoch.load(Ordering::Relaxed) as u32,
        }
    }
}

/// The hold on a finished batch's memory; dropped, on whatever thread, it gives the memory back.
#[doc(hidden)]
pub struct Lease<P>(Arc<Cell<P>>);

impl<P> Lease<P> {
    /// What the user's samples made.
    #[inline]
    pub(crate) fn payload(&self) -> &P {
        &self.0.work.payload
    }

    /// That, and what went wrong.
    #[inline]
    pub(crate) fn work(&self) -> &SlotState<P> {
        &self.0.work
    }

    /// Which batch it is.
    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        self.0.tag()
    }

    /// Says which batch it is, before the user has it.
    #[inline]
    pub(crate) fn describe(&self, task: usize, rows: usize, epoch: u32) {
        self.0.task.store(task, Ordering::Relaxed);
        self.0.rows.store(rows, Ordering::Relaxed);
        self.0.epoch.store(epoch as usize, Ordering::Relaxed);
    }
}

impl<P> Lease<P> {
    /// The hold on a cell of no loader's.
    pub(crate) fn apart(payload: P, tag: Tag) -> Self {
        let Tag { task, rows, single, epoch } = tag;
        let [task, rows, epoch] = [task, rows, epoch as usize].map(AtomicUsize::new);
        let (free, work) = (AtomicBool::new(false), SlotState::new(payload));
        Self(Arc::new(Cell { free, work, task, rows, epoch, single, released: None }))
    }
}

impl<P> Drop for Lease<P> {
    #[inline]
    fn drop(&mut self) {
        self.0.release();
    }
}

impl<P> fmt::Debug for Lease<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

/// What makes the memory of one more batch: with the bytes that it takes, and something to warn about, perhaps.
pub(crate) type Make<P> = Box<dyn FnMut() -> Result<(P, usize, Option<Warning>), BoxError> + Send>;

/// How a loader gets more memory than it began with.
pub(crate) struct More<P> {
    pub(crate) make: Make<P>,
    /// The most bytes that this has taken, and at least what it asks for.
    pub(crate) bytes: usize,
}

impl<P> Drop for More<P> {
    fn drop(&mut self) {
        // What the user's closure has may panic when it is dropped.
        dispose(std::mem::replace(&mut self.make, Box::new(|| Err("there is no more".into()))));
    }
}

impl<P> fmt::Debug for More<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("More").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The spare cells of a loader.
pub(crate) struct Slab<P> {
    spare: Vec<Arc<Cell<P>>>,
    /// Where the search for a free one begins: they go round, as slots do.
    next: usize,
    /// How many batches may be held while another one is asked for, in the cells that there were at first; and how many these
    /// are.
    hold: usize,
    cells: usize,
    single: bool,
    more: More<P>,
    /// How many spare cells are looked at, unless more may be held.
    looks: usize,
    /// How many more searches may look at no more than that, since all cells were looked at in vain; and whether the last one
    /// did.
    vain: usize,
    short: bool,
    /// Where the consumer waits for a free cell.
    released: Arc<Waiter>,
    waits: bool,
}

impl<P> Slab<P> {
    /// A cell for each payload. The first `placed` ones are for the slots of rings, and come out with the slab. With the others
    /// `hold` batches can be held while another one is asked for.
    pub(crate) fn new(
        payloads: Vec<P>,
        (placed, hold): (usize, usize),
        single: bool,
        more: More<P>,
        on_held: OnHeld,
        released: Waiter,
    ) -> (Self, Vec<Arc<Cell<P>>>) {
        let (cells, spare) = (payloads.len(), payloads.len() - placed);
        let (released, waits) = (Arc::new(released), on_held == OnHeld::Wait);
        let looks = if on_held == OnHeld::Grow { LOOKS } else { usize::MAX };
        let (next, spare) = (0, Vec::with_capacity(spare));
        let mut slab = Self { spare, next, hold, cells, single, more, looks, vain: 0, short: false, released, waits };
        let mut payloads = payloads.into_iter();
        let places = payloads.by_ref().take(placed).map(|payload| slab.cell(payload, false)).collect();
        for payload in payloads {
            slab.spare.push(slab.cell(payload, true));
        }
        (slab, places)
    }

    fn cell(&self, payload: P, free: bool) -> Arc<Cell<P>> {
        let [task, rows, epoch] = [(); 3].map(|()| AtomicUsize::new(0));
        let (work, released) = (SlotState::new(payload), self.waits.then(|| self.released.clone()));
        Arc::new(Cell { free: AtomicBool::new(free), work, task, rows, epoch, single: self.single, released })
    }

    /// How many batches the loader was made for: those in rings, and those that may be held.
    pub(crate) fn depth(&self) -> usize {
        self.cells
    }

    /// How many batches can be held while another one is asked for, in the memory that the loader began with.
    pub(crate) fn hold(&self) -> usize {
        self.hold
    }

    /// Takes a free spare cell, by its place.
    #[inline(always)]
    pub(crate) fn find(&mut self) -> Option<usize> {
        let place = self.next;
        if self.spare.get(place).is_some_and(|cell| cell.take()) {
            self.next = if place + 1 == self.spare.len() { 0 } else { place + 1 };
            return Some(place);
        }
        self.search()
    }

    #[cold]
    #[inline(never)]
    fn search(&mut self) -> Option<usize> {
        let count = self.spare.len();
        // If no more are kept than was said, one of these is free.
        let mut looks = count.min(self.looks.max(self.hold + 1));
        let free = |&place: &usize| self.spare[place].take();
        let mut place = (0..looks).map(|i| (self.next + i) % count).find(free);
        self.short = place.is_none() && looks < count;
        if self.short && self.vain == 0 {
            place = (looks..count).map(|i| (self.next + i) % count).find(free);
            (looks, self.short) = (count, false);
            // Not each time, or a loop that collects batches would have all of them looked at for each further one.
            self.vain = if place.is_none() { count / LOOKS } else { 0 };
        } else if self.short {
            self.vain -= 1;
        }
        self.next = place.map_or(self.next + looks, |place| place + 1) % count.max(1);
        place
    }

    /// Leaves a free cell in the place of one that is in a slot, and gives the hold on that; `None` if there is no free one.
    #[inline]
    pub(crate) fn exchange(&mut self, placed: &mut Arc<Cell<P>>) -> Option<Lease<P>> {
        let place = self.find()?;
        Some(self.exchange_with(place, placed))
    }

    /// Leaves the cell that was [found](Self::find) in the place of one that is in a slot, and gives the hold on that.
    #[inline(always)]
    pub(crate) fn exchange_with(&mut self, place: usize, placed: &mut Arc<Cell<P>>) -> Lease<P> {
        std::mem::swap(&mut self.spare[place], placed);
        Lease(self.spare[place].clone())
    }

    /// The hold on a cell that stays in its slot, which is [refilled](Self::refill) before it is given back.
    pub(crate) fn share(placed: &Arc<Cell<P>>) -> Lease<P> {
        Lease(placed.clone())
    }

    /// Has a slot whose cell was [shared](Self::share) refer to one that is nobody's, if there is any.
    pub(crate) fn refill(&mut self, placed: &mut Arc<Cell<P>>) -> bool {
        // Its own batch was dropped.
        if placed.take() {
            return true;
        }
        let place = self.find();
        place.inspect(|&place| std::mem::swap(&mut self.spare[place], placed)).is_some()
    }

    /// A free cell.
    pub(crate) fn free(&mut self) -> Option<Lease<P>> {
        let place = self.find()?;
        Some(Lease(self.spare[place].clone()))
    }

    /// Has the next search look at all spare cells, however many there are; `false` if the last one did.
    pub(crate) fn look_everywhere(&mut self) -> bool {
        self.vain = 0;
        std::mem::take(&mut self.short)
    }

    /// Bytes that growing takes.
    pub(crate) fn growth(&self) -> usize {
        self.more.bytes + Cell::<P>::SIZE
    }

    /// Makes one more cell, which is free, and says how many bytes it took; `None` if there came more than `most` of them.
    pub(crate) fn grow(&mut self, most: usize) -> Result<Option<(usize, Option<Warning>)>, BoxError> {
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

    /// Waits until there is a free cell, or `or` says so after a [notice](Self::released); `false` if the deadline passed first.
    pub(crate) fn wait(&self, deadline: &Until, or: impl Fn() -> bool) -> bool {
        self.released.wait_until(deadline, || self.spare.iter().any(|cell| cell.is_free()) || or())
    }

    /// Where the consumer waits for a free cell.
    pub(crate) fn released(&self) -> &Arc<Waiter> {
        &self.released
    }

    /// The batches that are kept, in spare cells.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Tag> {
        self.spare.iter().filter(|cell| !cell.is_free()).map(|cell| cell.tag())
    }
}
