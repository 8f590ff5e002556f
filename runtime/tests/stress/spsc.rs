//! Stress tests of the ring with one producer and one consumer: every item must come once and in
//! order, up to an end on which both sides agree.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;

use slotline_core::spsc::{ClaimError, NextError, Ring, Slot};

use crate::dice::Dice;
use crate::ordered::Way;

pub(crate) static ITEMS: AtomicU64 = AtomicU64::new(0);

/// Returns the value of item `i`.
fn value(i: usize) -> u64 {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(crate) fn round(mut dice: Dice) {
    let (capacity, items) = (dice.from(1, 7), dice.below(400));
    let (closes, way) = (dice.once_in(4), dice.fork());
    let slots: Box<[Slot<u64>]> = (0..capacity).map(|_| Slot::new(0)).collect();
    let way = || Way::new(way.clone());
    // The count of items begins at 0, or so high that it wraps during the round.
    let start = if dice.once_in(2) { 0 } else { usize::MAX - dice.below(200) };
    let ring = Ring::starting_at(slots, way(), way(), start);
    let (mut producer, mut consumer) = (ring.producer().unwrap(), ring.consumer().unwrap());
    let (sent, closed) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let mut own = dice.fork();
        let sent = &sent;
        scope.spawn(move || {
            let mut i = 0;
            while i < items {
                let outcome = match own.below(4) {
                    // The number of published items is stored before the consumer can see the item.
                    0 => producer.claim().map(|mut claim| {
                        *claim = value(i);
                        sent.store(i + 1, SeqCst);
                        claim.publish();
                        1
                    }),
                    1 => match producer.try_claim() {
                        Ok(mut claim) => {
                            *claim = value(i);
                            // A claim that is dropped sends no item.
                            let publish = own.below(3) > 0;
                            if publish {
                                sent.store(i + 1, SeqCst);
                                claim.publish();
                            }
                            Ok(usize::from(publish))
                        }
                        Err(ClaimError::Full) => {
                            thread::yield_now();
                            Ok(0)
                        }
                        Err(error) => Err(error),
                    },
                    _ => producer.claim_chunk((items - i).min(own.from(1, 9))).map(|mut chunk| {
                        let (first, second) = chunk.as_mut_slices();
                        first.iter_mut().chain(second).zip(i..).for_each(|(slot, i)| *slot = value(i));
                        let some = own.from(0, chunk.len());
                        sent.store(i + some, SeqCst);
                        chunk.publish(some);
                        some
                    }),
                };
                match outcome {
                    Ok(more) => i += more,
                    Err(error) => return assert_eq!(error, ClaimError::Closed),
                }
                own.pause();
            }
        });
        if closes {
            let (ring, mut own, closed) = (&ring, dice.fork(), &closed);
            scope.spawn(move || {
                for _ in 0..own.below(40) {
                    own.pause();
                }
                closed.store(true, SeqCst);
                ring.close();
            });
        }
        let mut i = 0;
        loop {
            let outcome = match dice.below(4) {
                0 => consumer.next().map(|item| {
                    assert_eq!(*item, value(i));
                    1
                }),
                1 => match consumer.try_next() {
                    Ok(item) => {
                        assert_eq!(*item, value(i));
                        Ok(1)
                    }
                    Err(NextError::Empty) => {
                        thread::yield_now();
                        Ok(0)
                    }
                    Err(error) => Err(error),
                },
                _ => consumer.chunk(dice.from(1, 9)).map(|chunk| {
                    let (first, second) = chunk.as_slices();
                    first.iter().chain(second).zip(i..).for_each(|(&item, i)| assert_eq!(item, value(i)));
                    let some = dice.from(0, chunk.len());
                    chunk.release(some);
                    some
                }),
            };
            match outcome {
                Ok(more) => i += more,
                Err(error) => {
                    assert!(error == NextError::Ended || closed.load(SeqCst), "{error}");
                    break;
                }
            }
            dice.pause();
        }
        assert!(i <= sent.load(SeqCst));
        assert!(i == items || closed.load(SeqCst), "{i} of {items} items came");
        ITEMS.fetch_add(i as u64, Relaxed);
    });
}
