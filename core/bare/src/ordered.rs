//! Checks of the ordered ring in long streams: an interrupt and the main loop both work, and the main loop consumes.

use cortex_m_semihosting::hprintln;
use slotline_core::ordered::{Claim, ClaimError, Config, Consumer, Delivery, Lease, NextError, Ring, Slot, Worker};
use slotline_core::wait::Never;

use crate::row::{Parted, Row};
use crate::shared::Shared;
use crate::sleep::{Sleep, sleep, sleeps};
use crate::tick;

pub type Rows = Ring<[Slot<Row>; 4], Sleep>;
/// A ring whose tickets are worked on by both the interrupt and the main loop.
pub type PartedRows = Ring<[Slot<Parted<2>>; 3], Sleep>;

/// Creates a ring whose sides sleep.
pub const fn rows(config: Config) -> Rows {
    Ring::inline_with_wait([const { Slot::new(Row::new()) }; 4], config, sleep(), sleep())
}

const fn parted(config: Config) -> PartedRows {
    Ring::inline_with_wait([const { Slot::new(Parted::new()) }; 3], config.parts(2), sleep(), sleep())
}

/// Runs all checks of this ring in streams.
pub fn check() {
    parts_by_both(Delivery::InOrder);
    parts_by_both(Delivery::Arrival);
    past_a_straggler();
    many_at_once();
    released_by_an_interrupt();
}

/// Whether a ticket fails: every seventh one does.
pub fn fails(ticket: usize) -> bool {
    ticket % 7 == 3
}

/// Claims one part of a ticket, if one is available, and writes it or fails it.
fn work_on_part(worker: &Worker<&'static PartedRows>) -> Result<(), ClaimError> {
    let claim = worker.try_claim(1)?;
    claim.get().write(claim.ticket() as u32, claim.parts().start);
    if !(fails(claim.ticket()) && claim.parts().start == 1) {
        claim.publish();
    }
    Ok(())
}

fn parts_by_both(delivery: Delivery) {
    static IN_ORDER: PartedRows = parted(Config::new());
    static ARRIVAL: PartedRows = parted(Config::new().delivery(Delivery::Arrival));
    match delivery {
        Delivery::InOrder => parts_on(&IN_ORDER, delivery),
        Delivery::Arrival => parts_on(&ARRIVAL, delivery),
    }
}

/// Runs of all lengths, worked on by both the interrupt and the main loop.
pub fn parts_on(ring: &'static PartedRows, delivery: Delivery) {
    static RING: Shared<&'static PartedRows> = Shared::empty();
    static BY_INTERRUPT: Shared<u32> = Shared::empty();
    fn job() {
        for _ in 0..tick::count() % 3 {
            RING.with(|ring| {
                let done = work_on_part(&ring.worker());
                BY_INTERRUPT.with(|parts| *parts += u32::from(done.is_ok()));
            });
        }
    }

    let mut consumer = ring.consumer().expect("the consumer was not taken before");
    let worker = ring.worker();
    ring.seal();
    RING.put(ring);
    BY_INTERRUPT.put(0);
    let mut tickets = 0;
    tick::often(job);
    for run in 0..300 {
        let length = run % 23;
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        consumer.open(Some(length)).expect("the previous run has ended");
        // One bit for each ticket that was delivered.
        let mut came: u32 = 0;
        let mut note = |ticket: usize, failed| {
            let new = if delivery == Delivery::InOrder { came == (1 << ticket) - 1 } else { came & 1 << ticket == 0 };
            assert!(new && fails(ticket) == failed, "unexpected ticket {ticket} after {came:#b}");
            came |= 1 << ticket;
        };
        loop {
            match consumer.try_next() {
                Ok(lease) => {
                    note(lease.ticket(), false);
                    lease.check(lease.ticket() as u32);
                }
                Err(NextError::Failed { ticket }) => note(ticket, true),
                Err(NextError::Empty) => {
                    if work_on_part(&worker).is_err() {
                        consumer.wait_or_work(&Never);
                    }
                }
                Err(error) => break assert_eq!(error, NextError::Ended),
            }
        }
        assert_eq!(came, (1 << length) - 1);
        tickets += length;
    }
    tick::stop();
    let by_interrupt = BY_INTERRUPT.take().unwrap_or(0);
    assert!(by_interrupt > 100 && (by_interrupt as usize) < 2 * tickets - 100, "one side did nearly all the work");
    hprintln!(
        "ordered, {:?}: {} tickets of 2 parts in 300 runs, {} parts by the interrupt",
        delivery,
        tickets,
        by_interrupt
    );
}

fn many_at_once() {
    static RING: Rows = rows(Config::new());
    fn job() {
        for mut claim in RING.worker().try_claim_many(1 + tick::count() as usize % 4).into_iter().flatten() {
            let ticket = claim.ticket();
            if !fails(ticket)
                && let Some(row) = claim.get_mut()
            {
                row.write(ticket as u32);
                claim.publish();
            }
        }
    }

    let mut consumer = RING.consumer().expect("the consumer was not taken before");
    let asleep = sleeps();
    tick::often(job);
    for ticket in 0..5000 {
        match consumer.next() {
            Ok(lease) => {
                assert!(lease.ticket() == ticket && !fails(ticket));
                lease.check(ticket as u32);
            }
            error => assert_eq!(error.unwrap_err(), NextError::Failed { ticket }),
        }
    }
    tick::stop();
    assert!(sleeps() > asleep, "the consumer never slept");
    hprintln!("ordered: 5000 tickets, several at once, by the interrupt; the loop slept {} times", sleeps() - asleep);
}

fn released_by_an_interrupt() {
    static RING: Rows = rows(Config::new());
    static HELD: Shared<heapless::Vec<Lease<&'static Rows>, 4>> = Shared::empty();
    fn job() {
        let (worker, count) = (RING.worker(), tick::count() as usize);
        if let Ok(claim) = worker.try_claim(1) {
            claim.publish();
        }
        // Drops leases in any order, and sometimes none.
        HELD.with(|held| drop((count % 3 > 0 && !held.is_empty()).then(|| held.swap_remove(count % held.len()))));
    }

    let mut consumer = RING.consumer().expect("the consumer was not taken before");
    let (mut ticket, mut waits) = (0, 0);
    HELD.put(heapless::Vec::new());
    tick::often(job);
    while ticket < 3000 {
        match consumer.next() {
            Ok(lease) => {
                assert_eq!(lease.ticket(), ticket);
                ticket += 1;
                cortex_m::interrupt::free(|_| HELD.with(|held| held.push(lease).expect("no more leases than slots")));
            }
            Err(error) => {
                assert_eq!(error, NextError::Held);
                waits += 1;
                consumer.wait_for_release(&Never);
            }
        }
    }
    tick::stop();
    drop(HELD.take());
    assert!(waits > 0, "the consumer never held every slot");
    hprintln!("ordered: 3000 leases dropped by the interrupt in any order; the loop held all {} times", waits);
}

fn past_a_straggler() {
    static RING: Rows = rows(Config::new().delivery(Delivery::Arrival));
    static WORKER: Worker<&'static Rows> = Worker::new(&RING);
    static STRAGGLER: Shared<Claim<'static, Rows>> = Shared::empty();
    fn job() {
        match tick::count() % 32 {
            0 => _ = WORKER.try_claim(1).map(|claim| STRAGGLER.put(claim)),
            20 => drop(STRAGGLER.take()),
            _ => _ = publish_one(&RING),
        }
    }

    let mut consumer = RING.consumer().expect("the consumer was not taken before");
    // The lowest ticket that was not delivered yet, one bit for each ticket from there on, the number of stragglers,
    // and the furthest distance from the lowest ticket.
    let (mut lowest, mut came, mut stragglers, mut furthest) = (0, 0_u64, 0, 0);
    tick::often(job);
    while lowest < 5000 {
        let (ticket, failed) = match consumer.next() {
            Ok(lease) => {
                lease.check(lease.ticket() as u32);
                (lease.ticket(), false)
            }
            Err(NextError::Failed { ticket }) => (ticket, true),
            Err(error) => panic!("{error}"),
        };
        let after = ticket.checked_sub(lowest).expect("each ticket is delivered once");
        assert!(came & 1 << after == 0, "ticket {ticket} was delivered twice");
        assert!(!failed || after == 0, "the straggler is the oldest ticket");
        came |= 1 << after;
        stragglers += usize::from(failed);
        furthest = furthest.max(after);
        lowest += came.trailing_ones() as usize;
        came = came.checked_shr(came.trailing_ones()).unwrap_or(0);
    }
    tick::stop();
    drop(STRAGGLER.take());
    assert!(stragglers > 0 && furthest > RING.depth(), "no ticket overtook a straggler");
    hprintln!("ordered: {} stragglers, each overtaken by up to {} tickets", stragglers, furthest);
}

/// Makes one claim, and fills and publishes it. Returns whether there was one.
pub fn publish_one(ring: &'static Rows) -> bool {
    let done = ring.worker().try_claim(1).map(|mut claim| {
        let ticket = claim.ticket() as u32;
        claim.get_mut().expect("the claim has the whole slot").write(ticket);
        claim.publish();
    });
    done.is_ok()
}

/// Takes everything that is finished, and checks that it comes in order.
pub fn take_all(consumer: &mut Consumer<&'static Rows>, next: &mut usize) {
    while let Ok(lease) = consumer.try_next() {
        assert_eq!(lease.ticket(), *next);
        lease.check(*next as u32);
        *next += 1;
    }
}
