//! What the slots of a loader hold, and the memory for it.

use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::BoxError;
use crate::arena::{ALIGN, Heap, Memory, Pages, available_memory, has_room, lock_limit};
use crate::dataset::{Context, Dataset, Loadable};
use crate::loader::collate::Collate;
use crate::loader::collate::region::Region;
use crate::loader::collate::slab::More;
use crate::loader::collate::stack::Stack;
use crate::loader::collate::with::With;
use crate::loader::error::build::BuildError;
use crate::loader::error::guard::{dispose, probe};
use crate::loader::error::warning::Warning;
use crate::sample::{FIELD_ALIGN, Fields, Layout};
use crate::sync::{Mutex, thread};

/// How much memory a worker touches at once: the system takes about a tenth of a millisecond for that.
const STEP: usize = 2 << 20;
/// Batches below this that come on top of the others are on the heap.
const HEAP: usize = 1 << 20;
/// How many samples are tried to learn the fields.
pub(crate) const PROBES: usize = 16;

/// Bytes from slot to slot in the arena, if batches have so many rows; `usize::MAX` if that is no number.
pub(crate) type BatchBytes<'a> = &'a dyn Fn(usize) -> usize;

/// Finds out the fields of a sample.
type Ask<'a> = &'a dyn Fn() -> Result<Fields, BuildError>;

type Owned = Arc<dyn Memory>;

/// The user's way to make memory for so many bytes.
pub(crate) struct Allocate(pub(crate) Box<dyn FnMut(usize) -> Result<Owned, BoxError> + Send>);

impl Allocate {
    /// Makes it, and sees that it is what [`Memory`] says.
    fn memory(&mut self, bytes: usize) -> Result<Owned, BuildError> {
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

/// What slots are to be made.
#[doc(hidden)]
pub struct SlotRequest<'a> {
    pub(crate) fields: Ask<'a>,
    pub(crate) rows: usize,
    /// How many slots, if that is what each takes.
    pub(crate) slots: &'a mut dyn FnMut(Option<BatchBytes<'_>>) -> Result<usize, BuildError>,
    /// Bytes of memory to leave for other things.
    pub(crate) reserved: usize,
    pub(crate) pin_memory: bool,
    /// What makes the memory, in the place of the loader.
    pub(crate) memory: Option<Allocate>,
    /// Whether packed fields may go to the heap.
    pub(crate) spilling: bool,
    /// Workers that will touch the memory of what is not the first slot.
    pub(crate) touchers: usize,
}

impl fmt::Debug for SlotRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotRequest").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// Slots made, and what they cost.
#[doc(hidden)]
#[derive(Debug)]
pub struct MadeSlots<P> {
    pub(crate) payloads: Vec<P>,
    /// What makes another one.
    pub(crate) more: More<P>,
    pub(crate) bytes: usize,
    pub(crate) warnings: Vec<Warning>,
    /// Whether several workers can fill one slot.
    pub(crate) shared: bool,
    pub(crate) untouched: Option<Untouched>,
}

/// Memory of slots that the system has promised but not given yet: all but the first one's, if there are workers to see to
/// it. They do so before their first claim and side by side, so that the first batch need not wait for it.
#[derive(Debug)]
pub(crate) struct Untouched {
    pages: Arc<Pages>,
    /// Where it begins: the bytes of the first slot.
    first: usize,
    /// Held while the loader is being built: starting a thread has to wait for one that gets memory.
    pub(crate) building: Mutex<()>,
}

impl Untouched {
    /// Gets a worker's share of it from the system, bit by bit and as long as nobody has closed the ring.
    pub(crate) fn touch(&self, worker: usize, workers: usize, closed: impl Fn() -> bool) {
        drop(self.building.lock().unwrap_or_else(PoisonError::into_inner));
        let end = self.pages.len();
        for start in (self.first / STEP * STEP..end).step_by(STEP).skip(worker).step_by(workers) {
            if closed() {
                return;
            }
            self.pages.populate(start.max(self.first)..end.min(start + STEP));
            // The caller may be waiting for a core.
            thread::yield_now();
        }
    }
}

/// How the slots of a collation are made. Sealed, as [`Collate`] is.
#[doc(hidden)]
pub trait MakeSlots<D: Loadable>: Collate<D> {
    /// Makes the slots.
    fn make_slots(&mut self, request: SlotRequest<'_>) -> Result<MadeSlots<Self::Payload>, BuildError>;
}

impl<D: Loadable> MakeSlots<D> for Stack {
    fn make_slots(&mut self, request: SlotRequest<'_>) -> Result<MadeSlots<Region>, BuildError> {
        let fields = (request.fields)()?;
        let layout = |rows| {
            let layout = Layout::new(fields.clone(), rows)?;
            if request.spilling { layout.spilling() } else { Ok(layout) }
        };
        let slots = (request.slots)(Some(&|rows| layout(rows).map_or(usize::MAX, |layout| slot_size(layout.size))));
        let layout = Arc::new(layout(request.rows)?);
        let (batch, slots) = (slot_size(layout.size), slots?);
        let bytes = batch as u128 * slots as u128;
        let available = available_memory().unwrap_or(u64::MAX).saturating_sub(request.reserved as u64);
        let fits = bytes <= u128::from(available);
        let Some(len) = usize::try_from(bytes).ok().filter(|&len| fits && len <= isize::MAX as usize) else {
            return Err(BuildError::Memory { slots, batch, bytes, available });
        };
        let mut warnings = Vec::new();
        let (mut memory, pin_memory) = (request.memory, request.pin_memory);
        let (arena, untouched) = match &mut memory {
            Some(allocate) => (allocate.memory(len)?, None),
            None => {
                let first = if request.touchers > 0 && !pin_memory { batch } else { len };
                let (pages, all, warning) = pages(len, first, pin_memory)?;
                warnings.extend(warning);
                let untouched = (!all).then(|| Untouched { pages: pages.clone(), first, building: Mutex::default() });
                (pages as Owned, untouched)
            }
        };
        let (bytes, shared) = (arena.len(), !layout.is_sequential());
        let payloads = (0..slots).map(|slot| {
            // SAFETY: the slots divide the arena, and each is as long as the layout, rounded up.
            unsafe { Region::new(arena.start().add(slot * batch), layout.clone(), arena.clone()) }
        });
        let payloads = payloads.collect();
        let make = move || {
            let (arena, warning) = match &mut memory {
                Some(allocate) => (allocate.memory(batch)?, None),
                None if !has_room(batch) => return Err(format!("the system has no {batch} bytes left").into()),
                // A mapping for each small batch would be too many for the system.
                None if batch < HEAP && !pin_memory => (Arc::new(Heap::new(batch)?) as Owned, None),
                None => {
                    let (pages, _, warning) = pages(batch, batch, pin_memory)?;
                    (pages as Owned, warning)
                }
            };
            let bytes = arena.len();
            // SAFETY: the memory is new, and as long as the layout, rounded up.
            Ok((unsafe { Region::new(arena.start(), layout.clone(), arena) }, bytes, warning))
        };
        let more = More { make: Box::new(make), bytes: batch.next_multiple_of(ALIGN) };
        Ok(MadeSlots { payloads, more, bytes, warnings, shared, untouched })
    }
}

/// Pages for batches, of which the first bytes are touched and all are locked, if that is asked for; whether all were touched;
/// and what there is to warn about.
fn pages(len: usize, first: usize, lock: bool) -> Result<(Arc<Pages>, bool, Option<Warning>), BuildError> {
    let mut pages = Pages::new(len).map_err(|source| BuildError::Map { bytes: len, source })?;
    let all = pages.touch(first);
    let refused = if lock { pages.lock().err() } else { None };
    let not_locked =
        |reason: std::io::Error| Warning::NotLocked { bytes: len, limit: lock_limit(), reason: reason.to_string() };
    Ok((Arc::new(pages), all, refused.map(not_locked)))
}

impl<D: Loadable, F, T> MakeSlots<D> for With<F, T>
where
    Self: Collate<D, Payload = Mutex<Option<T>>>,
{
    fn make_slots(&mut self, request: SlotRequest<'_>) -> Result<MadeSlots<Self::Payload>, BuildError> {
        if request.memory.is_some() {
            let hint = "a collate function makes batches in memory of its own; drop one of the two";
            return Err(BuildError::Clash { first: "memory", second: "collate", hint });
        }
        if !request.pin_memory {
            self.pin = None;
        }
        let nothing_to_lock = request.pin_memory && self.pin.is_none();
        let warnings = nothing_to_lock.then_some(Warning::NothingToPin).into_iter().collect();
        let payloads = (0..(request.slots)(None)?).map(|_| Default::default()).collect();
        let more = More { make: Box::new(|| Ok((Default::default(), 0, None))), bytes: 0 };
        Ok(MadeSlots { payloads, more, bytes: 0, warnings, shared: false, untouched: None })
    }
}

/// Bytes from slot to slot: whole pages, or where a batch is less than one, whole fields' alignments.
fn slot_size(layout: usize) -> usize {
    layout.max(1).next_multiple_of(if layout < ALIGN { FIELD_ALIGN } else { ALIGN })
}

/// The fields of a sample: as the dataset says, or as the first readable one has them.
pub(crate) fn fields_of(dataset: &impl Dataset) -> Result<Fields, BuildError> {
    if let Some(fields) = dataset.fields() {
        return Ok(fields);
    }
    let mut cx = Context::new(None);
    let mut failure = None;
    for index in 0..dataset.len().min(PROBES) {
        cx.start_sample(index as u64);
        // Outside: what a function returns is leaked if a sample in it panics as it is dropped (rust-lang/rust#47949).
        let mut fields = Fields::new();
        let read = probe(|| {
            fields = Fields::of(&dataset.get(index, &mut cx)?);
            Ok(())
        });
        match read {
            // The failures of those before may panic when they are dropped.
            Ok(()) => {
                dispose(failure);
                return Ok(fields);
            }
            Err(source) => dispose(failure.replace(BuildError::Probe { index, source })),
        }
    }
    // An empty dataset has no fields, and no batches either.
    failure.map_or_else(|| Ok(Fields::new()), Err)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn workers_share_the_memory_that_is_left_and_stop_when_the_ring_is_closed() {
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
