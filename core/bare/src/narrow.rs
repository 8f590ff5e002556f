//! Checks of what is different where a pointer has 32 bits: counts that wrap soon, and runs that can be too long.

use cortex_m::singleton;
use cortex_m_semihosting::hprintln;
use slotline_core::ordered::{Config, Delivery, NextError, OpenError, Ring, Slot};

use crate::ordered::{PartedRows, Rows, parts_on};
use crate::row::Parted;
use crate::sleep::{Sleep, sleep};
use crate::tick;

/// Runs all checks of this module.
pub fn check() {
    assert_eq!(usize::BITS, 32);
    runs_near_the_wrap();
    a_whole_turn();
    too_long_a_run();
    hprintln!("sizes: a ring of 4 rows takes {} bytes", size_of::<Rows>());
}

fn runs_near_the_wrap() {
    let slots = || [const { Slot::new(Parted::new()) }; 3];
    let config = Config::new().parts(2);
    let ring = singleton!(: PartedRows = Ring::near_the_wrap(slots(), config, sleep(), sleep(), 500));
    parts_on(ring.expect("the ring is made only once"), Delivery::InOrder);
    let config = config.delivery(Delivery::Arrival);
    let ring = singleton!(: PartedRows = Ring::near_the_wrap(slots(), config, sleep(), sleep(), 1500));
    parts_on(ring.expect("the ring is made only once"), Delivery::Arrival);
    hprintln!("narrow: the same, across the wrap of the position");
}

/// Uses a number of parts that leaves few bits to count laps.
fn a_whole_turn() {
    const PARTS: usize = 1 << 14;
    const DEPTH: usize = 8;
    // 4 bits of flags, 14 of parts, 3 of slots.
    const TURN: usize = DEPTH << (32 - 4 - 14 - 3);
    static RING: Ring<[Slot<usize>; DEPTH], Sleep> =
        Ring::inline_with_wait([const { Slot::new(0) }; DEPTH], Config::new().parts(PARTS), sleep(), sleep());
    fn job() {
        let worker = RING.worker();
        while let Ok(mut claim) = worker.try_claim(usize::MAX) {
            let ticket = claim.ticket();
            *claim.get_mut().expect("the claim has all parts") = ticket;
            claim.publish();
        }
    }

    let mut consumer = RING.consumer().expect("the consumer was not taken before");
    tick::often(job);
    for ticket in 0..2 * TURN + 5 {
        let lease = consumer.next().expect("the run is endless");
        assert_eq!((lease.ticket(), *lease), (ticket % TURN, ticket % TURN));
    }
    tick::stop();
    hprintln!("narrow: two whole turns of a position, of {} tickets each", TURN);
}

fn too_long_a_run() {
    let ring = Ring::inline([const { Slot::new(0) }; 4], Config::new());
    let mut consumer = ring.consumer().expect("the consumer was not taken before");
    ring.seal();
    // 4 bits of flags and 2 of slots, so that half a turn is 2^25 laps of 4 slots.
    let half = 4 << 25;
    assert_eq!(consumer.open(Some(usize::MAX)), Err(OpenError::TooMany));
    assert_eq!(consumer.open(Some(half + 4)), Err(OpenError::TooMany));
    assert_eq!(consumer.open(Some(half - 1)), Ok(()));
    assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty);
    hprintln!("narrow: a run of more than half a turn is refused");
}
