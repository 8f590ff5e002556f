//! The memory that a loader and its worker processes share, except for the batches.
//!
//! One mapping, which the processes inherit at the same address when they are forked. It contains no pointers.
//!
//! | block | contents | written by |
//! |---|---|---|
//! | ring | the words of the ring | both |
//! | waiters | two waiters | both |
//! | cancel | whether the pass is abandoned | the loader |
//! | activities | what each worker does and has done | that worker |
//! | pass | what samples depend on besides their index | the loader, while no ticket is assigned |
//! | slots | for each slot, which batch it is for, its memory and its indices | the loader, before it assigns the slot |
//! | messages | for each part of each slot, why it failed | the part's owner |

use std::mem::{align_of, size_of};
use std::ptr::NonNull;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use slotline_core::robust::{Shape, Word};
use slotline_core::wait::{Deadline, Park, Wait};

use crate::arena::{Memory, Pages};
use crate::loader::backend::processes::message::Message;
use crate::loader::metrics::activity::Activity;
use crate::loader::worker::cancel::CancelFlag;
use crate::placed::Placed;
use crate::sampler::Places;
use crate::wait::WaitStrategy;
use crate::wait::futex::SharedFutex;

/// What samples of a pass depend on besides their index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassFacts {
    /// Counts the passes, to see whether one is new.
    pub(crate) pass: u64,
    pub(crate) seed: u64,
    pub(crate) epoch: u32,
    pub(crate) samples: usize,
    pub(crate) places: Places,
}

/// What a slot is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotFacts {
    /// The batch's number.
    pub(crate) task: usize,
    /// The position of its first row.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    /// The number of the memory that it is written into.
    pub(crate) cell: usize,
}

/// The shared memory, and where its blocks are.
#[derive(Debug)]
pub(crate) struct Control {
    pages: Pages,
    shape: Shape,
    workers: usize,
    rows: usize,
    strategy: WaitStrategy,
    at: Offsets,
}

/// The offsets of the blocks in bytes.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    waiters: usize,
    cancel: usize,
    activities: usize,
    pass: usize,
    facts: usize,
    indices: usize,
    messages: usize,
    end: usize,
}

const LINE: usize = 128;

impl Offsets {
    /// Returns the offsets, or `None` if there is more memory than can be addressed.
    fn new(shape: Shape, workers: usize, rows: usize) -> Option<Self> {
        let mut end = shape.words().checked_mul(size_of::<Word>())?;
        let mut block = |count: usize, size: usize| {
            let start = end.checked_next_multiple_of(LINE)?;
            end = start.checked_add(count.checked_mul(size)?)?;
            Some(start)
        };
        let (depth, parts) = (shape.depth(), shape.parts());
        let waiters = block(2, size_of::<CachePadded<SharedPark>>())?;
        let cancel = block(1, size_of::<CancelFlag>())?;
        let activities = block(workers + 1, size_of::<CachePadded<Activity>>())?;
        let pass = block(1, size_of::<PassFacts>())?;
        let facts = block(depth, size_of::<CachePadded<SlotFacts>>())?;
        let indices = block(depth.checked_mul(rows)?, size_of::<u64>())?;
        let messages = block(depth * parts, size_of::<Message>())?;
        block(0, 0)?;
        Some(Self { waiters, cancel, activities, pass, facts, indices, messages, end })
    }
}

impl Control {
    /// Returns the bytes of the memory; `usize::MAX` on overflow.
    pub(crate) fn bytes(shape: Shape, workers: usize, rows: usize) -> usize {
        Offsets::new(shape, workers, rows).map_or(usize::MAX, |at| at.end)
    }

    /// Maps the memory for batches of at most `rows` rows.
    ///
    /// # Errors
    ///
    /// The system's error, if it refuses.
    pub(crate) fn new(shape: Shape, workers: usize, rows: usize, strategy: WaitStrategy) -> std::io::Result<Self> {
        let at = Offsets::new(shape, workers, rows).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let mut pages = Pages::shared(at.end)?;
        pages.touch(at.end);
        const {
            assert!(align_of::<CachePadded<Activity>>() <= LINE && align_of::<Message>() <= LINE);
        }
        let control = Self { pages, shape, workers, rows, strategy, at };
        // SAFETY: the blocks lie within the new mapping and do not overlap; their starts are aligned.
        unsafe {
            for which in 0..2 {
                control.park(which).write(CachePadded::new(Park::new(SharedFutex)));
            }
            control.at::<CancelFlag>(at.cancel).write(CancelFlag::default());
            for worker in 0..=workers {
                control.at::<CachePadded<Activity>>(at.activities).add(worker).write(CachePadded::default());
            }
            let none = Places { first: 0, step: 1 };
            let facts = PassFacts { pass: 0, seed: 0, epoch: 0, samples: 0, places: none };
            control.at::<PassFacts>(at.pass).write(facts);
        }
        Ok(control)
    }

    fn at<T>(&self, offset: usize) -> NonNull<T> {
        debug_assert!(offset < self.pages.len());
        // SAFETY: all offsets are within the pages.
        unsafe { self.pages.start().add(offset).cast() }
    }

    fn park(&self, which: usize) -> NonNull<CachePadded<SharedPark>> {
        // SAFETY: there are two of them.
        unsafe { self.at::<CachePadded<SharedPark>>(self.at.waiters).add(which & 1) }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The flag that abandons a pass.
    pub(crate) fn cancel(self: &Arc<Self>) -> Placed<CancelFlag> {
        // SAFETY: it was initialised by `new`, and lies in memory that `self` owns.
        unsafe { Placed::new(self.at(self.at.cancel), self.clone()) }
    }

    /// The activity of each worker, and last of the consumer.
    pub(crate) fn activities(self: &Arc<Self>) -> Placed<[CachePadded<Activity>]> {
        let all = NonNull::slice_from_raw_parts(self.at(self.at.activities), self.workers + 1);
        // SAFETY: as in `cancel`.
        unsafe { Placed::new(all, self.clone()) }
    }

    /// Writes what samples of a pass depend on.
    ///
    /// # Safety
    ///
    /// No ticket may be assigned or claimed, and no other thread may call this.
    pub(crate) unsafe fn set_pass(&self, facts: PassFacts) {
        // SAFETY: the block is aligned; workers read it only while they have a claim.
        unsafe { self.at::<PassFacts>(self.at.pass).write(facts) };
    }

    /// Reads what samples of the pass depend on.
    ///
    /// # Safety
    ///
    /// The caller must have a claim.
    pub(crate) unsafe fn pass(&self) -> PassFacts {
        // SAFETY: it was initialised by `new`, and is not written while a claim is out.
        unsafe { self.at::<PassFacts>(self.at.pass).read() }
    }

    /// Writes what a slot is for, with the index of each row.
    ///
    /// # Safety
    ///
    /// The slot must not be assigned, and no other thread may call this.
    pub(crate) unsafe fn set_slot(&self, slot: usize, facts: SlotFacts, index_of: impl Fn(usize) -> usize) {
        assert!(slot < self.shape.depth() && facts.rows <= self.rows);
        // SAFETY: the slot exists and has room for the indices, and no worker reads it.
        unsafe {
            self.at::<CachePadded<SlotFacts>>(self.at.facts).add(slot).write(CachePadded::new(facts));
            let indices = self.at::<u64>(self.at.indices).add(slot * self.rows);
            (0..facts.rows).for_each(|row| indices.add(row).write(index_of(row) as u64));
        }
    }

    /// Reads what a slot is for, and its indices.
    ///
    /// # Safety
    ///
    /// The caller must have a claim of the slot, for as long as it uses the indices.
    pub(crate) unsafe fn slot(&self, slot: usize) -> (SlotFacts, &[u64]) {
        assert!(slot < self.shape.depth());
        // SAFETY: the loader wrote them before it assigned the slot, and does not write them while a claim is out.
        unsafe {
            let facts = **self.at::<CachePadded<SlotFacts>>(self.at.facts).add(slot).as_ref();
            assert!(facts.rows <= self.rows);
            let indices = self.at::<u64>(self.at.indices).add(slot * self.rows);
            (facts, std::slice::from_raw_parts(indices.as_ptr(), facts.rows))
        }
    }

    /// Returns where the message about a part is.
    pub(crate) fn message(&self, slot: usize, part: usize) -> NonNull<Message> {
        assert!(slot < self.shape.depth() && part < self.shape.parts());
        // SAFETY: the part exists.
        unsafe { self.at::<Message>(self.at.messages).add(slot * self.shape.parts() + part) }
    }
}

/// The words of the ring.
#[derive(Clone, Debug)]
pub(crate) struct Words(pub(crate) Arc<Control>);

impl std::ops::Deref for Words {
    type Target = [Word];

    #[inline]
    fn deref(&self) -> &[Word] {
        // SAFETY: the words begin the mapping, which is zeroed, aligned and owned by the control.
        unsafe { std::slice::from_raw_parts(self.0.pages.start().as_ptr().cast(), self.0.shape.words()) }
    }
}

/// A waiter's words.
type SharedPark = Park<SharedFutex>;

/// One of the two waiters.
#[derive(Clone, Debug)]
pub(crate) struct SharedWaiter(pub(crate) Arc<Control>, pub(crate) usize);

impl SharedWaiter {
    #[inline]
    fn park(&self) -> &SharedPark {
        // SAFETY: `Control::new` initialised both, and any words are valid.
        unsafe { self.0.park(self.1).as_ref() }
    }
}

impl Wait for SharedWaiter {
    fn wait_until(&self, deadline: &impl Deadline, ready: impl FnMut() -> bool) -> bool {
        self.0.strategy.wait_until(self.park(), deadline, ready)
    }

    #[inline]
    fn notify(&self, wanted: impl FnOnce() -> bool) {
        self.0.strategy.notify(self.park(), wanted);
    }
}
