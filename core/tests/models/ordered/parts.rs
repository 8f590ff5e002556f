//! Models of slots that several workers fill together.

use std::sync::Arc;

use loom::thread;
use slotline_core::ordered::{Config, Consumer, Delivery, NextError, Ring, Slot, Worker};

use super::*;
use crate::support::{Parking, explore};

/// Parts of one slot, each with a cell of its own that loom watches; the last one to finish publishes.
#[test]
fn two_workers_fill_the_parts_of_one_slot() {
    type Halves = [loom::cell::UnsafeCell<usize>; 2];
    #[derive(Debug)]
    struct Value(Halves);
    // SAFETY: each half is reached only through the claim of its part, or the lease.
    unsafe impl Sync for Value {}

    explore(2, || {
        let slots: Box<[Slot<Value>]> =
            Box::new([Slot::new(Value([loom::cell::UnsafeCell::new(9), loom::cell::UnsafeCell::new(9)]))]);
        let config = Config::new().parts(2);
        let ring = Arc::new(Ring::with_wait(slots, config, Parking::default(), Parking::default()));
        let mut consumer = Consumer::new(ring.clone()).unwrap();
        ring.seal();
        consumer.open(Some(1)).unwrap();
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let worker = Worker::new(ring.clone());
                thread::spawn(move || {
                    while let Ok(claim) = worker.try_claim(1) {
                        let part = claim.parts().start;
                        // SAFETY: the claim owns this part.
                        claim.get().0[part].with_mut(|half| unsafe { *half = part });
                        claim.publish();
                    }
                })
            })
            .collect();
        let lease = consumer.next().unwrap();
        for part in 0..2 {
            // SAFETY: the lease has the slot to itself.
            assert_eq!(lease.0[part].with(|half| unsafe { *half }), part);
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Arrival mode with parts: one worker opens a slot, another one joins.
#[test]
fn arrival_shares_the_parts_of_a_slot() {
    explore(2, || {
        let ring = ring(1, Config::new().delivery(Delivery::Arrival).parts(2));
        let mut consumer = limited(&ring, 2);
        let workers = spawn(&ring, 1);
        for ticket in 0..2 {
            assert_eq!(next_helping(&mut consumer, |_| true).unwrap().ticket(), ticket);
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}
