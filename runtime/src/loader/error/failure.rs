//! What went wrong with a batch, on its way to the consumer.

use std::fmt::{self, Write};

use crate::BoxError;
use crate::dataset::OutOfRange;
use crate::loader::error::guard::{dispose, dispose_each, guarded};
use crate::loader::error::run::{By, Error};

/// What went wrong with a batch. It can be dropped anywhere, although the errors in it are the user's.
#[derive(Debug, Default)]
pub(crate) struct SlotErrors {
    /// Why there is no batch.
    pub(crate) failure: Option<Failure>,
    /// Samples that were passed over, in any order but that of the attempts at one position.
    pub(crate) bad: Vec<Skipped>,
}

impl Drop for SlotErrors {
    fn drop(&mut self) {
        dispose(self.failure.take());
        dispose_each(std::mem::take(&mut self.bad));
    }
}

/// A bad sample that was passed over.
#[derive(Debug)]
pub(crate) struct Skipped {
    pub(crate) failure: Failure,
    /// The row that nothing was written into in its place.
    pub(crate) row: Option<usize>,
}

/// Why there is no batch.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Of the sample, in the pass.
    pub(crate) position: usize,
    /// Of the sample, in the dataset.
    pub(crate) index: usize,
    pub(crate) by: By,
    pub(crate) cause: Cause,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Cause {
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
    pub(crate) fn is<E: std::error::Error + 'static>(&self) -> bool {
        matches!(self, Self::Error(error) if error.is::<E>())
    }

    /// What it says, come what may.
    pub(crate) fn in_words(&self) -> String {
        guarded(|| Ok(self.to_string())).unwrap_or_else(|panic| panic.to_string())
    }

    /// What it and its sources say, come what may.
    pub(crate) fn with_sources(&self) -> String {
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
    pub(crate) fn at(self, index: Option<usize>, samples: usize) -> Self {
        match (self, index) {
            (Self::Panic(_), Some(index)) if index >= samples => {
                Self::Error(OutOfRange { dataset: "the dataset", index, len: samples }.into())
            }
            (cause, _) => cause,
        }
    }

    /// As an error, where there is no more to say of it.
    pub(crate) fn into_error(self) -> BoxError {
        match self {
            Self::Error(error) | Self::Start(error) => error,
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
            Cause::LongBatch(len, most) => Error::LongBatch { task, len, most },
            Cause::Start(source) => Error::Start { task, by, source },
        }
    }
}
