//! What is behind the handle of a loader, on the host or with a device.
//!
//! One call at a time may use the loader itself ([`Inside`]); a second one, from another thread or from a callback inside of the
//! first, is refused. Any number of calls may stop it, read its statistics, or ask for what never changes
//! ([`Visit`]), whether it is in use or not.
//!
//! C may free a loader while calls are inside, so each call is counted from the first time that it touches the handle to the
//! last. One word says all of it:
//!
//! - `BUSY`: a call uses the loader. It stays set when the loader is gone.
//! - `FREED`: `free` was called.
//! - `GONE`: the loader was dropped, and only the handle's own memory is left.
//! - from `VISITOR` on: how many visits there are.
//!
//! The loader is dropped by `free`, or, if a call uses it then, by that call when it comes out: never by a visit, so that a `stop`
//! returns at once even if it is the last one out. The memory goes with the last one out, which is whoever leaves `GONE` without
//! a visit behind. `BUSY` without `FREED` keeps the memory as a visit does, because it takes `free`, or the call that has it, to
//! set `GONE`.
//!
//! A thread that is told that the loader was stopped may free it, although the `stop` has not returned. That stop is counted by
//! then: it counts itself before it stops anything, and being told synchronises with it (`Abandoned` in the runtime, or `stopped`
//! here), so that `free` finds the count.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use slotline::Error;
use slotline::loader::{StatsReader, Stopper};

use crate::boundary::guarded;
use crate::check;
use crate::failure::Failure;
use crate::field::About;
use crate::running::{Facts, Loads, Next, Running};
use crate::sync::{AtomicBool, AtomicUsize, Ordering, Step, step};

/// A loader, and who is in it.
pub(crate) struct Handle<L> {
    /// Who is in it: see the [module](self).
    state: AtomicUsize,
    /// For the call that has set `BUSY`, until `GONE`.
    inner: UnsafeCell<ManuallyDrop<Running<L>>>,
    pub(crate) fields: Arc<[About]>,
    pub(crate) facts: Facts,
    pub(crate) stats: StatsReader,
    stopper: Stopper,
    stopped: AtomicBool,
}

const BUSY: usize = 1;
const FREED: usize = 1 << 1;
const GONE: usize = 1 << 2;
const VISITOR: usize = 1 << 3;

// SAFETY: the inner loader is Send, and used only by the call that has set `BUSY`; the rest is changed by atomics only.
unsafe impl<L: Send> Sync for Handle<L> {}

impl<L: Loads> Handle<L> {
    pub(crate) fn new(loader: L) -> Self {
        let mut facts = loader.facts();
        Self {
            state: AtomicUsize::new(0),
            fields: std::mem::take(&mut facts.fields).into(),
            facts,
            stats: loader.stats_reader(),
            stopper: loader.stopper(),
            stopped: AtomicBool::new(false),
            inner: UnsafeCell::new(ManuallyDrop::new(Running::new(loader))),
        }
    }
}

impl<L> Handle<L> {
    /// Stops the loader. It need not be there any more.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.stopper.stop();
    }

    /// Drops the loader.
    ///
    /// # Safety
    ///
    /// The caller must have set `BUSY`, and leave it set; this must be the only time.
    unsafe fn drop_loader(&self) {
        // It may have a panic, of the user's.
        // SAFETY: the caller has the loader alone, and it is not used again, as nobody else can set `BUSY`.
        guarded((), || unsafe { ManuallyDrop::drop(&mut *self.inner.get()) });
    }
}

impl<L> fmt::Debug for Handle<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// A type that C knows a loader by.
pub(crate) trait Handled {
    /// The loader behind it.
    type Loader: Loads;

    fn handle(&self) -> &Handle<Self::Loader>;
}

/// Comes to a loader, whether a call uses it or not: for what any thread may do at any time.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[inline]
pub(crate) unsafe fn visit<H: Handled>(loader: *const H) -> Result<Visit<H>, Failure> {
    // SAFETY: the caller's word. This is the first access. It needs no order, as with an `Arc` that is cloned.
    unsafe { check::reference(loader, "loader")?.handle().state.fetch_add(VISITOR, Ordering::Relaxed) };
    step(Step::In);
    Ok(Visit { loader: loader.cast_mut() })
}

/// Comes to a loader to use it, unless another call does.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[inline]
pub(crate) unsafe fn enter<H: Handled>(loader: *mut H) -> Result<Inside<H>, Failure> {
    // SAFETY: the caller's word. This is the first access, and the last one if the call is refused.
    let before = unsafe { check::reference(loader, "loader")?.handle().state.fetch_or(BUSY, Ordering::Acquire) };
    if before & BUSY != 0 {
        return Err(in_use());
    }
    step(Step::In);
    Ok(Inside { loader })
}

#[cold]
fn in_use() -> Failure {
    Failure::invalid(
        "loader is in use: by a call in another thread, or by the one whose callback this is; let it return first",
    )
}

/// Asks a loader for something that never changes, with an answer for NULL.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
pub(crate) unsafe fn ask<H: Handled, T>(loader: *const H, otherwise: T, question: impl FnOnce(&Facts) -> T) -> T {
    // SAFETY: the caller's word.
    unsafe { visit(loader) }.map_or(otherwise, |visit| question(&visit.handle().facts))
}

/// Stops a loader, whether a call uses it or not.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
pub(crate) unsafe fn stop<H: Handled>(loader: *const H) {
    guarded((), || {
        // SAFETY: the caller's word.
        if let Ok(visit) = unsafe { visit(loader) } {
            visit.handle().stop();
        }
    });
}

/// Frees a loader, or leaves that to the call that uses it.
///
/// # Safety
///
/// `loader` must be NULL or a box's loader that was not freed; no call may begin to use it from then on.
pub(crate) unsafe fn free<H: Handled>(loader: *mut H) {
    guarded((), || {
        // SAFETY: the caller's word.
        let Ok(visit) = (unsafe { visit(loader) }) else { return };
        let handle = visit.handle();
        // A call that waits in it would go on waiting.
        guarded((), || handle.stop());
        // Acquire: what the last call that used it did comes before its end.
        let before = handle.state.fetch_or(BUSY | FREED, Ordering::AcqRel);
        if before & BUSY == 0 {
            // SAFETY: this call has just set `BUSY`.
            unsafe { visit.leave_gone() };
        }
    });
}

/// Leaves a loader: what the caller has had of its state is taken off. The last one out frees the memory.
///
/// # Safety
///
/// `off` must be what keeps the loader for the caller, who does not use it any more.
#[inline]
unsafe fn leave<H: Handled>(loader: *mut H, off: usize) {
    // SAFETY: it is there until this operation is done.
    let before = unsafe { (*loader).handle() }.state.fetch_sub(off, Ordering::Release);
    let after = before.wrapping_sub(off);
    if after & GONE != 0 && after < VISITOR {
        // As of `Arc`: whatever others did with it comes before its end. (A load, as ThreadSanitizer knows no fences.)
        // SAFETY: it is there until it is freed here.
        unsafe { (*loader).handle() }.state.load(Ordering::Acquire);
        // SAFETY: it is a box's, which the caller of `free` has given up; everybody else has left, and the loader is gone.
        guarded((), || drop(unsafe { Box::from_raw(loader) }));
    }
}

/// A call that came to a loader. As long as this is there, so is the handle; the loader behind it may be gone.
pub(crate) struct Visit<H: Handled> {
    loader: *mut H,
}

impl<H: Handled> Visit<H> {
    #[inline]
    pub(crate) fn handle(&self) -> &Handle<H::Loader> {
        // SAFETY: this visit is counted, and what is behind the handle is changed through cells only.
        unsafe { (*self.loader).handle() }
    }

    /// Drops the loader, and leaves.
    ///
    /// # Safety
    ///
    /// As of `Handle::drop_loader`, and `FREED` must be set.
    unsafe fn leave_gone(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the caller's word.
        unsafe { this.handle().drop_loader() };
        step(Step::Out);
        // SAFETY: this visit ends here, and sets `GONE`.
        unsafe { leave(this.loader, VISITOR - GONE) };
    }
}

impl<H: Handled> Drop for Visit<H> {
    #[inline]
    fn drop(&mut self) {
        step(Step::Out);
        // SAFETY: this visit ends here.
        unsafe { leave(self.loader, VISITOR) };
    }
}

/// The call that uses a loader. As long as this is there, so is the loader.
pub(crate) struct Inside<H: Handled> {
    loader: *mut H,
}

impl<H: Handled> Inside<H> {
    #[inline]
    fn handle(&self) -> &Handle<H::Loader> {
        // SAFETY: `BUSY` keeps the handle, and what is behind it is changed through cells only.
        unsafe { (*self.loader).handle() }
    }

    #[inline]
    pub(crate) fn running(&mut self) -> &mut Running<H::Loader> {
        // SAFETY: this one has set `BUSY`, and so nobody else is here, nor has anybody dropped it.
        unsafe { &mut *self.handle().inner.get() }
    }

    /// The loader itself, to be asked about.
    pub(crate) fn loader(&mut self) -> &H::Loader {
        &self.running().loader
    }

    /// The next batch of the pass; `None` at its end.
    #[inline]
    pub(crate) fn next_batch(&mut self) -> Result<Option<<H::Loader as Loads>::Item>, Failure> {
        match self.running().next_batch() {
            Next::Batch(batch) => Ok(Some(batch)),
            Next::Failed(failure) => Err(failure),
            _ if self.handle().stopped.load(Ordering::Acquire) => Err(Error::Stopped.into()),
            Next::End => Ok(None),
            Next::NoPass => Err(Failure::invalid("loader is in no pass; start one with epoch first")),
        }
    }

    #[inline]
    pub(crate) fn fields(&self) -> &Arc<[About]> {
        &self.handle().fields
    }
}

impl<H: Handled> Drop for Inside<H> {
    #[inline]
    fn drop(&mut self) {
        step(Step::Out);
        let state = &self.handle().state;
        let mut now = BUSY;
        while now & FREED == 0 {
            match state.compare_exchange(now, now & !BUSY, Ordering::Release, Ordering::Relaxed) {
                // Nobody keeps it for us any more.
                Ok(_) => return,
                // Visitors came or went, or it was freed.
                Err(other) => now = other,
            }
        }
        // `free` has left the loader to us. From here on this is a visit, as `BUSY` says nothing any more.
        state.fetch_add(VISITOR, Ordering::Relaxed);
        // SAFETY: this one has set `BUSY`, and `free` has set `FREED`.
        unsafe { Visit { loader: self.loader }.leave_gone() };
    }
}
