//! The reason why a call failed, before it is converted to an error object.

use std::error::Error as StdError;
use std::sync::Arc;

use slotline::loader::{BuildError, By};
use slotline::{Error, with_causes};

use super::cause::{Payload, find};
use super::status::*;

/// The reason why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: slotline_status,
    pub(crate) message: String,
    pub(crate) index: Option<usize>,
    pub(crate) task: Option<usize>,
    pub(crate) worker: Option<usize>,
    /// The object that a callback attached.
    pub(crate) payload: Option<Arc<Payload>>,
}

impl Failure {
    pub(crate) fn new(status: slotline_status, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), index: None, task: None, worker: None, payload: None }
    }

    /// Returns a boxed failure, for results that are rarely an error.
    #[cold]
    pub(crate) fn boxed(failure: impl Into<Self>) -> Box<Self> {
        Box::new(failure.into())
    }

    /// Returns the failure for an invalid argument.
    #[cold]
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(SLOTLINE_ERROR_INVALID, message)
    }

    /// Returns a failure with the messages of an error and its whole chain of causes.
    #[cold]
    pub(crate) fn of(status: slotline_status, error: &(dyn StdError + 'static)) -> Self {
        Self::new(status, chain(error))
    }

    /// Returns whether a failure of `slotline_loader_next` replaces a batch, so that the next call
    /// returns the batch after it.
    pub(crate) fn is_in_place(&self) -> bool {
        !matches!(self.status, SLOTLINE_ERROR_TIMEOUT | SLOTLINE_ERROR_HELD | SLOTLINE_ERROR_WORKER_INIT)
    }

    /// Returns the same failure with the message's position in a list argument.
    pub(crate) fn within(mut self, list: &str, place: usize) -> Self {
        self.message = format!("{list}[{place}]: {}", self.message);
        self
    }
}

/// Returns the message of an error with its causes. A missing feature is named by its CMake option.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let message = with_causes(error);
    if cfg!(all(feature = "image", not(feature = "turbo"))) {
        return message.replace("the cargo feature `turbo` of slotline-image", "the CMake option SLOTLINE_TURBO");
    }
    message
}

impl From<Box<Failure>> for Failure {
    #[cold]
    fn from(failure: Box<Failure>) -> Self {
        *failure
    }
}

impl From<BuildError> for Failure {
    #[cold]
    fn from(error: BuildError) -> Self {
        let mut failure = Self::of(SLOTLINE_ERROR_BUILD, &error);
        if let BuildError::Probe { index, .. } = error {
            failure.index = Some(index);
        }
        failure
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        let cause = find(error.cause());
        let payload = cause.and_then(|cause| cause.payload.clone());
        match (&error, cause) {
            (Error::Sample { task, by: who, .. }, Some(cause)) if cause.collates => {
                let message = format!("the collate function failed for batch {task} in {who}: {cause}");
                let (task, worker) = (Some(*task), by(who));
                Self { task, worker, payload, ..Self::new(SLOTLINE_ERROR_COLLATE, message) }
            }
            _ => Self { message: chain(&error), payload, ..about(&error) },
        }
    }
}

/// Returns the index of a worker; `None` for the calling thread.
fn by(by: &By) -> Option<usize> {
    match *by {
        By::Worker(worker) => Some(worker),
        By::Consumer => None,
    }
}

/// Returns a failure with the status, index, task and worker of an error, but without a message.
fn about(error: &Error) -> Failure {
    let of = |status| Failure::new(status, "");
    match error {
        Error::Sample { index, task, by: who, .. } => {
            Failure { index: Some(*index), task: Some(*task), worker: by(who), ..of(SLOTLINE_ERROR_SAMPLE) }
        }
        Error::Panic { index, task, by: who, .. } => {
            Failure { index: Some(*index), task: Some(*task), worker: by(who), ..of(SLOTLINE_ERROR_PANIC) }
        }
        Error::BadSamples { source, .. } | Error::MostlyBad { source, .. } => {
            Failure { status: SLOTLINE_ERROR_BAD_SAMPLES, ..about(source) }
        }
        Error::Timeout { task, busy, .. } => {
            let first = busy.first().copied();
            let (worker, index) = (first.map(|first| first.0), first.map(|first| first.1));
            Failure { index, task: Some(*task), worker, ..of(SLOTLINE_ERROR_TIMEOUT) }
        }
        Error::Held { .. } => of(SLOTLINE_ERROR_HELD),
        Error::WorkerInit { worker, .. } => Failure { worker: Some(*worker), ..of(SLOTLINE_ERROR_WORKER_INIT) },
        Error::Start { task, by: who, .. } => {
            Failure { task: Some(*task), worker: by(who), ..of(SLOTLINE_ERROR_SAMPLE) }
        }
        Error::Sampler { task, by: who, .. } | Error::BatchSampler { task, by: who, .. } => {
            Failure { task: Some(*task), worker: by(who), ..of(SLOTLINE_ERROR_SAMPLER) }
        }
        Error::LongBatch { task, .. } => Failure { task: Some(*task), ..of(SLOTLINE_ERROR_SAMPLER) },
        Error::Order(_) | Error::LongOrder { .. } | Error::TooManyBatches { .. } => of(SLOTLINE_ERROR_SAMPLER),
        Error::Stopped | Error::Forked => of(SLOTLINE_ERROR_STOPPED),
        Error::State(_) => of(SLOTLINE_ERROR_STATE),
        Error::WorkerDied { worker, .. } => Failure { worker: Some(*worker), ..of(SLOTLINE_ERROR_WORKER_DIED) },
        Error::Lost { task } => Failure { task: Some(*task), ..of(SLOTLINE_ERROR_PANIC) },
        _ => of(SLOTLINE_ERROR_PANIC),
    }
}

#[cfg(all(test, feature = "image", not(feature = "turbo")))]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_lacks_is_named_as_in_cmake() {
        let jpeg = slotline_image::ImageError::NeedsTurbo { kind: "without loss" };
        assert_eq!(chain(&jpeg), "a JPEG without loss, which needs the CMake option SLOTLINE_TURBO");
    }
}
