//! Models of which thread wakes which: consumers that also work, consumers that wait outside of the
//! ring, and waits with a deadline.

use std::cell::Cell;

use loom::thread;
use slotline_core::ordered::{ClaimError, Config, Consumer, Delivery, NextError, Worker};

use super::*;
use crate::support::{Looks, explore};

/// A consumer alternates between working and waiting, while another thread releases the only slot.
/// If the slot is released just after the consumer has found nothing to claim, the consumer must
/// still notice it, since without workers no other thread claims the slot.
fn a_consumer_that_works(preemptions: usize, delivery: Delivery, workers: usize) {
    explore(preemptions, move || {
        let ring = ring(1, Config::new().delivery(delivery));
        let mut consumer = limited(&ring, 2);
        let own = Worker::new(ring.clone());
        assert!(work_once(&own, |_| true));
        let lease = consumer.next().unwrap();
        let other = thread::spawn(move || assert_eq!(*lease, 0));
        let workers = spawn(&ring, workers);
        let last = next_working(&mut consumer, || work_once(&own, |_| true));
        assert_eq!((last.ticket(), *last), (1, 1));
        other.join().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn a_working_consumer_does_not_wait_for_itself() {
    a_consumer_that_works(3, Delivery::InOrder, 0);
}

#[test]
fn in_arrival_mode_a_working_consumer_does_not_wait_for_itself() {
    a_consumer_that_works(3, Delivery::Arrival, 0);
}

#[test]
fn a_working_consumer_and_a_worker_share_a_run() {
    a_consumer_that_works(2, Delivery::InOrder, 1);
}

#[test]
fn in_arrival_mode_a_working_consumer_and_a_worker_share_a_run() {
    a_consumer_that_works(1, Delivery::Arrival, 1);
}

/// With `wake_at(2)`, a release wakes workers only if two slots are free. A thread that waits for
/// the worker outside of the ring must therefore wake it by `call_workers`.
#[test]
fn call_workers_wakes_a_worker_with_little_space() {
    explore(2, || {
        let ring = ring(2, Config::new().wake_at(2));
        let mut consumer = limited(&ring, 3);
        let workers = spawn(&ring, 1);
        drop(consumer.next().unwrap());
        consumer.call_workers();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!([1, 2].map(|_| consumer.try_next().unwrap().ticket()), [1, 2]);
    });
}

/// The consumer opens a run and then waits for the worker outside of the ring.
#[test]
fn opening_a_run_wakes_a_waiting_worker() {
    explore(3, || {
        let ring = ring(1, Config::new());
        let mut consumer = Consumer::new(ring.clone()).unwrap();
        ring.seal();
        let worker = Worker::new(ring.clone());
        let worker = thread::spawn(move || assert_eq!(worker.wait_for_run(), Ok(())));
        consumer.open(None).unwrap();
        worker.join().unwrap();
    });
}

/// If the ring is configured so, a release wakes a worker without a call of the consumer.
fn a_release_wakes(preemptions: usize, delivery: Delivery) {
    explore(preemptions, move || {
        let ring = ring(2, Config::new().wake_at(1).delivery(delivery));
        let mut consumer = limited(&ring, 3);
        let workers = spawn(&ring, 1);
        let first = consumer.next().unwrap().ticket();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        let mut taken = [0, 1, 2].map(|i| if i == 0 { first } else { consumer.try_next().unwrap().ticket() });
        // In order of arrival, the first scan may pass over ticket 0 and find ticket 1, if both are
        // finished during the scan.
        if delivery == Delivery::Arrival {
            taken.sort_unstable();
        }
        assert_eq!(taken, [0, 1, 2]);
    });
}

#[test]
fn a_release_wakes_a_worker_that_waits_for_space() {
    a_release_wakes(2, Delivery::InOrder);
}

#[test]
fn in_arrival_mode_a_release_wakes_a_worker() {
    a_release_wakes(1, Delivery::Arrival);
}

/// Both sides sometimes time out and try again, which must lose nothing.
#[test]
fn waits_that_time_out_lose_nothing() {
    explore(2, || {
        let ring = ring(1, Config::new());
        let mut consumer = limited(&ring, 2);
        let worker = {
            let worker = Worker::new(ring.clone());
            thread::spawn(move || {
                for ticket in 0..2 {
                    let mut claim = match worker.claim_until(1, &Looks(Cell::new(2))) {
                        Err(ClaimError::Full) => worker.claim(1).unwrap(),
                        outcome => outcome.unwrap(),
                    };
                    assert_eq!(claim.ticket(), ticket);
                    *claim.get_mut().unwrap() = ticket;
                    claim.publish();
                }
            })
        };
        for ticket in 0..2 {
            let lease = match consumer.next_until(&Looks(Cell::new(2))) {
                Err(NextError::Empty) => consumer.next().unwrap(),
                outcome => outcome.unwrap(),
            };
            assert_eq!((lease.ticket(), *lease), (ticket, ticket));
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        worker.join().unwrap();
    });
}
