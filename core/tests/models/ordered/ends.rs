//! Models of how a ring ends: `seal` and `close` while workers and a consumer are active or asleep,
//! and the drop of the ring.

use std::sync::Arc;

use loom::thread;
use slotline_core::ordered::{ClaimError, Config, Consumer, Delivery, NextError, OpenError, Ring, Slot, Worker};
use slotline_core::wait::Never;

use super::*;
use crate::support::{Note, Parking, explore};

/// A third thread seals the run, so that no further ticket can be claimed. Meanwhile a worker
/// sleeps until a slot is free, and the consumer takes the tickets that were claimed.
fn a_seal_ends_the_run(preemptions: usize, delivery: Delivery) {
    explore(preemptions, move || {
        let ring = ring(1, Config::new().delivery(delivery));
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
                    // Without this seal, the run and so the model would be endless.
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

#[test]
fn a_seal_ends_the_run_for_sleeping_sides() {
    a_seal_ends_the_run(2, Delivery::InOrder);
}

#[test]
fn in_arrival_mode_a_seal_ends_the_run_for_sleeping_sides() {
    a_seal_ends_the_run(1, Delivery::Arrival);
}

/// Closing the ring wakes a worker that sleeps until a slot is free, which never happens in this
/// model, and a sleeping consumer.
fn a_close_ends_every_wait(delivery: Delivery) {
    explore(2, move || {
        let ring = ring(1, Config::new().delivery(delivery));
        let workers = spawn(&ring, 1);
        let consumer = {
            let mut consumer = Consumer::new(ring.clone()).unwrap();
            thread::spawn(move || {
                let lease = consumer.next();
                // As the lease is held, only the close can end the wait.
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

#[test]
fn a_close_wakes_all_sides() {
    a_close_ends_every_wait(Delivery::InOrder);
}

#[test]
fn in_arrival_mode_a_close_wakes_all_sides() {
    a_close_ends_every_wait(Delivery::Arrival);
}

/// Another thread writes a note and then ends the run or the ring. If `gets_end` returns `true`,
/// this thread has seen the end and must see the note. The model runs for both kinds of delivery,
/// each with the only slot taken and with the slot free.
fn end_orders_writes(
    gets_end: impl Fn(&Worker<Arc<Model>>, &mut Consumer<Arc<Model>>) -> bool + Copy + Send + Sync + 'static,
) {
    for delivery in [Delivery::InOrder, Delivery::Arrival] {
        for end in [Model::seal, Model::close] {
            for is_taken in [false, true] {
                explore(2, move || {
                    let ring = ring(1, Config::new().delivery(delivery));
                    let (worker, mut consumer) = (Worker::new(ring.clone()), Consumer::new(ring.clone()).unwrap());
                    let claim = is_taken.then(|| worker.try_claim(1).unwrap());
                    let note = Note::default();
                    let other = note.clone();
                    let ender = {
                        let ring = ring.clone();
                        thread::spawn(move || {
                            other.write(1);
                            end(&ring);
                        })
                    };
                    if gets_end(&worker, &mut consumer) {
                        assert_eq!(note.read(), 1);
                    }
                    drop(claim);
                    ender.join().unwrap();
                });
            }
        }
    }
}

#[test]
fn a_worker_that_gets_the_end_sees_earlier_writes() {
    end_orders_writes(|worker, _| match worker.try_claim(1) {
        Ok(claim) => {
            drop(claim);
            false
        }
        Err(error) => error != ClaimError::Full,
    });
}

#[test]
fn a_consumer_that_gets_the_end_sees_earlier_writes() {
    end_orders_writes(|_, consumer| matches!(consumer.try_next(), Err(NextError::Ended | NextError::Closed)));
}

#[test]
fn wait_for_run_on_a_closed_ring_sees_earlier_writes() {
    explore(3, || {
        let ring = ring(1, Config::new());
        ring.seal();
        let note = Note::default();
        let (worker, other) = (Worker::new(ring.clone()), note.clone());
        let waits = thread::spawn(move || {
            assert_eq!(worker.wait_for_run(), Err(ClaimError::Closed));
            assert_eq!(other.read(), 1);
        });
        note.write(1);
        ring.close();
        waits.join().unwrap();
    });
}

#[test]
fn open_on_a_closed_ring_sees_earlier_writes() {
    explore(3, || {
        let ring = ring(1, Config::new());
        ring.seal();
        let note = Note::default();
        let (mut consumer, other) = (Consumer::new(ring.clone()).unwrap(), note.clone());
        let opens = thread::spawn(move || match consumer.open(None) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, OpenError::Closed);
                assert_eq!(other.read(), 1);
            }
        });
        note.write(1);
        ring.close();
        opens.join().unwrap();
    });
}

/// Checks that the last owner of the ring drops the values, each once.
#[test]
fn values_are_dropped_once_each() {
    explore(2, || {
        let count = Arc::new(());
        let slots: Box<[_]> = (0..2).map(|_| Slot::new(count.clone())).collect();
        let ring = Arc::new(Ring::with_wait(slots, Config::new(), Parking::default(), Parking::default()));
        let (worker, mut consumer) = (Worker::new(ring.clone()), Consumer::new(ring).unwrap());
        let value = count.clone();
        let writer = thread::spawn(move || {
            let mut claim = worker.try_claim(1).unwrap();
            *claim.get_mut().unwrap() = value;
            claim.publish();
        });
        let lease = consumer.try_next();
        drop(consumer);
        // The lease keeps the ring alive.
        if let Ok(lease) = lease {
            assert_eq!(Arc::strong_count(&lease), 3);
        }
        writer.join().unwrap();
        assert_eq!(Arc::strong_count(&count), 1);
    });
}
