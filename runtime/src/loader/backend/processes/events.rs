//! The `tracing` events of worker processes, which the loader's process emits for them.
//!
//! A worker process must not run the program's subscriber, which may wait for a thread that does
//! not exist there, or write to a file to which its copy in the parent writes, too. So events are
//! sent to the loader, and spans are dropped.

use std::fmt::{self, Write};
use std::sync::Arc;

use tracing::dispatcher::{self, Dispatch};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};

use crate::loader::backend::processes::socket::{Message, NUMBERS, Socket};
use crate::loader::backend::processes::worker_messages::EVENT;
use crate::loader::error::guard::caught;
use crate::loader::error::warning::Warning;
use crate::loader::trace;

/// The levels, indexed by their number in a message.
const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

/// An event of a worker.
#[derive(Debug)]
pub(crate) struct Event {
    level: Level,
    /// The target, the message and the fields.
    text: String,
    /// The core that the worker could not be bound to, if the event says so.
    pub(crate) not_bound: Option<usize>,
}

/// Returns the message that a worker could not be bound to its core.
pub(crate) fn not_bound(worker: usize, core: usize) -> Message {
    // The number of the level `WARN`, and the core's number plus 1.
    let numbers = [1, core as u64 + 1, 0, 0, 0, 0];
    Message { kind: EVENT, numbers, text: Warning::NotBound { worker, core }.to_string() }
}

impl Event {
    /// Returns the event in a message, if it is valid.
    pub(crate) fn received(numbers: [u64; NUMBERS], text: String) -> Option<Self> {
        let level = *LEVELS.get(usize::try_from(numbers[0]).ok()?)?;
        Some(Self { level, text, not_bound: numbers[1].checked_sub(1).map(|core| core as usize) })
    }

    /// Emits the event in this process.
    pub(crate) fn emit(&self, worker: usize) {
        let Self { level, text, .. } = self;
        trace::tell(|| match *level {
            Level::ERROR => tracing::error!(target: "slotline::worker", worker, "{text}"),
            Level::WARN => tracing::warn!(target: "slotline::worker", worker, "{text}"),
            Level::INFO => tracing::info!(target: "slotline::worker", worker, "{text}"),
            Level::DEBUG => tracing::debug!(target: "slotline::worker", worker, "{text}"),
            _ => tracing::trace!(target: "slotline::worker", worker, "{text}"),
        });
    }
}

/// Sends the events of a worker process to the loader, if the program has a subscriber. The
/// forwarder is made before the fork, so that the process does not have to register it as a
/// subscriber.
pub(crate) struct Forwarder(Option<Dispatch>);

impl Forwarder {
    /// Makes a forwarder to a worker's end of a socket, for the events that this thread's
    /// subscriber wants, if there is one.
    pub(crate) fn new(socket: &Arc<Socket>) -> Self {
        let dispatch = || {
            let (program, level) = (dispatcher::get_default(Dispatch::clone), LevelFilter::current());
            Dispatch::new(Forward { program, level, socket: socket.clone() })
        };
        // This calls code of the subscriber, which may panic.
        Self(if dispatcher::has_been_set() { caught(dispatch).ok() } else { None })
    }

    /// Runs `code`, and sends the events that this thread emits in it.
    pub(crate) fn during(&self, code: impl FnOnce()) {
        match &self.0 {
            Some(dispatch) => dispatcher::with_default(dispatch, code),
            None => code(),
        }
    }
}

struct Forward {
    /// The program's subscriber, which decides which events are enabled.
    program: Dispatch,
    level: LevelFilter,
    socket: Arc<Socket>,
}

impl Subscriber for Forward {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.program.register_callsite(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && self.program.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let level = LEVELS.iter().position(|level| level == metadata.level()).unwrap_or_default();
        let mut text = EventText(format!("{}:", metadata.target()));
        event.record(&mut text);
        let mut numbers = [0; NUMBERS];
        numbers[0] = level as u64;
        // If this fails, the loader has ended, and nobody needs the event.
        let _ = self.socket.send(&Message { kind: EVENT, numbers, text: text.0 });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of an event.
struct EventText(String);

impl Visit for EventText {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let Self(text) = self;
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(text, " {value:?}"),
            name => write!(text, " {name}={value:?}"),
        };
    }
}
