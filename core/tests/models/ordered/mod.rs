//! Models of the ordered ring, and code that they share: workers that write each ticket into its
//! slot.

mod arrival;
mod ends;
mod in_order;
mod parts;
mod runs;
mod waits;

use std::sync::Arc;

use loom::thread;
use slotline_core::ordered::{Config, Consumer, Lease, NextError, Ring, Slot, Worker};
use slotline_core::wait::Never;

use super::support::Parking;

type Model = Ring<Box<[Slot<usize>]>, Parking>;

fn ring(depth: usize, config: Config) -> Arc<Model> {
    let slots = (0..depth).map(|_| Slot::new(usize::MAX)).collect();
    Arc::new(Ring::with_wait(slots, config, Parking::default(), Parking::default()))
}

/// Starts `workers` workers, which run until the run ends. Each writes the ticket into its slot.
fn spawn(ring: &Arc<Model>, workers: usize) -> Vec<thread::JoinHandle<()>> {
    let work = |worker: Worker<Arc<Model>>| {
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

fn limited(ring: &Arc<Model>, tickets: usize) -> Consumer<Arc<Model>> {
    let mut consumer = Consumer::new(ring.clone()).unwrap();
    ring.seal();
    consumer.open(Some(tickets)).unwrap();
    consumer
}

/// Takes the tickets of a run in order, and checks that each slot holds the number of its ticket.
fn take_in_order(consumer: &mut Consumer<Arc<Model>>, tickets: usize) {
    for ticket in 0..tickets {
        let lease = consumer.next().unwrap();
        assert_eq!((lease.ticket(), *lease), (ticket, ticket));
    }
    assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
}

/// Takes the tickets of a run in any order, and checks their slots.
fn take(consumer: &mut Consumer<Arc<Model>>, tickets: usize) {
    for ticket in 0..tickets {
        assert_eq!(consumer.next().unwrap().ticket(), ticket);
    }
    assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
}

/// Starts workers that never wait: they exit once no slot is free, and `next_helping` does the
/// remaining work.
fn spawn_hasty(ring: &Arc<Model>, workers: usize, publish: fn(usize) -> bool) -> Vec<thread::JoinHandle<()>> {
    let work = move |worker: Worker<Arc<Model>>| while work_once(&worker, publish) {};
    (0..workers).map(|_| Worker::new(ring.clone())).map(|worker| thread::spawn(move || work(worker))).collect()
}

/// Makes one claim, and publishes it if `publish` returns `true` for its ticket. Returns whether
/// there was a claim.
fn work_once(worker: &Worker<Arc<Model>>, publish: fn(usize) -> bool) -> bool {
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

/// Returns the next lease. The consumer's thread works while it waits.
fn next_helping(
    consumer: &mut Consumer<Arc<Model>>,
    publish: fn(usize) -> bool,
) -> Result<Lease<Arc<Model>>, NextError> {
    let own = Worker::new(consumer.ring().clone());
    loop {
        match consumer.try_next() {
            Err(NextError::Empty) if work_once(&own, publish) => {}
            Err(NextError::Empty) => assert!(consumer.wait(&Never)),
            outcome => return outcome,
        }
    }
}

/// Returns the next lease. The consumer's thread alternates between `work`, which returns whether
/// there was anything to do, and waiting, also for slots to be released.
fn next_working<T>(
    consumer: &mut Consumer<Arc<Ring<Box<[Slot<T>]>, Parking>>>,
    work: impl Fn() -> bool,
) -> Lease<Arc<Ring<Box<[Slot<T>]>, Parking>>> {
    loop {
        if work() {
            continue;
        }
        match consumer.try_next() {
            Ok(lease) => return lease,
            Err(NextError::Held) => assert!(consumer.wait_for_release(&Never)),
            Err(error) => {
                assert_eq!(error, NextError::Empty);
                assert!(consumer.wait_or_work(&Never));
            }
        }
    }
}
