//! Tests of the single-producer ring with two real threads.

use std::thread;

use slotline_core::spsc::{ClaimError, NextError, Ring};

const ITEMS: usize = 1_000_000;

/// Yields after a few spins, so that the test progresses even with more threads than cores.
fn pause(round: &mut u32) {
    *round += 1;
    if *round > 64 { thread::yield_now() } else { std::hint::spin_loop() }
}

#[test]
fn a_million_single_items_arrive_in_order() {
    for (capacity, items) in [(1, ITEMS / 20), (7, ITEMS / 5), (64, ITEMS)] {
        let (mut producer, mut consumer) = Ring::boxed(capacity, |_| 0).into_split();
        thread::scope(|s| {
            s.spawn(move || {
                for i in 0..items {
                    let mut round = 0;
                    while producer.try_push(i).is_err() {
                        pause(&mut round);
                    }
                }
            });
            let (mut i, mut round) = (0, 0);
            loop {
                match consumer.try_next() {
                    Ok(item) => {
                        assert_eq!((item.ticket(), *item), (i, i));
                        (i, round) = (i + 1, 0);
                    }
                    Err(NextError::Empty) => pause(&mut round),
                    Err(error) => break assert_eq!(error, NextError::Ended),
                }
            }
            assert_eq!(i, items);
        });
    }
}

#[test]
fn a_million_items_in_chunks_arrive_in_order() {
    let (mut producer, mut consumer) = Ring::boxed(100, |_| 0).into_split();
    thread::scope(|s| {
        s.spawn(move || {
            let (mut i, mut round) = (0, 0);
            while i < ITEMS {
                match producer.try_claim_chunk((ITEMS - i).min(1 + i % 37)) {
                    Ok(mut chunk) => {
                        let (first, second) = chunk.as_mut_slices();
                        first.iter_mut().chain(second).zip(i..).for_each(|(slot, value)| *slot = value);
                        (i, round) = (i + chunk.len(), 0);
                        chunk.publish_all();
                    }
                    Err(error) => {
                        assert_eq!(error, ClaimError::Full);
                        pause(&mut round);
                    }
                }
            }
        });
        let (mut i, mut round) = (0, 0);
        loop {
            match consumer.try_chunk(1 + i % 23) {
                Ok(chunk) => {
                    let (first, second) = chunk.as_slices();
                    first.iter().chain(second).zip(i..).for_each(|(&value, expected)| assert_eq!(value, expected));
                    (i, round) = (i + chunk.len(), 0);
                }
                Err(NextError::Empty) => pause(&mut round),
                Err(error) => break assert_eq!(error, NextError::Ended),
            }
        }
        assert_eq!(i, ITEMS);
    });
}

#[test]
fn blocking_sides_wait_for_each_other_and_for_the_end() {
    let (mut producer, mut consumer) = Ring::boxed(8, |_| 0).into_split();
    thread::scope(|s| {
        s.spawn(move || (0..1000).for_each(|i| producer.push(i).unwrap()));
        for i in 0..1000 {
            assert_eq!(*consumer.next().unwrap(), i);
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
    });
    let ring = Ring::boxed(1, |_| 0);
    let (mut producer, mut consumer) = (ring.producer().unwrap(), ring.consumer().unwrap());
    thread::scope(|s| {
        let other = s.spawn(move || {
            producer.push(1).unwrap();
            assert_eq!(producer.push(2).unwrap_err().reason, ClaimError::Closed);
        });
        // The ring is closed while the producer waits for the only slot, which stays leased until
        // the producer has noticed.
        let lease = consumer.next().unwrap();
        assert_eq!(*lease, 1);
        ring.close();
        other.join().unwrap();
        drop(lease);
    });
}
