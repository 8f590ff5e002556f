//! What is said of bad samples through `tracing`. Alone in its process: another test's thread that comes by a place where
//! something is said, and listens to nothing, would have it left out for all.

use std::fmt;
use std::sync::{Arc, Mutex};

use slotline::Loader;
use slotline::dataset::from_fn;
use slotline::loader::{Budget, OnError};
use tracing::field::{Field, Visit};
use tracing::span;

/// What is warned of, as its fields say it.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        self.0.lock().unwrap().push(words.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn each_bad_index_is_said_once() {
    let warnings = Warnings::default();
    let numbers = from_fn(42, |i, _| if i == 4 || i == 30 { Err(format!("no {i}").into()) } else { Ok(i as i64) });
    tracing::subscriber::with_default(warnings.clone(), || {
        let builder = Loader::builder(numbers).batch_size(8).help(false);
        let mut loader = builder.num_workers(1).on_error(OnError::Skip(Budget::Samples(1))).build().unwrap();
        for _ in 0..3 {
            assert_eq!(loader.epoch().unwrap().filter(Result::is_err).count(), 1);
        }
        assert_eq!(loader.stats().bad_samples, 6);
        assert!(loader.stats().bad_indices.into_iter().eq([4, 30]));
    });
    let said = warnings.0.lock().unwrap();
    assert_eq!(said.len(), 2, "{said:?}");
    for word in ["index=30 ", "position=30 ", "batch=3 ", "by=worker 0 ", "error=no 30 "] {
        assert!(said[1].contains(word), "{said:?}");
    }
}
