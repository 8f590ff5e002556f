//! The thread that starts the worker processes, and notices when one ends.
//!
//! All workers are forked by this thread, and killed when it ends (`PR_SET_PDEATHSIG` is about the thread that forked):
//! so none is left when the process of the loader dies. A process has ended when its pidfd says so; then none of its
//! threads executes another instruction, and what it had claimed can be given to others.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use slotline_core::robust::Recovery;

use crate::loader::backend::processes::NONE;
use crate::loader::backend::processes::worker::{Life, ProcessView, owner};
use crate::loader::metrics::activity::{Activity, At};
use crate::loader::worker::deaths::Deaths;
use crate::placed::Placed;

/// Ends the loader if the keeper panics: its workers end with it.
struct Abandoned<'k>(&'k Keeper);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.ledger.alive.store(0, Ordering::Release);
            self.0.ring.close();
        }
    }
}

/// How long a worker may take to end by itself when the loader is dropped; then it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// Wakes the keeper.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: makes a new descriptor.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: the descriptor is new, and has no other owner.
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })) }
    }

    pub(crate) fn ring(&self) {
        let one = 1_u64;
        // SAFETY: writes eight bytes from a local value.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// How a worker process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Signal(i32),
    Code(i32),
    /// Somebody else waited for the process.
    Unknown,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(libc::SIGKILL) => {
                f.write_str("was killed by signal 9 (SIGKILL), perhaps since memory ran out")
            }
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Unknown => f.write_str("ended, and another part of the program took its exit status"),
        }
    }
}

/// The error of a sample whose worker process ended.
#[derive(Debug, thiserror::Error)]
#[error("the process of worker {worker} {end}")]
pub(crate) struct WorkerExit {
    pub(crate) worker: usize,
    pub(crate) end: End,
}

/// A part that a worker left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) ticket: u64,
    pub(crate) part: usize,
    pub(crate) worker: usize,
    pub(crate) end: End,
    /// What it was reading.
    pub(crate) at: Option<At>,
}

/// What the loader and the keeper share in the loader's process.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The ticket that each slot is assigned to, or `NONE`.
    pub(crate) assigned: Box<[AtomicU64]>,
    pub(crate) losses: Mutex<Vec<Loss>>,
    /// The number of workers that are alive.
    pub(crate) alive: AtomicUsize,
    /// How often a worker that ended is replaced, and its rows are read again.
    pub(crate) restarts: AtomicUsize,
}

/// A worker process.
struct Child {
    worker: usize,
    pidfd: OwnedFd,
}

/// The state of the thread.
pub(crate) struct Keeper {
    pub(crate) life: Arc<dyn Life>,
    pub(crate) ring: Arc<ProcessView>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) deaths: Arc<Deaths>,
    /// The activity of each worker, and last of the consumer.
    pub(crate) activities: Placed<[CachePadded<Activity>]>,
}

impl Keeper {
    /// Starts the workers, reports whether that succeeded, and looks after them until the ring is closed.
    pub(crate) fn run(self, started: &mpsc::SyncSender<Result<(), (usize, io::Error)>>) {
        let mut children = Vec::with_capacity(self.workers());
        for worker in 0..self.workers() {
            match self.start(worker) {
                Ok(child) => children.push(child),
                Err(error) => {
                    self.ring.close();
                    self.end(children);
                    let _ = started.send(Err((worker, error)));
                    return;
                }
            }
        }
        let _ = started.send(Ok(()));
        let _guard = Abandoned(&self);
        while !self.ring.is_closed() {
            for at in poll(&children, Some(&self.bell), None).into_iter().rev() {
                let child = children.swap_remove(at);
                let worker = child.worker;
                let (end, replaced) = self.bury(child);
                if replaced && let Ok(child) = self.start(worker) {
                    children.push(child);
                    continue;
                }
                self.ledger.alive.fetch_sub(1, Ordering::Release);
                self.deaths.ends(worker, format!("its process {end}"));
                // The loader may wait for a batch that nobody will make.
                self.ring.recover(owner(worker), [], |_, _| Recovery::Fail);
            }
        }
        self.end(children);
    }

    /// Recovers what a worker that has ended left. Returns whether it is to be replaced.
    fn bury(&self, child: Child) -> (End, bool) {
        let (worker, end) = (child.worker, reap(&child));
        let restarts = &self.ledger.restarts;
        let redo = restarts.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        self.activities[worker].counters.slowest.mend();
        let at = self.activities[worker].at();
        self.activities[worker].end();
        // What the worker had claimed was assigned before.
        let assigned = self.ledger.assigned.iter().map(|ticket| ticket.load(Ordering::Acquire)).enumerate();
        let assigned = assigned.filter(|&(_, ticket)| ticket != NONE);
        self.ring.recover(owner(worker), assigned, |ticket, part| {
            if redo {
                return Recovery::Redo;
            }
            let loss = Loss { ticket, part, worker, end, at };
            self.ledger.losses.lock().unwrap_or_else(PoisonError::into_inner).push(loss);
            Recovery::Fail
        });
        (end, redo)
    }

    fn workers(&self) -> usize {
        self.activities.len() - 1
    }

    /// Forks a worker.
    fn start(&self, worker: usize) -> io::Result<Child> {
        // SAFETY: asks for a number.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child has this thread only. It runs the loader's and the dataset's code and then ends, without
        // returning; locks that other threads held at this moment stay locked in it, as the documentation of
        // `WorkerKind::Process` says.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: plain system calls. If the parent is gone already, its death is not signalled.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    if libc::getppid() != parent {
                        libc::_exit(1);
                    }
                }
                let outcome = catch_unwind(AssertUnwindSafe(|| self.life.work(worker)));
                // SAFETY: ends the process without running anything that belongs to the parent.
                unsafe { libc::_exit(if outcome.is_ok() { 0 } else { 101 }) }
            }
            -1 => Err(io::Error::last_os_error()),
            pid => {
                // SAFETY: makes a new descriptor of a child that was not waited for.
                let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
                if fd < 0 {
                    let error = io::Error::last_os_error();
                    // SAFETY: as above.
                    unsafe {
                        libc::kill(pid, libc::SIGKILL);
                        libc::waitpid(pid, std::ptr::null_mut(), 0);
                    }
                    return Err(error);
                }
                // SAFETY: the descriptor is new, and has no other owner.
                let pidfd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
                Ok(Child { worker, pidfd })
            }
        }
    }

    /// Waits for the workers to end, and kills those that take too long.
    fn end(&self, mut children: Vec<Child>) {
        let deadline = std::time::Instant::now() + GRACE;
        while !children.is_empty() {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                for child in &children {
                    // SAFETY: sends a signal to the process of the descriptor, if it still exists.
                    unsafe {
                        libc::syscall(
                            libc::SYS_pidfd_send_signal,
                            child.pidfd.as_raw_fd(),
                            libc::SIGKILL,
                            std::ptr::null::<()>(),
                            0,
                        )
                    };
                }
            }
            let wait = if left.is_zero() { None } else { Some(left) };
            for at in poll(&children, None, wait).into_iter().rev() {
                reap(&children.swap_remove(at));
            }
        }
    }
}

/// Waits for a child to end, or for the bell; returns the places of those that have ended, in ascending order.
fn poll(children: &[Child], bell: Option<&Bell>, limit: Option<Duration>) -> Vec<usize> {
    let poll_in = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut fds: Vec<_> = children.iter().map(|child| poll_in(&child.pidfd)).collect();
    fds.extend(bell.map(|bell| poll_in(&bell.0)));
    let limit = limit.map_or(-1, |limit| i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1));
    // SAFETY: the descriptors are open, and the array has this length.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, limit) };
    if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
        // Too many descriptors for the limit: look again, but not all the time.
        std::thread::sleep(Duration::from_millis(10));
        return children.iter().enumerate().filter(|(_, child)| has_ended(child)).map(|(at, _)| at).collect();
    }
    (0..children.len()).filter(|&at| fds[at].revents & libc::POLLIN != 0).collect()
}

/// Asks for the end of a child: without waiting, and leaving it to be asked for again, or waiting and taking it.
fn ask(child: &Child, flags: libc::c_int) -> Option<End> {
    // SAFETY: a `siginfo_t` of zeros is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        let pidfd = child.pidfd.as_raw_fd() as libc::id_t;
        // SAFETY: asks about one child by its descriptor, and writes into a local variable.
        if unsafe { libc::waitid(libc::P_PIDFD, pidfd, &raw mut info, libc::WEXITED | flags) } == 0 {
            break;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // Somebody else has waited for it, so it has ended.
            return Some(End::Unknown);
        }
    }
    // SAFETY: `waitid` has filled in these fields, or left zeros.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    match info.si_code {
        _ if pid == 0 => None,
        libc::CLD_EXITED => Some(End::Code(status)),
        _ => Some(End::Signal(status)),
    }
}

/// Whether a child has ended.
fn has_ended(child: &Child) -> bool {
    ask(child, libc::WNOHANG | libc::WNOWAIT).is_some()
}

/// Returns how a child ended, which has.
fn reap(child: &Child) -> End {
    ask(child, 0).unwrap_or(End::Unknown)
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("workers", &self.workers()).finish_non_exhaustive()
    }
}
