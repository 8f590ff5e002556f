//! Models of slots that several workers fill together.

use std::sync::Arc;

use loom::thread;
use slotline_core::ordered::{ClaimError, Config, Consumer, Delivery, NextError, Ring, Slot, Worker};
use slotline_core::wait::Never;

use super::super::support::{Note, Parking, explore};
use super::next_working;

/// A ring in which each part of a slot has its own note, whose accesses loom checks.
type Halves = Ring<Box<[Slot<[Note; 2]>]>, Parking>;

// A note is shared in the same way as the data that it represents: only the claims of its part
// access it.
fn halves(delivery: Delivery, tickets: usize) -> (Arc<Halves>, Consumer<Arc<Halves>>) {
    let slots: Box<[_]> = Box::new([Slot::new([Note::default(), Note::default()])]);
    let config = Config::new().parts(2).delivery(delivery);
    let ring = Arc::new(Ring::with_wait(slots, config, Parking::default(), Parking::default()));
    let mut consumer = Consumer::new(ring.clone()).unwrap();
    ring.seal();
    consumer.open(Some(tickets)).unwrap();
    (ring, consumer)
}

/// Claims a part and writes the ticket into it. Part 1 of ticket `fails` is dropped instead.
/// Returns whether there was a part.
fn fill(worker: &Worker<Arc<Halves>>, fails: usize) -> bool {
    let Ok(claim) = worker.try_claim(1) else { return false };
    let (ticket, part) = (claim.ticket(), claim.parts().start);
    claim.get()[part].write(ticket);
    if (ticket, part) != (fails, 1) {
        claim.publish();
    }
    true
}

/// Checks that the worker that finishes the last part publishes all parts.
#[test]
fn two_workers_fill_the_parts_of_one_slot() {
    explore(2, || {
        let (ring, mut consumer) = halves(Delivery::InOrder, 1);
        let spawn = |worker| thread::spawn(move || while fill(&worker, usize::MAX) {});
        let workers = [(); 2].map(|()| spawn(Worker::new(ring.clone())));
        let lease = consumer.next().unwrap();
        assert_eq!([&lease[0], &lease[1]].map(Note::read), [0, 0]);
        drop(lease);
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Two consecutive tickets in the same slot are shared by a worker and the consumer's own thread,
/// and one part fails.
fn a_worker_and_the_consumer_share(delivery: Delivery) {
    explore(2, move || {
        let (ring, mut consumer) = halves(delivery, 2);
        let (worker, own) = (Worker::new(ring.clone()), Worker::new(ring.clone()));
        let worker = thread::spawn(move || while fill(&worker, 1) {});
        let mut next = || {
            loop {
                match consumer.try_next() {
                    Err(NextError::Empty) if fill(&own, 1) => {}
                    Err(NextError::Empty) => assert!(consumer.wait(&Never)),
                    outcome => return outcome,
                }
            }
        };
        let lease = next().unwrap();
        assert_eq!([&lease[0], &lease[1]].map(Note::read), [0, 0]);
        drop(lease);
        assert_eq!(next().unwrap_err(), NextError::Failed { ticket: 1 });
        assert_eq!(next().unwrap_err(), NextError::Ended);
        worker.join().unwrap();
    });
}

#[test]
fn parts_are_shared_in_order() {
    a_worker_and_the_consumer_share(Delivery::InOrder);
}

#[test]
fn parts_are_shared_in_arrival_mode() {
    a_worker_and_the_consumer_share(Delivery::Arrival);
}

/// If one part of a ticket was claimed before the seal, the ticket is finished after the seal, in
/// order; then the run ends.
#[test]
fn a_ticket_begun_before_a_seal_is_finished() {
    explore(2, || {
        let (ring, mut consumer) = halves(Delivery::InOrder, 2);
        let (worker, own) = (Worker::new(ring.clone()), Worker::new(ring.clone()));
        let filler = thread::spawn(move || while fill(&worker, usize::MAX) {});
        ring.seal();
        while fill(&own, usize::MAX) {}
        let mut taken = 0;
        loop {
            match consumer.next() {
                Ok(lease) => {
                    assert_eq!([&lease[0], &lease[1]].map(Note::read), [taken, taken]);
                    taken += 1;
                }
                Err(error) => break assert_eq!(error, NextError::Ended),
            }
        }
        assert_eq!(taken, ring.claimed());
        filler.join().unwrap();
    });
}

/// Claims and fills parts in this run and the next ones, until the ring is closed.
fn work_until_closed(worker: &Worker<Arc<Halves>>) {
    loop {
        match worker.claim(1) {
            Ok(claim) => {
                claim.get()[claim.parts().start].write(claim.ticket());
                claim.publish();
            }
            Err(ClaimError::Ended) if worker.wait_for_run().is_ok() => {}
            Err(_) => break,
        }
    }
}

/// One worker claims a part of the last ticket and stops. A second worker looks for work while the
/// first one is opening that ticket, passes over it, and waits for the next run. The second worker
/// must still claim the remaining parts of the ticket.
#[test]
fn parts_left_of_the_last_ticket_are_claimed() {
    explore(1, || {
        let (ring, mut consumer) = halves(Delivery::Arrival, 1);
        let (ends, stays) = (Worker::new(ring.clone()), Worker::new(ring.clone()));
        let stays = thread::spawn(move || work_until_closed(&stays));
        fill(&ends, usize::MAX);
        ring.wake_all();
        let lease = consumer.next().unwrap();
        assert_eq!([&lease[0], &lease[1]].map(Note::read), [0, 0]);
        drop(lease);
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        ring.close();
        stays.join().unwrap();
    });
}

/// Like the previous model, but in the middle of a run, where the second worker waits for a free
/// slot, and the consumer has woken it before.
#[test]
fn parts_left_are_claimed_by_a_waiting_worker() {
    explore(1, || {
        let (ring, mut consumer) = halves(Delivery::Arrival, 2);
        let (ends, stays) = (Worker::new(ring.clone()), Worker::new(ring.clone()));
        let ends = {
            let ring = ring.clone();
            thread::spawn(move || {
                fill(&ends, usize::MAX);
                ring.wake_all();
            })
        };
        let stays = thread::spawn(move || work_until_closed(&stays));
        let lease = consumer.next().unwrap();
        assert_eq!([&lease[0], &lease[1]].map(Note::read), [0, 0]);
        ring.close();
        [ends, stays].into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// A worker claims one part and stops, while another thread releases the only slot. The consumer,
/// which also works, must claim the remaining parts.
#[test]
fn parts_left_are_claimed_by_a_working_consumer() {
    explore(1, || {
        let (ring, mut consumer) = halves(Delivery::Arrival, 2);
        let (worker, own) = (Worker::new(ring.clone()), Worker::new(ring.clone()));
        while fill(&own, usize::MAX) {}
        let lease = consumer.next().unwrap();
        let reader = thread::spawn(move || assert_eq!(lease[0].read(), 0));
        let ends = thread::spawn(move || {
            fill(&worker, usize::MAX);
            ring.wake_all();
        });
        let last = next_working(&mut consumer, || fill(&own, usize::MAX));
        assert_eq!([&last[0], &last[1]].map(Note::read), [1, 1]);
        [reader, ends].into_iter().for_each(|thread| thread.join().unwrap());
    });
}
