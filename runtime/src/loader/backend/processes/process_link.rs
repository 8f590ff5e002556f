//! Workers with [rings of their own](crate::loader::backend::per_worker) that are processes.
//!
//! Each worker is a thread and a process. The thread passes each request on to the process through
//! a socket, and waits for the answer: messages about failures, bad samples and events, and then
//! one message with the outcome. The process itself writes the batch into the cell, whose memory is
//! shared. The thread checks every message before it uses the message's contents.
//!
//! The thread forks its process, or
//! [starts it by a command](crate::loader::backend::processes::spawn). The process is killed when
//! the thread ends. If the process ends first, the thread notices and starts another one, which
//! gets the same request, and for an iterable dataset the position in the stream that came with the
//! last batch.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use crate::BoxError;
use crate::dataset::WorkerInfo;
use crate::loader::backend::processes::child::{Child, End, PAUSE, Restarts, WorkerExit, poll};
use crate::loader::backend::processes::control::Control;
use crate::loader::backend::processes::events::{Event, Forwarder};
use crate::loader::backend::processes::running::{CHECKS, Running};
use crate::loader::backend::processes::socket::{Message, PIECE, Socket};
use crate::loader::backend::processes::spawn::{Spawn, not_started};
use crate::loader::backend::processes::supervisor::{EventFd, GRACE};
use crate::loader::backend::processes::worker::{self, WorkerMain};
use crate::loader::backend::processes::worker_messages::{
    self, BEGUN, EVENT, FAILURE, MAX_REPORTS, MAX_WAITING, READY, REFUSED, RemoteError, Report, SKIPPED, overwritten,
};
use crate::loader::backend::protocol::{BatchWorker, Outcome, Request, Start, StreamPosition};
use crate::loader::checkpoint::state::{MAX_COUNTED, Stream};
use crate::loader::collate::allocate::PayloadAt;
use crate::loader::collate::batch_state::BatchState;
use crate::loader::collate::storage::Storage;
use crate::loader::error::build::BuildError;
use crate::loader::error::failure::{Cause, Failure, Skipped};
use crate::loader::error::run::By;
use crate::loader::metrics::activity::At;
use crate::loader::order::plan::Indices;
use crate::loader::trace;
use crate::loader::worker::init_barrier::InitHook;

/// The kinds of messages to a process: run the `worker_init`, begin a pass, and make a batch.
const INIT: u64 = 8;
const PASS: u64 = 9;
const MAKE: u64 = 10;
/// The kind of the last message of the answer to `MAKE`, and the values of its first number.
const MADE: u64 = 11;
const END: u64 = 0;
const BATCH: u64 = 1;

/// The maximum length in bytes of what a cursor saves.
const MAX_SAVED: usize = 1 << 30;

/// What a worker process does, which depends on the kind of loader.
pub(crate) trait Service<P>: Send + Sync + 'static {
    /// Returns what makes a worker's batches, in its process.
    fn maker(&self, worker: usize) -> impl BatchWorker<P>;

    /// Returns the position in its stream at which a worker begins the pass.
    fn stream(&self, _worker: usize) -> Stream {
        Stream::default()
    }

    /// Describes the batch that a worker's process is about to be asked for. Also writes the
    /// description into the shared memory.
    fn wanted(&self, worker: usize, task: usize) -> Wanted<'_>;
}

/// The description of a batch that is requested from a worker's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) task: usize,
    /// The position of the batch's first row.
    pub(crate) first: usize,
    /// The number of rows; for an iterable dataset, the maximum.
    pub(crate) rows: usize,
    /// The index of each row; `None` for an iterable dataset.
    pub(crate) indices: Option<Indices<'a>>,
}

/// The values that a worker's process needs. A forked process inherits them.
pub(crate) struct Server<P, S> {
    pub(crate) service: S,
    pub(crate) payload_at: PayloadAt<P>,
    pub(crate) workers: usize,
    /// The user's `worker_init`, if there is one.
    pub(crate) init: Option<InitHook>,
}

/// The state that the worker threads of a loader share.
pub(crate) struct LinkShared<P, S> {
    pub(crate) server: Server<P, S>,
    pub(crate) control: Arc<Control>,
    /// The number of workers that may still be replaced when they end.
    pub(crate) restarts: Restarts,
    /// How long a sample may take before its worker is killed.
    pub(crate) sample_timeout: Option<Duration>,
    /// Whether a sample that ended its worker is skipped or replaced.
    pub(crate) passes_over: bool,
    /// Signalled when the rings of all workers are closed.
    pub(crate) wakeup: Arc<EventFd>,
    /// Starts processes by a command; `None` if processes are forked. Locked by a thread that
    /// starts a process, or that records a sample in the shared memory.
    pub(crate) spawn: Mutex<Option<Spawn>>,
}

impl<P, S> LinkShared<P, S> {
    fn lock(&self) -> MutexGuard<'_, Option<Spawn>> {
        self.spawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Storage, S: Service<P>> WorkerMain for Server<P, S> {
    fn work(&self, worker: usize, socket: Arc<Socket>, _: bool) {
        let (mut maker, mut init) = (self.service.maker(worker), self.init.clone());
        let (mut cells, mut position, mut text) = (Vec::new(), StreamPosition::new(), String::new());
        while let Some(message) = socket.receive(true) {
            text.push_str(&message.text);
            match message.kind {
                INIT => {
                    let [pass, seed, ..] = message.numbers;
                    let info = WorkerInfo::new(worker, self.workers, seed);
                    let outcome = init.as_mut().map_or(Ok(()), |init| init.run(info));
                    // If this fails, the loader has ended, and nobody needs the message.
                    let _ = socket.send(&worker_messages::begun(pass, outcome));
                }
                PASS => {
                    let [samples, until, saves, ..] = message.numbers;
                    let saved = (saves != 0).then(|| std::mem::take(&mut text));
                    let stream = Stream { samples: samples as usize, ended: false, saved };
                    maker.start_at(Start { stream, until: until as usize });
                }
                MAKE => {
                    let [task, epoch, seed, pass, budget, cell] = message.numbers;
                    let (task, budget) = (task as usize, budget as usize);
                    let work = worker::cell(&mut cells, cell as usize, &self.payload_at);
                    let request = Request { task: Some(task), epoch: epoch as u32, seed, pass, budget };
                    let outcome = maker.fill(&request, task, work, &mut position);
                    let _ = report(&socket, task, work, outcome, &position);
                }
                _ => continue,
            }
            text.clear();
        }
    }
}

/// Sends the outcome of a batch to the loader.
fn report<P>(
    socket: &Socket,
    task: usize,
    work: &BatchState<P>,
    outcome: Outcome,
    position: &StreamPosition,
) -> io::Result<()> {
    if work.has_errors() {
        worker_messages::send_errors(socket, task as u64, 0, &work.take_errors())?;
    }
    let (what, rows) = match outcome {
        Outcome::Batch(rows) => (BATCH, rows as u64),
        _ => (END, 0),
    };
    let (ended, saves) = (u64::from(position.ended), u64::from(position.saves));
    let numbers = [what, rows, position.samples as u64, ended, saves, 0];
    let text = if position.saves { position.saved.clone() } else { String::new() };
    Socket::in_pieces(&Message { kind: MADE, numbers, text }, |message| socket.send(message))
}

/// A worker's process, and the state of the conversation with it.
struct Linked {
    running: Running,
    socket: Socket,
    /// The last pass for which the process was asked to run the `worker_init`, and the last pass
    /// that was announced to it; 0 before the first.
    called: u64,
    announced_pass: u64,
    /// Whether the process was started by a command and has not begun to work; and why it cannot,
    /// if it has sent a reason.
    starts: bool,
    refusal: Option<String>,
}

impl Linked {
    /// Handles a message that is not part of an answer.
    fn note(&mut self, worker: usize, Message { kind, numbers, text }: Message) {
        match kind {
            READY => self.starts = false,
            REFUSED => self.refusal = Some(text),
            _ => Event::received(numbers, text).iter().for_each(|event| event.emit(worker)),
        }
    }
}

/// Why a request gets no answer.
enum NoAnswer {
    /// The loader has closed the rings.
    Closed,
    /// The process has ended; holds the sample that it was reading, if any.
    Ended(End, Option<At>),
    /// The process could not begin to work, and another one could not either.
    Refused(String),
    /// The worker cannot continue.
    Over(String),
}

/// Makes the batches of a worker by requesting them from its process.
pub(crate) struct ProcessLink<P, S> {
    worker: usize,
    shared: Arc<LinkShared<P, S>>,
    /// The sender for the outcome of starting the process; `None` once it was used.
    started: Option<mpsc::Sender<Result<(), BuildError>>>,
    process: Option<Linked>,
    /// The last request to run the `worker_init`.
    called: Option<Request>,
    /// The pass, and the position in it at which a new process begins.
    pass: u64,
    start: Start,
    over: Option<String>,
}

impl<P, S> ProcessLink<P, S> {
    pub(crate) fn new(
        worker: usize,
        shared: Arc<LinkShared<P, S>>,
        started: mpsc::Sender<Result<(), BuildError>>,
    ) -> Self {
        let start = Start::default();
        Self { worker, shared, started: Some(started), process: None, called: None, pass: 0, start, over: None }
    }

    /// Kills the process, unless it has ended, and returns how it ended.
    #[cold]
    fn reap(&mut self) -> NoAnswer {
        let Some(mut process) = self.process.take() else { return NoAnswer::Ended(End::Unknown, None) };
        // A process that is still starting may close its input long before it ends. Wait for its
        // end: the exit code or signal says what went wrong.
        let child = &process.running.child;
        while process.starts && !child.has_ended() && !self.shared.wakeup.is_signalled() {
            poll(&[child.fd(), self.shared.wakeup.as_fd()], None);
        }
        // Killing a process that is already ending does not change how it ends.
        child.kill();
        let (end, at) = process.running.reap(&self.shared.control.activities());
        let messages = std::iter::from_fn(|| process.socket.receive(false)).take(MAX_WAITING);
        for message in messages.filter(|message| matches!(message.kind, READY | REFUSED)).collect::<Vec<_>>() {
            process.note(self.worker, message);
        }
        match worker_messages::refusal(process.starts, process.refusal.as_deref(), end) {
            _ if process.starts && self.shared.wakeup.is_signalled() => NoAnswer::Closed,
            Some(why) => NoAnswer::Refused(why),
            None => NoAnswer::Ended(end, at),
        }
    }

    /// Kills a process that has sent an invalid message.
    #[cold]
    fn corrupted(&mut self) -> NoAnswer {
        self.process.iter_mut().for_each(|process| process.starts = false);
        self.reap();
        NoAnswer::Over("its process sent an answer that makes no sense".to_owned())
    }

    /// Whether a process that ended is replaced.
    fn is_replaced(&self, end: End) -> bool {
        matches!(end, End::Late(_)) || self.shared.restarts.take()
    }

    fn send(&mut self, message: &Message) -> Result<(), NoAnswer> {
        Socket::in_pieces(message, |piece| self.send_piece(piece))
    }

    fn send_piece(&mut self, piece: &Message) -> Result<(), NoAnswer> {
        loop {
            let Some(process) = &self.process else { return Err(NoAnswer::Ended(End::Unknown, None)) };
            match process.socket.try_send(piece) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ready = poll(&[process.running.child.fd(), self.shared.wakeup.as_fd()], Some(PAUSE));
                    match ready[..] {
                        [true, _] => return Err(self.reap()),
                        [_, true] => return Err(NoAnswer::Closed),
                        _ => {}
                    }
                }
                Err(_) => return Err(self.reap()),
            }
        }
    }

    /// Waits for the next message of an answer. Emits the events that come before it.
    fn receive(&mut self) -> Result<Message, NoAnswer> {
        let (mut text, mut is_last) = (String::new(), false);
        let limit = self.shared.sample_timeout;
        let pause = limit.map(|limit| (limit / CHECKS).max(Duration::from_millis(1)));
        loop {
            let Some(process) = &mut self.process else { return Err(NoAnswer::Ended(End::Unknown, None)) };
            match process.socket.receive(false) {
                Some(message) if message.kind == PIECE => {
                    if message.text.is_empty() || text.len() >= MAX_SAVED {
                        return Err(self.corrupted());
                    }
                    text.push_str(&message.text);
                    is_last = false;
                }
                Some(message) if matches!(message.kind, EVENT | READY | REFUSED) => {
                    process.note(self.worker, message);
                    // A worker that never stops emitting events must not keep this thread busy.
                    if self.shared.wakeup.is_signalled() {
                        return Err(NoAnswer::Closed);
                    }
                    is_last = false;
                }
                Some(message) => return Ok(Message { text: text + &message.text, ..message }),
                None if is_last => return Err(self.reap()),
                None => {
                    let fds = [process.socket.as_fd(), process.running.child.fd(), self.shared.wakeup.as_fd()];
                    let ready = poll(&fds, pause);
                    if ready[2] {
                        return Err(NoAnswer::Closed);
                    }
                    // If no message follows, the other end is closed.
                    is_last = ready[0] || ready[1];
                }
            }
            process.running.kill_if_late(&self.shared.control.activities(), limit);
        }
    }
}

impl<P: Storage, S: Service<P>> ProcessLink<P, S> {
    fn launch(&self) -> io::Result<Linked> {
        let (shared, worker) = (&*self.shared, self.worker);
        let mut spawn = shared.lock();
        let (socket, theirs) = Socket::pair()?;
        let child = match &mut *spawn {
            // A worker with rings of its own need not know whether it replaces another process.
            Some(spawn) => spawn.start(worker, false, &socket, theirs)?,
            None => self.fork(theirs)?,
        };
        let running = Running::new(worker, child, &shared.control.activities());
        Ok(Linked { running, socket, called: 0, announced_pass: 0, starts: spawn.is_some(), refusal: None })
    }

    fn fork(&self, theirs: Socket) -> io::Result<Child> {
        let socket = Arc::new(theirs);
        let forwarder = Forwarder::new(&socket);
        // The first use of a span takes a lock, which no other thread must hold while this one
        // forks.
        drop(trace::wait());
        // The process also inherits this end of the socket, and any sockets that other threads use.
        // That is harmless: the loader shuts a socket down instead of only closing it, and waits
        // for the process itself to end.
        Child::start(|| forwarder.during(|| self.shared.server.work(self.worker, socket, false)))
    }

    /// Makes the process run the `worker_init` for the pass, unless it has, and returns the
    /// outcome. Starts a process if there is none.
    fn call(&mut self) -> Result<Result<(), BoxError>, NoAnswer> {
        if self.process.is_none() {
            // There may be requests that were sent before the rings were closed.
            if self.shared.wakeup.is_signalled() {
                return Err(NoAnswer::Closed);
            }
            let failed = |error| NoAnswer::Over(format!("its process could not be started again: {error}"));
            self.process = Some(self.launch().map_err(failed)?);
        }
        let (Some(Request { pass, seed, .. }), Some(process)) = (self.called, &mut self.process) else {
            return Ok(Ok(()));
        };
        if std::mem::replace(&mut process.called, pass) == pass {
            return Ok(Ok(()));
        }
        self.send(&Message { kind: INIT, numbers: [pass, seed, 0, 0, 0, 0], text: String::new() })?;
        let Message { kind, numbers, text } = self.receive()?;
        match numbers {
            [of, ok, ..] if kind == BEGUN && of == pass => {
                Ok(if ok == 0 { Err(RemoteError(text).into()) } else { Ok(()) })
            }
            _ => Err(self.corrupted()),
        }
    }

    /// Requests a batch from the process.
    fn make(&mut self, request: Request, wanted: Wanted<'_>, work: &BatchState<P>) -> Result<Outcome, NoAnswer> {
        self.call()?.map_err(|error| NoAnswer::Over(format!("its worker_init failed: {error}")))?;
        let Request { epoch, seed, pass, budget, .. } = request;
        if let Some(process) = &mut self.process
            && std::mem::replace(&mut process.announced_pass, pass) != pass
        {
            let Start { stream: Stream { samples, saved, .. }, until } = self.start.clone();
            let numbers = [samples as u64, until as u64, u64::from(saved.is_some()), 0, 0, 0];
            self.send(&Message { kind: PASS, numbers, text: saved.unwrap_or_default() })?;
        }
        let cell = work.payload.region().expect("samples are stacked").number() as u64;
        let numbers = [wanted.task as u64, u64::from(epoch), seed, pass, budget as u64, cell];
        self.send(&Message { kind: MAKE, numbers, text: String::new() })?;
        let mut answer = Answer::default();
        loop {
            let message = self.receive()?;
            let makes_sense = match message.kind {
                FAILURE | SKIPPED => answer.add_report(message, self.worker, wanted),
                MADE => match answer.outcome(message, wanted, work) {
                    Some((outcome, stream)) => {
                        if wanted.indices.is_none() {
                            self.start = stream.into();
                        }
                        return Ok(outcome);
                    }
                    None => false,
                },
                _ => false,
            };
            if !makes_sense {
                return Err(self.corrupted());
            }
        }
    }

    /// Returns the outcome of a batch for which there is no answer; `None` if the request is to be
    /// sent to a new process.
    #[cold]
    fn recover(&mut self, no_answer: NoAnswer, wanted: Wanted<'_>, work: &BatchState<P>) -> Option<Outcome> {
        let (at, cause) = match no_answer {
            NoAnswer::Closed => return Some(Outcome::End),
            NoAnswer::Refused(message) => {
                self.over = Some(message);
                return Some(Outcome::Over);
            }
            NoAnswer::Over(message) => {
                let cause = Cause::Error(RemoteError(format!("worker {}: {message}", self.worker)).into());
                self.over = Some(message);
                (None, cause)
            }
            NoAnswer::Ended(end, at) => {
                let is_row = |row| wanted.indices.is_none() || row < wanted.rows;
                let at = at.filter(|at| at.task == wanted.task && is_row(at.row));
                let exit = WorkerExit { worker: self.worker, end };
                let (is_late, replaced) = (matches!(end, End::Late(_)), self.is_replaced(end));
                let redo = match at {
                    Some(at) if self.shared.passes_over && replaced => {
                        let _lock = self.shared.lock();
                        self.shared.control.add_fatal_sample(at.index, WorkerExit { ..exit })
                    }
                    // A sample that took too long is not read again.
                    _ => replaced && !is_late,
                };
                if redo {
                    return None;
                }
                let reached = wanted.indices.is_some() || at.is_none_or(|at| at.index >= self.start.until);
                if !replaced || !reached {
                    self.over = Some(format!("its process {end}"));
                }
                (at, Cause::Error(exit.into()))
            }
        };
        let (position, index, rows) = match &wanted.indices {
            Some(indices) => {
                let row = at.map_or(0, |at| at.row);
                (wanted.first + row, if row < wanted.rows { indices.at(row) } else { 0 }, wanted.rows)
            }
            None => {
                let number = at.map_or(self.start.until, |at| at.index.min(MAX_COUNTED - 1));
                self.start.until = self.start.until.max(number + 1);
                (number, number, 0)
            }
        };
        work.fail(Failure { position, index, by: By::Worker(self.worker), cause });
        Some(Outcome::Batch(rows))
    }
}

/// What a process has reported about a batch.
#[derive(Debug, Default)]
struct Answer {
    failure: Option<Failure>,
    bad: Vec<Skipped>,
    /// The rows that were left empty.
    empty: HashSet<usize>,
    /// The number of reports, and the total length of their strings in bytes.
    reports: usize,
    bytes: usize,
}

impl Answer {
    /// Records a failure or a bad sample. Returns `false` if the batch has no such sample.
    fn add_report(&mut self, mut message: Message, worker: usize, wanted: Wanted<'_>) -> bool {
        worker_messages::shorten(&mut message.text, &mut self.bytes);
        self.reports += 1;
        let Report { ticket, row: position, index, cause, empty, .. } = Report::received(worker, message);
        let Wanted { task, first, rows, ref indices } = wanted;
        let is_there = indices.is_none() || (first..first + rows.max(1)).contains(&position);
        if ticket != task as u64 || !is_there || self.reports > MAX_REPORTS {
            return false;
        }
        let failure = Failure { position, index, by: By::Worker(worker), cause };
        let Some(empty) = empty else {
            self.failure = Some(failure);
            return true;
        };
        let row = (empty && indices.is_some()).then_some(position.wrapping_sub(first));
        let is_new = row.is_none_or(|row| row < rows && self.empty.insert(row));
        self.bad.push(Skipped { failure, row });
        is_new
    }

    /// Returns the outcome of the batch, and the worker's position in its stream after it. Returns
    /// `None` if the message is invalid.
    fn outcome<P: Storage>(
        &mut self,
        Message { numbers, text, .. }: Message,
        wanted: Wanted<'_>,
        work: &BatchState<P>,
    ) -> Option<(Outcome, Stream)> {
        let [what, rows, samples, ended, saves, _] = numbers;
        let (rows, samples) = (usize::try_from(rows).ok()?, usize::try_from(samples).ok()?);
        let fits = match (&wanted.indices, what) {
            (None, END) => self.failure.is_none() && self.bad.is_empty(),
            (None, BATCH) => rows <= wanted.rows,
            (Some(_), BATCH) => rows == wanted.rows,
            _ => false,
        };
        if !fits || samples > MAX_COUNTED {
            return None;
        }
        let region = work.payload.region().filter(|region| region.layout().can_be_invalid());
        // SAFETY: the process has finished the batch, which has room for these rows.
        if what == BATCH && !region.is_none_or(|region| unsafe { region.is_valid(rows) }) {
            // This failure is also recorded if the pass is abandoned, when rows may have been left
            // unwritten.
            work.fail(overwritten(wanted.first));
        }
        self.failure.take().into_iter().for_each(|failure| work.fail(failure));
        work.note(std::mem::take(&mut self.bad));
        let ended = ended != 0;
        let stream = Stream { samples, ended, saved: (saves != 0 && !ended).then_some(text) };
        Some((if what == END { Outcome::End } else { Outcome::Batch(rows) }, stream))
    }
}

impl<P: Storage, S: Service<P>> BatchWorker<P> for ProcessLink<P, S> {
    fn start(&mut self) {
        let started = self.launch().map(|process| self.process = Some(process));
        let started = started.map_err(|error| not_started(self.shared.lock().as_ref(), self.worker, error));
        // If nobody receives this, the loader could not be built, and the rings are closed.
        self.started.take().map(|to| to.send(started));
    }

    fn init(&mut self, _: &mut InitHook, _: WorkerInfo, request: Request) -> Result<(), BoxError> {
        self.called = Some(request);
        loop {
            let (message, error): (_, BoxError) = match self.call() {
                Ok(outcome) => return outcome,
                Err(NoAnswer::Closed) => return Ok(()),
                Err(NoAnswer::Refused(message) | NoAnswer::Over(message)) => (message.clone(), message.into()),
                Err(NoAnswer::Ended(end, _)) => {
                    if self.is_replaced(end) {
                        continue;
                    }
                    (format!("its process {end}"), WorkerExit { worker: self.worker, end }.into())
                }
            };
            self.over = Some(message);
            return Err(error);
        }
    }

    fn fill(&mut self, request: &Request, task: usize, work: &BatchState<P>, position: &mut StreamPosition) -> Outcome {
        let request = *request;
        let shared = self.shared.clone();
        if self.pass != request.pass {
            self.pass = request.pass;
            self.start = shared.server.service.stream(self.worker).into();
        }
        let outcome = loop {
            if self.start.stream.ended {
                break Outcome::End;
            }
            let wanted = shared.server.service.wanted(self.worker, task);
            match self.make(request, wanted, work) {
                Ok(outcome) => break outcome,
                Err(no_answer) => {
                    if let Some(outcome) = self.recover(no_answer, wanted, work) {
                        break outcome;
                    }
                }
            }
        };
        let Start { stream, until } = &self.start;
        position.start(Some(stream));
        if *until > stream.samples {
            (position.samples, position.saves) = (*until, false);
        }
        outcome
    }

    fn over(&mut self) -> Option<String> {
        self.over.take()
    }
}

impl<P, S> Drop for ProcessLink<P, S> {
    fn drop(&mut self) {
        let Some(Linked { running: Running { child, .. }, socket, .. }) = self.process.take() else { return };
        socket.shut_down();
        let deadline = Instant::now() + GRACE;
        while !child.has_ended() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                child.kill();
                break;
            }
            poll(&[child.fd()], Some(left));
        }
        child.reap();
        self.shared.control.activities()[self.worker].set_process(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Memory, Pages};
    use crate::loader::collate::batch_buffer::BatchBuffer;
    use crate::loader::collate::batch_buffer::slot_size;
    use crate::sample::{Fields, Layout};
    use crate::wait::WaitStrategy;
    use slotline_core::robust::Shape;

    /// The ways in which the process of a test answers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Way {
        Good,
        TooManyRows,
        ManyMoreRows,
        CountsTooFar,
        AnotherBatch,
        HangsUp,
        Ends,
    }

    const ROWS: usize = 4;

    impl Service<BatchBuffer> for Way {
        fn maker(&self, _: usize) -> impl BatchWorker<BatchBuffer> {
            *self
        }

        fn wanted(&self, _: usize, task: usize) -> Wanted<'_> {
            Wanted { task, first: 0, rows: ROWS, indices: None }
        }
    }

    impl BatchWorker<BatchBuffer> for Way {
        fn fill(
            &mut self,
            _: &Request,
            _: usize,
            work: &BatchState<BatchBuffer>,
            position: &mut StreamPosition,
        ) -> Outcome {
            let fail = || {
                let cause = Cause::Error("no".into());
                work.fail(Failure { position: 0, index: 0, by: By::Consumer, cause });
            };
            match self {
                Self::Good => {}
                Self::TooManyRows => return Outcome::Batch(ROWS + 1),
                Self::ManyMoreRows => return Outcome::Batch(usize::MAX),
                Self::CountsTooFar => position.samples = usize::MAX,
                Self::AnotherBatch => {
                    fail();
                    return Outcome::End;
                }
                // SAFETY: this process was forked for this call, and uses no descriptor afterwards.
                Self::HangsUp => unsafe {
                    libc::close_range(3, u32::MAX, 0);
                    libc::sleep(600);
                },
                // SAFETY: this process was forked for this call.
                Self::Ends => unsafe { libc::_exit(3) },
            }
            Outcome::Batch(ROWS)
        }
    }

    #[test]
    fn a_corrupted_process_is_killed_and_ends_its_worker() {
        for (way, restarts, text) in [
            (Way::Good, 0, None),
            (Way::TooManyRows, 9, Some("makes no sense")),
            (Way::ManyMoreRows, 9, Some("makes no sense")),
            (Way::CountsTooFar, 9, Some("makes no sense")),
            (Way::AnotherBatch, 9, Some("makes no sense")),
            (Way::HangsUp, 1, Some("was killed by signal 9")),
            (Way::Ends, 2, Some("exit code 3")),
        ] {
            let layout = Arc::new(Layout::new(Fields::of(&0_i64), ROWS).unwrap());
            let pages = Arc::new(Pages::shared(slot_size(layout.size)).unwrap());
            // SAFETY: the pages have room for one batch, which the process and the test do not
            // write at once.
            let region = move || unsafe { BatchBuffer::new(pages.start(), layout.clone(), pages.clone()) };
            let work = BatchState::new(region());
            let strategy = WaitStrategy::Park;
            let process_link = Arc::new(LinkShared {
                server: Server {
                    service: way,
                    payload_at: PayloadAt { make: Box::new(move |_| region()), count: 1 },
                    workers: 1,
                    init: None,
                },
                control: Arc::new(Control::new(Shape::new(1, 1), 1, 0, strategy).unwrap()),
                restarts: Restarts::new(restarts),
                sample_timeout: None,
                passes_over: false,
                wakeup: Arc::new(EventFd::new().unwrap()),
                spawn: Mutex::default(),
            });
            let (started, _outcome) = mpsc::channel();
            let (mut maker, mut position) = (ProcessLink::new(0, process_link.clone(), started), StreamPosition::new());
            maker.start();
            let request = Request { task: Some(7), pass: 1, ..Request::default() };
            let outcome = maker.fill(&request, 7, &work, &mut position);
            let failure = work.take_errors().failure.take();
            assert_eq!(failure.is_some(), text.is_some(), "{way:?}: {failure:?}");
            let rows = if text.is_some() { 0 } else { ROWS };
            assert!(matches!(outcome, Outcome::Batch(of) if of == rows), "{way:?}: {outcome:?}");
            if let (Some(text), Some(failure)) = (text, failure) {
                assert!(failure.cause.with_sources().contains(text), "{way:?}: {failure:?}");
                assert!(maker.over().is_some_and(|message| message.contains(text)));
                assert!(maker.process.is_none());
            }
        }
    }

    #[test]
    fn reports_about_other_rows_make_no_sense() {
        let list = [3, 1, 4];
        let indexed = Wanted { task: 2, first: 30, rows: 3, indices: Some(Indices::List(&list)) };
        let report = |ticket, row: u64, empty| {
            let numbers = [ticket, row, u64::MAX, 0, empty, 0];
            Message { kind: SKIPPED, numbers, text: String::new() }
        };
        let mut answer = Answer::default();
        for (message, makes_sense) in [
            (report(2, 30, 1), true),
            (report(2, 32, 1), true),
            (report(2, 32, 0), true),
            (report(2, 32, 1), false),
            (report(2, 29, 1), false),
            (report(2, 33, 1), false),
            (report(2, u64::MAX, 0), false),
            (report(3, 31, 1), false),
        ] {
            assert_eq!(answer.add_report(message, 0, indexed), makes_sense);
        }
        let stream = Wanted { indices: None, ..indexed };
        assert!(answer.add_report(report(2, u64::MAX, 1), 0, stream));
        assert!(answer.bad.iter().all(|bad| bad.row.is_none_or(|row| row < 3)));
    }
}
