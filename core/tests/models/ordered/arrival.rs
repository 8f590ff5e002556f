//! Models of delivery as tickets are finished.

use loom::thread;
use slotline_core::ordered::{Config, Delivery, NextError, Worker};

use super::*;
use crate::support::{Note, explore};

/// Arrival mode: every ticket once, in whatever order, and the end is found.
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

/// Arrival mode: a straggler keeps its slot, and the others go on through the other one.
#[test]
fn in_arrival_mode_a_straggler_stops_nobody() {
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

/// All workers but a straggler sleep since no slot is free, and so does the consumer since nothing is finished: then a
/// release on another thread must get the run going again.
#[test]
fn in_arrival_mode_a_release_wakes_who_can_go_on() {
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

/// A claim dropped unpublished arrives as a failure, and the run goes on.
#[test]
fn in_arrival_mode_a_dropped_claim_arrives_as_a_failure() {
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

/// A worker that finds the run sealed only when it draws its ticket is told of the end, and sees what came before the seal.
/// Nobody waits, so that no fence of `Park` helps out.
#[test]
fn an_attempt_that_finds_the_run_sealed_sees_what_was_written_before_it() {
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
