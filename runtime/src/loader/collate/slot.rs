//! What a slot holds: a batch, and what went wrong with it.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::PoisonError;

use crate::loader::error::failure::{Bad, Failure, Trouble};
use crate::loader::error::guard::{dispose, quietly};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A batch in the making, or made, and what went wrong with it.
pub struct Work<P> {
    /// Dropped by hand, as a batch of the user's may panic when it is dropped.
    pub(crate) payload: ManuallyDrop<P>,
    /// Whether there is trouble; the ring's publication orders it.
    failed: AtomicBool,
    trouble: Mutex<Trouble>,
}

impl<P> Drop for Work<P> {
    fn drop(&mut self) {
        let payload = &mut self.payload;
        // SAFETY: this is the only place that drops the payload, and nobody uses it afterwards.
        quietly(|| unsafe { ManuallyDrop::drop(payload) });
    }
}

impl<P> Work<P> {
    pub(crate) fn new(payload: P) -> Self {
        Self { payload: ManuallyDrop::new(payload), failed: AtomicBool::new(false), trouble: Mutex::default() }
    }

    /// Keeps the failure of the lowest position, so that it does not matter who was first.
    #[cold]
    pub(crate) fn fail(&self, failure: Failure) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let first = trouble.failure.as_ref().is_none_or(|kept| failure.position < kept.position);
        let other = if first { trouble.failure.replace(failure) } else { Some(failure) };
        drop(trouble);
        self.failed.store(true, Ordering::Relaxed);
        dispose(other);
    }

    /// Notes bad samples.
    #[cold]
    pub(crate) fn note(&self, mut bad: Vec<Bad>) {
        if !bad.is_empty() {
            self.trouble.lock().unwrap_or_else(PoisonError::into_inner).bad.append(&mut bad);
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether anything went wrong.
    #[inline]
    pub(crate) fn is_troubled(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Takes out what went wrong.
    #[cold]
    pub(crate) fn take_trouble(&self) -> Trouble {
        self.failed.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.trouble.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the failure out, if there is one and nothing else: then there is no batch, whatever may be said of bad samples.
    #[inline]
    pub(crate) fn take_failure(&self) -> Option<Failure> {
        if !self.is_troubled() {
            return None;
        }
        let alone = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).bad.is_empty();
        if alone { self.take_trouble().failure.take() } else { None }
    }
}

impl<P> fmt::Debug for Work<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("failed", &self.failed).finish_non_exhaustive()
    }
}
