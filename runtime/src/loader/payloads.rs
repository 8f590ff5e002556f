//! What the slots of a loader hold, and the memory for it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use super::collate::{Collate, Region, Stack, With};
use super::error::{BuildError, Warning};
use super::work::last_words;
use crate::BoxError;
use crate::arena::{ALIGN, Memory, Pages, available_memory, lock_limit};
use crate::dataset::{Context, Dataset, Loadable};
use crate::sample::{Fields, Layout};

/// How many samples are tried to learn the fields.
const PROBES: usize = 16;

/// Finds out the fields of a sample.
type Ask<'a> = &'a dyn Fn() -> Result<Fields, BuildError>;

/// What slots are to be made.
#[doc(hidden)]
pub struct Request<'a> {
    pub(super) fields: Ask<'a>,
    pub(super) rows: usize,
    pub(super) slots: usize,
    /// Bytes of memory to leave for other things.
    pub(super) reserved: usize,
    pub(super) pin_memory: bool,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("rows", &self.rows).field("slots", &self.slots).finish_non_exhaustive()
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
}

/// How the slots of a collation are made. Sealed, as [`Collate`] is.
#[doc(hidden)]
pub trait Payloads<D: Loadable>: Collate<D> {
    /// Makes the slots.
    fn payloads(&mut self, request: &Request<'_>) -> Result<Made<Self::Payload>, BuildError>;
}

impl<D: Loadable> Payloads<D> for Stack {
    fn payloads(&mut self, request: &Request<'_>) -> Result<Made<Region>, BuildError> {
        let slots = request.slots;
        let layout = Arc::new(Layout::new((request.fields)()?, request.rows)?);
        let batch = layout.size.max(1).next_multiple_of(ALIGN);
        let bytes = batch as u128 * slots as u128;
        let available = available_memory().unwrap_or(u64::MAX).saturating_sub(request.reserved as u64);
        let fits = bytes <= u128::from(available);
        let Some(len) = usize::try_from(bytes).ok().filter(|_| fits) else {
            return Err(BuildError::Memory { slots, batch, bytes, available });
        };
        let mut pages = Pages::new(len).map_err(|source| BuildError::Map { bytes: len, source })?;
        let mut warnings = Vec::new();
        if request.pin_memory
            && let Err(reason) = pages.lock()
        {
            warnings.push(Warning::NotLocked { bytes: len, limit: lock_limit(), reason: reason.to_string() });
        }
        let (bytes, shared) = (pages.len(), !layout.is_sequential());
        let arena: Arc<dyn Memory> = Arc::new(pages);
        let payloads = (0..slots).map(|slot| {
            // SAFETY: the slots divide the arena, and each is as long as the layout, rounded up to pages.
            unsafe { Region::new(arena.start().add(slot * batch), layout.clone(), arena.clone()) }
        });
        Ok(Made { payloads: payloads.collect(), bytes, warnings, shared })
    }
}

impl<D: Loadable, F, T> Payloads<D> for With<F, T>
where
    Self: Collate<D, Payload = Mutex<Option<T>>>,
{
    fn payloads(&mut self, request: &Request<'_>) -> Result<Made<Self::Payload>, BuildError> {
        if !request.pin_memory {
            self.pin = None;
        }
        let nothing_to_lock = request.pin_memory && self.pin.is_none();
        let warnings = nothing_to_lock.then_some(Warning::NothingToPin).into_iter().collect();
        let payloads = (0..request.slots).map(|_| Default::default()).collect();
        Ok(Made { payloads, bytes: 0, warnings, shared: false })
    }
}

/// The fields of a sample: as the dataset says, or as the first readable one has them.
pub(super) fn fields_of(dataset: &impl Dataset) -> Result<Fields, BuildError> {
    if let Some(fields) = dataset.fields() {
        return Ok(fields);
    }
    let mut cx = Context::new(None);
    let mut failure = None;
    for index in 0..dataset.len().min(PROBES) {
        cx.start_sample(index);
        match probe(|| Ok(Fields::of(&dataset.get(index, &mut cx)?))) {
            Ok(fields) => return Ok(fields),
            Err(source) => failure = Some(BuildError::Probe { index, source }),
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
