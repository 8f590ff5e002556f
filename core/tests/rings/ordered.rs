//! Tests of the ordered ring on one thread, step by step.

use std::panic::{AssertUnwindSafe, catch_unwind};

use slotline_core::ordered::{ClaimError, Config, Delivery, NextError, Ring, Slot};
use slotline_core::wait::{Backoff, Spin};

use crate::Now;

#[test]
fn a_working_consumer_does_not_wait_for_a_ticket_it_must_claim() {
    for delivery in [Delivery::InOrder, Delivery::Arrival] {
        let ring = Ring::inline([const { Slot::new(0) }; 1], Config::new().delivery(delivery));
        let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
        worker.try_claim(1).unwrap().publish();
        let lease = consumer.try_next().unwrap();
        // The slot is held when the consumer looks for work, and is released before it looks for a
        // result.
        assert_eq!(worker.try_claim(1).unwrap_err(), ClaimError::Full);
        drop(lease);
        assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty);
        assert!(consumer.wait_or_work(&Now), "{delivery:?}");
        // Once the ticket is claimed, the consumer can only wait for it.
        let claim = worker.try_claim(1).unwrap();
        assert!(!consumer.wait_or_work(&Now), "{delivery:?}");
        claim.publish();
        assert!(consumer.wait_or_work(&Now) && consumer.try_next().is_ok());
    }
}

#[test]
fn a_working_consumer_does_not_wait_for_parts_it_must_claim() {
    for delivery in [Delivery::InOrder, Delivery::Arrival] {
        let ring = Ring::inline([const { Slot::new(0) }; 1], Config::new().parts(2).delivery(delivery));
        let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
        worker.try_claim(2).unwrap().publish();
        let lease = consumer.try_next().unwrap();
        assert_eq!(worker.try_claim(1).unwrap_err(), ClaimError::Full);
        drop(lease);
        // Another worker begins the ticket and then stops.
        worker.try_claim(1).unwrap().publish();
        assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty);
        assert!(consumer.wait_or_work(&Now), "{delivery:?}");
        let claim = worker.try_claim(1).unwrap();
        assert!(!consumer.wait_or_work(&Now), "{delivery:?}");
        claim.publish();
        assert!(consumer.try_next().is_ok());
    }
}

#[test]
fn wait_for_run_returns_while_parts_are_left() {
    let ring = Ring::inline([const { Slot::new(0) }; 2], Config::new().parts(2).delivery(Delivery::Arrival));
    let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
    worker.try_claim(1).unwrap().publish();
    ring.seal();
    // Some parts are not claimed yet, so this wait must return at once. Otherwise it would spin
    // forever.
    assert_eq!(worker.wait_for_run(), Ok(()));
    worker.try_claim(1).unwrap().publish();
    assert!(consumer.try_next().is_ok());
    assert_eq!(consumer.try_next().unwrap_err(), NextError::Ended);
}

#[test]
fn claim_many_takes_free_slots_up_to_the_limit_of_the_run() {
    // Begin two laps (turns around the ring) before the position wraps, so that the test crosses
    // the wrap.
    let slots = [const { Slot::new(0) }; 4];
    let ring = Ring::near_the_wrap(slots, Config::new(), Spin, Spin, 2);
    let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
    for run in 0..4 {
        ring.seal();
        assert_eq!(consumer.try_next().unwrap_err(), NextError::Ended);
        consumer.open(Some(7)).unwrap();
        let mut tickets = 0;
        let mut publish = |max, expected| {
            let claims = worker.try_claim_many(max).unwrap();
            assert_eq!(claims.len(), expected);
            for claim in claims {
                assert_eq!(claim.ticket(), tickets);
                tickets += 1;
                claim.publish();
            }
        };
        publish(3, 3);
        publish(usize::MAX, 1);
        assert_eq!(worker.try_claim_many(1).unwrap_err(), ClaimError::Full);
        let (first, second) = (consumer.try_next().unwrap(), consumer.try_next().unwrap());
        drop(second);
        // The next ticket's slot is held, so the slot after it is not available either.
        assert_eq!(worker.try_claim_many(2).unwrap_err(), ClaimError::Full);
        drop(first);
        publish(4, 2);
        for ticket in 2..6 {
            assert_eq!(consumer.try_next().unwrap().ticket(), ticket, "run {run}");
        }
        publish(4, 1);
        assert_eq!(worker.try_claim_many(4).unwrap_err(), ClaimError::Ended);
        assert_eq!(consumer.try_next().unwrap().ticket(), 6);
    }
}

#[test]
fn claim_many_begins_with_the_rest_of_a_ticket() {
    let ring = Ring::inline([const { Slot::new(()) }; 3], Config::new().parts(4));
    let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
    let begun = worker.try_claim(3).unwrap();
    let claims = worker.try_claim_many(2).unwrap().map(|claim| (claim.ticket(), claim.parts(), claim.publish()));
    assert_eq!(claims.collect::<Vec<_>>(), [(0, 3..4, ()), (1, 0..4, ())]);
    assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty);
    begun.publish();
    assert_eq!([0, 1].map(|_| consumer.try_next().unwrap().ticket()), [0, 1]);
    // After a seal, only the rest of the open ticket can be claimed.
    worker.try_claim(1).unwrap().publish();
    ring.seal();
    let claims = worker.try_claim_many(2).unwrap().map(|claim| (claim.ticket(), claim.parts()));
    assert_eq!(claims.collect::<Vec<_>>(), [(2, 1..4)]);
    assert_eq!(worker.try_claim_many(2).unwrap_err(), ClaimError::Ended);
}

#[test]
fn claim_many_takes_one_ticket_in_arrival_mode() {
    let ring = Ring::inline([const { Slot::new(()) }; 3], Config::new().delivery(Delivery::Arrival).parts(2));
    let worker = ring.worker();
    let claims: Vec<_> = worker.try_claim_many(2).unwrap().map(|claim| (claim.ticket(), claim.parts())).collect();
    assert_eq!(claims, [(0, 0..2)]);
}

#[test]
fn claims_not_taken_from_the_iterator_fail() {
    let ring = Ring::inline([const { Slot::new(()) }; 4], Config::new());
    let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
    let mut claims = worker.try_claim_many(4).unwrap();
    let (first, second) = (claims.next().unwrap(), claims.next().unwrap());
    drop(claims);
    second.publish();
    assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty);
    first.publish();
    assert_eq!([0, 1].map(|_| consumer.try_next().unwrap().ticket()), [0, 1]);
    for ticket in 2..4 {
        assert_eq!(consumer.try_next().unwrap_err(), NextError::Failed { ticket });
    }
}

#[test]
fn publish_each_publishes_the_first_ticket_last() {
    for (delivery, tickets) in [(Delivery::InOrder, 4), (Delivery::Arrival, 1)] {
        let ring = Ring::inline([const { Slot::new(0) }; 4], Config::new().delivery(delivery));
        let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
        for lap in 0..3 {
            let mut next = lap * tickets;
            worker.try_claim_many(4).unwrap().publish_each(|ticket, value| {
                assert_eq!(ticket, next);
                assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty, "{delivery:?}");
                next += 1;
                *value = ticket + 1;
            });
            for ticket in lap * tickets..next {
                let lease = consumer.try_next().unwrap();
                assert_eq!((lease.ticket(), *lease), (ticket, ticket + 1));
            }
            assert_eq!(next, (lap + 1) * tickets);
        }
    }
}

#[test]
fn a_panic_in_publish_each_fails_the_tickets_that_are_not_filled() {
    for filled in 0..4 {
        let ring = Ring::inline([const { Slot::new(0) }; 4], Config::new());
        let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
        let claims = worker.try_claim_many(4).unwrap();
        let fill = |ticket, value: &mut usize| {
            *value = ticket;
            assert!(ticket != filled, "this task panics");
        };
        catch_unwind(AssertUnwindSafe(|| claims.publish_each(fill))).unwrap_err();
        for ticket in 0..4 {
            match consumer.try_next() {
                Ok(lease) => assert!(ticket < filled && (lease.ticket(), *lease) == (ticket, ticket)),
                Err(error) => assert!(ticket >= filled && error == NextError::Failed { ticket }),
            }
        }
        assert_eq!(worker.try_claim_many(4).unwrap().len(), 4);
    }
}

#[test]
fn publish_each_refuses_slots_of_several_parts() {
    let ring = Ring::inline([const { Slot::new(()) }; 1], Config::new().parts(2));
    let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
    let claims = worker.try_claim_many(1).unwrap();
    catch_unwind(AssertUnwindSafe(|| claims.publish_each(|_, ()| {}))).unwrap_err();
    assert_eq!(consumer.try_next().unwrap_err(), NextError::Failed { ticket: 0 });
}

/// Leaves every slot in each state in which a ring can leave it: free in a later lap, with a part
/// finished, claimed in arrival mode, ready, failed, and leased.
fn leave_in_every_state(slots: &mut [Slot<u32>], delivery: Delivery) {
    let depth = slots.len();
    let config = Config::new().delivery(delivery);
    let ring = Ring::new(&mut *slots, config.parts(3));
    let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
    for _ in 0..depth + 1 {
        worker.try_claim(3).unwrap().publish();
        drop(consumer.try_next().unwrap());
    }
    worker.try_claim(3).unwrap().publish();
    std::mem::forget(consumer.try_next().unwrap());
    worker.try_claim(3).unwrap().publish();
    drop(worker.try_claim(3).unwrap());
    worker.try_claim(2).unwrap().publish();
    std::mem::forget(worker.try_claim(1).unwrap());
}

/// Claims and takes everything that can be claimed in a new ring.
fn check_that_it_is_new(ring: &Ring<[Slot<u32>; 4]>) {
    let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
    let mut claims = Vec::new();
    while let Ok(claim) = worker.try_claim(1) {
        assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty, "every slot has a claimed part");
        claims.push(claim);
    }
    let found: Vec<_> = claims.iter().map(|claim| (claim.ticket(), claim.slot(), claim.parts())).collect();
    let expected = (0..4).flat_map(|slot| (0..2).map(move |part| (slot, slot, part..part + 1)));
    assert_eq!(found, expected.collect::<Vec<_>>());
    for claim in claims {
        assert_eq!(*claim.get(), 7, "a slot keeps its value");
        claim.publish();
    }
    let leases: Vec<_> = (0..4).map(|_| consumer.try_next().unwrap()).collect();
    assert_eq!(leases.iter().map(|lease| lease.ticket()).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn slots_of_another_ring_are_reset() {
    for left in [Delivery::InOrder, Delivery::Arrival] {
        for delivery in [Delivery::InOrder, Delivery::Arrival] {
            let config = Config::new().parts(2).delivery(delivery);
            let used = || {
                let mut slots = [const { Slot::new(7) }; 4];
                leave_in_every_state(&mut slots, left);
                slots
            };
            check_that_it_is_new(&Ring::inline(used(), config));
            check_that_it_is_new(&Ring::inline_with_wait(used(), config, Backoff, Backoff));
            check_that_it_is_new(&Ring::new(used(), config));
        }
    }
}
