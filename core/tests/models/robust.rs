//! Models of the robust ring in which a worker *vanishes*: it stops before one of its operations and
//! cleans nothing up, like a process that is killed. Each operation is tried in turn.

use std::sync::Arc;

use loom::thread;
use slotline_core::ordered::{ClaimError, Delivery};
use slotline_core::robust::{Claim, Owner, Recovery, Ring, Shape, SlotStatus, Word};
use slotline_core::sync::vanish::vanish_after;
use slotline_core::wait::Never;

use super::support::{Note, Parking, explore};

const ONE: Owner = Owner::new(1);
const TWO: Owner = Owner::new(2);

/// A number that is larger than the number of operations that a vanishing worker executes in any
/// model.
const OPERATIONS: usize = 40;

type Words = Box<[Word]>;

/// A ring, and the contents of its parts.
#[derive(Clone)]
struct Model {
    ring: Arc<Ring<Words, Parking>>,
    parts: usize,
    notes: Vec<Note>,
}

impl Model {
    fn new(depth: usize, parts: usize, delivery: Delivery) -> Self {
        let shape = Shape::new(depth, parts);
        let words = (0..shape.words()).map(|_| Word::new(0)).collect();
        let ring = Ring::new(words, shape, delivery, Parking::default(), Parking::default());
        Self { ring: Arc::new(ring), parts, notes: (0..depth * parts).map(|_| Note::default()).collect() }
    }

    /// Claims up to `max` parts, writes the ticket into each, and publishes them. Returns whether
    /// there were any.
    fn try_work(&self, owner: Owner, max: usize) -> bool {
        self.ring.try_claim(owner, max).map(|claim| self.fill(claim)).is_ok()
    }

    /// Writes the ticket of a claim into each of its parts, and publishes them.
    fn fill(&self, claim: Claim<'_, Words, Parking>) {
        for part in claim.parts() {
            self.notes[claim.slot() * self.parts + part].write(claim.ticket() as usize);
        }
        claim.publish();
    }

    /// Works until the ring is closed.
    fn work(&self, owner: Owner, max: usize) {
        loop {
            match self.ring.claim(owner, max, &Never) {
                Ok(claim) => self.fill(claim),
                Err(error) => return assert_eq!(error, ClaimError::Closed),
            }
        }
    }

    /// Waits for a ticket, and checks the contents of its slot.
    fn take(&self, slot: usize, ticket: u64) {
        self.ring.wait(Some(ticket), &Never, || self.ring.slot_status(slot, ticket) != SlotStatus::Pending);
        assert_eq!(self.ring.slot_status(slot, ticket), SlotStatus::Ready);
        for part in 0..self.parts {
            assert_eq!(self.notes[slot * self.parts + part].read(), ticket as usize);
        }
    }

    fn assign(&self, slot: usize, ticket: u64) {
        self.ring.assign(slot, ticket);
        self.ring.call_workers();
    }
}

/// Explores a model in which a worker vanishes before its operation number `k`, for each `k`. For a
/// `k` that is large enough, the worker must reach its end.
fn vanishing(preemptions: usize, model: impl Fn(usize) -> bool + Copy + Send + Sync + 'static) {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    for k in 0..OPERATIONS {
        let vanished = Arc::new(AtomicBool::new(false));
        let seen = vanished.clone();
        explore(preemptions, move || {
            if model(k) {
                seen.store(true, Relaxed);
            }
        });
        if !vanished.load(Relaxed) {
            return assert!(k > 4, "the worker does something");
        }
    }
    panic!("a worker executes more than {OPERATIONS} operations");
}

/// Wherever a worker vanishes, the host takes every ticket in order, each with the contents that
/// its last owner wrote.
#[test]
fn a_worker_that_vanishes_blocks_nobody() {
    vanishing(1, |k| {
        let model = Model::new(2, 1, Delivery::InOrder);
        (0..2).for_each(|ticket| model.assign(ticket, ticket as u64));
        let (first, second) = (model.clone(), model.clone());
        let first = thread::spawn(move || vanish_after(k, || while first.try_work(ONE, 1) {}));
        let second = thread::spawn(move || second.work(TWO, 1));
        let vanished = first.join().unwrap();
        model.ring.recover(ONE, [(0, 0), (1, 1)], |_, _| Recovery::Redo);
        model.take(0, 0);
        model.assign(0, 2);
        model.take(1, 1);
        model.take(0, 2);
        model.ring.close();
        second.join().unwrap();
        vanished
    });
}

#[test]
fn parts_of_a_vanished_worker_are_claimed_again() {
    vanishing(1, |k| {
        let model = Model::new(1, 2, Delivery::InOrder);
        model.assign(0, 0);
        let (first, second) = (model.clone(), model.clone());
        let first = thread::spawn(move || vanish_after(k, || while first.try_work(ONE, 2) {}));
        let second = thread::spawn(move || second.work(TWO, 1));
        let vanished = first.join().unwrap();
        model.ring.recover(ONE, [(0, 0)], |_, _| Recovery::Redo);
        model.take(0, 0);
        model.ring.close();
        second.join().unwrap();
        vanished
    });
}

#[test]
fn in_arrival_mode_a_vanished_worker_blocks_nobody() {
    vanishing(1, |k| {
        let model = Model::new(2, 1, Delivery::Arrival);
        // Tickets may be in any slots.
        model.assign(1, 0);
        model.assign(0, 1);
        let (first, second) = (model.clone(), model.clone());
        let first = thread::spawn(move || vanish_after(k, || while first.try_work(ONE, 1) {}));
        let second = thread::spawn(move || second.work(TWO, 1));
        let vanished = first.join().unwrap();
        model.ring.recover(ONE, [(0, 1), (1, 0)], |_, _| Recovery::Redo);
        model.take(1, 0);
        model.take(0, 1);
        model.ring.close();
        second.join().unwrap();
        vanished
    });
}

/// Parts that a vanished worker had claimed become failures, and parts that it published do not.
#[test]
fn what_a_vanished_worker_left_can_be_failed() {
    vanishing(3, |k| {
        let model = Model::new(2, 1, Delivery::InOrder);
        (0..2).for_each(|ticket| model.assign(ticket, ticket as u64));
        let first = model.clone();
        let first = thread::spawn(move || vanish_after(k, || while first.try_work(ONE, 1) {}));
        let vanished = first.join().unwrap();
        let left = model.ring.recover(ONE, [(0, 0), (1, 1)], |_, _| Recovery::Fail);
        let statuses = [0, 1].map(|ticket| model.ring.slot_status(ticket, ticket as u64));
        assert_eq!(statuses.iter().filter(|&&status| status == SlotStatus::Failed).count(), left);
        for (ticket, status) in statuses.into_iter().enumerate() {
            if status == SlotStatus::Ready {
                assert_eq!(model.notes[ticket].read(), ticket);
            }
        }
        assert!(vanished || left == 0 && statuses == [SlotStatus::Ready; 2]);
        vanished
    });
}

/// A worker of the next run sees what the host wrote before that run, even if the worker looked for
/// work before.
#[test]
fn a_run_begins_after_tickets_were_withdrawn() {
    explore(2, || {
        let model = Model::new(2, 1, Delivery::InOrder);
        let run = Note::default();
        (0..2).for_each(|ticket| model.assign(ticket, ticket as u64));
        let (worker, seen) = (model.clone(), run.clone());
        let worker = thread::spawn(move || {
            while let Ok(claim) = worker.ring.claim(ONE, 1, &Never) {
                assert_eq!(seen.read(), usize::from(claim.ticket() >= 10));
                worker.fill(claim);
            }
        });
        for ticket in 0..2 {
            let withdraw = || model.ring.withdraw(ticket, ticket as u64) == 0;
            model.ring.wait(Some(ticket as u64), &Never, withdraw);
        }
        run.write(1);
        // No worker writes to a slot that was withdrawn.
        model.notes.iter().for_each(|note| note.write(usize::MAX));
        model.ring.start_at(10);
        model.assign(0, 10);
        model.assign(1, 11);
        model.take(0, 10);
        model.take(1, 11);
        model.ring.close();
        worker.join().unwrap();
    });
}

/// A worker may vanish before it wakes the host, which sleeps while another thread recovers the
/// worker's parts.
#[test]
fn a_recovery_wakes_the_host() {
    vanishing(2, |k| {
        let model = Model::new(1, 1, Delivery::InOrder);
        model.assign(0, 0);
        let (worker, reaper) = (model.clone(), model.clone());
        let worker = thread::spawn(move || vanish_after(k, || while worker.try_work(ONE, 1) {}));
        let reaper = thread::spawn(move || {
            let vanished = worker.join().unwrap();
            reaper.ring.recover(ONE, [(0, 0)], |_, _| Recovery::Fail);
            // This thread then works on the parts that the vanished worker did not claim.
            reaper.try_work(TWO, 1);
            vanished
        });
        model.ring.wait(Some(0), &Never, || model.ring.slot_status(0, 0) != SlotStatus::Pending);
        if model.ring.slot_status(0, 0) == SlotStatus::Ready {
            assert_eq!(model.notes[0].read(), 0);
        }
        reaper.join().unwrap()
    });
}

/// A third thread closes the ring. This must wake the sleeping worker and the sleeping host, and
/// both must see what the third thread wrote before.
#[test]
fn closing_wakes_both_sides() {
    explore(3, || {
        let (model, why) = (Model::new(1, 1, Delivery::InOrder), Note::default());
        let (worker, seen) = (model.clone(), why.clone());
        let worker = thread::spawn(move || {
            assert_eq!(worker.ring.claim(ONE, 1, &Never).unwrap_err(), ClaimError::Closed);
            assert_eq!(seen.read(), 1);
        });
        let (other, reason) = (model.clone(), why.clone());
        let closer = thread::spawn(move || {
            reason.write(1);
            other.ring.close();
        });
        model.ring.wait(None, &Never, || model.ring.is_closed());
        assert_eq!(why.read(), 1);
        worker.join().unwrap();
        closer.join().unwrap();
    });
}

/// Two workers publish the last two parts at once, and one of them wakes the host.
#[test]
fn the_last_of_two_parts_wakes_the_host() {
    explore(3, || {
        let model = Model::new(1, 2, Delivery::InOrder);
        model.assign(0, 0);
        let workers = [ONE, TWO].map(|owner| {
            let model = model.clone();
            thread::spawn(move || while model.try_work(owner, 1) {})
        });
        model.take(0, 0);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// A worker looks for parts while the host assigns a slot part by part.
#[test]
fn a_part_assigned_during_a_look_is_found() {
    explore(2, || {
        let model = Model::new(1, 2, Delivery::InOrder);
        let worker = model.clone();
        let worker = thread::spawn(move || worker.work(ONE, 2));
        model.assign(0, 0);
        model.take(0, 0);
        model.ring.close();
        worker.join().unwrap();
    });
}

/// The host withdraws the parts of two slots while it waits, one slot each time that it checks its
/// condition. So it withdraws the second slot only after it has checked once.
#[test]
fn a_publisher_wakes_a_host_that_withdraws() {
    explore(2, || {
        let model: &'static Model = Box::leak(Box::new(Model::new(2, 2, Delivery::InOrder)));
        (0..2).for_each(|ticket| model.ring.assign(ticket, ticket as u64));
        let first = model.ring.try_claim(TWO, 2).unwrap();
        // Part 0 of ticket 1 is free, and part 1 is claimed.
        std::mem::forget(model.ring.try_claim(ONE, 1).unwrap());
        let second = model.ring.try_claim(TWO, 1).unwrap();
        model.ring.recover(ONE, [(1, 1)], |_, _| Recovery::Redo);
        let publisher = thread::spawn(move || {
            first.publish();
            second.publish();
        });
        model.ring.wait(None, &Never, || (0..2).all(|ticket| model.ring.withdraw(ticket, ticket as u64) == 0));
        publisher.join().unwrap();
    });
}

#[test]
fn no_worker_writes_to_a_slot_that_was_withdrawn() {
    explore(3, || {
        let model = Model::new(1, 1, Delivery::InOrder);
        model.assign(0, 0);
        let worker = model.clone();
        let worker = thread::spawn(move || worker.try_work(ONE, 1));
        while model.ring.withdraw(0, 0) > 0 {
            thread::yield_now();
        }
        model.notes[0].write(usize::MAX);
        worker.join().unwrap();
    });
}

/// A dropped claim fails its part.
#[test]
fn a_dropped_claim_is_seen_as_failed() {
    explore(3, || {
        let model = Model::new(1, 1, Delivery::InOrder);
        model.assign(0, 0);
        let worker = model.clone();
        let worker = thread::spawn(move || drop(worker.ring.claim(ONE, 1, &Never).unwrap()));
        model.ring.wait(Some(0), &Never, || model.ring.slot_status(0, 0) != SlotStatus::Pending);
        assert_eq!(model.ring.slot_status(0, 0), SlotStatus::Failed);
        worker.join().unwrap();
    });
}
