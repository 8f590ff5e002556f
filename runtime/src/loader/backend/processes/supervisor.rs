//! The supervisor: the thread that starts the worker processes, and notices when one ends.
//!
//! This thread starts all workers, and they are killed when it ends, since `PR_SET_PDEATHSIG`
//! refers to the thread that started a process. So no worker is left when the loader's process
//! dies. A process has ended when its pidfd says so. From then on none of its threads executes
//! another instruction, and its claims can be given to other workers.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use slotline_core::robust::{Owner, Recovery};

use crate::arena::above_stdio;
use crate::loader::backend::processes::child::{Child, End, Restarts, WorkerExit, poll};
use crate::loader::backend::processes::control::{Control, PULSE};
use crate::loader::backend::processes::events::Forwarder;
use crate::loader::backend::processes::running::{CHECKS, Running};
use crate::loader::backend::processes::socket::Socket;
use crate::loader::backend::processes::spawn::{Spawn, not_started};
use crate::loader::backend::processes::worker::{ProcessView, WorkerMain, owner};
use crate::loader::backend::processes::worker_messages::{Loss, WorkerMessages};
use crate::loader::error::build::BuildError;
use crate::loader::error::warning::{Listener, Warning};
use crate::loader::metrics::activity::{Activity, At};
use crate::loader::trace;
use crate::loader::worker::liveness::WorkerLiveness;
use crate::placed::Placed;

/// Closes the ring if the supervisor panics, since its workers end with it.
struct Abandoned<'k>(&'k Supervisor);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.ledger.active.store(0, Ordering::Release);
            self.0.ring.close();
        }
        self.0.ledger.changed.notify_all();
    }
}

/// How long workers may take to end by themselves when the loader is dropped. After that they are
/// killed.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// The value of [`Ledger::assigned`] for a slot that is not assigned.
pub(crate) const NONE: u64 = u64::MAX;

/// The event descriptor that wakes the supervisor, or worker threads with processes.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: makes a new descriptor.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and has no other owner.
        Ok(Self(above_stdio(unsafe { OwnedFd::from_raw_fd(fd) })?))
    }

    pub(crate) fn signal(&self) {
        let one = 1_u64;
        // SAFETY: writes eight bytes from a local value.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Whether the event was signalled and not reset since.
    pub(crate) fn is_signalled(&self) -> bool {
        poll(&[self.as_fd()], Some(Duration::ZERO))[0]
    }

    /// Resets the event, so that a poll waits for the next signal.
    fn answer(&self) {
        let mut count = 0_u64;
        // SAFETY: reads eight bytes into a local value.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The state that the loader and the supervisor share in the loader's process.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The ticket that each slot is assigned to, or [`NONE`].
    pub(crate) assigned: Box<[AtomicU64]>,
    messages: Mutex<WorkerMessages>,
    /// Notified when workers have sent messages, or have ended.
    changed: Condvar,
    /// The number of workers that are alive and take part in the pass.
    active: AtomicUsize,
    /// The number of workers that may still be replaced when they end.
    restarts: Restarts,
    /// Held while the ticket from which workers search for work is changed.
    turn: Mutex<()>,
}

impl Ledger {
    pub(crate) fn new(depth: usize, workers: usize, restarts: usize) -> Self {
        Self {
            assigned: (0..depth).map(|_| AtomicU64::new(NONE)).collect(),
            messages: Mutex::new(WorkerMessages::new(workers)),
            changed: Condvar::new(),
            active: AtomicUsize::new(workers),
            restarts: Restarts::new(restarts),
            turn: Mutex::default(),
        }
    }

    pub(crate) fn messages(&self) -> MutexGuard<'_, WorkerMessages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the ticket from which workers search for work.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lock of the messages, and the condition variable that is notified when they
    /// change.
    pub(crate) fn messages_and_changed(&self) -> (&Mutex<WorkerMessages>, &Condvar) {
        (&self.messages, &self.changed)
    }

    /// Whether no worker is left that takes part in the pass.
    pub(crate) fn no_worker_left(&self) -> bool {
        self.active.load(Ordering::Acquire) == 0
    }

    /// Updates the number of workers that take part in the pass.
    pub(crate) fn count(&self, messages: &WorkerMessages) {
        self.active.store(messages.active(), Ordering::Release);
    }
}

/// A claim, and the number of times that its worker had looked for work when the claim was first
/// seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    claim: Claim,
    claim_attempts: u32,
}

/// A claimed part of a ticket, and the worker that has it, by its index among the running workers
/// and by its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    ticket: u64,
    part: usize,
    at: usize,
    process: u32,
}

/// Returns the claims whose workers have looked for work since the claims were first seen. Replaces
/// `suspects`, which contains the claims of the last call, with the current claims.
fn suspicious(
    suspects: &mut Vec<Suspect>,
    running: usize,
    claim_attempts: impl Fn(usize) -> u32,
    claims: impl FnOnce() -> Vec<Claim>,
) -> Vec<Claim> {
    // A worker may finish its part at any time, and then look for work any number of times. So for
    // a known claim, the attempts are counted before the claim is seen again; and for a new claim,
    // after it was seen.
    let before: Vec<u32> = (0..running).map(&claim_attempts).collect();
    let now = claims();
    fence(Ordering::Acquire);
    let seen = std::mem::take(suspects);
    *suspects = now
        .into_iter()
        .map(|claim| {
            let known = |known: &&Suspect| Claim { at: claim.at, ..known.claim } == claim;
            let claim_attempts =
                seen.iter().find(known).map_or_else(|| claim_attempts(claim.at), |known| known.claim_attempts);
            Suspect { claim, claim_attempts }
        })
        .collect();
    // Allow one attempt: the attempt that found the part may become visible after the claim.
    let has_searched =
        |suspect: &&Suspect| before[suspect.claim.at].wrapping_sub(suspect.claim_attempts).cast_signed() > 1;
    suspects.iter().filter(has_searched).map(|suspect| suspect.claim).collect()
}

/// The state of the supervisor.
pub(crate) struct Supervisor {
    pub(crate) main: Arc<dyn WorkerMain>,
    /// Starts workers by a command; `None` if workers are forked and run `main`.
    pub(crate) spawn: Option<RefCell<Spawn>>,
    pub(crate) control: Arc<Control>,
    pub(crate) ring: Arc<ProcessView>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) wakeup: Arc<EventFd>,
    pub(crate) liveness: Arc<WorkerLiveness>,
    /// The activity of each worker, followed by that of the consumer.
    pub(crate) activities: Placed<[CachePadded<Activity>]>,
    /// How long a sample may take before its worker is killed.
    pub(crate) sample_timeout: Option<Duration>,
    /// Whether a sample that ended its worker is skipped or replaced.
    pub(crate) passes_over: bool,
    pub(crate) part_rows: usize,
    pub(crate) listener: Listener,
}

impl Supervisor {
    /// Starts the workers, sends the outcome to `started`, and supervises the workers until the
    /// ring is closed.
    pub(crate) fn run(self, started: &mpsc::SyncSender<Result<(), BuildError>>) {
        let mut running: Vec<Running> = Vec::with_capacity(self.workers());
        for worker in 0..self.workers() {
            match self.start(worker, false) {
                Ok(process) => running.push(process),
                Err(error) => {
                    self.ring.close();
                    self.end(running);
                    let spawn = self.spawn.as_ref().map(RefCell::borrow);
                    let _ = started.send(Err(not_started(spawn.as_deref(), worker, error)));
                    return;
                }
            }
        }
        let _ = started.send(Ok(()));
        let _guard = Abandoned(&self);
        let pause = self.sample_timeout.map_or(PULSE, |limit| (limit / CHECKS).clamp(Duration::from_millis(1), PULSE));
        let (mut pulse, mut suspects) = (Instant::now(), Vec::new());
        while !self.ring.is_closed() {
            for at in self.wait(&running, Some(pause)).into_iter().rev() {
                let ended = running.swap_remove(at);
                if self.ring.is_closed() {
                    ended.child.reap();
                } else {
                    running.extend(self.reap(&ended));
                }
            }
            running.iter_mut().for_each(|process| process.kill_if_late(&self.activities, self.sample_timeout));
            if pulse.elapsed() >= PULSE {
                pulse = Instant::now();
                self.check(&running, &mut suspects);
            }
        }
        self.end(running);
    }

    fn workers(&self) -> usize {
        self.activities.len() - 1
    }

    fn start(&self, worker: usize, replaces: bool) -> io::Result<Running> {
        let (ours, theirs) = Socket::pair()?;
        let child = match &self.spawn {
            Some(spawn) => {
                let child = spawn.borrow_mut().start(worker, replaces, &ours, theirs);
                self.ledger.messages().connect(worker, ours, true);
                child?
            }
            None => {
                let socket = Arc::new(theirs);
                let forwarder = Forwarder::new(&socket);
                // While this thread holds the lock and forks, no other thread holds it
                // or uses a socket.
                let mut messages = self.ledger.messages();
                messages.connect(worker, ours, false);
                Child::start(|| {
                    messages.close_sockets();
                    forwarder.during(|| self.main.work(worker, socket, replaces));
                })?
            }
        };
        Ok(Running::new(worker, child, &self.activities))
    }

    /// Waits until workers send messages or end, until it is woken, or for `limit`. Handles the
    /// messages. Returns the indices in `running` of the workers that have ended, in ascending
    /// order.
    fn wait(&self, running: &[Running], limit: Option<Duration>) -> Vec<usize> {
        let sockets = self.ledger.messages().sockets();
        let mut fds: Vec<_> = running.iter().map(|process| process.child.fd()).collect();
        fds.push(self.wakeup.as_fd());
        fds.extend(sockets.iter().map(|socket| (**socket).as_fd()));
        let ready = poll(&fds, limit);
        if ready[running.len()] {
            self.wakeup.answer();
        }
        if ready[running.len()..].contains(&true) {
            self.collect();
        }
        (0..running.len()).filter(|&at| ready[at]).collect()
    }

    /// Receives the messages of the workers, and emits their events.
    fn collect(&self) {
        let mut messages = self.ledger.messages();
        messages.collect();
        self.ledger.count(&messages);
        let (events, lost) = (std::mem::take(&mut messages.events), std::mem::take(&mut messages.lost_events));
        drop(messages);
        self.ledger.changed.notify_all();
        for (worker, event) in events {
            event.emit(worker);
            if let Some(core) = event.not_bound {
                self.listener.notify(|| Warning::NotBound { worker, core });
            }
        }
        if lost > 0 {
            trace::tell(|| tracing::warn!(lost, "worker processes emitted more events than could be passed on"));
        }
    }

    /// The slots that are assigned, and their tickets.
    fn assigned(&self) -> impl Iterator<Item = (usize, u64)> {
        let assigned = self.ledger.assigned.iter().map(|ticket| ticket.load(Ordering::Acquire)).enumerate();
        assigned.filter(|&(_, ticket)| ticket != NONE)
    }

    /// Fails parts that are claimed by no running worker, and kills workers that have looked for
    /// work while they had a claim. Both happen only if a worker has overwritten the shared words.
    /// A worker may keep a claim for any time.
    fn check(&self, running: &[Running], suspects: &mut Vec<Suspect>) {
        let _turn = self.ledger.turn();
        self.ring.remind(self.assigned());
        let claims = || {
            let claims = self.assigned().flat_map(|(slot, ticket)| {
                self.ring.claimed(slot, ticket).map(move |(part, number)| (ticket, part, Owner::new(number)))
            });
            let mut owned = Vec::new();
            for (ticket, part, by) in claims.collect::<Vec<_>>() {
                match running.iter().position(|process| owner(process.worker) == by) {
                    Some(at) => owned.push(Claim { ticket, part, at, process: running[at].child.id }),
                    None => {
                        self.ring.recover(by, self.assigned(), |_, _| Recovery::Fail);
                    }
                }
            }
            owned
        };
        let claim_attempts = |at: usize| self.activities[running[at].worker].claim_attempts();
        for claim in suspicious(suspects, running.len(), claim_attempts, claims) {
            running[claim.at].child.kill();
        }
    }

    /// Handles the end of a worker: gives the parts that it had claimed to other workers, or fails
    /// them, and replaces the process if that is allowed.
    fn reap(&self, ended: &Running) -> Option<Running> {
        let (worker, (end, at)) = (ended.worker, ended.reap(&self.activities));
        self.collect();
        self.ledger.messages().disconnect(worker);
        let is_late = matches!(end, End::Late(_));
        let refusal = self.ledger.messages().refusal_of(worker, end);
        let replaced = is_late || refusal.is_none() && self.ledger.restarts.take();
        let others = self.ledger.messages().active() > 1;
        // If a worker was killed because of one sample, but had begun the next one by then, the
        // next one is not to blame.
        let is_blamed = |at: &At| !is_late || ended.last_seen.is_at(at);
        let redo = match at {
            Some(at) if !is_blamed(&at) => true,
            Some(at) if self.passes_over && (replaced || others) => {
                self.control.add_fatal_sample(at.index, WorkerExit { worker, end })
            }
            Some(_) => replaced && !is_late,
            None => replaced || self.passes_over && others,
        };
        let turn = self.ledger.turn();
        // Everything that the worker had claimed was assigned before.
        self.ring.recover(owner(worker), self.assigned(), |ticket, part| {
            let mut messages = self.ledger.messages();
            if redo {
                messages.forget(worker, ticket, |row| row / self.part_rows == part);
                return Recovery::Redo;
            }
            messages.lose(Loss { ticket, part, worker, end, at });
            Recovery::Fail
        });
        drop(turn);
        let refusal = match replaced.then(|| self.start(worker, true)) {
            Some(Ok(running)) => {
                trace::tell(|| tracing::warn!(worker, "a worker is replaced: its process {end}"));
                self.listener.notify(|| Warning::WorkerEnded { worker, end: end.to_string(), replaced: true });
                return Some(running);
            }
            Some(Err(error)) => Some(format!("its process {end}, and could not be started again: {error}")),
            None => refusal,
        };
        trace::tell(|| tracing::warn!(worker, "a worker is not replaced: its process {end}"));
        self.listener.notify(|| Warning::WorkerEnded { worker, end: end.to_string(), replaced: false });
        let mut messages = self.ledger.messages();
        messages.ended(worker, end, refusal.as_deref());
        let failure = refusal.or_else(|| messages.failure_of(worker));
        // Set this before the count: a thread that finds that no worker is left reads the reason.
        self.liveness.ends(worker, failure.unwrap_or_else(|| format!("its process {end}")));
        self.ledger.count(&messages);
        drop(messages);
        self.ledger.changed.notify_all();
        // Wake the loader, which may wait for a batch that no worker will make.
        self.ring.recover(owner(worker), [], |_, _| Recovery::Fail);
        None
    }

    /// Waits for the workers to end, and kills those that take too long.
    fn end(&self, mut running: Vec<Running>) {
        let deadline = Instant::now() + GRACE;
        while !running.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                running.iter().for_each(|process| process.child.kill());
            }
            let wait = if left.is_zero() { None } else { Some(left) };
            for at in self.wait(&running, wait).into_iter().rev() {
                let ended = running.swap_remove(at);
                ended.child.reap();
                self.collect();
                self.ledger.messages().disconnect(ended.worker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_worker_that_looks_for_work_with_a_part_is_corrupted() {
        let claim = Claim { ticket: 5, part: 1, at: 0, process: 7 };
        let (mut suspects, attempts) = (Vec::new(), Cell::new(u32::MAX));
        let mut see = |claim, before: u32, after: u32| {
            attempts.set(attempts.get().wrapping_add(before));
            let claims = || {
                // The attempts of the worker while the claims are collected.
                attempts.set(attempts.get().wrapping_add(after));
                vec![claim]
            };
            suspicious(&mut suspects, 2, |_| attempts.get(), claims)
        };
        // The worker looks often, and finds a part in the meantime.
        assert_eq!(see(claim, 0, 9), []);
        // The worker keeps the part for long; its last attempt becomes visible late.
        assert_eq!(see(claim, 0, 0), []);
        assert_eq!(see(claim, 1, 0), []);
        // The worker finishes the part while the claims are collected, and looks often.
        assert_eq!(see(claim, 0, 9), []);
        let next = Claim { part: 2, ..claim };
        assert_eq!(see(next, 0, 0), []);
        // Another worker, which came before this one in `running`, has ended.
        let moved = Claim { at: 1, ..next };
        assert_eq!(see(moved, 0, 0), []);
        assert_eq!(see(moved, 2, 0), [moved]);
        // A new process in the place of the worker has the claim.
        assert_eq!(see(Claim { process: 8, ..moved }, 2, 0), []);
    }
}
