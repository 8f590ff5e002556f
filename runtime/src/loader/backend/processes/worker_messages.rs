//! The reports that worker processes have sent besides batches. They are kept until the loader
//! takes them.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::BoxError;
use crate::loader::backend::processes::child::End;
use crate::loader::backend::processes::events::Event;
use crate::loader::backend::processes::socket::{Message, Socket};
use crate::loader::error::failure::{Cause, Failure, Skipped, SlotErrors};
use crate::loader::error::run::By;
use crate::loader::metrics::activity::At;

/// The kinds of messages from a worker.
pub(crate) const FAILURE: u64 = 1;
pub(crate) const SKIPPED: u64 = 2;
pub(crate) const BEGUN: u64 = 3;
pub(crate) const EVENT: u64 = 4;
pub(crate) const READY: u64 = 5;
pub(crate) const REFUSED: u64 = 6;

/// The maximum number of messages in a socket, and of events that wait to be emitted.
pub(crate) const MAX_WAITING: usize = 4096;
/// The total length of all strings in bytes. Each string beyond that is shortened to `SHORT` bytes.
const MAX_BYTES: usize = 64 << 20;
const SHORT: usize = 256;
/// The maximum number of failures and bad samples that are kept. The batches in the ring cannot
/// have more.
pub(crate) const MAX_REPORTS: usize = 1 << 20;

/// An error in a worker process, as text with its sources.
#[derive(Debug)]
pub(crate) struct RemoteError(pub(crate) String);

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RemoteError {}

/// Shortens a string if the strings so far are too long in total.
pub(crate) fn shorten(text: &mut String, bytes: &mut usize) {
    *bytes += text.len();
    if *bytes > MAX_BYTES {
        text.truncate(text.floor_char_boundary(SHORT));
        text.shrink_to_fit();
    }
}

/// Returns the failure of a batch that begins at a position, after a worker has overwritten memory.
pub(crate) fn overwritten(position: usize) -> Failure {
    let cause = Cause::Error("a worker process wrote over the loader's memory".into());
    Failure { position, index: 0, by: By::Consumer, cause }
}

/// Returns the message about a failure, or a bad sample, at a row of a ticket.
fn failure_at(kind: u64, ticket: u64, row: usize, failure: &Failure) -> Message {
    let (what, text) = match &failure.cause {
        Cause::Panic(message) => (1, message.clone()),
        Cause::Start(_) => (2, failure.cause.with_sources()),
        cause => (0, cause.with_sources()),
    };
    Message { kind, numbers: [ticket, row as u64, failure.index as u64, what, 0, 0], text }
}

/// Sends the bad samples and the failure of a ticket, whose first row is at position `first`, to
/// the loader.
pub(crate) fn send_errors(socket: &Socket, ticket: u64, first: usize, errors: &SlotErrors) -> io::Result<()> {
    for Skipped { failure, row } in &errors.bad {
        let mut message = failure_at(SKIPPED, ticket, failure.position - first, failure);
        message.numbers[4] = u64::from(row.is_some());
        socket.send(&message)?;
    }
    match &errors.failure {
        Some(failure) => socket.send(&failure_at(FAILURE, ticket, failure.position - first, failure)),
        None => Ok(()),
    }
}

/// Returns the message that a worker has run its `worker_init` for a pass.
pub(crate) fn begun(pass: u64, outcome: Result<(), BoxError>) -> Message {
    let ok = u64::from(outcome.is_ok());
    let text = outcome.err().map(|error| Cause::Error(error).with_sources()).unwrap_or_default();
    Message { kind: BEGUN, numbers: [pass, ok, 0, 0, 0, 0], text }
}

/// Returns the message that a worker, which was started by a command, begins to work.
pub(crate) fn ready() -> Message {
    Message { kind: READY, ..Message::default() }
}

/// Returns the message that a worker, which was started by a command, cannot work.
pub(crate) fn refused(error: BoxError) -> Message {
    Message { kind: REFUSED, text: Cause::Error(error).with_sources(), ..Message::default() }
}

/// Returns why it would be useless to start an ended worker again, if that is known. `starts` says
/// whether the worker was started by a command and had not begun to work; `reason` is why it could
/// not, if it has sent a reason.
pub(crate) fn refusal(starts: bool, reason: Option<&str>, end: End) -> Option<String> {
    let from_outside = matches!(end, End::Signal(libc::SIGINT | libc::SIGKILL | libc::SIGTERM));
    match reason {
        Some(why) => Some(format!("it could not start: {why}")),
        None if starts && !from_outside => Some(format!(
            "its process {end} before it began to work; its main must call loader::work_if_spawned, and that must make the dataset"
        )),
        None => None,
    }
}

/// A failure or a bad sample that a worker has reported.
#[derive(Debug)]
pub(crate) struct Report {
    worker: usize,
    pub(crate) ticket: u64,
    pub(crate) row: usize,
    pub(crate) index: usize,
    pub(crate) cause: Cause,
    /// For a bad sample that was skipped: whether its row was left empty.
    pub(crate) empty: Option<bool>,
}

impl Report {
    /// Converts a message of kind [`FAILURE`] or [`SKIPPED`].
    pub(crate) fn received(worker: usize, Message { kind, numbers, text }: Message) -> Self {
        let [ticket, row, index, what, empty, _] = numbers;
        let cause = match what {
            0 => Cause::Error(RemoteError(text).into()),
            2 => Cause::Start(RemoteError(text).into()),
            _ => Cause::Panic(text),
        };
        let empty = (kind == SKIPPED).then_some(empty != 0);
        Self { worker, ticket, row: row as usize, index: index as usize, cause, empty }
    }
}

/// A claimed part of a batch whose worker has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) ticket: u64,
    pub(crate) part: usize,
    pub(crate) worker: usize,
    pub(crate) end: End,
    /// The sample that the worker was reading, if it is known.
    pub(crate) at: Option<At>,
}

/// Whether a worker takes part in the pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Active,
    /// The worker takes no part, because its `worker_init` failed in this pass.
    Idle,
    Ended,
}

/// The loader's record of one worker.
#[derive(Debug, Default)]
struct Worker {
    socket: Option<Arc<Socket>>,
    state: State,
    /// The last pass for which the worker has run its `worker_init`.
    begun: u64,
    /// Whether the worker was started by a command, and has not begun to work.
    starts: bool,
    /// Why the worker cannot work, if it has sent a reason.
    refusal: Option<String>,
}

/// The messages of all workers that the loader has not taken yet, and the state of each worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerMessages {
    workers: Vec<Worker>,
    reports: Vec<Report>,
    losses: Vec<Loss>,
    /// The total length of the strings of `reports`, in bytes.
    bytes: usize,
    /// Whether workers sent more reports than are kept.
    flooded: bool,
    /// Events that are not emitted yet, and the number of events for which there was no room.
    pub(crate) events: Vec<(usize, Event)>,
    pub(crate) lost_events: usize,
    /// The pass that begins, and the workers whose `worker_init` failed in it.
    pass: u64,
    failures: Vec<(usize, BoxError)>,
}

impl WorkerMessages {
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Worker::default()).collect(), ..Self::default() }
    }

    /// Connects a worker that is being started. `starts` says whether a command starts it.
    pub(crate) fn connect(&mut self, worker: usize, socket: Socket, starts: bool) {
        self.workers[worker] = Worker { socket: Some(Arc::new(socket)), starts, ..Worker::default() };
    }

    /// Returns why it would be useless to start an ended worker again, if that is known.
    pub(crate) fn refusal_of(&self, worker: usize, end: End) -> Option<String> {
        let Worker { starts, refusal, .. } = &self.workers[worker];
        self::refusal(*starts, refusal.as_deref(), end)
    }

    /// Returns the sockets of all running workers.
    pub(crate) fn sockets(&self) -> Vec<Arc<Socket>> {
        self.workers.iter().filter_map(|worker| worker.socket.clone()).collect()
    }

    /// Receives all messages that were sent before the call.
    pub(crate) fn collect(&mut self) {
        for worker in 0..self.workers.len() {
            let Some(socket) = self.workers[worker].socket.clone() else { continue };
            let is_closed = socket.is_closed();
            // A socket never contains more messages than this. With the limit, a worker cannot keep
            // this thread busy.
            for _ in 0..MAX_WAITING {
                let Some(message) = socket.receive(false) else {
                    // The socket was closed before this found no message, so no message can follow.
                    if is_closed {
                        self.workers[worker].socket = None;
                    }
                    break;
                };
                self.receive(worker, message);
            }
        }
    }

    fn receive(&mut self, worker: usize, Message { kind, numbers, mut text }: Message) {
        match kind {
            FAILURE | SKIPPED if self.reports.len() == MAX_REPORTS => self.flooded = true,
            FAILURE | SKIPPED => {
                shorten(&mut text, &mut self.bytes);
                self.reports.push(Report::received(worker, Message { kind, numbers, text }));
            }
            EVENT if self.events.len() == MAX_WAITING => self.lost_events += 1,
            BEGUN => {
                let ([pass, ok, ..], of) = (numbers, &mut self.workers[worker]);
                of.begun = pass;
                if ok == 0 && pass == self.pass && of.state == State::Active {
                    of.state = State::Idle;
                    self.failures.push((worker, RemoteError(text).into()));
                }
            }
            READY => self.workers[worker].starts = false,
            REFUSED => self.workers[worker].refusal = Some(text),
            EVENT => self.events.extend(Event::received(numbers, text).map(|event| (worker, event))),
            _ => {}
        }
    }

    /// Begins a pass in which each worker runs its `worker_init`.
    pub(crate) fn call(&mut self, pass: u64) {
        (self.pass, self.failures) = (pass, Vec::new());
        for worker in &mut self.workers {
            if worker.state == State::Idle {
                worker.state = State::Active;
            }
        }
    }

    /// Whether any worker has not yet run its `worker_init` for the pass.
    pub(crate) fn awaits(&self) -> bool {
        self.workers.iter().any(|worker| worker.state == State::Active && worker.begun != self.pass)
    }

    /// Takes the errors of the workers whose `worker_init` failed.
    pub(crate) fn take_failures(&mut self) -> Vec<(usize, BoxError)> {
        let mut failures = std::mem::take(&mut self.failures);
        failures.sort_by_key(|&(worker, _)| worker);
        failures
    }

    /// Returns why the `worker_init` of a worker failed, if it did.
    pub(crate) fn failure_of(&self, worker: usize) -> Option<String> {
        let failure = self.failures.iter().find(|(of, _)| *of == worker);
        failure.map(|(_, error)| format!("its worker_init failed: {error}"))
    }

    /// The number of workers that take part in the pass.
    pub(crate) fn active(&self) -> usize {
        self.workers.iter().filter(|worker| worker.state == State::Active).count()
    }

    /// Disconnects a worker that has ended.
    pub(crate) fn disconnect(&mut self, worker: usize) {
        self.workers[worker].socket = None;
    }

    /// Closes the loader's sockets, in a process that was forked from the loader's.
    pub(crate) fn close_sockets(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.socket = None);
    }

    /// Records that a worker has ended and is not replaced. `refusal` is why it could not start, if
    /// it could not.
    pub(crate) fn ended(&mut self, worker: usize, end: End, refusal: Option<&str>) {
        let of = &mut self.workers[worker];
        let was_called = of.state == State::Active && of.begun != self.pass;
        (of.state, of.socket) = (State::Ended, None);
        if was_called {
            let why = refusal.map_or_else(|| format!("its process {end}"), str::to_owned);
            self.failures.push((worker, RemoteError(why).into()));
        }
    }

    pub(crate) fn lose(&mut self, loss: Loss) {
        self.losses.push(loss);
    }

    /// Removes what an ended worker reported about rows of a ticket that will be read again.
    pub(crate) fn forget(&mut self, worker: usize, ticket: u64, is_row: impl Fn(usize) -> bool) {
        self.reports.retain(|report| report.worker != worker || report.ticket != ticket || !is_row(report.row));
    }

    /// Removes all reports about batches of earlier passes.
    pub(crate) fn clear(&mut self) {
        (self.bytes, self.flooded) = (0, false);
        self.reports.clear();
        self.losses.clear();
    }

    /// Takes the reports about a batch of `rows` rows that begins at position `first`: the
    /// failures, the bad samples in the order in which each worker reported them, and the parts
    /// whose workers have ended.
    pub(crate) fn take(&mut self, ticket: u64, first: usize, rows: usize) -> (Vec<Failure>, Vec<Skipped>, Vec<Loss>) {
        let (mut failures, mut skipped, mut empties) = (Vec::new(), Vec::new(), HashSet::new());
        // Check the rows: a corrupted worker may send anything.
        let reports =
            self.reports.extract_if(.., |report| report.ticket == ticket).filter(|report| report.row < rows.max(1));
        for Report { worker, row, index, cause, empty, .. } in reports {
            let failure = Failure { position: first + row, index, by: By::Worker(worker), cause };
            match empty {
                None => failures.push(failure),
                Some(false) => skipped.push(Skipped { failure, row: None }),
                Some(true) if row < rows && empties.insert(row) => skipped.push(Skipped { failure, row: Some(row) }),
                Some(true) => {}
            }
        }
        if self.flooded {
            let cause = Cause::Error("there were too many bad samples to keep the reasons".into());
            failures.push(Failure { position: first, index: 0, by: By::Consumer, cause });
        }
        let losses = self.losses.extract_if(.., |loss| loss.ticket == ticket).collect();
        (failures, skipped, losses)
    }
}
