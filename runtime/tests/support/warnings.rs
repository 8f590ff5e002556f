//! A `tracing` subscriber that records warnings, for tests.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span;

/// A subscriber that records warnings of its threads: the message, followed by the other fields as
/// `name=value `.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>, Option<Arc<dyn Fn() + Send + Sync>>);

#[allow(dead_code)] // Each test binary uses only a part of it.
impl Warnings {
    /// Makes a subscriber that also calls `callback` at each warning, on the thread that emits the
    /// warning.
    pub(crate) fn with_callback(callback: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::default(), Some(Arc::new(callback)))
    }

    /// Removes and returns the warnings recorded so far.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[derive(Default)]
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &match field.name() {
            "message" => format!("{value:?} "),
            name => format!("{name}={value:?} "),
        };
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        self.0.lock().unwrap().push(words.0);
        if let Some(callback) = &self.1 {
            callback();
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
