//! The shared state behind a loader handle, for loaders on the host and on a device.
//!
//! At most one call at a time may use the loader itself ([`ExclusiveGuard`]). A second call, from
//! another thread or from a callback that runs within the first, is rejected. Any number of calls
//! may stop the loader, read its statistics or read its constants ([`SharedGuard`]), even while
//! another call uses it.
//!
//! C may free a loader while calls are in progress, so the handle counts each call from its first
//! access to the handle to its last. One word holds the whole state:
//!
//! - `BUSY`: a call uses the loader. It stays set after the loader was dropped.
//! - `FREED`: `free` was called.
//! - `GONE`: the loader was dropped, and only the handle's own memory is left.
//! - the bits from `VISITOR` up: the number of visits, which are calls that hold a [`SharedGuard`].
//!
//! `free` drops the loader. If a call uses the loader at that time, that call drops it when it
//! returns. A visit never drops it, so that a `stop` returns immediately even if it is the last
//! call to leave. The last call to leave frees the memory, that is, the call after which `GONE` is
//! set and no visits remain. `BUSY` without `FREED` keeps the memory alive as a visit does, because
//! only `free`, or the call that has set `BUSY`, can set `GONE`.
//!
//! A thread that receives the status "stopped" may free the loader even if the `stop` has not
//! returned. At that time the `stop` is already counted: it counts itself before it stops anything,
//! and receiving the status synchronises with it (through `Abandoned` in the crate `slotline`, or
//! `stopped` here), so that `free` sees the count.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slotline::Error;
use slotline::loader::{StatsReader, Stopper};

use crate::abi::{Failure, check, freed_twice, guarded};
use crate::batch::handle::Made;
use crate::fields::field::About;
use crate::loader::running::{AnyLoader, LoaderInfo, Next, Running};
use crate::loader::sync::{AtomicBool, AtomicUsize, Ordering, Step, step};

/// A loader. Only one thread at a time may use it, unless a function says otherwise; it does not have to be the same thread
/// each time.
#[derive(Debug)]
pub struct slotline_loader(pub(crate) Handle);

/// A loader, and the state of the calls that use it.
pub(crate) struct Handle {
    /// The calls in the loader: see the [module](self).
    state: AtomicUsize,
    /// Accessed only by the call that has set `BUSY`, until `GONE` is set.
    inner: UnsafeCell<ManuallyDrop<Running>>,
    pub(crate) fields: Arc<[About]>,
    pub(crate) info: LoaderInfo,
    pub(crate) stats: StatsReader,
    stopper: Stopper,
    stopped: AtomicBool,
}

const BUSY: usize = 1;
const FREED: usize = 1 << 1;
const GONE: usize = 1 << 2;
const VISITOR: usize = 1 << 3;

// SAFETY: the inner loader is Send, and only the call that has set `BUSY` uses it; everything else is changed through atomics.
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) fn new(loader: AnyLoader) -> Self {
        let mut info = loader.info();
        Self {
            state: AtomicUsize::new(0),
            fields: std::mem::take(&mut info.fields).into(),
            info,
            stats: loader.stats_reader(),
            stopper: loader.stopper(),
            stopped: AtomicBool::new(false),
            inner: UnsafeCell::new(ManuallyDrop::new(Running::new(loader))),
        }
    }

    /// Stops the loader. It may have been dropped already.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.stopper.stop();
    }

    /// Drops the loader.
    ///
    /// # Safety
    ///
    /// The caller must have set `BUSY` and must leave it set, and must call this only once.
    unsafe fn drop_loader(&self) {
        // Dropping the loader may run user code that panics.
        // SAFETY: the caller has exclusive access to the loader, and no other call can set `BUSY` and use it again.
        guarded((), || unsafe { ManuallyDrop::drop(&mut *self.inner.get()) });
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Begins a visit, a call that any thread may make at any time, even while another call uses the
/// loader.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[inline]
pub(crate) unsafe fn visit(loader: *const slotline_loader) -> Result<SharedGuard, Failure> {
    // SAFETY: the caller guarantees that `loader` is NULL or was not freed. This is the first access. Like cloning an `Arc`, it
    // needs no memory ordering.
    unsafe { check::reference(loader, "loader")?.0.state.fetch_add(VISITOR, Ordering::Relaxed) };
    step(Step::In);
    Ok(SharedGuard { loader: loader.cast_mut() })
}

/// Begins a call that uses the loader; fails if another call uses it.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[inline]
pub(crate) unsafe fn enter(loader: *mut slotline_loader) -> Result<ExclusiveGuard, Failure> {
    // SAFETY: the caller guarantees that `loader` is NULL or was not freed. This is the first
    // access; if the call is rejected, it is also the last.
    let before = unsafe { check::reference(loader, "loader")?.0.state.fetch_or(BUSY, Ordering::Acquire) };
    if before & BUSY != 0 {
        return Err(if before & GONE == 0 { in_use() } else { freed() });
    }
    step(Step::In);
    Ok(ExclusiveGuard { loader })
}

#[cold]
fn in_use() -> Failure {
    Failure::invalid(
        "loader is in use, by another thread or by the call that runs this callback; wait until that call returns",
    )
}

#[cold]
fn freed() -> Failure {
    Failure::invalid("loader was freed; free it after its last use")
}

/// Returns a constant of a loader, or `otherwise` for NULL.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
pub(crate) unsafe fn ask<T>(
    loader: *const slotline_loader,
    otherwise: T,
    question: impl FnOnce(&LoaderInfo) -> T,
) -> T {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { visit(loader) }.map_or(otherwise, |visit| question(&visit.handle().info))
}

/// Stops a loader, even while a call uses it.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
pub(crate) unsafe fn stop(loader: *const slotline_loader) {
    guarded((), || {
        // SAFETY: the caller upholds this function's safety contract.
        if let Ok(visit) = unsafe { visit(loader) } {
            visit.handle().stop();
        }
    });
}

/// Frees a loader. If a call uses it, that call drops it later.
///
/// # Safety
///
/// `loader` must be NULL or a loader made by `Box::into_raw` that was not freed; no call may begin to use it afterwards.
pub(crate) unsafe fn free(loader: *mut slotline_loader) {
    guarded((), || {
        // SAFETY: the caller guarantees that `loader` is NULL or was not freed. If it was freed
        // recently, its memory is still kept, so that the mistake is detected.
        if unsafe { loader.as_ref() }.is_some_and(|loader| loader.0.state.load(Ordering::Relaxed) & FREED != 0) {
            freed_twice("loader");
        }
        // SAFETY: the caller upholds this function's safety contract.
        let Ok(visit) = (unsafe { visit(loader) }) else { return };
        let handle = visit.handle();
        // Stop first: otherwise a call that waits in the loader would continue to wait.
        guarded((), || handle.stop());
        // Acquire: the last call that used the loader happens before the loader is dropped.
        let before = handle.state.fetch_or(BUSY | FREED, Ordering::AcqRel);
        if before & BUSY == 0 {
            // SAFETY: this call has just set `BUSY` and `FREED`.
            unsafe { visit.leave_gone() };
        }
    });
}

/// Leaves a loader: subtracts `off` from its state. The last call to leave frees the memory.
///
/// # Safety
///
/// `off` must be the value that the caller has added to the state to keep the handle alive. The
/// caller must not use the handle afterwards.
#[inline]
unsafe fn leave(loader: *mut slotline_loader, off: usize) {
    // SAFETY: the handle is alive until this operation is complete.
    let before = unsafe { &(*loader).0 }.state.fetch_sub(off, Ordering::Release);
    let after = before.wrapping_sub(off);
    if after & GONE != 0 && after < VISITOR {
        // As in `Arc`: everything that other calls did with the handle happens before it is freed. (This is a load, because
        // ThreadSanitizer does not support fences.)
        // SAFETY: the handle is alive until it is freed here.
        unsafe { &(*loader).0 }.state.load(Ordering::Acquire);
        // SAFETY: the handle came from a box, and the caller of `free` no longer uses it; every
        // other call has left, and the loader was dropped.
        guarded((), || unsafe { std::ptr::drop_in_place(loader) });
        // SAFETY: the box's content was dropped, and the ownership of its memory is transferred
        // here.
        unsafe { keep_freed(NonNull::new_unchecked(loader).cast(), Layout::new::<slotline_loader>()) };
    }
}

/// The memory of a handle that was freed. Its state no longer changes, but can still be read, so
/// that a second `free` is detected.
struct FreedMemory(NonNull<u8>, Layout);

// SAFETY: it owns memory that is not tied to a thread.
unsafe impl Send for FreedMemory {}

impl Drop for FreedMemory {
    fn drop(&mut self) {
        // SAFETY: `keep_freed` received the memory of a box with this layout, once.
        unsafe { std::alloc::dealloc(self.0.as_ptr(), self.1) }
    }
}

/// Keeps the memory of a freed handle until `MAX` more handles were freed, and then deallocates it.
///
/// # Safety
///
/// `memory` must be that of a box with this layout whose content was dropped, and must not be used
/// afterwards.
#[cold]
unsafe fn keep_freed(memory: NonNull<u8>, layout: Layout) {
    // Tests with delays detect accesses to freed memory, so they free it immediately.
    const MAX: usize = if cfg!(delays) { 0 } else { 64 };
    static KEPT: Mutex<VecDeque<FreedMemory>> = Mutex::new(VecDeque::new());
    let memory = FreedMemory(memory, layout);
    // If another thread holds the lock, in this process or in the parent of a fork, the memory is
    // freed at once.
    let Ok(mut kept) = KEPT.try_lock() else { return };
    kept.push_back(memory);
    if kept.len() > MAX {
        kept.pop_front();
    }
}

/// A visit to a loader. It keeps the handle alive, but the loader behind the handle may have been
/// dropped.
pub(crate) struct SharedGuard {
    loader: *mut slotline_loader,
}

impl SharedGuard {
    #[inline]
    pub(crate) fn handle(&self) -> &Handle {
        // SAFETY: this visit is counted, so the handle is alive; its contents are only changed
        // through cells.
        unsafe { &(*self.loader).0 }
    }

    /// Drops the loader, and ends the visit.
    ///
    /// # Safety
    ///
    /// The same as for `Handle::drop_loader`, and `FREED` must be set.
    unsafe fn leave_gone(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the caller upholds the contract of `drop_loader`.
        unsafe { this.handle().drop_loader() };
        step(Step::Out);
        // SAFETY: this visit ends here, and sets `GONE`.
        unsafe { leave(this.loader, VISITOR - GONE) };
    }
}

impl Drop for SharedGuard {
    #[inline]
    fn drop(&mut self) {
        step(Step::Out);
        // SAFETY: this visit ends here.
        unsafe { leave(self.loader, VISITOR) };
    }
}

/// A call that uses a loader. It keeps the loader alive.
pub(crate) struct ExclusiveGuard {
    loader: *mut slotline_loader,
}

impl ExclusiveGuard {
    #[inline]
    fn handle(&self) -> &Handle {
        // SAFETY: `BUSY` keeps the handle alive; its contents are only changed through cells.
        unsafe { &(*self.loader).0 }
    }

    #[inline]
    pub(crate) fn running(&mut self) -> &mut Running {
        // SAFETY: this call has set `BUSY`, so no other call uses the loader, and none has dropped it.
        unsafe { &mut *self.handle().inner.get() }
    }

    /// Returns the loader itself.
    pub(crate) fn loader(&mut self) -> &AnyLoader {
        &self.running().loader
    }

    /// Returns the next batch of the pass; `None` at its end. Waits at most `patience` if that is
    /// given.
    #[inline]
    pub(crate) fn next_batch(&mut self, patience: Option<Duration>) -> Result<Option<Made>, Box<Failure>> {
        match self.running().next_batch(patience) {
            Next::Batch(batch) => Ok(Some(batch)),
            Next::Failed(failure) => Err(failure),
            _ if self.handle().stopped.load(Ordering::Acquire) => Err(Failure::boxed(Error::Stopped)),
            Next::End => Ok(None),
            Next::NoPass => {
                Err(Failure::boxed(Failure::invalid("no pass was started; call the loader's epoch function first")))
            }
        }
    }

    #[inline]
    pub(crate) fn fields(&self) -> &Arc<[About]> {
        &self.handle().fields
    }
}

impl Drop for ExclusiveGuard {
    #[inline]
    fn drop(&mut self) {
        step(Step::Out);
        let state = &self.handle().state;
        let mut now = BUSY;
        while now & FREED == 0 {
            match state.compare_exchange(now, now & !BUSY, Ordering::Release, Ordering::Relaxed) {
                // This call no longer keeps the handle alive.
                Ok(_) => return,
                // Visits began or ended, or the loader was freed: try again.
                Err(other) => now = other,
            }
        }
        // `free` has left dropping the loader to this call. From here on this call counts as a
        // visit, because `BUSY` no longer keeps the handle alive.
        state.fetch_add(VISITOR, Ordering::Relaxed);
        // SAFETY: this call has set `BUSY`, and `free` has set `FREED`.
        unsafe { SharedGuard { loader: self.loader }.leave_gone() };
    }
}
