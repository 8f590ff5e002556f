//! The ordered ring in one thread, step by step.
#![cfg(not(loom))]

use std::time::Duration;

use slotline_core::ordered::{ClaimError, Config, Delivery, NextError, Ring, Slot};
use slotline_core::wait::Deadline;

/// A deadline that has passed: waiting is one look.
struct Now;

impl Deadline for Now {
    fn remaining(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn a_consumer_that_works_does_not_wait_for_a_ticket_that_only_it_can_claim() {
    for delivery in [Delivery::InOrder, Delivery::Arrival] {
        let ring = Ring::inline([const { Slot::new(0) }; 1], Config::new().delivery(delivery));
        let (worker, mut consumer) = (ring.worker(), ring.consumer().unwrap());
        worker.try_claim(1).unwrap().publish();
        let lease = consumer.try_next().unwrap();
        // The slot is held when the consumer looks for work, and given back before it looks for a result.
        assert_eq!(worker.try_claim(1).unwrap_err(), ClaimError::Full);
        drop(lease);
        assert_eq!(consumer.try_next().unwrap_err(), NextError::Empty);
        assert!(consumer.wait_or_work(&Now), "{delivery:?}");
        // Once it is claimed there is nothing to be done about it.
        let claim = worker.try_claim(1).unwrap();
        assert!(!consumer.wait_or_work(&Now), "{delivery:?}");
        claim.publish();
        assert!(consumer.wait_or_work(&Now) && consumer.try_next().is_ok());
    }
}
