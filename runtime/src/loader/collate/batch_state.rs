//! The contents of a cell: a batch, and the errors that were met while it was made.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::PoisonError;

use crate::loader::error::failure::{Failure, Skipped, SlotErrors};
use crate::loader::error::guard::{catch_panic, dispose};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A batch, finished or not, and the errors that were met while it was made.
pub(crate) struct BatchState<P> {
    /// Dropped explicitly, since a user's batch may panic in its `drop`.
    pub(crate) payload: ManuallyDrop<P>,
    /// Whether `errors` contains anything. The slot is published with release ordering after this
    /// is set, so the consumer sees it.
    has_errors: AtomicBool,
    errors: Mutex<SlotErrors>,
}

impl<P> Drop for BatchState<P> {
    fn drop(&mut self) {
        let payload = &mut self.payload;
        // SAFETY: the payload is dropped only here, and not used afterwards.
        catch_panic(|| unsafe { ManuallyDrop::drop(payload) });
    }
}

impl<P> BatchState<P> {
    pub(crate) fn new(payload: P) -> Self {
        Self { payload: ManuallyDrop::new(payload), has_errors: AtomicBool::new(false), errors: Mutex::default() }
    }

    /// Records a failure. Only the one with the lowest position is kept, so that the outcome does
    /// not depend on the order of threads.
    #[cold]
    pub(crate) fn fail(&self, failure: Failure) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let first = errors.failure.as_ref().is_none_or(|kept| failure.position < kept.position);
        let other = if first { errors.failure.replace(failure) } else { Some(failure) };
        drop(errors);
        self.has_errors.store(true, Ordering::Relaxed);
        dispose(other);
    }

    /// Records bad samples.
    #[cold]
    pub(crate) fn note(&self, mut bad: Vec<Skipped>) {
        if !bad.is_empty() {
            self.errors.lock().unwrap_or_else(PoisonError::into_inner).bad.append(&mut bad);
            self.has_errors.store(true, Ordering::Relaxed);
        }
    }

    /// Whether there are errors.
    #[inline]
    pub(crate) fn has_errors(&self) -> bool {
        self.has_errors.load(Ordering::Relaxed)
    }

    /// Whether there is a failure, which prevents the batch.
    #[cfg(processes)]
    pub(crate) fn has_failure(&self) -> bool {
        self.has_errors() && self.errors.lock().unwrap_or_else(PoisonError::into_inner).failure.is_some()
    }

    /// Takes the errors out.
    #[cold]
    pub(crate) fn take_errors(&self) -> SlotErrors {
        self.has_errors.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.errors.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the failure out, if there is one and no bad sample was skipped. Then the failure is
    /// delivered instead of the batch, however bad samples are handled.
    #[inline]
    pub(crate) fn take_failure(&self) -> Option<Failure> {
        if !self.has_errors() {
            return None;
        }
        let alone = self.errors.lock().unwrap_or_else(PoisonError::into_inner).bad.is_empty();
        if alone { self.take_errors().failure.take() } else { None }
    }
}

impl<P> fmt::Debug for BatchState<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchState").field("has_errors", &self.has_errors).finish_non_exhaustive()
    }
}
