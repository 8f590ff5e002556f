//! Messages from one process to another, each with a block of shared memory.
//!
//! A channel is one [`Mapping`] with a ring of messages ([`slotline_core::spsc`]), a byte for each
//! block that is in use, and a [`Heap`] of blocks. The sender allocates a block, writes into it,
//! and publishes a message with the block's location. The receiver reads the block in place, for as
//! long as it needs, and then clears the block's byte. The sender checks the bytes when it needs
//! memory. After the receiver has dropped a block, others may still read it: forked processes
//! ([`forks`](crate::forks)) and devices ([`Channel::hold_back`]). Its byte is then cleared when
//! they are done.
//!
//! When the receiver's end of a channel is dropped, all pages are freed except those of blocks that
//! are still referenced.
//!
//! A process may end at any point without damage: the contents of a block are not used until its
//! message is published with the store of one word. The receiver checks every field of a message
//! before using it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, size_of};
use std::ops::{Deref, Range};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use slotline::SharedFutex;
use slotline_core::handle;
use slotline_core::spsc::{Consumer, NextError, Producer, Ring, Slot};
use slotline_core::wait::Park;
use slotline_python_shielded::shielded;

use crate::forks::{self, Time};
use crate::memory::{Heap, Mapping, Region};

/// The number of messages that fit into a ring.
const CAPACITY: usize = 1024;
/// The most blocks that can be in use at the same time.
const BLOCKS: usize = 1 << 16;
/// The most blocks that the receiver should keep, so that the sender always finds a free one.
const MAX_KEPT: usize = BLOCKS - 2 * CAPACITY;

type Messages = Ring<[Slot<Wire>; CAPACITY], Park<SharedFutex>>;

/// The header of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) kind: u32,
    pub(crate) task: u64,
}

/// A message as it is stored in shared memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Wire {
    kind: u32,
    block: u32,
    task: u64,
    offset: usize,
    len: usize,
}

/// Statistics of the sender, which only the sender writes. Times are in nanoseconds.
#[derive(Debug, Default)]
#[repr(C)]
struct Figures {
    /// How long the sender was busy, and the part of that time in which it collated and copied.
    busy: AtomicU64,
    writing: AtomicU64,
    /// The current task (0 if none), and when it began: the bits of an `f64` in seconds, from
    /// `time.perf_counter`.
    task: AtomicU64,
    begun: AtomicU64,
    /// The slowest task, and how long it took.
    slowest: AtomicU64,
    longest: AtomicU64,
}

/// The data at the start of the shared memory.
#[repr(C)]
struct Head {
    /// The size of this struct, to detect another version of slotline.
    size: usize,
    ring: Messages,
    figures: Figures,
    /// The most bytes that the blocks of batches may have together.
    limit: usize,
    /// The number of blocks returned so far, wrapping.
    given: AtomicU32,
    /// Whether the receiver page-locks the memory.
    is_locked: AtomicBool,
    /// The first task whose reply is still needed.
    wanted: AtomicU64,
    /// The number of the container structure that the receiver knows.
    known: AtomicU64,
    /// For each block, whether it is in use.
    used: [AtomicU8; BLOCKS],
}

/// The memory of a channel as this process has mapped it.
#[derive(Debug)]
struct Shared {
    mapping: Mapping,
    /// The number of blocks that this process has received and not returned, including those in
    /// `held_back`.
    kept: AtomicUsize,
    /// The process that created or mapped the memory.
    owner: u32,
    /// The process that has taken the receiver, as far as this process knows.
    receiver: AtomicU32,
    /// The dropped blocks from which a device may still copy; `None` if `hold_back` was not called.
    held_back: Mutex<Option<HeldBack>>,
}

/// Blocks that were dropped but not returned, in the order in which they were dropped, each with
/// that time.
#[derive(Debug, Default)]
struct HeldBack {
    blocks: VecDeque<(Lease, Time)>,
    /// The number of blocks returned so far.
    given: u64,
}

impl Shared {
    fn head(&self) -> &Head {
        // SAFETY: `create` writes a head at the start of the file, and `attach` checks that there
        // is one. Its fields are atomics, a ring, and numbers that never change, and it exists
        // until the mapping is dropped.
        unsafe { self.mapping.head().cast().as_ref() }
    }

    /// Returns `None` in a process that was forked from the owner, since another thread may have
    /// held the lock.
    fn held_back(&self) -> Option<MutexGuard<'_, Option<HeldBack>>> {
        (std::process::id() == self.owner).then(|| self.held_back.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn give(&self, block: u32) {
        let head = self.head();
        if let Some(used) = head.used.get(block as usize) {
            used.store(0, Ordering::Release);
            head.given.fetch_add(1, Ordering::Release);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::process::id() != *self.receiver.get_mut() {
            return;
        }
        // No other receiver exists, so blocks that were not received are free.
        for region in &*self.mapping.regions() {
            region.free_all();
        }
        // No device is still copying: the channel is kept alive while its memory is page-locked.
        let held_back = self.held_back.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        for (lease, until) in held_back.unwrap_or_default().blocks {
            forks::release(lease, until);
        }
    }
}

/// A block that was received and is not returned yet.
#[derive(Debug)]
pub(crate) struct Lease {
    shared: Weak<Shared>,
    region: Arc<Region>,
    range: Range<usize>,
    block: u32,
    /// When the block was received.
    pub(crate) from: Time,
}

impl Lease {
    /// Returns the block to the sender. Call it only in the process that received the block.
    pub(crate) fn end(self) {
        self.region.end(&self.range);
        if let Some(shared) = self.shared.upgrade() {
            shared.kept.fetch_sub(1, Ordering::Relaxed);
            shared.give(self.block);
        }
        forks::note_end();
    }
}

/// A reference to the ring of a channel.
#[derive(Clone, Debug)]
struct Handle(Arc<Shared>);

impl Deref for Handle {
    type Target = Messages;

    fn deref(&self) -> &Messages {
        &self.0.head().ring
    }
}

// SAFETY: clones refer to the same memory, which stays in place until the last clone is dropped.
unsafe impl handle::Handle for Handle {}

const EMPTY: Wire = Wire { kind: 0, block: 0, task: 0, offset: 0, len: 0 };

/// The shared memory for messages in one direction. Each process takes one of its ends.
#[pyclass(module = "slotline._slotline", frozen, subclass)]
#[derive(Debug)]
pub(crate) struct Channel(Arc<Shared>);

#[shielded]
#[pymethods]
impl Channel {
    /// Creates a channel, or maps the one with the descriptor `fd`, which it then owns.
    ///
    /// `limit` is the most bytes that the batches in a new channel may have together.
    #[new]
    #[pyo3(signature = (fd = None, limit = None))]
    fn new(fd: Option<RawFd>, limit: Option<usize>) -> PyResult<Self> {
        let mapping = match fd {
            None => create(limit)?,
            // SAFETY: the caller transfers ownership of the descriptor.
            Some(fd) => attach(unsafe { OwnedFd::from_raw_fd(fd) })?,
        };
        let (owner, receiver) = (std::process::id(), AtomicU32::new(0));
        let shared = Shared { mapping, kept: AtomicUsize::new(0), owner, receiver, held_back: Mutex::default() };
        Ok(Self(Arc::new(shared)))
    }

    fn fileno(&self) -> RawFd {
        self.0.mapping.fd()
    }

    /// What the sender has done: seconds that it was busy, and seconds that it collated and copied;
    /// the current task (or 0), and when it began; the slowest task, and how long it took in
    /// seconds.
    #[getter]
    fn figures(&self) -> (f64, f64, u64, f64, u64, f64) {
        let figures = &self.0.head().figures;
        let read = |figure: &AtomicU64| figure.load(Ordering::Acquire);
        let seconds = |figure| Duration::from_nanos(read(figure)).as_secs_f64();
        let (task, begun) = (read(&figures.task), f64::from_bits(read(&figures.begun)));
        let (busy, writing) = (seconds(&figures.busy), seconds(&figures.writing));
        (busy, writing, task, begun, read(&figures.slowest), seconds(&figures.longest))
    }

    /// Tells the sender that the replies to tasks before `first` are not needed.
    fn want(&self, first: u64) {
        self.0.head().wanted.store(first, Ordering::Relaxed);
    }

    /// Closes the channel for both sides.
    fn close(&self) {
        self.0.head().ring.close();
    }

    /// From now on, holds back blocks for devices: a block that is [exposed](Block::expose) and
    /// dropped is returned only by [`give_back`](Self::give_back), since a device may still copy
    /// from it. The memory may be page-locked as it grows. Call it before the sender is taken.
    fn hold_back(&self) {
        self.0.head().is_locked.store(true, Ordering::Relaxed);
        if let Some(mut held_back) = self.0.held_back() {
            held_back.get_or_insert_default();
        }
    }

    /// Returns how many blocks that are held back have been dropped so far.
    fn dropped(&self) -> u64 {
        let held_back = self.0.held_back();
        held_back.as_deref().and_then(Option::as_ref).map_or(0, |held| held.given + held.blocks.len() as u64)
    }

    /// Returns the first `count` held-back blocks to the sender, counted since the start of the
    /// channel.
    fn give_back(&self, count: u64) {
        while let Some((lease, until)) = self.pop_held_back(count) {
            forks::release(lease, until);
        }
    }

    /// Returns address and length of each region that is mapped for blocks. Regions are added as
    /// the memory grows.
    fn regions(&self) -> Vec<(usize, usize)> {
        self.0.mapping.regions().iter().map(|region| region.place()).collect()
    }
}

/// Creates the memory of a channel. `limit` is the most bytes that the blocks of all batches may
/// have together.
fn create(limit: Option<usize>) -> io::Result<Mapping> {
    let mapping = Mapping::new(size_of::<Head>())?;
    let head = mapping.head().cast::<Head>().as_ptr();
    let (items, space) = (Park::new(SharedFutex), Park::new(SharedFutex));
    // SAFETY: the head is large enough, begins at a page boundary, and is all zeros, which are
    // valid atomics.
    unsafe {
        (&raw mut (*head).ring).write(Ring::with_wait([const { Slot::new(EMPTY) }; CAPACITY], items, space));
        (&raw mut (*head).limit).write(limit.unwrap_or(usize::MAX));
        (&raw mut (*head).size).write(size_of::<Head>());
    }
    Ok(mapping)
}

/// Maps the memory of a channel that another process has created.
fn attach(file: OwnedFd) -> io::Result<Mapping> {
    let mapping = Mapping::attach(file, size_of::<Head>())?;
    // SAFETY: a file that is long enough for the struct is long enough for its first field.
    let is_ours = |mapping: &Mapping| unsafe { mapping.head().cast::<usize>().read() } == size_of::<Head>();
    let mapping = mapping.filter(is_ours);
    mapping.ok_or_else(|| io::Error::other("the worker has another version of slotline than the loader"))
}

impl Channel {
    /// Returns another reference to the same memory.
    pub(crate) fn share(&self) -> Self {
        Self(self.0.clone())
    }

    /// Returns whether the receiver has closed the channel.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.head().ring.is_closed()
    }

    /// Returns the first task whose reply the receiver needs.
    pub(crate) fn wanted(&self) -> u64 {
        self.0.head().wanted.load(Ordering::Relaxed)
    }

    fn pop_held_back(&self, count: u64) -> Option<(Lease, Time)> {
        let mut held_back = self.0.held_back()?;
        let held = held_back.as_mut().filter(|held| held.given < count)?;
        let first = held.blocks.pop_front()?;
        held.given += 1;
        Some(first)
    }

    /// Returns the sender the first time, then `None`.
    pub(crate) fn sender(&self) -> Option<Sender> {
        let producer = Producer::new(Handle(self.0.clone()))?;
        let owner = std::process::id();
        let head = self.0.head();
        Some(Sender {
            shared: self.0.clone(),
            producer: ManuallyDrop::new(producer),
            owner,
            heap: Heap::new(size_of::<Head>(), head.limit),
            limit: head.limit,
            charged: 0,
            is_trimmed: true,
            free: (0..BLOCKS as u32).rev().collect(),
            taken: Vec::new(),
            given: 0,
        })
    }

    /// Returns the receiver the first time, then `None`.
    pub(crate) fn receiver(&self) -> Option<Receiver> {
        let consumer = Consumer::new(Handle(self.0.clone()))?;
        self.0.receiver.store(std::process::id(), Ordering::Relaxed);
        Some(Receiver { shared: self.0.clone(), consumer: ManuallyDrop::new(consumer), owner: std::process::id() })
    }
}

/// The sending end of a channel.
pub(crate) struct Sender {
    shared: Arc<Shared>,
    producer: ManuallyDrop<Producer<Handle>>,
    /// The process that took this end. A copy of it in a forked process must not access the shared
    /// memory.
    owner: u32,
    heap: Heap,
    /// The most bytes that batches may take together, and the bytes that they take.
    limit: usize,
    charged: usize,
    /// Whether no block was allocated since the last [`trim`](Self::trim).
    is_trimmed: bool,
    /// The numbers of blocks that are not in use.
    free: Vec<u32>,
    taken: Vec<UsedBlock>,
    /// The value of `Head::given` when it was last read.
    given: u32,
}

/// A block in use: its location, and how many of its bytes count towards the limit.
#[derive(Debug)]
struct UsedBlock {
    block: u32,
    range: Range<usize>,
    charge: usize,
}

/// An allocated block that the sender writes into.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The block's location, for the message.
    pub(crate) place: BlockRef,
    /// The start of the block, aligned to [`ALIGN`](crate::memory::ALIGN).
    pub(crate) start: NonNull<u8>,
}

impl Sender {
    /// Returns an error if a batch of `len` bytes would exceed the limit.
    pub(crate) fn admit(&mut self, len: usize) -> io::Result<()> {
        self.reclaim();
        let limit = self.limit;
        if len <= limit.saturating_sub(self.charged) {
            self.heap.bound(&self.shared.mapping);
            return Ok(());
        }
        let limit = match limit {
            1 => "1 byte".to_owned(),
            _ if limit.is_multiple_of(1 << 20) => format!("{} MiB", limit >> 20),
            _ if limit.is_multiple_of(1 << 10) => format!("{} KiB", limit >> 10),
            _ => format!("{limit} bytes"),
        };
        Err(io::Error::other(if len > self.limit {
            format!(
                "a batch takes {len} bytes, and the batches of a worker may take {limit}: raise memory_limit, or make batches smaller"
            )
        } else {
            format!(
                "the batches of a worker that are in use take more than {limit} together; keep fewer of them, or raise \
                 memory_limit, or lower prefetch_factor"
            )
        }))
    }

    /// Allocates a block of at least `len` bytes. It counts towards the limit if `is_batch`.
    pub(crate) fn draft(&mut self, len: usize, is_batch: bool) -> io::Result<Draft> {
        self.reclaim();
        self.is_trimmed = false;
        let block = self.free.pop().ok_or_else(|| io::Error::other("too many batches are kept"))?;
        let mapping = &self.shared.mapping;
        let taken = self.heap.take(len, mapping).and_then(|range| match mapping.find(&range) {
            Ok(Some(region)) => Ok((range, region)),
            // The region was mapped when it was added, so it must be found.
            _ => Err(io::ErrorKind::OutOfMemory.into()),
        });
        let (range, region) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                self.free.push(block);
                return Err(error);
            }
        };
        let (offset, start) = (range.start, region.at(range.start));
        let charge = if is_batch { len } else { 0 };
        self.charged += charge;
        self.taken.push(UsedBlock { block, range, charge });
        self.shared.head().used[block as usize].store(1, Ordering::Relaxed);
        Ok(Draft { place: BlockRef { block, offset, len }, start })
    }

    /// Frees a block that was not sent.
    pub(crate) fn discard(&mut self, draft: Draft) {
        self.shared.give(draft.place.block);
    }

    /// Returns unused memory to the system until it is needed again.
    pub(crate) fn trim(&mut self) {
        self.reclaim();
        // Page-locked memory must stay: a device may use its addresses.
        if !self.is_trimmed && !self.shared.head().is_locked.load(Ordering::Relaxed) {
            self.heap.trim(&self.shared.mapping);
            self.is_trimmed = true;
        }
    }

    /// Sends a message with a block. Returns `false` if the channel is closed.
    pub(crate) fn send(&mut self, message: Message, draft: Option<Draft>) -> bool {
        let none = BlockRef { block: u32::MAX, offset: 0, len: 0 };
        let BlockRef { block, offset, len } = draft.map_or(none, |draft| draft.place);
        let wire = Wire { kind: message.kind, block, task: message.task, offset, len };
        match self.producer.claim() {
            Ok(mut slot) => {
                *slot = wire;
                slot.publish();
                true
            }
            Err(_) => false,
        }
    }

    /// Returns the number of the container structure that the receiver knows.
    pub(crate) fn known(&self) -> u64 {
        self.shared.head().known.load(Ordering::Relaxed)
    }

    /// Records that this end begins a task, at the time `begun` of `time.perf_counter`.
    pub(crate) fn begin(&mut self, task: u64, begun: f64) {
        let figures = &self.shared.head().figures;
        figures.begun.store(begun.to_bits(), Ordering::Relaxed);
        figures.task.store(task, Ordering::Release);
    }

    /// Records that this end has finished its task after `took`, and the part of it in which it
    /// collated and copied.
    pub(crate) fn end(&mut self, took: Duration, writing: Duration) {
        let figures = &self.shared.head().figures;
        let [took, writing] = [took, writing].map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let task = figures.task.swap(0, Ordering::Relaxed);
        figures.busy.fetch_add(took, Ordering::Relaxed);
        figures.writing.fetch_add(writing, Ordering::Relaxed);
        if took > figures.longest.load(Ordering::Relaxed) {
            figures.longest.store(took, Ordering::Relaxed);
            figures.slowest.store(task, Ordering::Relaxed);
        }
    }

    /// Frees the blocks that the receiver has returned.
    fn reclaim(&mut self) {
        let head = self.shared.head();
        let given = head.given.load(Ordering::Acquire);
        if given == self.given {
            return;
        }
        self.given = given;
        let (heap, free, charged) = (&mut self.heap, &mut self.free, &mut self.charged);
        self.is_trimmed = false;
        self.taken.retain(|taken| {
            // Acquire: the receiver's reads from the block happen before it is written again.
            let is_used = head.used[taken.block as usize].load(Ordering::Acquire) != 0;
            if !is_used {
                heap.give(taken.range.clone());
                free.push(taken.block);
                *charged -= taken.charge;
            }
            is_used
        });
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            // SAFETY: `producer` is dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.producer) };
        }
    }
}

/// The receiving end of a channel.
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    consumer: ManuallyDrop<Consumer<Handle>>,
    /// The process that took this end. A copy of it in a forked process must not access the shared
    /// memory.
    owner: u32,
}

/// The reason why no message was received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TryRecvError {
    /// No message has arrived yet.
    Empty,
    /// The channel is closed and empty: no message can arrive.
    Closed,
}

/// The location of a block that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRef {
    pub(crate) block: u32,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// A block that was received. In the process that received it, dropping it returns the block to the
/// sender.
pub(crate) struct Block {
    /// `None` only while it is being dropped.
    lease: Option<Lease>,
    owner: u32,
    start: NonNull<u8>,
    len: usize,
    /// Whether the program has seen the block's address, so that a device may copy from it.
    is_exposed: AtomicBool,
}

// SAFETY: it refers to shared memory that no other code writes while the block exists.
unsafe impl Send for Block {}
// SAFETY: see above.
unsafe impl Sync for Block {}

impl Block {
    /// Returns the start of the block.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Records that the program sees the block's address, so that a device may copy from it.
    pub(crate) fn expose(&self) {
        self.is_exposed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `Receiver::block` has checked that the range is in the mapping. Only the user's
        // tensors write to the memory, and only to their own elements, which are not read through
        // this slice.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take().filter(|_| std::process::id() == self.owner) else { return };
        let until = Time::now();
        // Usually the memory is not page-locked, so this check comes first.
        if *self.is_exposed.get_mut()
            && let Some(shared) = lease.shared.upgrade()
            && shared.head().is_locked.load(Ordering::Relaxed)
            && let Some(held) = shared.held_back().as_deref_mut().and_then(Option::as_mut)
        {
            held.blocks.push_back((lease, until));
            return;
        }
        forks::release(lease, until);
        if forks::has_seen() {
            forks::release_seen();
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Receiver {
    /// Returns the next message. Without `patience` it does not wait; otherwise it waits up to that
    /// long.
    pub(crate) fn receive(&mut self, patience: Option<Duration>) -> Result<(Message, Option<BlockRef>), TryRecvError> {
        let next = match patience {
            None => self.consumer.try_next(),
            Some(patience) => self.consumer.next_until(&(Instant::now() + patience)),
        };
        let wire = next.map(|slot| *slot).map_err(|error| match error {
            NextError::Empty => TryRecvError::Empty,
            _ => TryRecvError::Closed,
        })?;
        if forks::has_seen() && std::process::id() == self.owner {
            forks::release_seen();
        }
        let place = BlockRef { block: wire.block, offset: wire.offset, len: wire.len };
        Ok((Message { kind: wire.kind, task: wire.task }, (wire.block != u32::MAX).then_some(place)))
    }

    /// Tells the sender the number of the container structure that this end knows now.
    pub(crate) fn know(&self, number: u64) {
        self.shared.head().known.store(number, Ordering::Relaxed);
    }

    /// Returns the number of messages that can be received without waiting.
    pub(crate) fn ready(&self) -> usize {
        self.consumer.ready()
    }

    /// Returns whether too many blocks are kept for the sender to be sure of a free one.
    pub(crate) fn is_crowded(&self) -> bool {
        self.shared.kept.load(Ordering::Relaxed) > MAX_KEPT
    }

    /// Takes the block that a message refers to. Returns an error if the range is not in the
    /// memory, so that a sender that corrupted its message cannot cause reads outside; and if the
    /// memory cannot be mapped, after returning the block to the sender.
    pub(crate) fn block(&self, place: BlockRef) -> io::Result<Block> {
        let BlockRef { block, offset, len } = place;
        let range = offset..offset.saturating_add(len.max(1));
        let region = match self.shared.mapping.find(&range) {
            Ok(region) => region.filter(|region| region.keep(range.clone())),
            Err(error) => {
                self.shared.give(block);
                return Err(error);
            }
        };
        let region = region.ok_or_else(|| {
            io::Error::other("a worker has sent a batch that cannot be read: a tensor is outside of its memory")
        })?;
        self.shared.kept.fetch_add(1, Ordering::Relaxed);
        let start = region.at(offset);
        let lease = Lease { shared: Arc::downgrade(&self.shared), region, range, block, from: forks::note_block() };
        Ok(Block { lease: Some(lease), owner: self.owner, start, len, is_exposed: AtomicBool::new(false) })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            // SAFETY: `consumer` is dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.consumer) };
        }
    }
}
