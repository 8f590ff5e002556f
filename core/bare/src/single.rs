//! Checks of the SPSC ring, with the interrupt as producer and as consumer.

use cortex_m_semihosting::hprintln;
use slotline_core::spsc::{ClaimError, Consumer, NextError, Producer, Ring, Slot};

use crate::row::Row;
use crate::shared::Shared;
use crate::sleep::{Interrupts, Sleep, sleep, sleeps};
use crate::sweep::sweep;
use crate::tick;

type Items = Ring<[Slot<Row>; 3], Sleep>;

const fn items(start: usize) -> Items {
    Ring::starting_at([const { Slot::new(Row::new()) }; 3], sleep(), sleep(), start)
}

static PRODUCER: Shared<Producer<&'static Items>> = Shared::empty();
static CONSUMER: Shared<Consumer<&'static Items>> = Shared::empty();

/// Takes both sides of a ring, neither of which was taken before.
#[track_caller]
fn sides(ring: &'static Items) -> (Producer<&'static Items>, Consumer<&'static Items>) {
    match (ring.producer(), ring.consumer()) {
        (Some(producer), Some(consumer)) => (producer, consumer),
        _ => panic!("a side was taken already"),
    }
}

/// Pushes the row of the next number, if there is space.
fn push(producer: &mut Producer<&'static Items>) {
    if let Ok(mut claim) = producer.try_claim() {
        let number = claim.ticket() as u32;
        claim.write(number);
        claim.publish();
    }
}

fn push_one() {
    PRODUCER.with(push);
}

/// Pushes no row, one row, or as many as fit.
fn push_some() {
    for _ in 0..tick::count() % 5 {
        push_one();
    }
}

fn push_chunk() {
    PRODUCER.with(|producer| {
        if let Ok(mut chunk) = producer.try_claim_chunk(tick::count() as usize % 4) {
            let (first, number) = (chunk.ticket() as u32, chunk.len());
            let (head, tail) = chunk.as_mut_slices();
            let rows = head.iter_mut().chain(tail);
            rows.zip(0..).for_each(|(row, i)| row.write(first.wrapping_add(i)));
            chunk.publish(number.div_ceil(2));
        }
    });
}

fn take_some() {
    CONSUMER.with(|consumer| {
        for _ in 0..tick::count() % 5 {
            match consumer.try_next() {
                Ok(lease) => lease.check(lease.ticket() as u32),
                Err(error) => return assert_eq!(error, NextError::Empty),
            }
        }
    });
}

fn push_and_leave() {
    push_one();
    leave();
}

/// Drops the side that the interrupt has.
fn leave() {
    drop((PRODUCER.take(), CONSUMER.take()));
}

/// Runs all checks of this ring.
pub fn check() {
    from_an_interrupt();
    to_an_interrupt();
    in_chunks();
    across_the_wrap();
    to_the_end();
}

fn from_an_interrupt() {
    static RING: Items = items(0);
    let (producer, mut consumer) = sides(&RING);
    PRODUCER.put(producer);
    let asleep = sleeps();
    tick::often(push_some);
    for number in 0..5000 {
        let lease = consumer.next().expect("the producer was not dropped");
        assert_eq!(lease.ticket(), number);
        lease.check(number as u32);
    }
    tick::stop();
    assert!(sleeps() > asleep, "the consumer never slept");
    hprintln!("spsc: 5000 rows from an interrupt, in order; the loop slept {} times", sleeps() - asleep);
}

fn to_an_interrupt() {
    static RING: Items = items(0);
    let (mut producer, consumer) = sides(&RING);
    CONSUMER.put(consumer);
    let asleep = sleeps();
    tick::often(take_some);
    for number in 0..5000 {
        let mut claim = producer.claim().expect("the consumer was not dropped");
        claim.write(number);
        claim.publish();
    }
    tick::stop();
    assert!(sleeps() > asleep, "the producer never slept");
    hprintln!("spsc: 5000 rows to an interrupt; the loop slept for space {} times", sleeps() - asleep);
}

fn in_chunks() {
    static RING: Items = items(usize::MAX - 2000);
    let (producer, mut consumer) = sides(&RING);
    PRODUCER.put(producer);
    tick::often(push_chunk);
    let mut number = consumer.ticket() as u32;
    for chunks in 0..3000 {
        let chunk = consumer.chunk(1 + chunks % 3).expect("the producer was not dropped");
        let (first, second) = chunk.as_slices();
        let half = chunk.len().div_ceil(2);
        for row in first.iter().chain(second).take(half) {
            row.check(number);
            number = number.wrapping_add(1);
        }
        chunk.release(half);
    }
    tick::stop();
    let number = number.wrapping_add(2000 + 1);
    assert!(number > 2000, "the numbers did not wrap");
    hprintln!("spsc: {} rows in 3000 chunks, across the wrap of the numbers at 2^{}", number, usize::BITS);
}

fn across_the_wrap() {
    static FULL: Items = items(usize::MAX - 1);
    let (mut producer, mut consumer) = sides(&FULL);
    (0..3).for_each(|_| push(&mut producer));
    for number in [usize::MAX - 1, usize::MAX, 0] {
        let lease = consumer.try_next().expect("three rows were pushed");
        assert_eq!(lease.ticket(), number);
        lease.check(number as u32);
    }

    // All rounds use the same slots; the wrap comes after a hundred of them.
    static RING: Items = items(usize::MAX - 100);
    let (producer, mut consumer) = sides(&RING);
    PRODUCER.put(producer);
    let mut number = usize::MAX - 100;
    let rounds = sweep(
        push_one,
        || (),
        |()| {
            let lease = consumer.next().expect("the producer was not dropped");
            assert_eq!(lease.ticket(), number);
            lease.check(number as u32);
            number = number.wrapping_add(1);
        },
    );
    assert!(rounds > 100, "the {rounds} rounds end before the wrap");
    hprintln!("spsc: a row came at each of {} points of the consumer's wait", rounds);

    // A consumer that has caught up, against one row at each point of `try_next`.
    let mut taken = 0;
    let rounds = sweep(push_one, || (), |()| taken += u32::from(consumer.try_next().is_ok()));
    push_one();
    while consumer.try_next().is_ok() {
        taken += 1;
    }
    assert!((rounds..=rounds + 2).contains(&taken), "{taken} rows of {rounds}");
    hprintln!("spsc: and at each of {} points of `try_next`", rounds);
}

fn to_the_end() {
    static RING: Items = items(0);
    let with_producer = || {
        let (producer, consumer) = sides(&RING);
        PRODUCER.put(producer);
        consumer
    };
    let mut left = sweep(push_and_leave, with_producer, |mut consumer| {
        consumer.next().expect("one row was pushed").check(0);
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
    });
    left += sweep(leave, with_producer, |mut consumer| {
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
    });
    let with_consumer = || {
        let (producer, consumer) = sides(&RING);
        CONSUMER.put(consumer);
        producer
    };
    let dropped = sweep(leave, with_consumer, |mut producer| {
        while producer.claim().map(|claim| claim.publish()).is_ok() {}
        assert_eq!(producer.try_claim().unwrap_err(), ClaimError::Closed);
    });
    let closed = sweep(
        || RING.close(),
        || sides(&RING),
        |(_producer, mut consumer)| {
            assert_eq!(consumer.next().unwrap_err(), NextError::Closed);
        },
    );
    hprintln!(
        "spsc: ended by an interrupt: producer dropped at {} points, consumer dropped at {}, closed at {}",
        left,
        dropped,
        closed
    );

    let (_producer, mut consumer) = sides(&RING);
    tick::often(|| {});
    assert_eq!(consumer.next_until(&Interrupts(tick::count() + 3)).unwrap_err(), NextError::Empty);
    tick::stop();
    hprintln!("spsc: a deadline ended a wait");
}
