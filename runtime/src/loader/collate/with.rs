//! Batches that a user's function makes.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::sync::PoisonError;

use crate::BoxError;
use crate::dataset::Loadable;
use crate::loader::collate::allocate::{MadeSlots, SlotRequest};
use crate::loader::collate::cell::Lease;
use crate::loader::collate::cell_pool::ExtraMemory;
use crate::loader::collate::job::Job;
use crate::loader::collate::samples::Samples;
use crate::loader::collate::storage::Storage;
use crate::loader::collate::{Collate, Deliver, Fill, Output};
use crate::loader::error::build::BuildError;
use crate::loader::error::warning::Warning;
use crate::sync::Mutex;

/// A collate function, which makes a `T` from the samples of a batch.
pub struct With<F, T> {
    pub(crate) collate: F,
    /// Pins a batch if `pin_memory` is set.
    pub(crate) pin: Option<Pin<T>>,
}

/// The function of [`Builder::pin_memory_with`](crate::loader::Builder::pin_memory_with), which
/// page-locks a batch's memory.
pub(crate) type Pin<T> = Box<dyn Fn(&mut T) -> Result<(), BoxError> + Send + Sync>;

impl<F, T> With<F, T> {
    pub(crate) fn new(collate: F) -> Self {
        Self { collate, pin: None }
    }
}

impl<F, T> fmt::Debug for With<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("With").finish_non_exhaustive()
    }
}

impl<D, F, T> Collate<D> for With<F, T>
where
    D: Loadable,
    T: Send + 'static,
    F: Fn(&mut Samples<'_, D>) -> Result<T, BoxError> + Send + Sync + 'static,
{
    type Output = Collated<T>;
}

impl<D, F, T> Fill<D> for With<F, T>
where
    D: Loadable,
    T: Send + 'static,
    F: Fn(&mut Samples<'_, D>) -> Result<T, BoxError> + Send + Sync + 'static,
{
    // The ring already ensures exclusive access, but an uncontended lock is cheaper than `unsafe`
    // code with a proof.
    type Payload = Mutex<Option<T>>;

    const STACKS: bool = false;

    fn fill<J: Job<D>>(&self, slot: &Mutex<Option<T>>, job: &mut J) -> Result<(), BoxError> {
        if job.is_cancelled() {
            return Ok(());
        }
        let mut batch = (self.collate)(&mut Samples::new(job))?;
        if let Some(pin) = &self.pin {
            pin(&mut batch)?;
        }
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(batch);
        Ok(())
    }

    /// Does nothing, since the collate function was not given the bad sample.
    unsafe fn leave_empty(_: &Self::Payload, _: usize) {}

    fn make_slots(&mut self, request: SlotRequest<'_>) -> Result<MadeSlots<Self::Payload>, BuildError> {
        if request.memory.is_some() {
            let hint = "a collate function makes batches in its own memory; drop one of the two";
            return Err(BuildError::Clash { first: "memory", second: "collate", hint });
        }
        if !request.pin_memory {
            self.pin = None;
        }
        let nothing_to_lock = request.pin_memory && self.pin.is_none();
        let warnings = nothing_to_lock.then_some(Warning::NothingToPin).into_iter().collect();
        let payloads = (0..(request.slots)(None)?).map(|_| Default::default()).collect();
        let more = ExtraMemory { make: Box::new(|| Ok((Default::default(), 0, None))), bytes: 0 };
        let (shared, spills) = (false, false);
        Ok(MadeSlots { payloads, more, bytes: 0, warnings, shared, spills, untouched: None, payload_at: None })
    }
}

/// The output of a loader whose batches are made by a
/// [collate function](crate::loader::Builder::collate): `Loader<Collated<T>>` returns `T`. This
/// type has no values.
pub struct Collated<T>(PhantomData<fn() -> T>, Infallible);

impl<T> fmt::Debug for Collated<T> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {}
    }
}

impl<T: Send + 'static> Output for Collated<T> {
    type Item = T;
}

impl<T: Send + 'static> Deliver for Collated<T> {
    type Delivered = T;
    type Payload = Mutex<Option<T>>;

    #[inline]
    fn deliver(lease: Lease<Self::Payload>) -> T {
        let batch = lease.payload().lock().unwrap_or_else(PoisonError::into_inner).take();
        batch.expect("a published slot without a failure has a batch")
    }
}

impl<T: Send + 'static> Storage for Mutex<Option<T>> {
    fn discard(&self) {
        drop(self.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    unsafe fn compact_rows(&self, _: &[usize], _: usize) {}
}
