//! What the slots of a loader hold, and the memory for it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use super::collate::{Collate, Region, Stack, With};
use super::error::{BuildError, Warning};
use super::limit::BatchBytes;
use super::work::{dispose, last_words};
use crate::BoxError;
use crate::arena::{ALIGN, Memory, Pages, available_memory, lock_limit};
use crate::dataset::{Context, Dataset, Loadable};
use crate::sample::{FIELD_ALIGN, Fields, Layout};
use crate::sync::{Mutex, thread};

/// How much memory a worker touches at once: the system takes about a tenth of a millisecond for that.
const STEP: usize = 2 << 20;
/// How many samples are tried to learn the fields.
pub(super) const PROBES: usize = 16;

/// Finds out the fields of a sample.
type Ask<'a> = &'a dyn Fn() -> Result<Fields, BuildError>;

type Owned = Arc<dyn Memory>;

/// The user's way to make memory for so many bytes.
pub(super) struct Allocate(pub(super) Box<dyn FnOnce(usize) -> Result<Owned, BoxError> + Send>);

impl Allocate {
    /// Makes it, and sees that it is what [`Memory`] says.
    fn memory(self, bytes: usize) -> Result<Owned, BuildError> {
        let failed = |source| BuildError::Allocate { bytes, source };
        let memory = probe(|| (self.0)(bytes)).map_err(failed)?;
        let (len, start) = (memory.len(), memory.start().as_ptr());
        if len < bytes || !start.addr().is_multiple_of(ALIGN) {
            return Err(failed(format!("it has {len} bytes at {start:p}, which must be a multiple of {ALIGN}").into()));
        }
        Ok(memory)
    }
}

/// What slots are to be made.
#[doc(hidden)]
pub struct Request<'a> {
    pub(super) fields: Ask<'a>,
    pub(super) rows: usize,
    /// How many slots, if that is what each takes.
    pub(super) slots: &'a mut dyn FnMut(Option<BatchBytes<'_>>) -> Result<usize, BuildError>,
    /// Bytes of memory to leave for other things.
    pub(super) reserved: usize,
    pub(super) pin_memory: bool,
    /// What makes the memory, in the place of the loader.
    pub(super) memory: Option<Allocate>,
    /// Whether packed fields may go to the heap.
    pub(super) spilling: bool,
    /// Workers that will touch the memory of what is not the first slot.
    pub(super) touchers: usize,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// Slots made, and what they cost.
#[doc(hidden)]
#[derive(Debug)]
pub struct Made<P> {
    pub(super) payloads: Vec<P>,
    pub(super) bytes: usize,
    pub(super) warnings: Vec<Warning>,
    /// Whether several workers can fill one slot.
    pub(super) shared: bool,
    pub(super) untouched: Option<Untouched>,
}

/// Memory of slots that the system has promised but not given yet: all but the first one's, if there are workers to see to
/// it. They do so before their first claim and side by side, so that the first batch need not wait for it.
#[derive(Debug)]
pub(super) struct Untouched {
    pages: Arc<Pages>,
    /// Where it begins: the bytes of the first slot.
    first: usize,
    /// Held while the loader is being built: starting a thread has to wait for one that gets memory.
    pub(super) building: Mutex<()>,
}

impl Untouched {
    /// Gets a worker's share of it from the system, bit by bit and as long as nobody has closed the ring.
    pub(super) fn touch(&self, worker: usize, workers: usize, closed: impl Fn() -> bool) {
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
pub trait Payloads<D: Loadable>: Collate<D> {
    /// Makes the slots.
    fn payloads(&mut self, request: Request<'_>) -> Result<Made<Self::Payload>, BuildError>;
}

impl<D: Loadable> Payloads<D> for Stack {
    fn payloads(&mut self, request: Request<'_>) -> Result<Made<Region>, BuildError> {
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
        let (arena, untouched) = match request.memory {
            Some(allocate) => (allocate.memory(len)?, None),
            None => {
                let mut pages = Pages::new(len).map_err(|source| BuildError::Map { bytes: len, source })?;
                let first = if request.touchers > 0 && !request.pin_memory { batch } else { len };
                let all = pages.touch(first);
                if request.pin_memory
                    && let Err(reason) = pages.lock()
                {
                    warnings.push(Warning::NotLocked { bytes: len, limit: lock_limit(), reason: reason.to_string() });
                }
                let pages = Arc::new(pages);
                let untouched = (!all).then(|| Untouched { pages: pages.clone(), first, building: Mutex::default() });
                (pages as Arc<dyn Memory>, untouched)
            }
        };
        let (bytes, shared) = (arena.len(), !layout.is_sequential());
        let payloads = (0..slots).map(|slot| {
            // SAFETY: the slots divide the arena, and each is as long as the layout, rounded up.
            unsafe { Region::new(arena.start().add(slot * batch), layout.clone(), arena.clone()) }
        });
        Ok(Made { payloads: payloads.collect(), bytes, warnings, shared, untouched })
    }
}

impl<D: Loadable, F, T> Payloads<D> for With<F, T>
where
    Self: Collate<D, Payload = Mutex<Option<T>>>,
{
    fn payloads(&mut self, request: Request<'_>) -> Result<Made<Self::Payload>, BuildError> {
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
        Ok(Made { payloads, bytes: 0, warnings, shared: false, untouched: None })
    }
}

/// Bytes from slot to slot: whole pages, or where a batch is less than one, whole fields' alignments.
fn slot_size(layout: usize) -> usize {
    layout.max(1).next_multiple_of(if layout < ALIGN { FIELD_ALIGN } else { ALIGN })
}

/// The fields of a sample: as the dataset says, or as the first readable one has them.
pub(super) fn fields_of(dataset: &impl Dataset) -> Result<Fields, BuildError> {
    if let Some(fields) = dataset.fields() {
        return Ok(fields);
    }
    let mut cx = Context::new(None);
    let mut failure = None;
    for index in 0..dataset.len().min(PROBES) {
        cx.start_sample(index as u64);
        match probe(|| Ok(Fields::of(&dataset.get(index, &mut cx)?))) {
            // The failures of those before may panic when they are dropped.
            Ok(fields) => {
                dispose(failure);
                return Ok(fields);
            }
            Err(source) => dispose(failure.replace(BuildError::Probe { index, source })),
        }
    }
    // An empty dataset has no fields, and no batches either.
    failure.map_or_else(|| Ok(Fields::new()), Err)
}

/// Runs the user's code with a panic as an error.
pub(super) fn probe<T>(code: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    let outcome = catch_unwind(AssertUnwindSafe(code));
    outcome.unwrap_or_else(|panic| Err(format!("panicked: {}", last_words(panic)).into()))
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
