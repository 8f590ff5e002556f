//! What is behind the handle of a loader, on the host or with a device.
//!
//! A loader is used by one thread at a time. A word beside it says whether a call is in it, so that a second one (from
//! another thread, or from a callback inside of the first) is an error, and so that a loader which is freed meanwhile goes
//! when the call comes out. It can be stopped at any time.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use slotline::Error;
use slotline::loader::Stopper;

use crate::boundary::guarded;
use crate::check;
use crate::failure::Failure;
use crate::field::About;
use crate::running::{AnyLoader, Facts, Loads, Next, Running};

/// A loader whose passes give `T`.
pub(crate) struct Handle<T> {
    /// `BUSY` while a call is in it, and `FREED` if it was freed meanwhile.
    state: AtomicU8,
    /// Of whoever has set `BUSY`.
    inner: UnsafeCell<Box<dyn AnyLoader<T>>>,
    pub(crate) fields: Arc<[About]>,
    pub(crate) facts: Facts,
    stopper: Stopper,
    stopped: AtomicBool,
}

const BUSY: u8 = 1;
const FREED: u8 = 2;

// SAFETY: the inner loader is Send, and used by whoever has set `BUSY` alone; the rest is never changed but by atomics.
unsafe impl<T> Sync for Handle<T> {}

impl<T: 'static> Handle<T> {
    pub(crate) fn new<L: Loads<Item = T>>(loader: L) -> Self {
        let mut facts = loader.facts();
        Self {
            state: AtomicU8::new(0),
            fields: std::mem::take(&mut facts.fields).into(),
            facts,
            stopper: loader.stopper(),
            stopped: AtomicBool::new(false),
            inner: UnsafeCell::new(Box::new(Running::new(loader))),
        }
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// A type that C knows a loader by.
pub(crate) trait Handled {
    /// What its passes give.
    type Item;

    fn handle(&self) -> &Handle<Self::Item>;
}

/// Goes into a loader, unless somebody is in it.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[inline]
pub(crate) unsafe fn enter<H: Handled>(loader: *mut H) -> Result<Inside<H>, Failure> {
    // SAFETY: the caller's word.
    let state = unsafe { &check::reference(loader, "loader")?.handle().state };
    match state.compare_exchange(0, BUSY, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Ok(Inside { loader }),
        Err(_) => Err(Failure::invalid(
            "loader is in use: by a call in another thread, or by the one whose callback this is; let it return first",
        )),
    }
}

/// Stops a loader, whoever is in it.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
pub(crate) unsafe fn stop<H: Handled>(loader: *const H) {
    // SAFETY: the caller's word.
    if let Some(loader) = unsafe { loader.as_ref() } {
        guarded((), || {
            let handle = loader.handle();
            handle.stopped.store(true, Ordering::Release);
            handle.stopper.stop();
        });
    }
}

/// Frees a loader, or leaves that to who is in it.
///
/// # Safety
///
/// `loader` must be NULL or a box's loader that was not freed; nobody may begin to use it from then on.
pub(crate) unsafe fn free<H: Handled>(loader: *mut H) {
    if loader.is_null() {
        return;
    }
    // Else a call that waits in it would go on waiting.
    // SAFETY: the caller's word.
    unsafe { stop(loader) };
    guarded((), || {
        // SAFETY: the caller's word.
        let before = unsafe { &(*loader).handle().state }.fetch_or(FREED, Ordering::AcqRel);
        if before & BUSY == 0 {
            // SAFETY: it is a box's, nobody is in it, and the caller gives it up.
            drop(unsafe { Box::from_raw(loader) });
        }
    });
}

/// Whoever is in a loader. As long as this one is there, so is the loader.
pub(crate) struct Inside<H: Handled> {
    loader: *mut H,
}

impl<H: Handled> Inside<H> {
    #[inline]
    fn handle(&self) -> &Handle<H::Item> {
        // SAFETY: the loader is there, and what is behind the handle is changed through cells only.
        unsafe { (*self.loader).handle() }
    }

    #[inline]
    pub(crate) fn any(&mut self) -> &mut dyn AnyLoader<H::Item> {
        // SAFETY: this one has set `BUSY`, and so nobody else is here.
        unsafe { &mut **self.handle().inner.get() }
    }

    /// Puts the next batch of the pass into `place`, which is then initialised; `false` at the pass's end.
    #[inline]
    pub(crate) fn next(&mut self, place: &mut MaybeUninit<H::Item>) -> Result<bool, Failure> {
        match self.any().next(place) {
            Next::Batch => Ok(true),
            Next::Failed(failure) => Err(failure),
            _ if self.handle().stopped.load(Ordering::Acquire) => Err(Error::Stopped.into()),
            Next::End => Ok(false),
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
        let before = self.handle().state.fetch_and(!BUSY, Ordering::AcqRel);
        if before & FREED != 0 {
            // SAFETY: `free` has left it to us, and nobody else may use it.
            drop(unsafe { Box::from_raw(self.loader) });
        }
    }
}
