//! Tracking of forked child processes: they can still read the memory that was shared with workers
//! when they were forked.
//!
//! Each child inherits the mapping of a separate file, and loses it only when it ends or executes
//! another program. Sealing the file fails as long as any process maps it, which tells whether the
//! child is alive. Python calls the hooks here for all forks that it makes (`os.register_at_fork`).
//! A block that was dropped while a child could read it is returned later, on an operation with any
//! block after that child has ended.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use slotline_python_shielded::shielded;

use crate::channel::Lease;

/// The number of times that a fork began or ended: odd during a fork.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// The number of blocks that this process has received and not returned.
static BLOCKS: AtomicUsize = AtomicUsize::new(0);
static FORKED: Mutex<Forked> = Mutex::new(Forked { children: Vec::new(), seen: Vec::new() });
/// Whether there are dropped blocks that a child can still read.
static HAS_SEEN: AtomicBool = AtomicBool::new(false);

/// What a thread holds while it forks: the lock on the lists, so that no other thread holds it in
/// the child, and the file for the child.
type Forking = (MutexGuard<'static, Forked>, Option<Mapped>);

thread_local! {
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

struct Forked {
    children: Vec<Child>,
    /// Blocks that were dropped while a child may still read them, each with the time when it was
    /// dropped.
    seen: Vec<(Lease, Time)>,
}

impl Forked {
    /// Returns whether a living child may have been forked between these times.
    fn sees(&self, from: Time, until: Time) -> bool {
        self.children.iter().any(|child| from <= child.time && child.time <= until)
    }
}

fn forked() -> MutexGuard<'static, Forked> {
    let waited = || FORKED.lock().unwrap_or_else(PoisonError::into_inner);
    match FORKED.try_lock() {
        Ok(forked) => forked,
        // Release the interpreter while waiting, since the thread that forks may need it.
        Err(_) => Python::try_attach(|py| FORKED.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
            .unwrap_or_else(waited),
    }
}

/// A child process that may be alive.
struct Child {
    /// When it was forked.
    time: Time,
    /// The file that the child maps, or `None` if it could not be created.
    mapped: Option<OwnedFd>,
}

impl Child {
    fn is_alive(&self) -> bool {
        let Some(file) = &self.mapped else { return true };
        // SAFETY: changes only a file that this module owns.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) < 0 }
    }
}

/// A mapped file, so that a child inherits the mapping.
struct Mapped {
    file: OwnedFd,
    start: *mut libc::c_void,
}

impl Mapped {
    fn new() -> io::Result<Self> {
        // SAFETY: creates a file; the name is a string that ends with a zero.
        let file =
            unsafe { libc::memfd_create(c"forked-by-slotline".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let (access, place) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
        // SAFETY: maps the file at an unused address. It is empty and never accessed.
        let start = unsafe { libc::mmap(place, 1, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { file, start }) }
    }

    /// Unmaps the file in this process, so that only the child maps it.
    fn unmap(self) -> OwnedFd {
        // SAFETY: the address was mapped by `new`, and is unmapped once.
        unsafe { libc::munmap(self.start, 1) };
        self.file
    }
}

/// A point in time, as a value of [`FORKS`].
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Time(u64);

impl Time {
    pub(crate) fn now() -> Self {
        Self(FORKS.load(Ordering::Acquire))
    }
}

/// Counts a block that was received, and returns the time.
pub(crate) fn note_block() -> Time {
    BLOCKS.fetch_add(1, Ordering::Relaxed);
    Time::now()
}

/// Counts a block that was returned.
pub(crate) fn note_end() {
    // Without any blocks, the existing children can no longer read one: blocks received later are
    // not visible to them.
    if BLOCKS.fetch_sub(1, Ordering::AcqRel) == 1
        && !is_forking()
        && let Ok(mut forked) = FORKED.try_lock()
    {
        forked.children.clear();
    }
}

/// Returns whether this thread is forking: the garbage collector may drop a block meanwhile.
fn is_forking() -> bool {
    FORKING.try_with(|forking| forking.borrow().is_some()).unwrap_or(false)
}

/// Returns a block that was dropped at the time `until`, once no child can read it. Call it only in
/// the process that received the block.
pub(crate) fn release(lease: Lease, until: Time) {
    if is_forking() {
        // The child may exist already, so the block is kept.
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

/// Returns whether the last check found dropped blocks that a child can still read.
pub(crate) fn has_seen() -> bool {
    HAS_SEEN.load(Ordering::Relaxed)
}

/// Returns the blocks that no child can read any more. Call it only in the process that received
/// them.
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

/// A hook that Python calls before a fork.
#[shielded]
#[pyfunction]
pub(crate) fn before_fork() {
    release_seen();
    let forked = forked();
    FORKS.fetch_add(1, Ordering::AcqRel);
    // Also without any block: another thread may receive the first one during the fork.
    let mapped = Mapped::new().ok();
    FORKING.set(Some((forked, mapped)));
}

/// A hook that Python calls in the parent after a fork.
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

/// A hook that Python calls in the child after a fork.
#[shielded]
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    // The child keeps the mapping of the file.
    let Some((mut forked, _)) = FORKING.take() else { return };
    FORKS.fetch_add(1, Ordering::AcqRel);
    // These are the parent's children and blocks. Its blocks must not be returned here.
    forked.children.clear();
    forked.seen.clear();
    HAS_SEEN.store(false, Ordering::Relaxed);
    BLOCKS.store(0, Ordering::Relaxed);
}
