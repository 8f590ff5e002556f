//! The spans that a timeline is made of, through `tracing`: a pass, claims being filled, and waiting.
//!
//! Where nobody listens, each is a look at a level; and claims that are not timed have none at all.
//!
//! A subscriber is code of the user's, and may panic. While a batch is filled this fails the batch. Anywhere else the span
//! or the message is lost, and the loader goes on: the panic hook has said what happened.

use tracing::span::Span;

use crate::loader::error::failure::Cause;
use crate::loader::error::guard::{dispose, guarded, quietly};
use crate::sync::thread::{self, ThreadId};

/// A span that this thread is in until it [leaves](Self::leave) it or drops this.
#[derive(Debug)]
pub(crate) struct Entered(Span);

impl Entered {
    /// Makes a span and enters it. If the subscriber panics, there is none.
    #[inline]
    fn new(make: impl FnOnce() -> Span) -> (Self, Result<(), Cause>) {
        match guarded(|| Ok(make())) {
            Ok(span) if span.is_disabled() => (Self(span), Ok(())),
            Ok(span) => Self::enter(span),
            Err(cause) => (Self(Span::none()), Err(cause)),
        }
    }

    #[cold]
    fn enter(span: Span) -> (Self, Result<(), Cause>) {
        let entered = guarded(|| Ok(span.with_subscriber(|(id, subscriber)| subscriber.enter(id))));
        if entered.is_ok() {
            return (Self(span), Ok(()));
        }
        dispose(span);
        (Self(Span::none()), entered.map(drop))
    }

    /// Whether nobody listens.
    pub(crate) fn is_disabled(&self) -> bool {
        self.0.is_disabled()
    }

    /// Says that so many rows were filled.
    pub(crate) fn filled(&self, rows: u64) -> Result<(), Cause> {
        if self.is_disabled() {
            return Ok(());
        }
        guarded(|| {
            self.0.record("rows", rows);
            Ok(())
        })
    }

    /// Leaves it.
    pub(crate) fn leave(&mut self) -> Result<(), Cause> {
        if self.is_disabled() {
            return Ok(());
        }
        let span = std::mem::replace(&mut self.0, Span::none());
        let left = guarded(|| Ok(span.with_subscriber(|(id, subscriber)| subscriber.exit(id))));
        // Each by itself: a second panic while the first one unwinds ends the process.
        let closed = guarded(|| {
            drop(span);
            Ok(())
        });
        left.and(closed)
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        let _ = self.leave();
    }
}

/// Whether anybody may listen to spans like these.
#[inline]
pub(crate) fn wanted() -> bool {
    tracing::level_filters::LevelFilter::current() >= tracing::Level::TRACE
}

/// A claim of batch `task` is filled.
pub(crate) fn fill(task: usize) -> (Entered, Result<(), Cause>) {
    Entered::new(|| tracing::trace_span!("fill", batch = task, rows = tracing::field::Empty))
}

/// The thread waits: a worker for something to do, the consumer for a batch.
pub(crate) fn wait() -> Entered {
    Entered::new(|| tracing::trace_span!("wait")).0
}

/// Says something through `tracing`, by `say`.
pub(crate) fn tell(say: impl FnOnce()) {
    quietly(say);
}

/// A pass, from its beginning until this is dropped. What the loop does meanwhile in the same thread is inside of it.
#[doc(hidden)]
#[derive(Debug)]
pub struct PassSpan {
    span: Entered,
    /// Where it was entered, and must be left.
    thread: Option<ThreadId>,
}

impl PassSpan {
    pub(crate) fn new(epoch: u32) -> Self {
        let span = Entered::new(|| tracing::debug_span!("pass", epoch)).0;
        let thread = (!span.is_disabled()).then(|| thread::current().id());
        Self { span, thread }
    }
}

impl Drop for PassSpan {
    fn drop(&mut self) {
        // Another thread is not in it.
        if self.thread.is_some_and(|thread| thread != thread::current().id()) {
            dispose(std::mem::replace(&mut self.span.0, Span::none()));
        }
    }
}
