//! The `tracing` spans that make a timeline: of a pass, of claims being filled, and of waiting.
//!
//! Without a subscriber, each costs a check of the level; claims that are not timed have no span at all.
//!
//! A subscriber is user code, and may panic. While a batch is filled, this fails the batch. Anywhere else the span or
//! the event is lost, and the loader continues: the panic hook has reported the panic.

use tracing::span::Span;

use crate::loader::error::failure::Cause;
use crate::loader::error::guard::{dispose, guarded, quietly};
use crate::loader::error::warning::{Warning, Warnings};
use crate::sync::thread::{self, ThreadId};

/// A span that this thread is in until it [leaves](Self::leave) it or drops this value.
#[derive(Debug)]
pub(crate) struct Entered(Span);

impl Entered {
    /// Makes a span and enters it. If the subscriber panics, the span is disabled.
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

    /// Whether no subscriber listens to the span.
    pub(crate) fn is_disabled(&self) -> bool {
        self.0.is_disabled()
    }

    /// Records that this many rows were filled.
    pub(crate) fn filled(&self, rows: u64) -> Result<(), Cause> {
        if self.is_disabled() {
            return Ok(());
        }
        guarded(|| {
            self.0.record("rows", rows);
            Ok(())
        })
    }

    /// Leaves the span.
    pub(crate) fn leave(&mut self) -> Result<(), Cause> {
        if self.is_disabled() {
            return Ok(());
        }
        let span = std::mem::replace(&mut self.0, Span::none());
        let left = guarded(|| Ok(span.with_subscriber(|(id, subscriber)| subscriber.exit(id))));
        // Each separately: a second panic while the first one unwinds would abort the process.
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

/// Whether a subscriber may listen to trace-level spans.
#[inline]
pub(crate) fn wanted() -> bool {
    tracing::level_filters::LevelFilter::current() >= tracing::Level::TRACE
}

/// Enters the span of filling a claim of batch `task`.
pub(crate) fn fill(task: usize) -> (Entered, Result<(), Cause>) {
    Entered::new(|| tracing::trace_span!("fill", batch = task, rows = tracing::field::Empty))
}

/// Enters the span of waiting: of a worker for something to do, or of the consumer for a batch.
pub(crate) fn wait() -> Entered {
    Entered::new(|| tracing::trace_span!("wait")).0
}

/// Runs `say`, which emits an event through `tracing`, and catches its panic.
pub(crate) fn tell(say: impl FnOnce()) {
    quietly(say);
}

impl Warnings {
    /// Reports a warning, and adds it to the list.
    pub(crate) fn add(&mut self, warning: Warning) {
        tell(|| tracing::warn!("{warning}"));
        self.listener.hear(|| warning.clone());
        self.list.push(warning);
    }
}

/// The span of a pass, from its beginning until this is dropped. Everything that the loop does in this thread until
/// then is inside the span.
#[doc(hidden)]
#[derive(Debug)]
pub struct PassSpan {
    span: Entered,
    /// The thread that entered the span, and must leave it.
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
        // Another thread is not in the span.
        if self.thread.is_some_and(|thread| thread != thread::current().id()) {
            dispose(std::mem::replace(&mut self.span.0, Span::none()));
        }
    }
}
