//! What a cell holds: a batch, and what went wrong with it.

use std::any::Any;
use std::fmt::{self, Write};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

use super::error::{By, Error};
use crate::BoxError;
use crate::dataset::OutOfRange;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A batch in the making, or made, and what went wrong with it.
pub(super) struct Work<P> {
    /// Dropped by hand, as a batch of the user's may panic when it is dropped.
    pub(super) payload: ManuallyDrop<P>,
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

/// What went wrong with a batch. It can be dropped anywhere, although the errors in it are the user's.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Why there is no batch.
    pub(super) failure: Option<Failure>,
    /// Samples that were passed over, in any order but that of the attempts at one position.
    pub(super) bad: Vec<Bad>,
}

impl Drop for Trouble {
    fn drop(&mut self) {
        dispose(self.failure.take());
        dispose_each(std::mem::take(&mut self.bad));
    }
}

/// A bad sample that was passed over.
#[derive(Debug)]
pub(super) struct Bad {
    pub(super) failure: Failure,
    /// The row that nothing was written into in its place.
    pub(super) row: Option<usize>,
}

impl<P> Work<P> {
    pub(super) fn new(payload: P) -> Self {
        Self { payload: ManuallyDrop::new(payload), failed: AtomicBool::new(false), trouble: Mutex::default() }
    }

    /// Keeps the failure of the lowest position, so that it does not matter who was first.
    #[cold]
    pub(super) fn fail(&self, failure: Failure) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let first = trouble.failure.as_ref().is_none_or(|kept| failure.position < kept.position);
        let other = if first { trouble.failure.replace(failure) } else { Some(failure) };
        drop(trouble);
        self.failed.store(true, Ordering::Relaxed);
        dispose(other);
    }

    /// Notes bad samples.
    #[cold]
    pub(super) fn note(&self, mut bad: Vec<Bad>) {
        if !bad.is_empty() {
            self.trouble.lock().unwrap_or_else(PoisonError::into_inner).bad.append(&mut bad);
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether anything went wrong.
    #[inline]
    pub(super) fn is_troubled(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Takes out what went wrong.
    #[cold]
    pub(super) fn take_trouble(&self) -> Trouble {
        self.failed.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.trouble.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the failure out, if there is one and nothing else: then there is no batch, whatever may be said of bad samples.
    #[inline]
    pub(super) fn take_failure(&self) -> Option<Failure> {
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

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) | Self::Start(error) => error.fmt(f),
            Self::Panic(message) | Self::Sampler(message) => write!(f, "panicked: {message}"),
            Self::LongBatch(len, most) => write!(f, "{len} indices, and at most {most} were announced"),
        }
    }
}

impl Cause {
    /// Whether it is this error.
    pub(super) fn is<E: std::error::Error + 'static>(&self) -> bool {
        matches!(self, Self::Error(error) if error.is::<E>())
    }

    /// What it says, come what may.
    pub(super) fn in_words(&self) -> String {
        guarded(|| Ok(self.to_string())).unwrap_or_else(|panic| panic.to_string())
    }

    /// What it and its sources say, come what may.
    pub(super) fn with_sources(&self) -> String {
        let (Self::Error(error) | Self::Start(error)) = self else { return self.in_words() };
        let words = guarded(|| {
            let mut words = error.to_string();
            let mut source = error.source();
            // An error of the user's may be its own source.
            for _ in 0..16 {
                let Some(error) = source else { break };
                let _ = write!(words, ": {error}");
                source = error.source();
            }
            Ok(words)
        });
        words.unwrap_or_else(|panic| panic.to_string())
    }

    /// What happened at an index of a dataset with so many samples: of a panic at one that the dataset does not have there is
    /// more to say than what it stumbled over.
    pub(super) fn at(self, index: Option<usize>, samples: usize) -> Self {
        match (self, index) {
            (Self::Panic(_), Some(index)) if index >= samples => {
                Self::Error(OutOfRange { dataset: "the dataset", index, len: samples }.into())
            }
            (cause, _) => cause,
        }
    }

    /// As an error, where there is no more to say of it.
    pub(super) fn into_error(self) -> BoxError {
        match self {
            Self::Error(error) | Self::Start(error) => error,
            other => other.to_string().into(),
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

/// Runs code of the loader's own that has [guarded] what is the user's in it, and fails if a panic gets out all the same.
///
/// What the code gives goes through memory. So it had better be nothing, or a word or two.
#[inline(always)]
pub(super) fn caught<T>(code: impl FnOnce() -> T) -> Result<T, Cause> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| Cause::Panic(last_words(panic)))
}

/// Runs code of the user's whose panic is no batch's error: the panic hook has said it.
pub(super) fn quietly(code: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(code)) {
        last_words(panic);
    }
}

/// Drops what is the user's, come what may.
pub(super) fn dispose<T>(value: T) {
    quietly(|| drop(value));
}

/// Drops several such values. Together they could not be: a second panic while the first one unwinds ends the process.
pub(super) fn dispose_each<T>(values: impl IntoIterator<Item = T>) {
    values.into_iter().for_each(dispose);
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
