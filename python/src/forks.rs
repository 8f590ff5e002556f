//! The forked processes that are alive, since they see the memory that was shared with workers when they were forked.
//!
//! Each of them inherits the writing end of a pipe. When it has ended, or runs another program, the reading end says so. The
//! hooks are called by Python, for all forks that it makes (`os.register_at_fork`).

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

/// How many forks were made while there were blocks.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// How many blocks this process has received and not given back.
static BLOCKS: AtomicUsize = AtomicUsize::new(0);
static CHILDREN: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// What a thread has while it forks: the list, so that no other thread holds it in the child, and the pipe for the child.
type Forking = (MutexGuard<'static, Vec<Child>>, Option<[OwnedFd; 2]>);

thread_local! {
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

/// A forked process that may be alive.
struct Child {
    /// How many forks there were with it.
    number: u64,
    /// `None` if it cannot be found out whether it is alive.
    ended: Option<OwnedFd>,
}

impl Child {
    fn is_alive(&self) -> bool {
        let Some(ended) = &self.ended else { return true };
        let mut poll = libc::pollfd { fd: ended.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is written.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
    }
}

/// A time, as the number of forks until then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Time(u64);

impl Time {
    pub(crate) fn now() -> Self {
        Self(FORKS.load(Ordering::Acquire))
    }
}

/// Counts a block that was received.
pub(crate) fn note_block() -> Time {
    BLOCKS.fetch_add(1, Ordering::Relaxed);
    Time::now()
}

/// Counts blocks that are given back, or whose memory is gone.
pub(crate) fn note_end(blocks: usize) {
    // What comes later is not seen by the processes that there are.
    if BLOCKS.fetch_sub(blocks, Ordering::AcqRel) == blocks
        && blocks > 0
        && !is_forking()
        && let Ok(mut children) = CHILDREN.try_lock()
    {
        children.clear();
    }
}

/// Whether this thread is in a fork: the collector may drop a block meanwhile.
fn is_forking() -> bool {
    FORKING.try_with(|forking| forking.borrow().is_some()).unwrap_or(false)
}

/// Whether a process that is alive was forked between these times.
pub(crate) fn is_seen(from: Time, until: Time) -> bool {
    if from == until {
        return false;
    }
    if is_forking() {
        return true;
    }
    let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    children.retain(Child::is_alive);
    children.iter().any(|child| from.0 < child.number && child.number <= until.0)
}

fn pipe() -> io::Result<[OwnedFd; 2]> {
    let mut ends = [0; 2];
    // SAFETY: two descriptors are written.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: they are new.
    Ok(ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) }))
}

/// To be called before a fork.
#[pyfunction]
pub(crate) fn before_fork() {
    let children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    let pipe = if BLOCKS.load(Ordering::Relaxed) > 0 { pipe().ok() } else { None };
    FORKING.set(Some((children, pipe)));
}

/// To be called after it in the parent.
#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    let Some((mut children, pipe)) = FORKING.take() else { return };
    if BLOCKS.load(Ordering::Relaxed) > 0 {
        let number = FORKS.fetch_add(1, Ordering::AcqRel) + 1;
        let ended = pipe.map(|[read, _]| read);
        children.retain(Child::is_alive);
        children.push(Child { number, ended });
    }
}

/// To be called after it in the child.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    let Some((mut children, pipe)) = FORKING.take() else { return };
    // The parent's. Its blocks are not given back here.
    children.clear();
    BLOCKS.store(0, Ordering::Relaxed);
    if let Some([_, write]) = pipe {
        // It stays open until this process ends.
        let _ = write.into_raw_fd();
    }
}
