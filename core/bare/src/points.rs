//! Checks of the ordered ring with an interrupt between any two instructions of one operation.

use cortex_m_semihosting::hprintln;
use slotline_core::ordered::{ClaimError, Config, Consumer, Lease, NextError, OpenError};
use slotline_core::wait::Never;

use crate::ordered::{Rows, publish_one, rows, take_all};
use crate::shared::Shared;
use crate::sweep::sweep;
use crate::tick;

/// Runs all checks of this module.
pub fn check() {
    work();
    release();
    another_run();
    seal();
    open();
    close();
}

fn work() {
    static RING: Rows = rows(Config::new());
    let mut consumer = RING.consumer().expect("the consumer was not taken before");
    let mut next = 0;
    let waits = sweep(
        || _ = publish_one(&RING),
        || (),
        |()| {
            let lease = consumer.next().expect("the run is endless");
            assert_eq!(lease.ticket(), next);
            lease.check(next as u32);
            next += 1;
        },
    );
    let rounds = sweep(
        || _ = publish_one(&RING),
        || (),
        |()| {
            assert!(publish_one(&RING), "three slots are free");
            take_all(&mut consumer, &mut next);
        },
    );
    take_all(&mut consumer, &mut next);
    assert_eq!(RING.claimed(), next);
    hprintln!("ordered: a claim at each of {} points of a wait, and of {} of a claim and a lease", waits, rounds);
}

fn release() {
    static RING: Rows = rows(Config::new());
    static HELD: Shared<[Lease<&'static Rows>; 4]> = Shared::empty();
    fn drop_leases() {
        drop(HELD.take());
    }
    static CONSUMER: Shared<Consumer<&'static Rows>> = Shared::empty();
    CONSUMER.put(RING.consumer().expect("the consumer was not taken before"));
    let hold_all = || {
        let mut consumer = CONSUMER.take().expect("each round puts it back");
        HELD.put([(); 4].map(|()| {
            publish_one(&RING);
            consumer.next().expect("the ticket was just published")
        }));
        consumer
    };

    let held = sweep(drop_leases, hold_all, |mut consumer| {
        consumer.wait_for_release(&Never);
        assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty);
        CONSUMER.put(consumer);
    });
    let full = sweep(drop_leases, hold_all, |mut consumer| {
        RING.worker().claim(1).expect("there is space once the leases are dropped").publish();
        drop(consumer.next().expect("the ticket was just published"));
        CONSUMER.put(consumer);
    });
    hprintln!("ordered: released at each of {} points of a consumer's wait, and of {} of a worker's", held, full);
}

fn another_run() {
    static RING: Rows = rows(Config::new());
    static CONSUMER: Shared<(Consumer<&'static Rows>, Option<Result<(), OpenError>>)> = Shared::empty();
    /// Opens a run that starts where this one ends, and has no tickets.
    fn open_an_empty_run() {
        RING.seal();
        CONSUMER.with(|(consumer, opened)| *opened = Some(consumer.open(Some(0))));
    }
    CONSUMER.put((RING.consumer().expect("the consumer was not taken before"), None));
    let rounds = sweep(
        open_an_empty_run,
        || (),
        |()| {
            let claimed = publish_one(&RING);
            tick::stop();
            let (mut consumer, opened) = CONSUMER.take().expect("each round puts it back");
            match opened {
                Some(Ok(())) => assert!(!claimed, "claimed in a run without tickets"),
                Some(Err(error)) => assert!(claimed && error == OpenError::Busy),
                None => assert!(claimed),
            }
            RING.seal();
            take_all(&mut consumer, &mut 0);
            consumer.open(None).expect("the previous run has ended");
            CONSUMER.put((consumer, None));
        },
    );
    hprintln!("ordered: another run was opened at each of {} points of a claim", rounds);
}

/// Takes what was claimed of a run that has ended, and opens the next run.
fn start_next_run(ring: &'static Rows, consumer: &mut Consumer<&'static Rows>) {
    let mut next = 0;
    take_all(consumer, &mut next);
    assert_eq!((consumer.next().unwrap_err(), next), (NextError::Ended, ring.claimed()));
    consumer.open(None).expect("the previous run has ended");
}

fn seal() {
    static RING: Rows = rows(Config::new());
    let mut consumer = RING.consumer().expect("the consumer was not taken before");
    let waits = sweep(
        || RING.seal(),
        || (),
        |()| {
            assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
            start_next_run(&RING, &mut consumer);
        },
    );
    let claims = sweep(
        || RING.seal(),
        || (),
        |()| {
            // A claim comes before the seal or fails.
            let claimed = usize::from(publish_one(&RING)) + usize::from(publish_one(&RING));
            consumer.wait(&Never);
            assert_eq!(RING.claimed(), claimed);
            RING.seal();
            start_next_run(&RING, &mut consumer);
        },
    );
    let seals = sweep(
        || _ = publish_one(&RING),
        || (),
        |()| {
            RING.seal();
            start_next_run(&RING, &mut consumer);
        },
    );
    hprintln!(
        "ordered: sealed at each of {} points of a wait and {} of claims; a claim at each of {} points of a seal",
        waits,
        claims,
        seals
    );
}

fn open() {
    static RING: Rows = rows(Config::new());
    let mut consumer = RING.consumer().expect("the consumer was not taken before");
    RING.seal();
    let opened = sweep(
        || _ = publish_one(&RING),
        || (),
        |()| {
            // The interrupt works in the new run, or not at all.
            consumer.open(Some(1)).expect("the previous run has ended");
            publish_one(&RING);
            let lease = consumer.next().expect("the run has one ticket");
            assert_eq!(lease.ticket(), 0);
            lease.check(0);
            drop(lease);
            assert_eq!((consumer.next().unwrap_err(), RING.claimed()), (NextError::Ended, 1));
            assert_eq!(RING.worker().claim(1).unwrap_err(), ClaimError::Ended);
        },
    );
    hprintln!("ordered: a claim at each of {} points of opening a run", opened);
}

fn close() {
    // A closed ring stays closed, so there is a ring for each point.
    static RINGS: [Rows; 1800] = [const { rows(Config::new()) }; 1800];
    static RING: Shared<&'static Rows> = Shared::empty();
    fn close() {
        RING.with(|ring| ring.close());
    }
    let mut rings = RINGS.iter();
    let mut next_ring = || {
        let ring = rings.next().expect("there are enough rings");
        RING.put(ring);
        (ring, ring.consumer().expect("the consumer was not taken before"))
    };

    let waits = sweep(close, &mut next_ring, |(_, mut consumer)| {
        assert_eq!(consumer.next().unwrap_err(), NextError::Closed);
    });
    let full_ring = || {
        let (ring, consumer) = next_ring();
        while publish_one(ring) {}
        (ring, consumer)
    };
    let claims = sweep(close, full_ring, |(ring, _consumer)| {
        assert_eq!(ring.worker().claim(1).unwrap_err(), ClaimError::Closed);
    });
    let rounds = sweep(close, &mut next_ring, |(ring, mut consumer)| {
        // What was claimed before the close can still be published, and what is published can still be taken.
        let (claimed, mut next) = (publish_one(ring), 0);
        take_all(&mut consumer, &mut next);
        assert_eq!(next, usize::from(claimed));
    });
    hprintln!(
        "ordered: closed at each of {} points of a wait, {} of a wait for space, and {} of a claim and a lease",
        waits,
        claims,
        rounds
    );
}
