//! An interrupt between any two instructions.

use crate::{sleep, tick};

/// Does `round` again and again, with the interrupt's `job` about an instruction later each time: first before `round`
/// has begun, at last when it sleeps or is over. Gives how many times it came in between.
///
/// A round is given what `prepare` made before the time ran.
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
    unreachable!("no round takes so many instructions")
}
