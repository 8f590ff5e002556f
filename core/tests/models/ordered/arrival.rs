//! Models of delivery in order of arrival.

use loom::thread;
use slotline_core::ordered::{Config, Delivery, NextError, Worker};

use super::*;
use crate::support::{Note, explore};

/// Checks that every ticket is delivered once, in any order, and that the consumer finds the end.
#[test]
fn arrival_delivers_each_ticket_once() {
    explore(1, || {
        let ring = ring(2, Config::new().delivery(Delivery::Arrival));
        let mut consumer = limited(&ring, 3);
        let workers = spawn(&ring, 1);
        let mut seen = [false; 3];
        for _ in 0..3 {
            let lease = next_helping(&mut consumer, |_| true).unwrap();
            assert_eq!(lease.ticket(), *lease);
            assert!(!std::mem::replace(&mut seen[*lease], true));
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Checks that a slow worker keeps its slot, while the other tickets use the second slot.
#[test]
fn a_straggler_does_not_stop_other_workers() {
    explore(2, || {
        let ring = ring(2, Config::new().delivery(Delivery::Arrival));
        let mut consumer = limited(&ring, 3);
        let straggler = Worker::new(ring.clone());
        let slow = straggler.claim(1).unwrap();
        let workers = spawn(&ring, 1);
        for ticket in 1..3 {
            assert_eq!(consumer.next().unwrap().ticket(), ticket);
        }
        slow.publish();
        assert_eq!(consumer.next().unwrap().ticket(), 0);
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// All workers except a slow one sleep because no slot is free, and the consumer sleeps because no
/// ticket is finished. When another thread releases a slot, the run must continue.
#[test]
fn a_release_wakes_a_side_that_can_continue() {
    explore(2, || {
        let ring = ring(3, Config::new().delivery(Delivery::Arrival));
        let mut consumer = limited(&ring, 4);
        let own = Worker::new(ring.clone());
        let straggler = own.try_claim(1).unwrap();
        own.try_claim(1).unwrap().publish();
        own.try_claim(1).unwrap().publish();
        let (held, _kept) = (consumer.next().unwrap(), consumer.next().unwrap());
        let worker = Worker::new(ring.clone());
        let idle = thread::spawn(move || worker.claim(1).unwrap().publish());
        let dropper = thread::spawn(move || drop(held));
        assert_eq!(consumer.next().unwrap().ticket(), 3);
        straggler.publish();
        idle.join().unwrap();
        dropper.join().unwrap();
    });
}

/// A claim that is dropped unpublished arrives as a failure, and the run continues.
#[test]
fn a_dropped_claim_arrives_as_a_failure() {
    explore(2, || {
        let ring = ring(2, Config::new().delivery(Delivery::Arrival));
        let mut consumer = limited(&ring, 3);
        let workers = spawn_hasty(&ring, 1, |ticket| ticket != 1);
        let mut seen = [false; 3];
        for _ in 0..3 {
            let ticket = match next_helping(&mut consumer, |ticket| ticket != 1) {
                Ok(lease) => lease.ticket(),
                Err(error) => {
                    assert_eq!(error, NextError::Failed { ticket: 1 });
                    1
                }
            };
            assert!(!std::mem::replace(&mut seen[ticket], true));
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// A worker may find out that the run was sealed only when it advances the cursor (the atomic word
/// from which workers take tickets). It then gets the end of the run, and sees what was written
/// before the seal. No thread waits in this model, so no fence of `Park` provides the ordering.
#[test]
fn a_claim_refused_by_a_seal_sees_writes_before_it() {
    explore(2, || {
        let ring = Arc::new(Ring::boxed(1, Config::new().delivery(Delivery::Arrival), |_| usize::MAX));
        let note = Note::default();
        let worker = {
            let (worker, note) = (Worker::new(ring.clone()), note.clone());
            thread::spawn(move || match worker.try_claim(1) {
                Ok(claim) => claim.publish(),
                Err(_) => _ = note.read(),
            })
        };
        note.write(1);
        ring.seal();
        worker.join().unwrap();
    });
}
