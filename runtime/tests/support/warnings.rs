//! What is warned of through `tracing`, for the tests that look.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span;

/// The warnings of the threads that it is set for: the message of each, and its other fields as `name=value `.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>, Option<Arc<dyn Fn() + Send + Sync>>);

#[allow(dead_code)] // Each test binary uses some of it.
impl Warnings {
    /// Warnings of which `hear` is told, in the thread that they are of.
    pub(crate) fn heard_by(hear: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::default(), Some(Arc::new(hear)))
    }

    /// Those so far, which are then forgotten.
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
        if let Some(hear) = &self.1 {
            hear();
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
