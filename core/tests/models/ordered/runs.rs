//! Models of consecutive runs on the same slots.

use std::sync::Arc;

use loom::thread;
use slotline_core::ordered::{ClaimError, Config, Consumer, Delivery, NextError, Ring, Worker};

use super::*;
use crate::support::{Note, explore};

/// A run is sealed half-way, and its remaining tickets are taken. Then the same worker continues
/// with the next run on the same slots.
#[test]
fn a_run_starts_clean_after_a_sealed_one_is_drained() {
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

/// A seal at the time when the next run is opened ends either the old run or the new one, and the
/// consumer learns which.
#[test]
fn a_seal_while_a_run_is_opened_is_not_lost() {
    explore(2, || {
        let ring = ring(1, Config::new());
        let mut consumer = limited(&ring, 1);
        let worker = Worker::new(ring.clone());
        worker.try_claim(1).unwrap().publish();
        drop(consumer.try_next().unwrap());
        let sealer = {
            let ring = ring.clone();
            thread::spawn(move || ring.seal())
        };
        consumer.open(None).unwrap();
        sealer.join().unwrap();
        let expected = if ring.is_sealed() { NextError::Ended } else { NextError::Empty };
        assert_eq!(consumer.try_next().unwrap_err(), expected);
    });
}

/// A worker loads the position of one run and continues in the next run, which is shorter and
/// starts at that position. The worker must not claim beyond the end of the next run.
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
fn a_claim_begun_in_one_run_cannot_overrun_the_next() {
    claims_stay_in_their_run(Delivery::InOrder, 1);
}

#[test]
fn in_arrival_mode_a_claim_cannot_overrun_the_next_run() {
    claims_stay_in_their_run(Delivery::Arrival, 1);
}

/// A worker is suspended within a claim until the number of the run has wrapped: a later run has
/// the same number and the same position as the run that the worker saw. The worker must either
/// claim a ticket of the later run and see what was written before that run, or claim nothing.
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
fn a_stale_claim_sees_writes_before_its_new_run() {
    claims_begun_long_ago(Delivery::InOrder, 1);
}

#[test]
fn in_arrival_mode_a_stale_claim_sees_writes_before_its_run() {
    claims_begun_long_ago(Delivery::Arrival, 1);
}

#[test]
fn a_stale_claim_fails_in_an_empty_run() {
    claims_begun_long_ago(Delivery::InOrder, 0);
}

#[test]
fn in_arrival_mode_a_stale_claim_fails_in_an_empty_run() {
    claims_begun_long_ago(Delivery::Arrival, 0);
}

/// Like the previous model, but with a claim of several tickets, in a run of which a ticket was
/// taken before. The claimed tickets must be those of the run in which they are claimed.
#[test]
fn a_stale_row_has_the_tickets_of_its_new_run() {
    explore(2, || {
        let ring = ring(2, Config::new());
        let mut consumer = limited(&ring, 2);
        let own = Worker::new(ring.clone());
        own.try_claim(1).unwrap().publish();
        drop(consumer.next().unwrap());
        let fill = |worker: &Worker<Arc<Model>>| {
            worker.try_claim_many(1).map(|claims| claims.publish_each(|ticket, value| *value = ticket))
        };
        let late = {
            let worker = Worker::new(ring.clone());
            thread::spawn(move || fill(&worker))
        };
        ring.seal();
        while let Ok(lease) = consumer.next() {
            assert_eq!((lease.ticket(), *lease), (1, 1));
        }
        consumer.open(Some(0)).unwrap();
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        consumer.open(Some(1)).unwrap();
        drop(late.join().unwrap());
        drop(fill(&own));
        take_in_order(&mut consumer, 1);
    });
}

/// `open` writes the limit of the new run before it changes the cursor (the word from which workers
/// take tickets), so one worker may claim between these two writes. Another worker that continues
/// from the cursor that this claim leaves must also see what the consumer wrote before `open`. With
/// `had_a_limit`, the previous run reached its limit. Otherwise it had no limit and was sealed, so
/// that only the cursor shows the new run.
fn check_writes_before_open(delivery: Delivery, had_a_limit: bool, workers: usize) {
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
fn workers_see_writes_before_open() {
    check_writes_before_open(Delivery::InOrder, true, 2);
}

#[test]
fn in_arrival_mode_workers_see_writes_before_open() {
    check_writes_before_open(Delivery::Arrival, true, 2);
}

#[test]
fn workers_see_writes_between_endless_runs() {
    check_writes_before_open(Delivery::InOrder, false, 1);
}

#[test]
fn in_arrival_mode_workers_see_writes_between_endless_runs() {
    check_writes_before_open(Delivery::Arrival, false, 1);
}

/// In arrival mode, a worker opens a slot and then finds that its run has ended, while the next run
/// is opened. The slot must become available to a worker that waits for one. That worker must see
/// everything that the last reader of the slot did.
#[test]
fn a_slot_opened_too_late_is_free_for_the_next_run() {
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

/// Like the previous model, but no thread waits, so no fence of `Park` provides the ordering.
#[test]
fn a_slot_opened_too_late_synchronises_with_its_reader() {
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
