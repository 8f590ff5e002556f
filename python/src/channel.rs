//! Messages from one process to another, each with a block of memory.
//!
//! A channel is one [`Mapping`]: a ring of messages ([`slotline_core::spsc`]), a byte for each block that is in use, and a
//! [`Heap`] of blocks. The sender takes a block, writes into it, and publishes a message that says where it is. The
//! receiver reads the block in place, for as long as it wants, and then clears its byte. The sender looks at the bytes
//! when it needs memory. Others may still read a block that the receiver has dropped: processes that were forked from it
//! ([`forks`](crate::forks)), and devices ([`Memory::hold_back`]). Its byte is cleared when they are done.
//!
//! A process that vanishes leaves nothing half done: what it wrote into a block is nobody's until the message is
//! published, which is the store of one word. What a message says is checked before it is used.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, size_of};
use std::ops::Deref;
use std::os::fd::{OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use slotline::SharedFutex;
use slotline_core::handle;
use slotline_core::spsc::{Consumer, NextError, Producer, Ring, Slot};
use slotline_core::wait::{Deadline, Park};

use crate::forks::{self, Time};
use crate::memory::{Heap, Mapping};

/// The messages that fit in a ring.
const CAPACITY: usize = 1024;
/// The blocks that can be in use at once.
const BLOCKS: usize = 1 << 16;
/// A receiver should not keep more blocks than this, so that the sender always finds a free one.
const MOST_KEPT: usize = BLOCKS - 2 * CAPACITY;

type Messages = Ring<[Slot<Wire>; CAPACITY], Park<SharedFutex>>;

/// A message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) kind: u32,
    pub(crate) task: u64,
}

/// A message in the shared memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Wire {
    kind: u32,
    block: u32,
    task: u64,
    offset: usize,
    len: usize,
}

/// What lies at the start of the memory.
#[repr(C)]
struct Head {
    /// The size of this struct, to notice another version of slotline.
    size: usize,
    ring: Messages,
    /// For how many nanoseconds the sender was busy.
    busy: AtomicU64,
    /// How many blocks were given back, wrapping.
    given: AtomicU32,
    /// Whether the receiver page-locks the memory.
    is_locked: AtomicBool,
    /// For each block whether it is in use.
    used: [AtomicU8; BLOCKS],
}

/// The memory of a channel.
#[derive(Debug)]
struct Shared {
    mapping: Mapping,
    /// How many blocks this process has received and not given back, those that are held back among them.
    kept: AtomicUsize,
    /// The process that created or mapped the memory here. One that was forked from it must give nothing back.
    owner: u32,
    held_back: Mutex<Option<HeldBack>>,
    /// Blocks that were dropped, but that a forked process may still read.
    seen: Mutex<Vec<Dropped>>,
    /// Whether there are any.
    has_seen: AtomicBool,
}

/// A block that was dropped, when it was received, and when it was dropped.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    block: u32,
    from: Time,
    until: Time,
}

/// Blocks that were dropped and are not given back yet, in the order in which they were dropped.
#[derive(Debug, Default)]
struct HeldBack {
    blocks: VecDeque<Dropped>,
    /// How many blocks were given back.
    given: u64,
}

impl Shared {
    fn head(&self) -> &Head {
        // SAFETY: `channel` puts a head at the start of the mapping, and `attach` checks that there is one. Its parts are
        // atomics and a ring, and it stays in place until the mapping is dropped.
        unsafe { self.mapping.start().cast().as_ref() }
    }

    /// Gives a block back, as soon as no forked process sees it. Only in the owner.
    fn release(&self, dropped: Dropped) {
        if forks::is_seen(dropped.from, dropped.until) {
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(dropped);
            self.has_seen.store(true, Ordering::Relaxed);
        } else {
            self.end(dropped.block);
        }
    }

    /// Gives back what forked processes do not see any more. Only in the owner.
    fn release_seen(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|dropped| {
            let is_seen = forks::is_seen(dropped.from, dropped.until);
            if !is_seen {
                self.end(dropped.block);
            }
            is_seen
        });
        self.has_seen.store(!seen.is_empty(), Ordering::Relaxed);
    }

    /// Gives a block back that was received.
    fn end(&self, block: u32) {
        self.kept.fetch_sub(1, Ordering::Relaxed);
        give(self, block);
        forks::note_end(1);
    }

    /// Returns `None` in a process that was forked from the owner, where another thread may have locked it.
    fn held_back(&self) -> Option<MutexGuard<'_, Option<HeldBack>>> {
        (std::process::id() == self.owner).then(|| self.held_back.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            // Of the blocks that were received, those that are not given back.
            forks::note_end(*self.kept.get_mut());
        }
    }
}

/// Refers to the ring of a channel.
#[derive(Clone, Debug)]
struct Handle(Arc<Shared>);

impl Deref for Handle {
    type Target = Messages;

    fn deref(&self) -> &Messages {
        &self.0.head().ring
    }
}

// SAFETY: clones refer to the same memory, which stays in place until the last of them is dropped.
unsafe impl handle::Handle for Handle {}

/// Creates a channel.
///
/// All blocks together may have `limit` bytes, or as many as the machine can have.
pub(crate) fn channel(limit: Option<usize>) -> io::Result<Memory> {
    let limit = limit.map(|limit| limit.saturating_add(size_of::<Head>()));
    let mapping = Mapping::new(size_of::<Head>(), limit)?;
    let head = mapping.start().cast::<Head>().as_ptr();
    let (items, space) = (Park::new(SharedFutex), Park::new(SharedFutex));
    // SAFETY: the mapping is large enough, begins at a page, and is all zeros, which are valid atomics.
    unsafe {
        (&raw mut (*head).ring).write(Ring::with_wait([const { Slot::new(EMPTY) }; CAPACITY], items, space));
        (&raw mut (*head).size).write(size_of::<Head>());
    }
    Ok(Memory::new(mapping))
}

const EMPTY: Wire = Wire { kind: 0, block: 0, task: 0, offset: 0, len: 0 };

/// Maps the memory of a channel that another process has created.
pub(crate) fn attach(file: OwnedFd) -> io::Result<Memory> {
    let mapping = Mapping::attach(file)?;
    // SAFETY: the file is long enough for a number, if it is long enough for the struct.
    let fits =
        mapping.size() >= size_of::<Head>() && unsafe { mapping.start().cast::<usize>().read() } == size_of::<Head>();
    if !fits {
        return Err(io::Error::other("the worker has another version of slotline than the loader"));
    }
    Ok(Memory::new(mapping))
}

/// The memory of a channel, of which either side can be taken.
#[derive(Debug)]
pub(crate) struct Memory(Arc<Shared>);

impl Memory {
    fn new(mapping: Mapping) -> Self {
        let owner = std::process::id();
        Self(Arc::new(Shared {
            mapping,
            kept: AtomicUsize::new(0),
            owner,
            held_back: Mutex::default(),
            seen: Mutex::default(),
            has_seen: AtomicBool::new(false),
        }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.mapping.fd()
    }

    /// Returns how long the sender was busy.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.0.head().busy.load(Ordering::Relaxed))
    }

    /// Holds blocks back from now on: one that is [exposed](Block::expose) and dropped is given back by
    /// [`give_back`](Self::give_back) only, since a device may still copy it. The memory may be page-locked as it grows:
    /// no block crosses a place where the memory ended once. The sender must not have been taken.
    pub(crate) fn hold_back(&self) {
        self.0.head().is_locked.store(true, Ordering::Relaxed);
        if let Some(mut held_back) = self.0.held_back() {
            held_back.get_or_insert_default();
        }
    }

    /// Returns how many blocks that were held back have been dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        let held_back = self.0.held_back();
        held_back.as_deref().and_then(Option::as_ref).map_or(0, |held| held.given + held.blocks.len() as u64)
    }

    /// Gives back the first `count` of the blocks that were held back, except for those that were given back before.
    pub(crate) fn give_back(&self, count: u64) {
        let Some(mut held_back) = self.0.held_back() else { return };
        let Some(held) = &mut *held_back else { return };
        while held.given < count
            && let Some(block) = held.blocks.pop_front()
        {
            held.given += 1;
            self.0.release(block);
        }
    }

    /// Returns where the memory is, and how long it is now.
    pub(crate) fn range(&self) -> io::Result<(usize, usize)> {
        Ok((self.0.mapping.start().addr().get(), self.0.mapping.size_now()?))
    }

    /// Ends the channel for both sides.
    pub(crate) fn close(&self) {
        self.0.head().ring.close();
    }

    /// Returns the sender, once.
    pub(crate) fn sender(&self) -> Option<Sender> {
        let producer = Producer::new(Handle(self.0.clone()))?;
        let mut heap = Heap::new(size_of::<Head>());
        if self.0.head().is_locked.load(Ordering::Relaxed) {
            heap.keep_seams();
        }
        let owner = std::process::id();
        Some(Sender {
            shared: self.0.clone(),
            producer: ManuallyDrop::new(producer),
            owner,
            heap,
            free: (0..BLOCKS as u32).rev().collect(),
            taken: Vec::new(),
            given: 0,
        })
    }

    /// Returns the receiver, once.
    pub(crate) fn receiver(&self) -> Option<Receiver> {
        let consumer = Consumer::new(Handle(self.0.clone()))?;
        Some(Receiver { shared: self.0.clone(), consumer: ManuallyDrop::new(consumer), owner: std::process::id() })
    }
}

/// The sending side.
pub(crate) struct Sender {
    shared: Arc<Shared>,
    producer: ManuallyDrop<Producer<Handle>>,
    /// The process that took this side. What a fork has copied must not touch the shared memory.
    owner: u32,
    heap: Heap,
    /// Numbers of blocks that are not in use.
    free: Vec<u32>,
    /// The blocks in use, and where they are.
    taken: Vec<(u32, usize, usize)>,
    /// `given`, when it was last looked at.
    given: u32,
}

/// A block that a sender writes into.
#[derive(Debug)]
pub(crate) struct Draft {
    block: u32,
    offset: usize,
    len: usize,
    start: NonNull<u8>,
}

impl Draft {
    /// The number of the block.
    pub(crate) fn block(&self) -> u32 {
        self.block
    }

    /// Where it is in the memory.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// The start of the block, which is aligned to [`ALIGN`](crate::memory::ALIGN).
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Sender {
    /// Takes a block of at least `len` bytes.
    pub(crate) fn draft(&mut self, len: usize) -> io::Result<Draft> {
        self.reclaim();
        let block = self.free.pop().ok_or_else(|| io::Error::other("too many batches are kept"))?;
        let (offset, taken) = match self.heap.take(len, &self.shared.mapping) {
            Ok(range) => range,
            Err(error) => {
                self.free.push(block);
                return Err(error);
            }
        };
        let start = self.shared.mapping.bytes(offset, taken).ok_or(io::ErrorKind::OutOfMemory)?;
        self.taken.push((block, offset, taken));
        self.shared.head().used[block as usize].store(1, Ordering::Relaxed);
        Ok(Draft { block, offset, len, start })
    }

    /// Gives a block back that was not sent.
    pub(crate) fn discard(&mut self, draft: Draft) {
        give(&self.shared, draft.block);
    }

    /// Sends a message with a block. Returns `false` if the channel is closed.
    pub(crate) fn send(&mut self, message: Message, draft: Option<Draft>) -> bool {
        let (block, offset, len) = draft.map_or((u32::MAX, 0, 0), |draft| (draft.block, draft.offset, draft.len));
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

    /// Whether nobody will receive what is sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.producer.is_closed()
    }

    /// Adds to how long this side was busy.
    pub(crate) fn add_busy(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.shared.head().busy.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Takes back the blocks that the receiver has given back.
    fn reclaim(&mut self) {
        let head = self.shared.head();
        let given = head.given.load(Ordering::Acquire);
        if given == self.given {
            return;
        }
        self.given = given;
        let (heap, free) = (&mut self.heap, &mut self.free);
        self.taken.retain(|&(block, offset, len)| {
            // Acquire: whatever the receiver read there was read before we write again.
            let is_used = head.used[block as usize].load(Ordering::Acquire) != 0;
            if !is_used {
                heap.give((offset, len));
                free.push(block);
            }
            is_used
        });
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            // SAFETY: it is dropped once.
            unsafe { ManuallyDrop::drop(&mut self.producer) };
        }
    }
}

fn give(shared: &Shared, block: u32) {
    let head = shared.head();
    if let Some(used) = head.used.get(block as usize) {
        used.store(0, Ordering::Release);
        head.given.fetch_add(1, Ordering::Release);
    }
}

/// The receiving side.
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    consumer: ManuallyDrop<Consumer<Handle>>,
    /// As in [`Sender`].
    owner: u32,
}

/// Why there is no message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Nothing {
    /// None has come yet.
    Yet,
    /// None will come.
    Ever,
}

/// A block that was received. Dropping it gives it back, in the process that has received it.
pub(crate) struct Block {
    shared: Arc<Shared>,
    owner: u32,
    block: u32,
    start: NonNull<u8>,
    len: usize,
    /// Whether the program has seen its address.
    is_exposed: AtomicBool,
    /// When it was received.
    from: Time,
}

// SAFETY: it refers to shared memory, of which nobody writes this part while it exists.
unsafe impl Send for Block {}
// SAFETY: see above.
unsafe impl Sync for Block {}

impl Block {
    /// Returns the start of the block.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Remembers that the program sees its address, so that a device may copy it.
    pub(crate) fn expose(&self) {
        self.is_exposed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `receive` has checked that the range is in the mapping. Only the user's tensors write there, into
        // the parts that hold their elements, and nobody reads those through this slice.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            let dropped = Dropped { block: self.block, from: self.from, until: Time::now() };
            // Most memory is not page-locked, and needs no lock.
            if *self.is_exposed.get_mut()
                && self.shared.head().is_locked.load(Ordering::Relaxed)
                && let Some(mut held_back) = self.shared.held_back()
                && let Some(held) = &mut *held_back
            {
                held.blocks.push_back(dropped);
                return;
            }
            self.shared.release(dropped);
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("block", &self.block).field("len", &self.len).finish_non_exhaustive()
    }
}

/// A point in time.
struct At(Instant);

impl Deadline for At {
    fn remaining(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

impl Receiver {
    /// Returns the next message, if it is there.
    pub(crate) fn try_receive(&mut self) -> Result<(Message, Option<Block>), Nothing> {
        let wire = match self.consumer.try_next() {
            Ok(slot) => *slot,
            Err(NextError::Empty) => return Err(Nothing::Yet),
            Err(_) => return Err(Nothing::Ever),
        };
        self.accept(wire)
    }

    /// Returns the next message. Waits for it, but not longer than `patience`.
    pub(crate) fn receive(&mut self, patience: Duration) -> Result<(Message, Option<Block>), Nothing> {
        let wire = match self.consumer.next_until(&At(Instant::now() + patience)) {
            Ok(slot) => *slot,
            Err(NextError::Empty) => return Err(Nothing::Yet),
            Err(_) => return Err(Nothing::Ever),
        };
        self.accept(wire)
    }

    /// Returns how many messages are there.
    pub(crate) fn ready(&self) -> usize {
        self.consumer.ready()
    }

    /// Whether so many blocks are kept that the sender might not find a free one.
    pub(crate) fn is_crowded(&self) -> bool {
        self.shared.kept.load(Ordering::Relaxed) > MOST_KEPT
    }

    fn accept(&self, wire: Wire) -> Result<(Message, Option<Block>), Nothing> {
        let message = Message { kind: wire.kind, task: wire.task };
        if self.shared.has_seen.load(Ordering::Relaxed) && std::process::id() == self.owner {
            self.shared.release_seen();
        }
        match wire.block {
            u32::MAX => Ok((message, None)),
            number => Ok((message, Some(self.block(number, wire.offset, wire.len).ok_or(Nothing::Ever)?))),
        }
    }

    /// Takes a block that a message speaks of. A sender that wrote over its memory by mistake must not make us read
    /// outside of it, so returns `None` if that is where it would be.
    pub(crate) fn block(&self, number: u32, offset: usize, len: usize) -> Option<Block> {
        let start = self.shared.mapping.bytes(offset, len)?;
        self.shared.kept.fetch_add(1, Ordering::Relaxed);
        Some(Block {
            shared: self.shared.clone(),
            owner: self.owner,
            block: number,
            start,
            len,
            is_exposed: AtomicBool::new(false),
            from: forks::note_block(),
        })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            // SAFETY: it is dropped once.
            unsafe { ManuallyDrop::drop(&mut self.consumer) };
        }
    }
}
