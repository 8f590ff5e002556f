//! Allocates the memory of a loader, and divides it into the storage of its batches.

use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::BoxError;
use crate::arena::{ALIGN, Heap, Memory, Pages, available_memory, has_room, lock_limit, shortage};
use crate::dataset::{Context, Dataset};
use crate::loader::collate::batch_buffer::{BatchBuffer, slot_size};
use crate::loader::collate::cell_pool::ExtraMemory;
use crate::loader::error::build::BuildError;
use crate::loader::error::guard::{dispose, probe};
use crate::loader::error::warning::Warning;
use crate::sample::{Fields, Layout};
use crate::streaming;
use crate::sync::{Mutex, thread};

/// The bytes that a worker touches in one step, which takes the system about a tenth of a
/// millisecond.
const STEP: usize = 2 << 20;
/// The address space that is reserved for additional batches in memory that processes share: this
/// many bytes, or the bytes of this many batches if that is more.
const RESERVE: (usize, usize) = (4 << 30, 1024);
/// Additional batches of fewer bytes than this are allocated on the heap.
const HEAP: usize = 1 << 20;
/// The maximum number of samples that are read to learn the fields.
pub(crate) const PROBES: usize = 16;

/// Returns the bytes from one slot to the next in the arena for a number of rows in a batch;
/// `usize::MAX` on overflow.
pub(crate) type BatchBytes<'a> = &'a dyn Fn(usize) -> usize;

/// Determines the fields of the samples.
type Ask<'a> = &'a dyn Fn() -> Result<Fields, BuildError>;

type Arena = Arc<dyn Memory>;

/// The user's function that allocates memory for a number of bytes.
pub(crate) struct Allocate(pub(crate) Box<dyn FnMut(usize) -> Result<Arena, BoxError> + Send>);

impl Allocate {
    /// Allocates memory, and checks that it is large enough and aligned as [`Memory`] requires.
    fn memory(&mut self, bytes: usize) -> Result<Arena, BuildError> {
        let failed = |source| BuildError::Allocate { bytes, source };
        let memory = probe(|| (self.0)(bytes)).map_err(failed)?;
        let fits = probe(|| {
            let (len, start) = (memory.len(), memory.start().as_ptr());
            if len < bytes || !start.addr().is_multiple_of(ALIGN) {
                return Err(format!("it has {len} bytes at {start:p}, which must be a multiple of {ALIGN}").into());
            }
            Ok(())
        });
        match fits {
            Ok(()) => Ok(memory),
            Err(source) => {
                dispose(memory);
                Err(failed(source))
            }
        }
    }
}

/// The arguments for making a loader's slots.
#[doc(hidden)]
pub struct SlotRequest<'a> {
    pub(crate) fields: Ask<'a>,
    pub(crate) rows: usize,
    /// Returns the number of slots. Its argument returns the bytes of a slot; `None` if these are
    /// unknown.
    pub(crate) slots: &'a mut dyn FnMut(Option<BatchBytes<'_>>) -> Result<usize, BuildError>,
    /// The bytes of the system's memory that the loader's other allocations need.
    pub(crate) reserved: usize,
    pub(crate) pin_memory: bool,
    /// The user's function that allocates the memory, if there is one.
    pub(crate) memory: Option<Allocate>,
    /// Whether packed fields may move to the heap, even if the samples' type does not allow it.
    pub(crate) spilling: bool,
    /// The number of workers that can touch the memory after the first slot.
    pub(crate) touchers: usize,
    /// Whether the memory is shared with worker processes. Address space for additional slots is
    /// then reserved.
    pub(crate) forked: bool,
}

impl fmt::Debug for SlotRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotRequest").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// The slots of a loader, and the memory that they take.
#[doc(hidden)]
#[derive(Debug)]
pub struct MadeSlots<P> {
    pub(crate) payloads: Vec<P>,
    /// Makes additional slots.
    pub(crate) more: ExtraMemory<P>,
    pub(crate) bytes: usize,
    pub(crate) warnings: Vec<Warning>,
    /// Whether several workers can fill one slot.
    pub(crate) shared: bool,
    /// Whether packed fields may move to the heap.
    pub(crate) spills: bool,
    pub(crate) untouched: Option<Untouched>,
    /// Makes the storage of the batch in a given slot, in a worker process.
    pub(crate) payload_at: Option<PayloadAt<P>>,
}

/// Makes the storage of the batch in a given slot, in a worker process.
pub(crate) struct PayloadAt<P> {
    pub(crate) make: Box<dyn Fn(usize) -> P + Send + Sync>,
    /// The number of slots that there is address space for.
    pub(crate) count: usize,
}

impl PayloadAt<BatchBuffer> {
    /// Divides the memory that processes share into slots.
    pub(crate) fn new(arena: Arena, layout: Arc<Layout>) -> Self {
        let batch = slot_size(layout.size);
        let count = arena.len() / batch;
        let make = Box::new(move |number: usize| {
            assert!(number < count);
            // SAFETY: the slot is within the arena. The loader's process decides which thread
            // writes into it.
            unsafe { BatchBuffer::new(arena.start().add(number * batch), layout.clone(), arena.clone()) }
        });
        Self { make, count }
    }
}

impl<P> fmt::Debug for PayloadAt<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PayloadAt")
    }
}

/// The memory after the first slot, mapped but not yet backed by pages. The workers touch it in
/// parallel before their first claim, so that `build` and the first batch need not wait for it.
#[derive(Debug)]
pub(crate) struct Untouched {
    pages: Arc<Pages>,
    /// The first untouched byte: the size of the first slot.
    first: usize,
    /// Locked while the loader is being built, during which no worker touches memory: starting a
    /// thread would have to wait for a thread to which the system is giving memory.
    pub(crate) building: Mutex<()>,
}

impl Untouched {
    /// Touches one worker's share of the memory, step by step, unless the loader is closed in the
    /// meantime.
    pub(crate) fn touch(&self, worker: usize, workers: usize, closed: impl Fn() -> bool) {
        drop(self.building.lock().unwrap_or_else(PoisonError::into_inner));
        let end = self.pages.len();
        for start in (self.first / STEP * STEP..end).step_by(STEP).skip(worker).step_by(workers) {
            if closed() {
                return;
            }
            self.pages.populate(start.max(self.first)..end.min(start + STEP));
            // Let the calling thread run if it is waiting for this core.
            thread::yield_now();
        }
    }
}

/// Makes the slots of batches that are stacked.
pub(crate) fn stacked_slots(request: SlotRequest<'_>) -> Result<MadeSlots<BatchBuffer>, BuildError> {
    let fields = (request.fields)()?;
    let spilling = request.spilling || (fields.spills() && !request.forked);
    let layout = |rows| {
        let layout = Layout::new(fields.clone(), rows)?;
        if spilling { layout.spilling() } else { Ok(layout) }
    };
    let slots = (request.slots)(Some(&|rows| layout(rows).map_or(usize::MAX, |layout| slot_size(layout.size))));
    let mut layout = layout(request.rows)?;
    let (batch, slots) = (slot_size(layout.size), slots?);
    layout.streaming = streaming::pays(batch.saturating_mul(slots));
    let layout = Arc::new(layout);
    let bytes = batch as u128 * slots as u128;
    let missing = |len: &usize| shortage(len.saturating_add(request.reserved)).is_some();
    let Some(len) = usize::try_from(bytes).ok().filter(|len| *len <= isize::MAX as usize && !missing(len)) else {
        let available = available_memory().unwrap_or(u64::MAX).saturating_sub(request.reserved as u64);
        return Err(BuildError::Memory { slots, batch, bytes, available });
    };
    let mut warnings = Vec::new();
    let (mut memory, pin_memory) = (request.memory, request.pin_memory);
    let (arena, untouched) = match &mut memory {
        Some(allocate) => (allocate.memory(len)?, None),
        None if request.forked => {
            let (pages, warning) = forked_pages(len, batch, pin_memory)?;
            warnings.extend(warning);
            (pages as Arena, None)
        }
        None => {
            let first = if request.touchers > 0 && !pin_memory { batch } else { len };
            let (pages, all, warning) = pages(len, first, pin_memory)?;
            warnings.extend(warning);
            let untouched = (!all).then(|| Untouched { pages: pages.clone(), first, building: Mutex::default() });
            (pages as Arena, untouched)
        }
    };
    if request.forked && !arena.is_shared() {
        let source = "workers that are processes need memory that they share, such as Pages::shared".into();
        return Err(BuildError::Allocate { bytes: len, source });
    }
    let bytes = if request.forked { len } else { arena.len() };
    let (shared, spills) = (!layout.is_sequential(), layout.spills());
    let payloads = (0..slots).map(|slot| {
        // SAFETY: the slots divide the arena, and each has the size of the layout, rounded up.
        unsafe { BatchBuffer::new(arena.start().add(slot * batch), layout.clone(), arena.clone()) }
    });
    let payloads = payloads.collect();
    let payload_at = request.forked.then(|| PayloadAt::new(arena.clone(), layout.clone()));
    let forked = request.forked.then(|| (arena.clone(), slots));
    let make = further_slots(layout, batch, forked, memory, pin_memory);
    let more = ExtraMemory { make: Box::new(make), bytes: batch.next_multiple_of(ALIGN) };
    Ok(MadeSlots { payloads, more, bytes, warnings, shared, spills, untouched, payload_at })
}

/// Returns a function that makes the memory of one more batch of `batch` bytes. If processes share
/// the arena (`forked`: the arena and the number of slots in use), the memory is the arena's next
/// slot; otherwise it is newly allocated.
fn further_slots(
    layout: Arc<Layout>,
    batch: usize,
    mut forked: Option<(Arena, usize)>,
    mut memory: Option<Allocate>,
    pin_memory: bool,
) -> impl FnMut() -> Result<(BatchBuffer, usize, Option<Warning>), BoxError> + Send {
    move || {
        if let Some((arena, number)) = &mut forked {
            if (*number + 1) * batch > arena.len() {
                return Err(format!("workers that are processes can have {number} batches at most").into());
            }
            if !has_room(batch) {
                return Err(format!("the system does not have {batch} bytes left").into());
            }
            let start = *number * batch;
            *number += 1;
            // SAFETY: the slot is within the arena, and was not used before.
            let buffer = unsafe { BatchBuffer::new(arena.start().add(start), layout.clone(), arena.clone()) };
            // SAFETY: the memory belongs to the buffer.
            let locked = !pin_memory || unsafe { libc::mlock(buffer.start().as_ptr().cast(), batch) } == 0;
            let warning = (!locked).then(|| not_locked(batch, &std::io::Error::last_os_error()));
            return Ok((buffer, batch, warning));
        }
        let (arena, warning) = match &mut memory {
            Some(allocate) => (allocate.memory(batch)?, None),
            None if !has_room(batch) => return Err(format!("the system does not have {batch} bytes left").into()),
            // The system limits the number of mappings, so small batches get none of their own.
            None if batch < HEAP && !pin_memory => (Arc::new(Heap::new(batch)?) as Arena, None),
            None => {
                let (pages, _, warning) = pages(batch, batch, pin_memory)?;
                (pages as Arena, warning)
            }
        };
        let bytes = arena.len();
        // SAFETY: the memory is new, and has the size of the layout, rounded up.
        Ok((unsafe { BatchBuffer::new(arena.start(), layout.clone(), arena) }, bytes, warning))
    }
}

/// Maps `len` bytes for batches, touches the `first` ones, and locks all pages if `lock` is set.
/// Returns the pages, whether all of them were touched, and a warning if they could not be locked.
fn pages(len: usize, first: usize, lock: bool) -> Result<(Arc<Pages>, bool, Option<Warning>), BuildError> {
    let mut pages = Pages::new(len).map_err(|source| BuildError::Map { bytes: len, source })?;
    let all = pages.touch(first);
    let refused = if lock { pages.lock().err() } else { None };
    Ok((Arc::new(pages), all, refused.map(|reason| not_locked(len, &reason))))
}

/// Maps `len` bytes, and address space for additional batches of `batch` bytes, that worker
/// processes share. Touches the first batch, and locks the first `len` bytes if `lock` is set.
/// Returns the pages, and a warning if they could not be locked.
fn forked_pages(len: usize, batch: usize, lock: bool) -> Result<(Arc<Pages>, Option<Warning>), BuildError> {
    let map = |reserve: usize| {
        let all = len.checked_add(reserve).filter(|&all| all <= isize::MAX as usize);
        all.ok_or(std::io::ErrorKind::OutOfMemory.into()).and_then(Pages::shared)
    };
    let (bytes, batches) = RESERVE;
    let mut reserve = batch.saturating_mul(batches).max(bytes / batch * batch);
    let mut pages = loop {
        match map(reserve) {
            Ok(pages) => break pages,
            // A system that does not overcommit counts address space as memory, so try with less.
            Err(_) if reserve > 0 => reserve = reserve / 2 / batch * batch,
            Err(source) => return Err(BuildError::Map { bytes: len, source }),
        }
    };
    // The workers touch the rest when they write it, in parallel; each process has to map the pages
    // for itself in any case.
    pages.touch(batch);
    let refused = if lock { pages.lock_first(len).err() } else { None };
    Ok((Arc::new(pages), refused.map(|reason| not_locked(len, &reason))))
}

fn not_locked(bytes: usize, reason: &std::io::Error) -> Warning {
    Warning::NotLocked { bytes, limit: lock_limit(), reason: reason.to_string() }
}

/// Returns the fields of the samples: those that the dataset returns, or those of the first sample
/// that can be read.
pub(crate) fn fields_of(dataset: &impl Dataset) -> Result<Fields, BuildError> {
    if let Some(fields) = dataset.fields() {
        return Ok(fields);
    }
    let mut cx = Context::default();
    let mut failure = None;
    for index in 0..dataset.len().min(PROBES) {
        cx.start_sample(index as u64);
        // Declared outside of the closure, because the return value of a function is leaked if a
        // sample in it panics in its `drop` (rust-lang/rust#47949).
        let mut fields = Fields::new();
        let read = probe(|| {
            fields = Fields::of(&dataset.get(index, &mut cx)?);
            Ok(())
        });
        match read {
            // The `drop` of the errors of earlier samples may panic.
            Ok(()) => {
                dispose(failure);
                return Ok(fields);
            }
            Err(source) => dispose(failure.replace(BuildError::Probe { index, source })),
        }
    }
    // An empty dataset needs no fields, since it has no batches.
    failure.map_or_else(|| Ok(Fields::new()), Err)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn workers_touch_the_untouched_memory_until_the_ring_closes() {
        let pages = Arc::new(Pages::new(5 * STEP - 1).unwrap());
        for (first, workers, most, steps) in [
            (1, 1, 9, [5, 0]),
            (STEP, 2, 9, [2, 2]),
            (STEP + 1, 2, 9, [2, 2]),
            (1, 2, 9, [3, 2]),
            (4 * STEP + 7, 2, 9, [1, 0]),
            (1, 2, 2, [2, 2]),
        ] {
            let untouched = Untouched { pages: pages.clone(), first, building: Mutex::default() };
            for (worker, steps) in steps.into_iter().enumerate().take(workers) {
                let taken = Cell::new(0);
                untouched.touch(worker, workers, || {
                    let closed = taken.get() == most;
                    taken.set(taken.get() + usize::from(!closed));
                    closed
                });
                assert_eq!(taken.get(), steps, "worker {worker} of {workers} from {first} on");
            }
        }
    }
}
