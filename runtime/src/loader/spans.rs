//! The spans that a timeline is made of, through `tracing`: a pass, claims being filled, and waiting.
//!
//! Where nobody listens, each is a look at a level; and claims that are not timed have none at all.

use crate::sync::thread::{self, ThreadId};

use tracing::span::{EnteredSpan, Span};

/// A claim of batch `task` is filled.
pub(super) fn fill(task: usize) -> EnteredSpan {
    tracing::trace_span!("fill", batch = task, rows = tracing::field::Empty).entered()
}

/// So many rows of it were filled.
pub(super) fn filled(span: &EnteredSpan, rows: u64) {
    if !span.is_disabled() {
        span.record("rows", rows);
    }
}

/// The thread waits: a worker for something to do, the consumer for a batch.
pub(super) fn wait() -> EnteredSpan {
    tracing::trace_span!("wait").entered()
}

/// A pass, from its beginning until this is dropped. What the loop does meanwhile in the same thread is inside of it.
#[derive(Debug)]
pub(super) struct PassSpan {
    span: Span,
    /// Where it was entered, and must be left.
    thread: Option<ThreadId>,
}

impl PassSpan {
    pub(super) fn new(epoch: u32) -> Self {
        let span = tracing::debug_span!("pass", epoch);
        span.with_subscriber(|(id, subscriber)| subscriber.enter(id));
        let thread = (!span.is_disabled()).then(|| thread::current().id());
        Self { span, thread }
    }
}

impl Drop for PassSpan {
    fn drop(&mut self) {
        // Another thread is not in it.
        if self.thread.is_some_and(|thread| thread == thread::current().id()) {
            self.span.with_subscriber(|(id, subscriber)| subscriber.exit(id));
        }
    }
}
