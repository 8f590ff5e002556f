//! Models of how runs begin and end: `open`, `seal` and `close` against workers and a consumer that are at it or asleep.

use std::sync::Arc;

use loom::thread;
use slotline_core::ordered::{ClaimError, Config, Consumer, Delivery, NextError, Worker};
use slotline_core::wait::Never;

use super::*;
use crate::support::explore;

/// A seal by a third thread against a worker that sleeps for space and a consumer that takes what was claimed.
#[test]
fn a_seal_ends_the_run_for_sleepers() {
    explore(2, || {
        let ring = ring(1, Config::new());
        let mut consumer = Consumer::new(ring.clone()).unwrap();
        let workers = spawn(&ring, 1);
        let sealer = {
            let ring = ring.clone();
            thread::spawn(move || ring.seal())
        };
        let mut taken = 0;
        loop {
            match consumer.next() {
                Ok(lease) => {
                    assert_eq!((lease.ticket(), *lease), (taken, taken));
                    taken += 1;
                    // An endless run would never end the model.
                    ring.seal();
                }
                Err(error) => break assert_eq!(error, NextError::Ended),
            }
        }
        assert_eq!(taken, ring.claimed());
        sealer.join().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// A close wakes a worker that sleeps for space (nothing is ever released here) and a sleeping consumer.
#[test]
fn a_close_wakes_everyone() {
    explore(2, || {
        let ring = ring(1, Config::new());
        let workers = spawn(&ring, 1);
        let consumer = {
            let mut consumer = Consumer::new(ring.clone()).unwrap();
            thread::spawn(move || {
                let lease = consumer.next();
                // With the lease held, only the close can end the wait.
                loop {
                    match consumer.next() {
                        Ok(lease) => drop(lease),
                        Err(NextError::Held) => assert!(consumer.wait_for_release(&Never)),
                        Err(error) => break assert_eq!(error, NextError::Closed),
                    }
                }
                drop(lease);
            })
        };
        ring.close();
        consumer.join().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(Worker::new(ring.clone()).try_claim(1).unwrap_err(), ClaimError::Closed);
    });
}

/// A pass left half-way, drained, and the next run on the same slots by the same worker.
#[test]
fn a_run_left_half_way_is_drained_and_the_next_one_starts_clean() {
    explore(2, || {
        let ring = ring(1, Config::new());
        let mut consumer = limited(&ring, 3);
        let worker = {
            let worker = Worker::new(ring.clone());
            thread::spawn(move || {
                loop {
                    match worker.claim(1) {
                        Ok(mut claim) => {
                            *claim.get_mut().unwrap() = claim.ticket();
                            claim.publish();
                        }
                        Err(ClaimError::Ended) if worker.wait_for_run().is_ok() => {}
                        Err(_) => break,
                    }
                }
            })
        };
        drop(consumer.next().unwrap());
        ring.seal();
        while let Ok(lease) = consumer.next() {
            drop(lease);
        }
        consumer.open(Some(1)).unwrap();
        take_in_order(&mut consumer, 1);
        ring.close();
        worker.join().unwrap();
    });
}

/// A worker that has seen one run must not claim beyond the end of the next, shorter one, which starts where it looked.
#[test]
fn claims_begun_in_one_run_are_not_made_in_another_one() {
    explore(3, || {
        let ring = ring(2, Config::new());
        let mut consumer = Consumer::new(ring.clone()).unwrap();
        let worker = {
            let worker = Worker::new(ring.clone());
            thread::spawn(move || worker.try_claim_many(2).into_iter().flatten().for_each(|claim| claim.publish()))
        };
        ring.seal();
        while let Ok(lease) = consumer.next() {
            drop(lease);
        }
        consumer.open(Some(1)).unwrap();
        let own = Worker::new(ring.clone());
        while let Ok(claim) = own.try_claim(1) {
            claim.publish();
        }
        take(&mut consumer, 1);
        worker.join().unwrap();
    });
}

/// `open` writes the limit before it touches the cursor, so one worker may claim between the two; another one that goes
/// on from there must have seen what the consumer wrote before `open`, too.
fn a_run_after_one_that_came_to_its_limit(delivery: Delivery) {
    explore(3, move || {
        let ring = ring(2, Config::new().delivery(delivery));
        let mut consumer = limited(&ring, 0);
        let plan = Arc::new(loom::cell::UnsafeCell::new(0));
        let hasty = |worker: Worker<Arc<Model>>, plan: Arc<loom::cell::UnsafeCell<usize>>| {
            if let Ok(claim) = worker.try_claim(1) {
                // SAFETY: the plan is written between two runs only, and read under a claim; loom checks that.
                let planned = plan.with(|plan| unsafe { *plan });
                assert!(claim.ticket() < planned);
                claim.publish();
            }
        };
        let spawn = |_| {
            let (worker, plan) = (Worker::new(ring.clone()), plan.clone());
            thread::spawn(move || hasty(worker, plan))
        };
        let workers: Vec<_> = (0..2).map(spawn).collect();
        // SAFETY: as above.
        plan.with_mut(|plan| unsafe { *plan = 2 });
        consumer.open(Some(2)).unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn what_was_written_before_open_is_seen_in_order() {
    a_run_after_one_that_came_to_its_limit(Delivery::InOrder);
}

#[test]
fn what_was_written_before_open_is_seen_in_arrival_mode() {
    a_run_after_one_that_came_to_its_limit(Delivery::Arrival);
}
