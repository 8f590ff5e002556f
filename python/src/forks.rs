//! The forked processes that are alive, since they see the memory that was shared with workers when they were forked.
//!
//! Each of them inherits a mapping of a separate file, which it loses only when it ends or executes another program.
//! Whether any process still maps the file is tested by sealing it, which is refused until then. Python calls the hooks
//! for all forks that it makes (`os.register_at_fork`). Blocks that were dropped here, but that a forked process sees,
//! are given back when something happens to a block after that process has ended.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use slotline_python_shielded::shielded;

use crate::channel::Lease;
use crate::memory;

/// How often a fork began or ended: it is odd during a fork.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// How many blocks this process has received and not given back.
static BLOCKS: AtomicUsize = AtomicUsize::new(0);
static FORKED: Mutex<Forked> = Mutex::new(Forked { children: Vec::new(), seen: Vec::new() });
/// Whether there are blocks that a forked process sees.
static HAS_SEEN: AtomicBool = AtomicBool::new(false);

/// What a thread has while it forks: the lists, so that no other thread holds them in the child, and the file for the child.
type Forking = (MutexGuard<'static, Forked>, Option<Mapped>);

thread_local! {
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

struct Forked {
    children: Vec<Child>,
    /// Blocks that were dropped, but that one of them may still read, and when they were dropped.
    seen: Vec<(Lease, Time)>,
}

impl Forked {
    /// Whether a process that is alive may have been forked between these times.
    fn sees(&self, from: Time, until: Time) -> bool {
        self.children.iter().any(|child| from <= child.time && child.time <= until)
    }
}

fn forked() -> MutexGuard<'static, Forked> {
    let waited = || FORKED.lock().unwrap_or_else(PoisonError::into_inner);
    match FORKED.try_lock() {
        Ok(forked) => forked,
        // A thread that forks may need the interpreter to go on.
        Err(_) => Python::try_attach(|py| FORKED.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
            .unwrap_or_else(waited),
    }
}

/// A forked process that may be alive.
struct Child {
    /// When it was forked.
    time: Time,
    /// The file that it maps, or `None` if it could not be made.
    mapped: Option<OwnedFd>,
}

impl Child {
    fn is_alive(&self) -> bool {
        let Some(file) = &self.mapped else { return true };
        // SAFETY: changes a file of ours.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) < 0 }
    }
}

/// A file that is mapped, so that a process that is forked maps it too.
struct Mapped {
    file: OwnedFd,
    start: *mut libc::c_void,
}

impl Mapped {
    fn new() -> io::Result<Self> {
        let file = memory::file(c"forked-by-slotline")?;
        let (access, place) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
        // SAFETY: maps the file at a new place. It is empty, and nobody accesses it.
        let start = unsafe { libc::mmap(place, 1, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { file, start }) }
    }

    /// Has only the forked process map it.
    fn unmap(self) -> OwnedFd {
        // SAFETY: it was mapped there, and is unmapped once.
        unsafe { libc::munmap(self.start, 1) };
        self.file
    }
}

/// A time, as what [`FORKS`] was.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
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

/// Counts a block that is given back.
pub(crate) fn note_end() {
    // What comes later is not seen by the processes that there are.
    if BLOCKS.fetch_sub(1, Ordering::AcqRel) == 1
        && !is_forking()
        && let Ok(mut forked) = FORKED.try_lock()
    {
        forked.children.clear();
    }
}

/// Whether this thread is in a fork: the collector may drop a block meanwhile.
fn is_forking() -> bool {
    FORKING.try_with(|forking| forking.borrow().is_some()).unwrap_or(false)
}

/// Gives a block back that was dropped at some time, as soon as no forked process sees it. Only in the process that has
/// received it.
pub(crate) fn release(lease: Lease, until: Time) {
    if is_forking() {
        // The process may have been forked already.
        FORKING.with_borrow_mut(|forking| forking.as_mut().map(|(forked, _)| forked.seen.push((lease, until))));
        HAS_SEEN.store(true, Ordering::Relaxed);
        return;
    }
    if lease.from == until && until.0.is_multiple_of(2) {
        return lease.end();
    }
    let mut forked = forked();
    forked.children.retain(Child::is_alive);
    if forked.sees(lease.from, until) {
        forked.seen.push((lease, until));
        HAS_SEEN.store(true, Ordering::Relaxed);
    } else {
        drop(forked);
        lease.end();
    }
}

/// Whether there are blocks that a forked process sees, or did when that was last looked at.
pub(crate) fn has_seen() -> bool {
    HAS_SEEN.load(Ordering::Relaxed)
}

/// Gives the blocks back that forked processes do not see any more. Only in the process that has received them.
pub(crate) fn release_seen() {
    if !has_seen() || is_forking() {
        return;
    }
    let mut forked = forked();
    forked.children.retain(Child::is_alive);
    let all = std::mem::take(&mut forked.seen);
    let (seen, ended): (Vec<_>, Vec<_>) = all.into_iter().partition(|(lease, until)| forked.sees(lease.from, *until));
    HAS_SEEN.store(!seen.is_empty(), Ordering::Relaxed);
    forked.seen = seen;
    drop(forked);
    for (lease, _) in ended {
        lease.end();
    }
}

/// To be called before a fork.
#[shielded]
#[pyfunction]
pub(crate) fn before_fork() {
    release_seen();
    let forked = forked();
    FORKS.fetch_add(1, Ordering::AcqRel);
    // Also if there is no block yet: another thread may receive the first one during the fork.
    let mapped = Mapped::new().ok();
    FORKING.set(Some((forked, mapped)));
}

/// To be called after it in the parent.
#[shielded]
#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    let Some((mut forked, mapped)) = FORKING.take() else { return };
    let mapped = mapped.map(Mapped::unmap);
    let time = Time(FORKS.fetch_add(1, Ordering::AcqRel));
    if BLOCKS.load(Ordering::Relaxed) > 0 {
        forked.children.retain(Child::is_alive);
        forked.children.push(Child { time, mapped });
    }
}

/// To be called after it in the child.
#[shielded]
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    // What is mapped stays so.
    let Some((mut forked, _)) = FORKING.take() else { return };
    FORKS.fetch_add(1, Ordering::AcqRel);
    // The parent's. Its blocks are not given back here.
    forked.children.clear();
    forked.seen.clear();
    HAS_SEEN.store(false, Ordering::Relaxed);
    BLOCKS.store(0, Ordering::Relaxed);
}
