//! Models of how one run follows another one on the same slots.

use std::sync::Arc;

use loom::thread;
use slotline_core::ordered::{ClaimError, Config, Consumer, Delivery, NextError, Ring, Worker};

use super::*;
use crate::support::{Note, explore};

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
fn claims_stay_in_their_run(delivery: Delivery, next_run: usize) {
    explore(3, move || {
        let ring = ring(2, Config::new().delivery(delivery));
        let mut consumer = Consumer::new(ring.clone()).unwrap();
        let worker = {
            let worker = Worker::new(ring.clone());
            thread::spawn(move || worker.try_claim_many(2).into_iter().flatten().for_each(|claim| claim.publish()))
        };
        ring.seal();
        while let Ok(lease) = consumer.next() {
            drop(lease);
        }
        consumer.open(Some(next_run)).unwrap();
        let own = Worker::new(ring.clone());
        while let Ok(claim) = own.try_claim(1) {
            claim.publish();
        }
        take(&mut consumer, next_run);
        worker.join().unwrap();
    });
}

#[test]
fn claims_begun_in_one_run_are_not_made_in_another_one() {
    claims_stay_in_their_run(Delivery::InOrder, 1);
}

#[test]
fn in_arrival_mode_claims_begun_in_one_run_are_not_made_in_another_one() {
    claims_stay_in_their_run(Delivery::Arrival, 1);
}

/// A worker that was suspended within a claim until a run has the number of the one that it saw, at the same position: it
/// claims in that run if there is a ticket for it, and sees what was written before, or not at all.
fn claims_begun_long_ago(delivery: Delivery, next_run: usize) {
    explore(2, move || {
        let ring = ring(1, Config::new().delivery(delivery));
        let mut consumer = limited(&ring, 1);
        let plan = Note::default();
        let late = {
            let (worker, plan) = (Worker::new(ring.clone()), plan.clone());
            thread::spawn(move || {
                if let Ok(claim) = worker.try_claim(1) {
                    plan.read();
                    claim.publish();
                }
            })
        };
        ring.seal();
        while let Ok(lease) = consumer.next() {
            drop(lease);
        }
        consumer.open(Some(0)).unwrap();
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        plan.write(1);
        consumer.open(Some(next_run)).unwrap();
        late.join().unwrap();
        let own = Worker::new(ring.clone());
        while let Ok(claim) = own.try_claim(1) {
            claim.publish();
        }
        take(&mut consumer, next_run);
    });
}

#[test]
fn a_claim_begun_runs_ago_sees_what_was_written_before_the_run_it_is_made_in() {
    claims_begun_long_ago(Delivery::InOrder, 1);
}

#[test]
fn in_arrival_mode_a_claim_begun_runs_ago_sees_what_was_written_before_the_run_it_is_made_in() {
    claims_begun_long_ago(Delivery::Arrival, 1);
}

#[test]
fn a_claim_begun_runs_ago_is_not_made_in_a_run_without_tickets() {
    claims_begun_long_ago(Delivery::InOrder, 0);
}

#[test]
fn in_arrival_mode_a_claim_begun_runs_ago_is_not_made_in_a_run_without_tickets() {
    claims_begun_long_ago(Delivery::Arrival, 0);
}

/// `open` writes the limit before it touches the cursor, so one worker may claim between the two; another one that goes
/// on from there must have seen what the consumer wrote before `open`, too. The run before came to its limit, or it had
/// none and was sealed, so that only the cursor tells of the new one.
fn what_was_written_before_open_is_seen(delivery: Delivery, had_a_limit: bool, workers: usize) {
    explore(3, move || {
        let ring = ring(2, Config::new().delivery(delivery));
        let mut consumer = if had_a_limit {
            let mut consumer = limited(&ring, 1);
            Worker::new(ring.clone()).try_claim(1).unwrap().publish();
            take(&mut consumer, 1);
            consumer
        } else {
            ring.seal();
            Consumer::new(ring.clone()).unwrap()
        };
        let plan = Note::default();
        let spawn = |_| {
            let (worker, plan) = (Worker::new(ring.clone()), plan.clone());
            thread::spawn(move || {
                if let Ok(claim) = worker.try_claim(1) {
                    assert!(claim.ticket() < plan.read());
                    claim.publish();
                }
            })
        };
        let threads: Vec<_> = (0..workers).map(spawn).collect();
        plan.write(workers);
        consumer.open(had_a_limit.then_some(workers)).unwrap();
        threads.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn what_was_written_before_open_is_seen_in_order() {
    what_was_written_before_open_is_seen(Delivery::InOrder, true, 2);
}

#[test]
fn what_was_written_before_open_is_seen_in_arrival_mode() {
    what_was_written_before_open_is_seen(Delivery::Arrival, true, 2);
}

#[test]
fn what_was_written_between_two_runs_without_end_is_seen_in_order() {
    what_was_written_before_open_is_seen(Delivery::InOrder, false, 1);
}

#[test]
fn what_was_written_between_two_runs_without_end_is_seen_in_arrival_mode() {
    what_was_written_before_open_is_seen(Delivery::Arrival, false, 1);
}

/// In arrival mode a worker takes a slot and then finds that the run it came for is over, while the next one is opened: the
/// slot must come to who waits for one, with all that its last reader did.
#[test]
fn in_arrival_mode_a_slot_taken_too_late_for_one_run_is_good_for_the_next_one() {
    explore(2, || {
        let ring = ring(1, Config::new().delivery(Delivery::Arrival));
        let mut consumer = limited(&ring, 1);
        let own = Worker::new(ring.clone());
        own.claim(1).unwrap().publish();
        let lease = consumer.next().unwrap();
        let reader = thread::spawn(move || assert_eq!(*lease, usize::MAX));
        let late = {
            let worker = Worker::new(ring.clone());
            thread::spawn(move || work_once(&worker, |_| true))
        };
        assert_eq!(consumer.try_next().unwrap_err(), NextError::Ended);
        consumer.open(Some(1)).unwrap();
        match own.claim(1) {
            Ok(mut claim) => {
                *claim.get_mut().unwrap() = 0;
                claim.publish();
            }
            Err(error) => assert_eq!(error, ClaimError::Ended),
        }
        take_in_order(&mut consumer, 1);
        reader.join().unwrap();
        late.join().unwrap();
    });
}

/// As above, where nobody waits, so that no fence of `Park` helps out.
#[test]
fn in_arrival_mode_a_slot_taken_too_late_hands_on_what_its_last_reader_did() {
    explore(3, || {
        let ring = Arc::new(Ring::boxed(1, Config::new().delivery(Delivery::Arrival), |_| usize::MAX));
        let mut consumer = Consumer::new(ring.clone()).unwrap();
        ring.seal();
        consumer.open(Some(1)).unwrap();
        let own = Worker::new(ring.clone());
        own.try_claim(1).unwrap().publish();
        let lease = consumer.try_next().unwrap();
        let late = {
            let worker = Worker::new(ring.clone());
            thread::spawn(move || {
                assert_eq!(*lease, usize::MAX);
                drop(lease);
                _ = worker.try_claim(1).map(|claim| claim.publish());
            })
        };
        consumer.open(Some(1)).unwrap();
        if let Ok(mut claim) = own.try_claim(1) {
            *claim.get_mut().unwrap() = 0;
            claim.publish();
        }
        late.join().unwrap();
    });
}
