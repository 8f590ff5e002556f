//! Formats an error together with its causes.

use std::error::Error;

/// Returns the message of an error and those of its causes, in one line.
///
/// Errors of this workspace already include their causes in their own message, since most programs
/// print nothing else. Their [`source`](Error::source) is `None`, because programs that print the
/// sources too would print them twice; the cause is a field of the error. If a message already ends
/// with that of its cause, as in some libraries, the cause is not repeated.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let (mut text, mut source) = (error.to_string(), error.source());
    // The number of steps is limited because a user's error may be its own source.
    for _ in 0..16 {
        let Some(error) = source else { break };
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text = text + ": " + &cause;
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::array::PinMemoryError;
    use crate::dataset::{SplitError, SubsetError};
    use crate::loader::{BuildError, By, StateError};
    use crate::rng::RandpermError;
    use crate::sample::OwnedSampleError;
    use crate::sampler::SamplerError;
    use crate::source::{LoadError, SourceError};
    use crate::{BoxError, Error as Run};

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read row 7")]
    struct Outer(#[source] io::Error);

    /// Returns a user's error, whose message does not include its cause.
    fn user() -> BoxError {
        Outer(io::Error::other("the disk is gone")).into()
    }

    fn disk() -> io::Error {
        io::Error::other("the disk is gone")
    }

    #[test]
    fn every_error_tells_its_cause_once_in_one_line() {
        let refused = || Vec::<u8>::new().try_reserve(usize::MAX).unwrap_err();
        let (index, task, by) = (7, 1, By::Worker(2));
        let sample = || Run::Sample { index, position: 7, task, by, source: user() };
        let file = || SourceError::Io { path: "a.npy".into(), action: "read", advice: "copy it", source: disk() };
        let no_order = || SamplerError::Memory { sampler: "Own", bytes: 8, source: refused() };
        let errors: [(&str, Box<dyn Error>); 26] = [
            ("row 7: the disk is gone", sample().into()),
            ("row 7: the disk is gone", Run::BadSamples { bad: 1, budget: 0, source: sample().into() }.into()),
            ("row 7: the disk is gone", Run::Held { task, epoch: 0, hold: 1, source: Some(user()) }.into()),
            ("hold = 2", Run::Held { task, epoch: 0, hold: 1, source: None }.into()),
            ("row 7: the disk is gone", Run::WorkerInit { worker: 1, source: user() }.into()),
            ("row 7: the disk is gone", Run::Start { task, by, source: user() }.into()),
            ("row 7: the disk is gone", Run::BatchSampler { task, by, source: user() }.into()),
            ("row 7: the disk is gone", Run::from(SamplerError::from(user())).into()),
            ("memory allocation failed", Run::from(no_order()).into()),
            ("row 7: the disk is gone", Run::from(StateError::Sampler { source: user() }).into()),
            ("row 7: the disk is gone", BuildError::Probe { index, source: user() }.into()),
            ("row 7: the disk is gone", BuildError::from(SamplerError::from(user())).into()),
            ("row 7: the disk is gone", BuildError::Allocate { bytes: 1, source: user() }.into()),
            ("the disk is gone", BuildError::Map { bytes: 1, source: disk() }.into()),
            ("the disk is gone", BuildError::Thread { worker: 1, source: disk() }.into()),
            ("the disk is gone", BuildError::Command { worker: 1, program: "./a".into(), source: disk() }.into()),
            ("the disk is gone", BuildError::Watchdog { source: disk() }.into()),
            ("the disk is gone", file().into()),
            ("the disk is gone", LoadError::File { name: crate::source::Source::Digits, source: file().into() }.into()),
            ("the disk is gone", OwnedSampleError::Memory { bytes: 1, source: disk() }.into()),
            ("the disk is gone", PinMemoryError::Memory { bytes: 1, source: disk() }.into()),
            ("the disk is gone", PinMemoryError::Lock { bytes: 1, limit: None, source: disk() }.into()),
            ("memory allocation failed", SubsetError::Memory { bytes: 1, source: refused() }.into()),
            ("memory allocation failed", RandpermError::Memory { n: 1, bytes: 1, source: refused() }.into()),
            (
                "memory allocation failed",
                SplitError::from(RandpermError::Memory { n: 1, bytes: 1, source: refused() }).into(),
            ),
            ("the disk is gone", user()),
        ];
        for (at, (cause, error)) in errors.iter().enumerate() {
            let (alone, walked) = (error.to_string(), with_causes(&**error));
            // The last error is a user's.
            assert!(alone == walked || at + 1 == errors.len(), "{alone} is told as {walked}");
            assert!(walked.matches(cause).count() == 1 && !walked.contains('\n'), "{walked}");
        }
    }

    #[test]
    fn the_cause_of_an_error_can_be_downcast() {
        let inner = Run::WorkerInit { worker: 1, source: user() };
        assert!(inner.cause().is_some_and(|cause| cause.is::<Outer>()));
        let outer = Run::BadSamples { bad: 1, budget: 0, source: inner.into() };
        assert!(outer.cause().is_some_and(|cause| cause.is::<Outer>()));
        assert!(Run::Stopped.cause().is_none());
    }

    #[test]
    fn a_message_that_repeats_its_cause_is_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("it failed: {0}")]
        struct Repeats(#[source] io::Error);
        assert_eq!(with_causes(&Repeats(disk())), "it failed: the disk is gone");
    }
}
