//! What a slot holds: a batch, and what went wrong with it.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::error::{By, Error};
use crate::BoxError;

/// A batch in the making, or made, and what went wrong with it.
pub struct Work<P> {
    pub(super) payload: P,
    /// Whether there is a failure; the ring's publication orders it.
    failed: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

impl<P> Work<P> {
    pub(super) fn new(payload: P) -> Self {
        Self { payload, failed: AtomicBool::new(false), failure: Mutex::new(None) }
    }

    /// Keeps the failure of the lowest position, so that it does not matter who was first.
    #[cold]
    pub(super) fn fail(&self, failure: Failure) {
        let mut kept = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_none_or(|kept| failure.position < kept.position) {
            *kept = Some(failure);
        }
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Takes the failure out, if there is one.
    #[inline]
    pub(super) fn take_failure(&self) -> Option<Failure> {
        if !self.failed.load(Ordering::Relaxed) {
            return None;
        }
        self.failed.store(false, Ordering::Relaxed);
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<P> fmt::Debug for Work<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("failed", &self.failed).finish_non_exhaustive()
    }
}

/// Why there is no batch.
#[derive(Debug)]
pub(super) struct Failure {
    /// Of the sample, in the pass.
    pub(super) position: usize,
    /// Of the sample, in the dataset.
    pub(super) index: usize,
    pub(super) by: By,
    pub(super) cause: Cause,
}

/// What happened.
#[derive(Debug)]
pub(super) enum Cause {
    /// A sample's error, or a collate function's.
    Error(BoxError),
    /// A panic there.
    Panic(String),
    /// A panic in the sampler's iterator.
    Sampler(String),
    /// A batch sampler's list of so many indices, and how many it had said at most.
    LongBatch(usize, usize),
    /// An iterable dataset could not be started.
    Start(BoxError),
}

impl Cause {
    /// As an error, where there is no more to say of it.
    pub(super) fn into_error(self) -> BoxError {
        match self {
            Self::Error(error) => error,
            Self::Panic(message) | Self::Sampler(message) => format!("panicked: {message}").into(),
            Self::LongBatch(len, most) => format!("{len} indices, and at most {most} were announced").into(),
            Self::Start(error) => error,
        }
    }
}

impl Failure {
    pub(super) fn into_error(self, task: usize) -> Error {
        let Self { position, index, by, cause } = self;
        match cause {
            Cause::Error(source) => Error::Sample { index, position, task, by, source },
            Cause::Panic(message) => Error::Panic { index, position, task, by, message },
            Cause::Sampler(message) => Error::Sampler { task, by, message },
            Cause::LongBatch(len, most) => Error::LongBatch { task, len, most },
            Cause::Start(source) => Error::Start { task, by, source },
        }
    }
}

/// Runs code of the user's: its error, or its panic in words.
#[inline]
pub(super) fn guarded<T>(code: impl FnOnce() -> Result<T, BoxError>) -> Result<T, Cause> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(outcome) => outcome.map_err(Cause::Error),
        Err(panic) => Err(Cause::Panic(last_words(panic))),
    }
}

/// Drops what is the user's, come what may.
pub(super) fn dispose<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        last_words(panic);
    }
}

/// What a panic said, if it said it in words.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// What a panic said, and its end. A payload that panics when it is dropped would take the thread with it, and so it is
/// dropped under guard, and the second payload not at all.
#[cold]
pub(super) fn last_words(panic: Box<dyn Any + Send>) -> String {
    let message = panic_message(&*panic);
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
    message
}
