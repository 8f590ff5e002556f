//! Models of delivery in order, with one part per slot.

use std::sync::Arc;

use loom::thread;
use slotline_core::ordered::{Config, NextError, Slot, Worker};
use slotline_core::wait::Never;

use super::*;
use crate::support::{Parking, explore};

/// Checks publishing while the consumer goes to sleep, releasing while workers go to sleep, and
/// slots that are reused.
#[test]
fn one_worker_in_order_through_one_slot() {
    explore(2, || {
        let ring = ring(1, Config::new());
        let mut consumer = limited(&ring, 3);
        let workers = spawn(&ring, 1);
        take_in_order(&mut consumer, 3);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn two_workers_in_order_through_one_slot() {
    explore(2, || {
        let ring = ring(1, Config::new());
        let mut consumer = limited(&ring, 2);
        let workers = spawn(&ring, 2);
        drop(consumer.next().unwrap());
        // This lease is held until the workers have exited: they must notice the end of the run
        // without its release.
        let last = consumer.next().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!((last.ticket(), *last), (1, 1));
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
    });
}

#[test]
fn two_workers_in_order_through_two_slots() {
    explore(2, || {
        let ring = ring(2, Config::new());
        let mut consumer = limited(&ring, 3);
        let workers = spawn_hasty(&ring, 2, |_| true);
        for ticket in 0..3 {
            let lease = next_helping(&mut consumer, |_| true).unwrap();
            assert_eq!((lease.ticket(), *lease), (ticket, ticket));
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// The ring's position, which counts tickets, wraps in the middle of the run.
#[test]
fn the_lap_wraps() {
    explore(2, || {
        let slots = (0..1).map(|_| Slot::new(0)).collect();
        let ring = Arc::new(Model::near_the_wrap(slots, Config::new(), Parking::default(), Parking::default(), 1));
        let mut consumer = limited(&ring, 3);
        let workers = spawn(&ring, 1);
        take_in_order(&mut consumer, 3);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// A claim that is dropped unpublished arrives as a failure, in order, and the ring continues.
#[test]
fn a_dropped_claim_arrives_in_order_as_a_failure() {
    explore(2, || {
        let ring = ring(2, Config::new());
        let mut consumer = limited(&ring, 3);
        let workers = spawn_hasty(&ring, 2, |ticket| ticket != 1);
        let mut next = || next_helping(&mut consumer, |ticket| ticket != 1);
        assert_eq!(next().unwrap().ticket(), 0);
        assert_eq!(next().unwrap_err(), NextError::Failed { ticket: 1 });
        assert_eq!(next().unwrap().ticket(), 2);
        assert_eq!(next().unwrap_err(), NextError::Ended);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Releases leases out of order and on another thread, while a worker sleeps for space.
#[test]
fn leases_are_released_in_any_order_on_any_thread() {
    explore(2, || {
        let ring = ring(2, Config::new());
        let mut consumer = limited(&ring, 3);
        let workers = spawn(&ring, 1);
        let first = consumer.next().unwrap();
        let second = consumer.next().unwrap();
        drop(second);
        let other = thread::spawn(move || {
            assert_eq!(*first, 0);
            drop(first);
        });
        loop {
            match consumer.next() {
                Ok(lease) => break assert_eq!((lease.ticket(), *lease), (2, 2)),
                Err(NextError::Held) => assert!(consumer.wait_for_release(&Never)),
                Err(error) => panic!("{error}"),
            }
        }
        other.join().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// The consumer works while it waits.
#[test]
fn the_consumer_claims_too() {
    explore(2, || {
        let ring = ring(2, Config::new());
        let mut consumer = limited(&ring, 3);
        let workers = spawn(&ring, 1);
        let own = Worker::new(ring.clone());
        for ticket in 0..3 {
            let lease = loop {
                match consumer.try_next() {
                    Ok(lease) => break lease,
                    Err(error) => assert_eq!(error, NextError::Empty),
                }
                match own.try_claim(1) {
                    Ok(mut claim) => {
                        *claim.get_mut().unwrap() = claim.ticket();
                        claim.publish();
                    }
                    Err(_) => assert!(consumer.wait(&Never)),
                }
            };
            assert_eq!((lease.ticket(), *lease), (ticket, ticket));
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Claims several tickets by one compare-and-swap, while another worker claims single ones.
#[test]
fn claims_of_many_and_of_one_ticket_come_in_order() {
    explore(2, || {
        let ring = ring(2, Config::new());
        let mut consumer = limited(&ring, 3);
        let many = {
            let worker = Worker::new(ring.clone());
            thread::spawn(move || {
                while let Ok(claims) = worker.try_claim_many(2) {
                    for mut claim in claims {
                        *claim.get_mut().unwrap() = claim.ticket();
                        claim.publish();
                    }
                }
            })
        };
        let single = spawn_hasty(&ring, 1, |_| true);
        for ticket in 0..3 {
            let lease = next_helping(&mut consumer, |_| true).unwrap();
            assert_eq!((lease.ticket(), *lease), (ticket, ticket));
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        many.join().unwrap();
        single.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Claims several tickets, waiting for space, and drops some of the claims without taking them from
/// the iterator.
#[test]
fn tickets_of_claim_many_are_published_or_failed() {
    explore(2, || {
        let ring = ring(2, Config::new());
        let mut consumer = limited(&ring, 4);
        let worker = {
            let worker = Worker::new(ring.clone());
            thread::spawn(move || {
                while let Ok(mut claims) = worker.claim_many(2) {
                    let mut claim = claims.next().unwrap();
                    *claim.get_mut().unwrap() = claim.ticket();
                    claim.publish();
                }
            })
        };
        for ticket in 0..4 {
            match consumer.next() {
                Ok(lease) => assert_eq!((lease.ticket(), *lease), (ticket, ticket)),
                Err(error) => assert_eq!(error, NextError::Failed { ticket }),
            }
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        worker.join().unwrap();
    });
}

/// A worker claims several tickets at once and publishes the first of them last, while the consumer
/// sleeps.
#[test]
fn rows_published_by_publish_each_come_in_order() {
    explore(2, || {
        let ring = ring(2, Config::new());
        let mut consumer = limited(&ring, 3);
        let worker = {
            let worker = Worker::new(ring.clone());
            thread::spawn(move || {
                while let Ok(claims) = worker.claim_many(2) {
                    claims.publish_each(|ticket, value| *value = ticket);
                }
            })
        };
        take_in_order(&mut consumer, 3);
        worker.join().unwrap();
    });
}

/// With a slot for each ticket, a claim must not be refused because another worker claimed between
/// the load of the cursor and the load of the slot.
#[test]
fn a_claim_is_refused_only_if_no_slot_is_free() {
    explore(3, || {
        let ring = ring(2, Config::new());
        let other = Worker::new(ring.clone());
        let other = thread::spawn(move || assert!(work_once(&other, |_| true)));
        assert!(work_once(&Worker::new(ring), |_| true));
        other.join().unwrap();
    });
}
