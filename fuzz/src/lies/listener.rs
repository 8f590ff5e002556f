//! A `tracing` subscriber that panics. It is process-wide, but only affects threads that have run misbehaving code.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Once, Weak};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::{Script, Site};

thread_local! {
    static SCRIPT: RefCell<Weak<Script>> = const { RefCell::new(Weak::new()) };
}

/// Makes the subscriber handle the spans and events of this thread from now on.
pub(super) fn listen(script: &Arc<Script>) {
    if script.sites >> Site::Trace as u32 & 1 == 0 {
        return;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| _ = tracing::subscriber::set_global_default(Listener));
    SCRIPT.with_borrow_mut(|mine| {
        if mine.strong_count() == 0 {
            *mine = Arc::downgrade(script);
        }
    });
}

/// Makes the subscriber ignore this thread again.
pub(super) fn unlisten() {
    SCRIPT.set(Weak::new());
}

struct Listener;

/// Panics if the script says so and the thread is not already panicking.
fn misbehave() {
    let script = SCRIPT.try_with(|script| script.borrow().upgrade()).ok().flatten();
    let Some(script) = script.filter(|_| !std::thread::panicking()) else { return };
    if script.ask(Site::Trace, 3) == 1 {
        let worker = std::thread::current().name().is_some_and(|name| name.starts_with("slotline-"));
        script.worker_hit.fetch_or(worker, std::sync::atomic::Ordering::Relaxed);
        script.panic();
    }
}

/// Formats the recorded values, whose `Debug` may misbehave too.
struct Formatter(String);

impl Visit for Formatter {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        use fmt::Write;
        let _ = write!(self.0, "{value:?}");
    }
}

impl Subscriber for Listener {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        let mine = SCRIPT.try_with(|script| script.borrow().strong_count() > 0).unwrap_or_default();
        if mine {
            misbehave();
        }
        mine
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        misbehave();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        misbehave();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        misbehave();
        let mut formatter = Formatter(String::new());
        event.record(&mut formatter);
    }

    fn enter(&self, _: &Id) {
        misbehave();
    }

    fn exit(&self, _: &Id) {
        misbehave();
    }

    fn try_close(&self, _: Id) -> bool {
        misbehave();
        true
    }
}
