//! A counter that is not sound, to show that this program would detect a fault.

use core::sync::atomic::{AtomicU32, Ordering};

use cortex_m::interrupt;

use crate::sweep::sweep;
use crate::tick;

static COUNT: AtomicU32 = AtomicU32::new(0);

fn add() {
    COUNT.store(COUNT.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Has the main loop and the interrupt increment one counter without synchronisation. Returns how often the count is
/// wrong, and the number of rounds.
pub fn counts() -> (u32, u32) {
    let behind = || interrupt::free(|_| tick::count().wrapping_sub(COUNT.load(Ordering::Relaxed)));
    let mut lost = 0;
    let rounds = sweep(add, behind, |before| {
        add();
        lost += u32::from(behind() != before.wrapping_sub(1));
    });
    (lost, rounds)
}
