//! The control memory: what a loader and its worker processes share, except for the batches.
//!
//! It is one mapping, which the processes inherit when they are forked, or map for themselves. It
//! contains no pointers, and its types have the layout of C.
//!
//! | block | contents | written by |
//! |---|---|---|
//! | ring | the words of the ring | both |
//! | waiters | two waiters | both |
//! | cancel | whether the pass is abandoned | the loader |
//! | activities | what each worker is doing, and its counters | that worker |
//! | slots | for each slot, its batch, its cell, its pass and its indices | the loader, before it assigns the slot |
//! | noted | for each slot, the last ticket for which a worker has reported bad samples | the workers |
//! | call | the pass for which workers run their `worker_init` | the loader |
//! | fatal_samples | samples that ended a worker, which are not read again | the loader |

use std::cell::OnceCell;
use std::mem::{align_of, size_of};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use slotline_core::robust::{Shape, Word};
use slotline_core::wait::{Deadline, Park, SharedFutex, Wait};

use crate::arena::{ALIGN, Memory, Pages};
use crate::dataset::StopToken;
use crate::dataset::stop::SharedStopPipe;
use crate::loader::backend::processes::child::{End, WorkerExit};
use crate::loader::metrics::activity::Activity;
use crate::loader::order::plan::Plan;
use crate::loader::worker::cancel::CancelFlag;
use crate::placed::Placed;
use crate::sampler::ReplicaStride;
use crate::wait::{Until, WaitStrategy};

/// The batch that a slot is for, and what the samples of its pass depend on besides their index.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SlotFacts {
    /// The batch's number.
    pub(crate) task: usize,
    /// The position of the batch's first row.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    /// The number of the cell that the batch is written into.
    pub(crate) cell: usize,
    /// The number of passes begun, which tells a worker whether the pass is a new one.
    pub(crate) pass: u64,
    pub(crate) seed: u64,
    pub(crate) epoch: u32,
    pub(crate) samples: usize,
    pub(crate) global_positions: ReplicaStride,
}

impl SlotFacts {
    /// Returns the facts of a slot in this pass, without a batch.
    pub(crate) fn of_pass(plan: &Plan) -> Self {
        let &Plan { seed, epoch, samples, global_positions, .. } = plan;
        Self { task: 0, first: 0, rows: 0, cell: 0, pass: 0, seed, epoch, samples, global_positions }
    }

    /// Returns the plan of the pass, without an order.
    pub(crate) fn plan(&self) -> Plan {
        let &Self { seed, epoch, samples, global_positions, .. } = self;
        Plan { seed, epoch, samples, global_positions, ..Plan::default() }
    }
}

/// The sizes of the types in the shared memory.
pub(crate) const SIZES: [usize; 4] =
    [size_of::<usize>(), size_of::<Head>(), size_of::<CachePadded<Activity>>(), size_of::<CachePadded<SlotFacts>>()];

/// The shared memory, and where its blocks are.
#[derive(Debug)]
pub(crate) struct Control {
    pages: Pages,
    shape: Shape,
    workers: usize,
    rows: usize,
    strategy: WaitStrategy,
    at: Offsets,
    /// The pipe that is signalled when the pass is abandoned.
    pipe: SharedStopPipe,
}

/// The offsets of the blocks in bytes.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    head: usize,
    activities: usize,
    facts: usize,
    indices: usize,
    noted: usize,
    end: usize,
}

/// How often processes check whether one of them has overwritten the shared words. Processes are
/// notified of everything else at once.
pub(crate) const PULSE: Duration = Duration::from_secs(1);

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
        let depth = shape.depth();
        let head = block(1, size_of::<Head>())?;
        let activities = block(workers + 1, size_of::<CachePadded<Activity>>())?;
        let facts = block(depth, size_of::<CachePadded<SlotFacts>>())?;
        let indices = block(depth.checked_mul(rows)?, size_of::<u64>())?;
        let noted = block(depth, size_of::<AtomicU64>())?;
        block(0, 0)?;
        Some(Self { head, activities, facts, indices, noted, end })
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
    /// Fails if the system refuses to map the memory.
    pub(crate) fn new(shape: Shape, workers: usize, rows: usize, strategy: WaitStrategy) -> std::io::Result<Self> {
        let at = Offsets::new(shape, workers, rows).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let mut pages = Pages::shared(at.end)?;
        pages.touch(at.end);
        const {
            assert!(align_of::<CachePadded<Activity>>() <= LINE && align_of::<Head>() <= LINE);
        }
        let control = Self { pages, shape, workers, rows, strategy, at, pipe: SharedStopPipe::new() };
        // SAFETY: the blocks lie within the new mapping and do not overlap; their starts are
        // aligned.
        unsafe {
            let head = control.at::<Head>(at.head).as_ptr();
            let waiter = || CachePadded::new(Park::new(SharedFutex));
            (&raw mut (*head).waiters).write([waiter(), waiter()]);
            (&raw mut (*head).cancel).write(CachePadded::default());
            for worker in 0..=workers {
                control.at::<CachePadded<Activity>>(at.activities).add(worker).write(CachePadded::default());
            }
        }
        Ok(control)
    }

    /// Maps the memory that the loader's process has made, in a worker that was not forked from
    /// that process. The arguments must be the same.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses to map the memory, or if the memory has another size.
    pub(crate) fn attach(
        file: OwnedFd,
        shape: Shape,
        workers: usize,
        rows: usize,
        strategy: WaitStrategy,
    ) -> std::io::Result<Self> {
        let (pages, at) = (Pages::of_file(file)?, Offsets::new(shape, workers, rows));
        let at = at.filter(|at| at.end.next_multiple_of(ALIGN) == pages.len());
        let at = at.ok_or_else(|| std::io::Error::other("its memory has another layout"))?;
        Ok(Self { pages, shape, workers, rows, strategy, at, pipe: SharedStopPipe::remote() })
    }

    /// The file of the memory, if it has one.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.pages.file()
    }

    fn at<T>(&self, offset: usize) -> NonNull<T> {
        debug_assert!(offset < self.pages.len());
        // SAFETY: all offsets are within the pages.
        unsafe { self.pages.start().add(offset).cast() }
    }

    fn head(&self) -> &Head {
        // SAFETY: the block was initialised by `new`, and any values of its words are valid.
        unsafe { self.at::<Head>(self.at.head).as_ref() }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The flag that abandons a pass.
    pub(crate) fn cancel(self: &Arc<Self>) -> StopToken {
        // SAFETY: the flag lies in memory that `self` owns.
        let flag = unsafe { Placed::new(NonNull::from(&*self.head().cancel), self.clone()) };
        StopToken::shared(flag, self.pipe.clone())
    }

    /// The activity of each worker, followed by that of the consumer.
    pub(crate) fn activities(self: &Arc<Self>) -> Placed<[CachePadded<Activity>]> {
        let all = NonNull::slice_from_raw_parts(self.at(self.at.activities), self.workers + 1);
        // SAFETY: `new` has initialised the activities, and they lie in memory that `self` owns.
        unsafe { Placed::new(all, self.clone()) }
    }

    /// Writes the batch that a slot is for, with the index of each row.
    ///
    /// # Safety
    ///
    /// The slot must not be assigned, and no other thread may call this for the slot.
    pub(crate) unsafe fn set_slot(&self, slot: usize, facts: SlotFacts, index_of: impl Fn(usize) -> usize) {
        assert!(slot < self.shape.depth() && facts.rows <= self.rows);
        // SAFETY: the slot exists and has room for the indices, and no worker reads it.
        unsafe {
            self.at::<CachePadded<SlotFacts>>(self.at.facts).add(slot).write(CachePadded::new(facts));
            let indices = self.at::<u64>(self.at.indices).add(slot * self.rows);
            (0..facts.rows).for_each(|row| indices.add(row).write(index_of(row) as u64));
        }
    }

    /// Returns the batch that a slot is for, and the indices of its rows.
    ///
    /// # Safety
    ///
    /// The caller must have a claim of the slot for as long as it uses the indices.
    pub(crate) unsafe fn slot(&self, slot: usize) -> (SlotFacts, &[u64]) {
        assert!(slot < self.shape.depth());
        // SAFETY: the loader wrote the facts and indices before it assigned the slot, and does not
        // write them while a claim is outstanding.
        unsafe {
            let facts = **self.at::<CachePadded<SlotFacts>>(self.at.facts).add(slot).as_ref();
            assert!(facts.rows <= self.rows);
            let indices = self.at::<u64>(self.at.indices).add(slot * self.rows);
            (facts, std::slice::from_raw_parts(indices.as_ptr(), facts.rows))
        }
    }

    fn noted(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < self.shape.depth());
        // SAFETY: the slot exists, and any value of the zeroed word is valid.
        unsafe { self.at::<AtomicU64>(self.at.noted).add(slot).as_ref() }
    }

    /// Records that a worker has reported bad samples of a ticket that it has claimed.
    pub(crate) fn note(&self, slot: usize, ticket: u64) {
        // Relaxed suffices, since the claim is published after this.
        self.noted(slot).store(ticket + 1, Ordering::Relaxed);
    }

    /// Whether a worker has reported bad samples of a finished ticket.
    pub(crate) fn is_noted(&self, slot: usize, ticket: u64) -> bool {
        self.noted(slot).load(Ordering::Relaxed) == ticket + 1
    }

    /// Asks the workers to run their `worker_init` for a pass.
    pub(crate) fn call_for(&self, pass: u64, seed: u64) {
        let call = &self.head().call;
        // A worker that reads this seed after the previous pass number sees 0, or the new number,
        // when it reads the number again.
        call.pass.store(0, Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::Release);
        call.seed.store(seed, Ordering::Relaxed);
        call.pass.store(pass, Ordering::Release);
    }

    /// Returns the number of the pass for which workers run their `worker_init`, and its base seed.
    /// The number is 0 before the first pass, and while another one is being written.
    pub(crate) fn called(&self) -> (u64, u64) {
        let call = &self.head().call;
        let pass = call.pass.load(Ordering::Acquire);
        let seed = call.seed.load(Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::Acquire);
        if call.pass.load(Ordering::Relaxed) == pass { (pass, seed) } else { (0, seed) }
    }

    /// Records a sample that ended a worker, so that no worker reads it again. Returns whether
    /// there was room. Only one thread may call this at a time.
    pub(crate) fn add_fatal_sample(&self, index: usize, WorkerExit { worker, end }: WorkerExit) -> bool {
        let FatalSamples { count, entries } = &self.head().fatal_samples;
        let known = count.load(Ordering::Relaxed);
        let Some(entry) = usize::try_from(known).ok().and_then(|at| entries.get(at)) else { return false };
        let (kind, value) = match end {
            End::Signal(signal) => (0, signal as u64),
            End::Code(code) => (1, code as u64),
            End::Late(limit) => (2, u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)),
            End::Unknown => (3, 0),
        };
        for (word, value) in entry.iter().zip([index as u64, worker as u64, kind, value]) {
            word.store(value, Ordering::Relaxed);
        }
        count.store(known + 1, Ordering::Release);
        true
    }

    /// Whether any sample has ended a worker.
    #[inline]
    pub(crate) fn has_fatal_samples(&self) -> bool {
        self.head().fatal_samples.count.load(Ordering::Relaxed) > 0
    }

    /// Returns which worker ended while it read the sample with this index, and how; `None` if none
    /// did.
    pub(crate) fn killed_by(&self, index: usize) -> Option<WorkerExit> {
        let FatalSamples { count, entries } = &self.head().fatal_samples;
        let known = usize::try_from(count.load(Ordering::Acquire)).unwrap_or(usize::MAX);
        let read = |entry: &[AtomicU64; 4]| entry.each_ref().map(|word| word.load(Ordering::Relaxed));
        let [_, worker, kind, value] = entries.iter().take(known).map(read).find(|entry| entry[0] == index as u64)?;
        let end = match kind {
            0 => End::Signal(value as i32),
            1 => End::Code(value as i32),
            2 => End::Late(Duration::from_nanos(value)),
            _ => End::Unknown,
        };
        Some(WorkerExit { worker: worker as usize, end })
    }
}

/// The blocks that do not depend on the size of the loader.
#[repr(C)]
struct Head {
    waiters: [CachePadded<SharedPark>; 2],
    cancel: CachePadded<CancelFlag>,
    call: CachePadded<Call>,
    fatal_samples: FatalSamples,
}

/// The pass for which workers run their `worker_init`.
#[repr(C)]
struct Call {
    pass: AtomicU64,
    seed: AtomicU64,
}

/// The samples that ended a worker. The four words of an entry are the sample's index, the worker's
/// number, and how it ended (kind and value).
#[repr(C)]
struct FatalSamples {
    count: AtomicU64,
    entries: [[AtomicU64; 4]; 1024],
}

/// The words of the ring.
#[derive(Clone, Debug)]
pub(crate) struct SharedWords(pub(crate) Arc<Control>);

impl std::ops::Deref for SharedWords {
    type Target = [Word];

    #[inline]
    fn deref(&self) -> &[Word] {
        // SAFETY: the words are at the start of the mapping, which is zeroed, aligned and owned by
        // the control memory.
        unsafe { std::slice::from_raw_parts(self.0.pages.start().as_ptr().cast(), self.0.shape.words()) }
    }
}

/// A waiter's words.
type SharedPark = Park<SharedFutex>;

/// A deadline, or the end of a shorter sleep if that comes first.
struct Nap<'d, D> {
    deadline: &'d D,
    end: OnceCell<Until>,
}

impl<D: Deadline> Deadline for Nap<'_, D> {
    fn remaining(&self) -> Duration {
        self.end.get_or_init(|| Until::after(Some(PULSE))).remaining().min(self.deadline.remaining())
    }
}

/// One of the two waiters in the control memory: a reference to the memory, and the waiter's
/// number.
#[derive(Clone, Debug)]
pub(crate) struct SharedWaiter(pub(crate) Arc<Control>, pub(crate) usize);

impl SharedWaiter {
    #[inline]
    fn park(&self) -> &SharedPark {
        &self.0.head().waiters[self.1]
    }
}

impl Wait for SharedWaiter {
    fn wait_until(&self, deadline: &impl Deadline, mut ready: impl FnMut() -> bool) -> bool {
        // Wait again after each sleep: a process that has overwritten the waiter's words may have
        // erased the record that this process waits.
        while !self.0.strategy.wait_until(self.park(), &Nap { deadline, end: OnceCell::new() }, &mut ready) {
            if deadline.remaining().is_zero() {
                return false;
            }
        }
        true
    }

    #[inline]
    fn notify(&self, wanted: impl FnOnce() -> bool) {
        self.0.strategy.notify(self.park(), wanted);
    }
}
