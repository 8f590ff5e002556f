//! How a side waits on bare metal: the core sleeps until an interrupt comes.

use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use core::time::Duration;

use cortex_m::{asm, interrupt};
use slotline_core::wait::{Deadline, Futex, Park, Word};

use crate::tick;

/// Sleeps by `wfi`. There is only one core, so only an interrupt can change the word, and any interrupt ends the sleep
/// by itself.
#[derive(Debug)]
pub struct Wfi;

/// How a ring's sides wait here.
pub type Sleep = Park<Wfi>;

/// The number of times that the core went to sleep.
static SLEEPS: AtomicU32 = AtomicU32::new(0);

pub const fn sleep() -> Sleep {
    Park::new(Wfi)
}

pub fn sleeps() -> u32 {
    SLEEPS.load(Ordering::Relaxed)
}

impl Futex for Wfi {
    fn wait(&self, word: &Word, expected: u32, _timeout: Duration) {
        // While interrupts are disabled, nothing can change the word. An interrupt that comes after the check still
        // ends `wfi`, and runs as soon as interrupts are enabled again.
        interrupt::free(|_| {
            if word.load(Ordering::Relaxed) == expected {
                assert!(tick::is_due(), "nothing will end this sleep: a wake-up was lost");
                SLEEPS.store(SLEEPS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                asm::wfi();
            }
        });
    }

    fn wake_all(&self, _word: &Word) {}

    // A core and its interrupts see the core's memory accesses in program order; the compiler must preserve that order.
    fn light_fence(&self) {
        compiler_fence(Ordering::SeqCst);
    }

    fn heavy_fence(&self) {
        compiler_fence(Ordering::SeqCst);
    }

    fn spin(&self, _round: u32) -> bool {
        false
    }
}

/// A deadline that passes once this many interrupts have come.
#[derive(Debug)]
pub struct Interrupts(pub u32);

impl Deadline for Interrupts {
    fn remaining(&self) -> Duration {
        if tick::count() >= self.0 { Duration::ZERO } else { Duration::MAX }
    }
}
