//! Models of the ordered ring under loom: every interleaving of a few threads, up to a bound of preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test -p slotline-core --release --features alloc --test loom_ordered
//! ```
//!
//! They stay tiny (two workers, a consumer, one or two slots, two to four tickets), since the number of interleavings
//! is exponential in the number of atomic operations.
#![cfg(loom)]

mod support;

use std::sync::Arc;

use loom::thread;
use slotline_core::ordered::{ClaimError, Config, Consumer, Delivery, Lease, NextError, Ring, Slot, Worker};
use slotline_core::wait::{Never, Park, Wait};

use self::support::LoomFutex;

type Model<W> = Ring<Box<[Slot<usize>]>, W>;
type Parking = Park<LoomFutex>;

/// Explores `model` with at most `preemptions` preemptions (`LOOM_MAX_PREEMPTIONS` overrides).
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}

fn ring<W: Wait + Default>(depth: usize, config: Config) -> Arc<Model<W>> {
    let slots = (0..depth).map(|_| Slot::new(usize::MAX)).collect();
    Arc::new(Ring::with_wait(slots, config, W::default(), W::default()))
}

/// Runs `workers` workers until the run ends; each writes the ticket into its slot.
fn spawn<W: Wait + Send + Sync + 'static>(ring: &Arc<Model<W>>, workers: usize) -> Vec<thread::JoinHandle<()>> {
    let work = |worker: Worker<Arc<Model<W>>>| {
        while let Ok(mut claim) = worker.claim(1) {
            let ticket = claim.ticket();
            if let Some(value) = claim.get_mut() {
                *value = ticket;
            }
            claim.publish();
        }
    };
    (0..workers).map(|_| Worker::new(ring.clone())).map(|worker| thread::spawn(move || work(worker))).collect()
}

fn limited<W: Wait>(ring: &Arc<Model<W>>, tickets: usize) -> Consumer<Arc<Model<W>>> {
    let mut consumer = Consumer::new(ring.clone()).unwrap();
    ring.seal();
    consumer.open(Some(tickets)).unwrap();
    consumer
}

/// Takes a run of `tickets` tickets, whose slots hold their numbers.
fn take_in_order<W: Wait>(consumer: &mut Consumer<Arc<Model<W>>>, tickets: usize) {
    for ticket in 0..tickets {
        let lease = consumer.next().unwrap();
        assert_eq!((lease.ticket(), *lease), (ticket, ticket));
    }
    assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
}

/// Takes a run of `tickets` tickets.
fn take<W: Wait>(consumer: &mut Consumer<Arc<Model<W>>>, tickets: usize) {
    for ticket in 0..tickets {
        assert_eq!(consumer.next().unwrap().ticket(), ticket);
    }
    assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
}

/// Workers that never wait: they leave once no slot is free, and `take_helping` does the rest.
fn spawn_hasty<W: Wait + Send + Sync + 'static>(
    ring: &Arc<Model<W>>,
    workers: usize,
    publish: fn(usize) -> bool,
) -> Vec<thread::JoinHandle<()>> {
    let work = move |worker: Worker<Arc<Model<W>>>| while work_once(&worker, publish) {};
    (0..workers).map(|_| Worker::new(ring.clone())).map(|worker| thread::spawn(move || work(worker))).collect()
}

/// One claim, published if `publish` says so of its ticket; whether there was one.
fn work_once<W: Wait>(worker: &Worker<Arc<Model<W>>>, publish: fn(usize) -> bool) -> bool {
    let Ok(mut claim) = worker.try_claim(1) else { return false };
    let ticket = claim.ticket();
    if let Some(value) = claim.get_mut() {
        *value = ticket;
    }
    if publish(ticket) {
        claim.publish();
    }
    true
}

/// What comes next, with the consumer's thread working while it waits.
fn next_helping<W: Wait>(
    consumer: &mut Consumer<Arc<Model<W>>>,
    publish: fn(usize) -> bool,
) -> Result<Lease<Arc<Model<W>>>, NextError> {
    let own = Worker::new(consumer.ring().clone());
    loop {
        match consumer.try_next() {
            Err(NextError::Empty) if work_once(&own, publish) => {}
            Err(NextError::Empty) => assert!(consumer.wait(&Never)),
            outcome => return outcome,
        }
    }
}

/// Publish against the consumer's sleep, release against the workers' sleep for space, and the wrap of the slots.
#[test]
fn one_worker_in_order_through_one_slot() {
    explore(2, || {
        let ring = ring::<Parking>(1, Config::new());
        let mut consumer = limited(&ring, 3);
        let workers = spawn(&ring, 1);
        take_in_order(&mut consumer, 3);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn two_workers_in_order_through_one_slot() {
    explore(2, || {
        let ring = ring::<Parking>(1, Config::new());
        let mut consumer = limited(&ring, 2);
        let workers = spawn(&ring, 2);
        drop(consumer.next().unwrap());
        // Held until the workers are gone: they must learn of the end without its release.
        let last = consumer.next().unwrap();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!((last.ticket(), *last), (1, 1));
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
    });
}

#[test]
fn two_workers_in_order_through_two_slots() {
    explore(2, || {
        let ring = ring::<Parking>(2, Config::new());
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

/// The position wraps in the middle.
#[test]
fn the_lap_wraps() {
    explore(2, || {
        let slots = (0..1).map(|_| Slot::new(0)).collect();
        let ring = Arc::new(Model::<Parking>::near_the_wrap(slots, Config::new(), Park::default(), Park::default(), 1));
        let mut consumer = limited(&ring, 3);
        let workers = spawn(&ring, 1);
        take_in_order(&mut consumer, 3);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

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

/// Several tickets by one compare-and-swap, against single ones.
#[test]
fn many_claims_at_once_and_single_ones_come_in_order() {
    explore(2, || {
        let ring = ring::<Parking>(2, Config::new());
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

/// Claims that wait for space, and that are left untaken now and then.
#[test]
fn many_claims_at_once_are_all_published_or_failed() {
    explore(2, || {
        let ring = ring::<Parking>(2, Config::new());
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

/// A worker that has seen one run must not claim beyond the end of the next, shorter one, which starts where it looked.
#[test]
fn claims_begun_in_one_run_are_not_made_in_another_one() {
    explore(3, || {
        let ring = ring::<Parking>(2, Config::new());
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

/// A claim dropped unpublished arrives in its place, and the ring goes on.
#[test]
fn a_dropped_claim_arrives_in_order_as_a_failure() {
    explore(2, || {
        let ring = ring::<Parking>(2, Config::new());
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

/// Leases released out of order and on another thread, while a worker sleeps for space.
#[test]
fn leases_are_released_in_any_order_on_any_thread() {
    explore(2, || {
        let ring = ring::<Parking>(2, Config::new());
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
        let ring = ring::<Parking>(2, Config::new());
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

/// A seal by a third thread against a worker that sleeps for space and a consumer that takes what was claimed.
#[test]
fn a_seal_ends_the_run_for_sleepers() {
    explore(2, || {
        let ring = ring::<Parking>(1, Config::new());
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
        let ring = ring::<Parking>(1, Config::new());
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
        let ring = ring::<Parking>(1, Config::new());
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

/// Arrival mode: every ticket once, in whatever order, and the end is found.
#[test]
fn arrival_delivers_each_ticket_once() {
    explore(2, || {
        let ring = ring::<Parking>(2, Config::new().delivery(Delivery::Arrival));
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

/// Arrival mode with parts: one worker opens a slot, another one joins.
#[test]
fn arrival_shares_the_parts_of_a_slot() {
    explore(2, || {
        let ring = ring::<Parking>(1, Config::new().delivery(Delivery::Arrival).parts(2));
        let mut consumer = limited(&ring, 2);
        let workers = spawn(&ring, 1);
        for ticket in 0..2 {
            assert_eq!(next_helping(&mut consumer, |_| true).unwrap().ticket(), ticket);
        }
        assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Arrival mode: a straggler keeps its slot, and the others go on through the other one.
#[test]
fn in_arrival_mode_a_straggler_stops_nobody() {
    explore(2, || {
        let ring = ring::<Parking>(2, Config::new().delivery(Delivery::Arrival));
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

/// `open` writes the limit before it touches the cursor, so one worker may claim between the two; another one that goes
/// on from there must have seen what the consumer wrote before `open`, too.
fn a_run_after_one_that_came_to_its_limit(delivery: Delivery) {
    explore(3, move || {
        let ring = ring::<Parking>(2, Config::new().delivery(delivery));
        let mut consumer = limited(&ring, 0);
        let plan = Arc::new(loom::cell::UnsafeCell::new(0));
        let hasty = |worker: Worker<Arc<Model<Parking>>>, plan: Arc<loom::cell::UnsafeCell<usize>>| {
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

/// All workers but a straggler sleep since no slot is free, and so does the consumer since nothing is finished: then a
/// release on another thread must get the run going again.
#[test]
fn in_arrival_mode_a_release_wakes_who_can_go_on() {
    explore(2, || {
        let ring = ring::<Parking>(3, Config::new().delivery(Delivery::Arrival));
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

/// With a slot for each, nobody is refused because somebody else claimed between the looks at the cursor and at the slot.
#[test]
fn a_claim_is_refused_only_if_no_slot_is_free() {
    explore(3, || {
        let ring = ring::<Parking>(2, Config::new());
        let other = ring.clone();
        let other = thread::spawn(move || assert!(work_once(&Worker::new(other), |_| true)));
        assert!(work_once(&Worker::new(ring), |_| true));
        other.join().unwrap();
    });
}
