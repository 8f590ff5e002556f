//! What a C program has to keep to: no call begins when `free` has begun, and those that began before have come inside.
//!
//! That they have is known of a call in whose thread a callback runs, and of a stop, if there was only this one, when some call
//! was told of it. `free` waits for all others to return.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use slotline_ffi::loader::slotline_loader;

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Uses the loader: is refused while another one does.
    Use,
    Ask,
    Stop,
}

#[derive(Default)]
pub(super) struct Gate {
    calls: Mutex<Calls>,
    changed: Condvar,
}

struct Calls {
    /// NULL when `free` has begun.
    loader: *mut slotline_loader,
    now: Vec<Call>,
    next: usize,
    /// Stops that began, ever.
    stops: usize,
    told: bool,
}

// SAFETY: the handle is for any thread.
unsafe impl Send for Calls {}

impl Default for Calls {
    fn default() -> Self {
        Self { loader: null_mut(), now: Vec::new(), next: 0, stops: 0, told: false }
    }
}

struct Call {
    number: usize,
    thread: ThreadId,
    kind: Kind,
    /// Whether it has come inside for certain.
    inside: bool,
    /// Whether another one that uses the loader was there at any time.
    met: bool,
}

thread_local! {
    /// The call that this thread is in, if it uses the loader.
    static USING: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A call, from before it until after it.
pub(super) struct Inside<'g> {
    gate: &'g Gate,
    loader: *mut slotline_loader,
    number: usize,
    kind: Kind,
    before: Option<usize>,
    ended: bool,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open(&self, loader: *mut slotline_loader) {
        self.lock().loader = loader;
    }

    /// Begins a call, unless `free` has begun.
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
        Some(Inside { gate: self, loader: calls.loader, number, kind, before, ended: false })
    }

    /// A callback runs: the call of this thread, if there is one, has come inside.
    pub(super) fn inside(&self) {
        if let Some(number) = USING.get() {
            self.lock().now.iter_mut().filter(|call| call.number == number).for_each(|call| call.inside = true);
            self.changed.notify_all();
        }
    }

    /// A call was told that the loader was stopped.
    pub(super) fn told(&self) {
        self.lock().told = true;
        self.changed.notify_all();
    }

    /// Whether anybody began to stop or to free it.
    pub(super) fn is_stopping(&self) -> bool {
        let calls = self.lock();
        calls.stops > 0 || calls.loader.is_null()
    }

    /// The loader, when it may be freed; no call begins from now on.
    pub(super) fn close(&self) -> Option<*mut slotline_loader> {
        let mut calls = self.lock();
        let loader = std::mem::replace(&mut calls.loader, null_mut());
        if loader.is_null() {
            return None;
        }
        let own = thread::current().id();
        let may_be_outside = |calls: &mut Calls| {
            let known = |call: &Call| call.inside || call.kind == Kind::Stop && calls.told && calls.stops == 1;
            calls.now.iter().any(|call| call.thread != own && !known(call))
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

    /// The end of the call; whether another one that uses the loader was there meanwhile.
    pub(super) fn end(&mut self) -> bool {
        let mut calls = self.gate.lock();
        let place = calls.now.iter().position(|call| call.number == self.number);
        let met = !self.ended && calls.now.swap_remove(place.expect("it is there until its end")).met;
        self.ended = true;
        if self.kind == Kind::Use {
            USING.set(self.before);
        }
        self.gate.changed.notify_all();
        met
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.end();
        }
    }
}
