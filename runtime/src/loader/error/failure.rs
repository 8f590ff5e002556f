//! The errors of a batch, as workers record them and before the consumer converts them to an
//! [`Error`].

use std::fmt;
use std::sync::PoisonError;

use crate::BoxError;
use crate::causes::with_causes;
use crate::dataset::{OutOfRange, Panicked};
use crate::loader::error::guard::{dispose, dispose_each, guarded, take_message};
use crate::loader::error::run::{By, Error};

/// The errors that were met while a batch was made. They can be dropped on any thread and at any
/// time: a panic in the `drop` of a user's error does not propagate.
#[derive(Debug, Default)]
pub(crate) struct SlotErrors {
    /// The failure that is delivered instead of the batch, if there is one.
    pub(crate) failure: Option<Failure>,
    /// Samples that were skipped. They are in any order, except that attempts at the same position
    /// are in sequence.
    pub(crate) bad: Vec<Skipped>,
}

impl Drop for SlotErrors {
    fn drop(&mut self) {
        dispose(self.failure.take());
        dispose_each(std::mem::take(&mut self.bad));
    }
}

/// A bad sample that was skipped.
#[derive(Debug)]
pub(crate) struct Skipped {
    pub(crate) failure: Failure,
    /// The row that was left empty, if no other sample was written into it.
    pub(crate) row: Option<usize>,
}

/// A failure that prevents a batch from being delivered.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The sample's position in the pass.
    pub(crate) position: usize,
    /// The sample's index in the dataset.
    pub(crate) index: usize,
    pub(crate) by: By,
    pub(crate) cause: Cause,
}

/// The cause of a failure. It is public only because `Job` names it, and is not part of the API.
#[derive(Debug)]
#[doc(hidden)]
pub enum Cause {
    /// An error of a sample or of a collate function.
    Error(BoxError),
    /// A panic of a sample or of a collate function.
    Panic(String),
    /// A panic in the sampler's iterator.
    Sampler(String),
    /// An error of the batch sampler.
    BatchSampler(BoxError),
    /// A batch sampler's list is too long: its length, and the announced maximum.
    LongBatch(usize, usize),
    /// An iterable dataset could not be started.
    Start(BoxError),
}

impl From<BoxError> for Cause {
    fn from(error: BoxError) -> Self {
        let message = |panic: Box<Panicked>| take_message(panic.0.into_inner().unwrap_or_else(PoisonError::into_inner));
        error.downcast().map_or_else(Self::Error, |panic| Self::Panic(message(panic)))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) | Self::Start(error) | Self::BatchSampler(error) => error.fmt(f),
            Self::Panic(message) | Self::Sampler(message) => write!(f, "panicked: {message}"),
            Self::LongBatch(len, most) => write!(f, "{len} indices, but the announced maximum is {most}"),
        }
    }
}

impl Cause {
    /// Whether the cause is an error of type `E`.
    pub(crate) fn is<E: std::error::Error + 'static>(&self) -> bool {
        matches!(self, Self::Error(error) if error.is::<E>())
    }

    /// The cause as text. Never panics, even if the user's `Display` does.
    pub(crate) fn to_text(&self) -> String {
        guarded(|| Ok(self.to_string())).unwrap_or_else(|panic| panic.to_string())
    }

    /// The cause and its sources as text. Never panics, even if the user's `Display` does.
    pub(crate) fn with_sources(&self) -> String {
        let (Self::Error(error) | Self::Start(error) | Self::BatchSampler(error)) = self else {
            return self.to_text();
        };
        guarded(|| Ok(with_causes(&**error))).unwrap_or_else(|panic| panic.to_string())
    }

    /// Replaces a panic by [`OutOfRange`] if `index` is not below `samples`, the length of the
    /// dataset: `OutOfRange` says more than the panic's message.
    pub(crate) fn at(self, index: Option<usize>, samples: usize) -> Self {
        match (self, index) {
            (Self::Panic(_), Some(index)) if index >= samples => {
                Self::Error(OutOfRange { dataset: "the dataset", index, len: samples }.into())
            }
            (cause, _) => cause,
        }
    }

    /// Converts the cause to the user's own error, or to an error with its text, for callers that
    /// add no further context.
    pub(crate) fn into_error(self) -> BoxError {
        match self {
            Self::Error(error) | Self::Start(error) | Self::BatchSampler(error) => error,
            other => other.to_string().into(),
        }
    }
}

impl Failure {
    pub(crate) fn into_error(self, task: usize) -> Error {
        let Self { position, index, by, cause } = self;
        match cause {
            Cause::Error(source) => Error::Sample { index, position, task, by, source },
            Cause::Panic(message) => Error::Panic { index, position, task, by, message },
            Cause::Sampler(message) => Error::Sampler { task, by, message },
            Cause::BatchSampler(source) => Error::BatchSampler { task, by, source },
            Cause::LongBatch(len, most) => Error::LongBatch { task, len, most },
            Cause::Start(source) => Error::Start { task, by, source },
        }
    }
}
