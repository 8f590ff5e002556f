//! Worker processes: forks them, kills them, and finds out how they ended.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How a worker process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Signal(i32),
    Code(i32),
    /// The process was killed because a sample took longer than this limit.
    Late(Duration),
    /// How the process ended is unknown, because other code has already waited for it.
    Unknown,
}

/// The names of signals that end a process.
const SIGNALS: [(i32, &str); 8] = [
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGSYS, "SIGSYS"),
    (libc::SIGTERM, "SIGTERM"),
];

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(libc::SIGKILL) => {
                f.write_str("was killed by signal 9 (SIGKILL), perhaps since memory ran out")
            }
            Self::Signal(signal) => {
                let name = SIGNALS.iter().find(|(number, _)| number == signal).map(|(_, name)| format!(" ({name})"));
                write!(f, "was killed by signal {signal}{}", name.unwrap_or_default())
            }
            Self::Code(code) => write!(f, "ended with exit code {code}"),
            Self::Late(limit) => write!(f, "was killed, since the sample took longer than {limit:?}"),
            Self::Unknown => f.write_str("ended, and another part of the program took its exit status"),
        }
    }
}

/// The number of workers that may still be replaced when they end.
#[derive(Debug)]
pub(crate) struct Restarts(AtomicUsize);

impl Restarts {
    pub(crate) fn new(times: usize) -> Self {
        Self(AtomicUsize::new(times))
    }

    /// Whether one more worker may be replaced. If so, counts it.
    pub(crate) fn take(&self) -> bool {
        self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// The error of a sample whose worker process ended.
#[derive(Debug, thiserror::Error)]
#[error("the process of worker {worker} {end}")]
pub(crate) struct WorkerExit {
    pub(crate) worker: usize,
    pub(crate) end: End,
}

/// A worker process.
#[derive(Debug)]
pub(crate) struct Child {
    pidfd: OwnedFd,
    /// The ID of the process.
    pub(crate) id: u32,
}

impl Child {
    /// Forks a process that runs `work` and then ends.
    ///
    /// The process is killed when the calling thread ends. It ignores SIGINT, which a terminal also
    /// sends to the worker processes of a program: the program decides what to do about it.
    pub(crate) fn start(work: impl FnOnce()) -> io::Result<Self> {
        // SAFETY: `getpid` has no preconditions.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child has this thread only. It runs the loader's and the dataset's code and
        // then ends, without returning. Locks that other threads held at the fork stay locked in
        // the child, as the documentation of `Builder::processes` says.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: plain system calls. If the parent has already ended, there is no signal
                // about it.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::signal(libc::SIGINT, libc::SIG_IGN);
                    if libc::getppid() != parent {
                        libc::_exit(1);
                    }
                }
                let outcome = catch_unwind(AssertUnwindSafe(work));
                // SAFETY: ends the process without running any code of the parent.
                unsafe { libc::_exit(if outcome.is_ok() { 0 } else { 101 }) }
            }
            -1 => Err(io::Error::last_os_error()),
            pid => Self::of(pid),
        }
    }

    /// Takes over a child of this process that no one has waited for.
    pub(crate) fn of(pid: libc::pid_t) -> io::Result<Self> {
        // SAFETY: makes a new descriptor of a child that no one has waited for.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            // SAFETY: the process is a child of this one, and no one has waited for it.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                while libc::waitpid(pid, std::ptr::null_mut(), 0) < 0
                    && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
                {}
            }
            return Err(error);
        }
        // SAFETY: the descriptor is new, and has no other owner.
        Ok(Self { pidfd: unsafe { OwnedFd::from_raw_fd(fd as i32) }, id: pid as u32 })
    }

    /// The descriptor, which becomes readable once the process has ended.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.pidfd.as_fd()
    }

    pub(crate) fn kill(&self) {
        let (fd, info) = (self.pidfd.as_raw_fd(), std::ptr::null::<()>());
        // SAFETY: sends a signal to the process of the descriptor, if it still exists.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, info, 0) };
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ask(libc::WNOHANG | libc::WNOWAIT).is_some()
    }

    /// Waits until the process has ended, and returns how it ended.
    pub(crate) fn reap(&self) -> End {
        self.ask(0).unwrap_or(End::Unknown)
    }

    /// Returns how the process ended. With `WNOHANG`, returns `None` if it has not ended.
    fn ask(&self, flags: libc::c_int) -> Option<End> {
        // SAFETY: a `siginfo_t` of zeros is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        loop {
            let pidfd = self.pidfd.as_raw_fd() as libc::id_t;
            // SAFETY: queries one child by its descriptor, and writes into a local variable.
            if unsafe { libc::waitid(libc::P_PIDFD, pidfd, &raw mut info, libc::WEXITED | flags) } == 0 {
                break;
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                // Other code has waited for the process, so it has ended.
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
}

/// How long a thread sleeps where it has nothing to wait on.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// Waits until one of the descriptors can be read, for at most `limit`. Returns which of them can
/// be read. There may be none before the limit.
pub(crate) fn poll(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> Vec<bool> {
    let poll_in = |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<_> = fds.iter().map(poll_in).collect();
    let limit = limit.map_or(-1, |limit| i32::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
    // SAFETY: the descriptors are open, and the array has this length.
    if unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit) } < 0
        && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted
    {
        // There are more descriptors than the limit of open files allows. Check each separately,
        // with a pause.
        std::thread::sleep(PAUSE);
        if fds.len() > 1 {
            return fds.iter().map(|&fd| poll(&[fd], Some(Duration::ZERO))[0]).collect();
        }
    }
    // After a failed call all entries are zero.
    polled.iter().map(|fd| fd.revents != 0).collect()
}
