//! The loader's `tracing` spans: of a pass, of rows being filled, and of waiting.
//!
//! Without a subscriber, a span costs a check of the level. A claim is a group of rows that a
//! thread fills at once. If samples are quick, only some claims are timed, and the others have no
//! span.
//!
//! A subscriber is user code, and may panic. While a batch is filled, such a panic fails the batch.
//! Anywhere else the span or the event is lost, and the loader continues; the panic hook has
//! reported the panic.

use tracing::span::Span;

use crate::loader::error::failure::Cause;
use crate::loader::error::guard::{catch_panic, dispose, guarded};
use crate::loader::error::warning::{Warning, Warnings};
use crate::sync::thread::{self, ThreadId};

/// A span that this thread has entered. The thread exits it by [`leave`](Self::leave), or by
/// dropping this value.
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

    /// Records in the span that `rows` rows were filled.
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
        // Guard the subscriber's call and the drop of the span separately: a second panic while the
        // first one unwinds would abort the process.
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

/// Enters the span `fill` for the rows of a claim of batch `task`.
pub(crate) fn fill(task: usize) -> (Entered, Result<(), Cause>) {
    Entered::new(|| tracing::trace_span!("fill", batch = task, rows = tracing::field::Empty))
}

/// Enters the span `wait`, in which a worker waits for something to do, or the consumer for a
/// batch.
pub(crate) fn wait() -> Entered {
    Entered::new(|| tracing::trace_span!("wait")).0
}

/// Runs `say`, which emits a `tracing` event, and catches a panic of the subscriber.
pub(crate) fn tell(say: impl FnOnce()) {
    catch_panic(say);
}

impl Warnings {
    /// Emits a warning through `tracing` and to the user's listener, and adds it to the loader's
    /// list of warnings.
    pub(crate) fn add(&mut self, warning: Warning) {
        tell(|| tracing::warn!("{warning}"));
        self.listener.notify(|| warning.clone());
        self.list.push(warning);
    }
}

/// The span of a pass, which ends when this value is dropped. Everything that the training loop
/// does in this thread until then is inside the span.
#[doc(hidden)]
#[derive(Debug)]
pub struct PassSpan {
    span: Entered,
    /// The thread that entered the span, and must exit it.
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
        // Another thread than the one that entered the span must not exit it.
        if self.thread.is_some_and(|thread| thread != thread::current().id()) {
            dispose(std::mem::replace(&mut self.span.0, Span::none()));
        }
    }
}
