//! Why a side gets nothing.

use core::error::Error;
use core::fmt;

/// Why there is no slot to write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// Every slot holds an item that the consumer hasn't released; from an `_until` form: still so at the deadline.
    Full,
    /// The consumer is gone or the ring was closed; nothing that is published now will be read.
    Closed,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the ring is full",
            Self::Closed => "the ring is closed: its consumer is gone, or somebody closed it",
        })
    }
}

impl Error for ClaimError {}

/// Why there is no item to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextError {
    /// Every item published so far was released; from an `_until` form: still so at the deadline.
    Empty,
    /// The producer is gone, and every item was released.
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

/// A value that was not pushed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushError<T> {
    /// The value, untouched.
    pub value: T,
    /// Why there was no slot for it.
    pub reason: ClaimError,
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

// The reason is told by `Display` already, so it is not the source as well.
impl<T: fmt::Debug> Error for PushError<T> {}
