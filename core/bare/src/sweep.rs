//! Places an interrupt between any two instructions.

use crate::{sleep, tick};

/// Calls `round` repeatedly; each time, the interrupt runs `job` about one instruction later. The first interrupt comes
/// before `round` has begun, the last one when it sleeps or has returned. Returns how many interrupts came in between.
///
/// Each round gets the value that `prepare` made before the timer was started.
pub fn sweep<S>(job: fn(), mut prepare: impl FnMut() -> S, mut round: impl FnMut(S)) -> u32 {
    for after in 1.. {
        let prepared = prepare();
        let (interrupts, sleeps) = (tick::count(), sleep::sleeps());
        tick::once(after, job);
        round(prepared);
        if tick::count() == interrupts || sleep::sleeps() != sleeps {
            tick::stop();
            return after - 1;
        }
    }
    unreachable!("no round takes that many instructions")
}
