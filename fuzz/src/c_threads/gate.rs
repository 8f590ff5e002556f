//! Enforces the contract of `slotline_loader_free`: a C program may free a loader while calls to it
//! are running, but only once each of these calls has entered the loader, and it must begin no call
//! after that.
//!
//! A call has entered the loader once it runs inside the library's function, so that the library
//! counts it. There are two proofs of this. If a callback runs in the thread of a call, the library
//! runs it within that call. If only one call of `slotline_loader_stop` has begun and another call
//! has returned `SLOTLINE_ERROR_STOPPED`, that stop has had its effect. [`Gate::close`] lets no
//! further call begin, and waits until each call of other threads has returned or is known to have
//! entered.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use slotline_ffi::*;

/// The kind of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call that uses the loader exclusively. The library rejects it during another such call.
    Use,
    /// A call that reads a constant of the loader.
    Ask,
    /// A call of `slotline_loader_stop`.
    Stop,
}

#[derive(Default)]
pub(super) struct Gate {
    calls: Mutex<Calls>,
    changed: Condvar,
}

struct Calls {
    /// NULL once `free` has begun.
    loader: *mut slotline_loader,
    now: Vec<Call>,
    next: usize,
    /// The number of calls of `slotline_loader_stop` that have begun.
    stops: usize,
    /// Whether a call has reported that the loader was stopped.
    stop_reported: bool,
}

// SAFETY: the loader handle may be used from any thread.
unsafe impl Send for Calls {}

impl Default for Calls {
    fn default() -> Self {
        Self { loader: null_mut(), now: Vec::new(), next: 0, stops: 0, stop_reported: false }
    }
}

struct Call {
    number: usize,
    thread: ThreadId,
    kind: Kind,
    /// Whether the call is known to have entered the loader.
    inside: bool,
    /// Whether another call of [`Kind::Use`] ran at the same time.
    met: bool,
}

thread_local! {
    /// The number of the innermost call of [`Kind::Use`] that this thread is making.
    static USING: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A call in progress, from before it starts until after it has returned.
pub(super) struct Inside<'g> {
    gate: &'g Gate,
    loader: *mut slotline_loader,
    number: usize,
    kind: Kind,
    before: Option<usize>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open(&self, loader: *mut slotline_loader) {
        self.lock().loader = loader;
    }

    /// Begins a call. Returns `None` if `free` has begun.
    pub(super) fn begin(&self, kind: Kind) -> Option<Inside<'_>> {
        let mut calls = self.lock();
        if calls.loader.is_null() {
            return None;
        }
        let number = calls.next;
        calls.next += 1;
        calls.stops += usize::from(kind == Kind::Stop);
        let mut met = false;
        if kind == Kind::Use {
            for other in calls.now.iter_mut().filter(|other| other.kind == Kind::Use) {
                (other.met, met) = (true, true);
            }
        }
        calls.now.push(Call { number, thread: thread::current().id(), kind, inside: false, met });
        let before = if kind == Kind::Use { USING.replace(Some(number)) } else { None };
        Some(Inside { gate: self, loader: calls.loader, number, kind, before })
    }

    /// Records, from a callback, that the call of this thread (if there is one) has entered the
    /// loader.
    pub(super) fn inside(&self) {
        if let Some(number) = USING.get() {
            self.lock().now.iter_mut().filter(|call| call.number == number).for_each(|call| call.inside = true);
            self.changed.notify_all();
        }
    }

    /// Records that a call has reported that the loader was stopped.
    pub(super) fn report_stop(&self) {
        self.lock().stop_reported = true;
        self.changed.notify_all();
    }

    /// Returns whether a thread has begun to stop or free the loader.
    pub(super) fn is_stopping(&self) -> bool {
        let calls = self.lock();
        calls.stops > 0 || calls.loader.is_null()
    }

    /// Prevents new calls, waits until the loader may be freed, and returns it.
    pub(super) fn close(&self) -> Option<*mut slotline_loader> {
        let mut calls = self.lock();
        let loader = std::mem::replace(&mut calls.loader, null_mut());
        if loader.is_null() {
            return None;
        }
        let this = thread::current().id();
        let may_be_outside = |calls: &mut Calls| {
            let known = |call: &Call| call.inside || call.kind == Kind::Stop && calls.stop_reported && calls.stops == 1;
            calls.now.iter().any(|call| call.thread != this && !known(call))
        };
        let calls = self.changed.wait_while(calls, may_be_outside).unwrap_or_else(PoisonError::into_inner);
        drop(calls);
        Some(loader)
    }
}

impl Inside<'_> {
    pub(super) fn loader(&self) -> *mut slotline_loader {
        self.loader
    }

    /// Returns whether another call of [`Kind::Use`] has run at the same time.
    pub(super) fn met(&self) -> bool {
        self.gate.lock().now.iter().any(|call| call.number == self.number && call.met)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.gate.lock().now.retain(|call| call.number != self.number);
        if self.kind == Kind::Use {
            USING.set(self.before);
        }
        self.gate.changed.notify_all();
    }
}
