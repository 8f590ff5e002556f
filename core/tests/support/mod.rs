//! What the models share: a futex made of loom's mutex and condition variable.
#![allow(dead_code, missing_docs)]

use std::time::Duration;

use loom::sync::atomic::{Ordering, fence};
use loom::sync::{Condvar, Mutex};
use slotline_core::wait::{Futex, Word};

/// Sleeps at once (no spinning), and never by the clock, which loom does not have.
#[derive(Debug, Default)]
pub(crate) struct LoomFutex {
    lock: Mutex<()>,
    woken: Condvar,
}

impl Futex for LoomFutex {
    fn wait(&self, word: &Word, expected: u32, _timeout: Duration) {
        let guard = self.lock.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    fn wake_all(&self, _word: &Word) {
        drop(self.lock.lock().unwrap());
        self.woken.notify_all();
    }

    fn light_fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn heavy_fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn spin(&self, _round: u32) -> bool {
        false
    }
}
