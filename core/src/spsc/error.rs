//! The errors of the producer and the consumer: why there is no slot or no item.

use core::error::Error;
use core::fmt;

/// The reason why there is no slot to write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// Every slot holds an item that the consumer has not released. A method whose name ends in
    /// `_until` returns this at its deadline.
    Full,
    /// The consumer was dropped or the ring was closed. Items published after that will not be
    /// read.
    Closed,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the ring is full",
            Self::Closed => "the ring is closed, or its consumer was dropped",
        })
    }
}

impl Error for ClaimError {}

/// The reason why there is no item to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextError {
    /// Every item published so far was released. A method whose name ends in `_until` returns this
    /// at its deadline.
    Empty,
    /// The producer was dropped, and every item was released.
    Ended,
    /// The ring was closed.
    Closed,
}

impl fmt::Display for NextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the ring is empty",
            Self::Ended => "the producer has finished, and all of its items were read",
            Self::Closed => "the ring was closed",
        })
    }
}

impl Error for NextError {}

/// A value that was not pushed, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushError<T> {
    /// The value, unchanged.
    pub value: T,
    /// The reason why there was no slot for it.
    pub reason: ClaimError,
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

// `Display` already shows the reason, so it is not the source.
impl<T: fmt::Debug> Error for PushError<T> {}
