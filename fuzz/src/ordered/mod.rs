//! Target for the ordered ring: operations of workers, the consumer and its leases in any order,
//! compared with a simple model.

mod model;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slotline_core::ordered::{Claim, Claims, Config, Delivery, Lease, NextError, Ring, Slot};
use slotline_core::wait::{Deadline, Spin};

use self::model::{ClaimedParts, Model};
use crate::choices::Choices;

const MAX_PARTS: usize = 4;
/// A word for each part, which identifies its last writer.
type Value = [AtomicU64; MAX_PARTS];
type TheRing = Ring<Box<[Slot<Value>]>, Spin>;

/// A deadline that has already passed: a wait checks once.
pub(crate) struct Now;

impl Deadline for Now {
    fn remaining(&self) -> Duration {
        Duration::ZERO
    }
}

/// Runs the operations that `data` encodes on a small ring, also where its position wraps around.
/// Checks that each operation returns what the model returns, and that no other code writes to a
/// held claim or lease.
pub fn ordered(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (depth, parts) = (choices.within(1, 5), choices.within(1, MAX_PARTS));
    let delivery = choices.of(&[Delivery::InOrder, Delivery::Arrival]);
    let mut config = Config::new().parts(parts).delivery(delivery);
    if choices.one_in(2) {
        config = config.wake_at(choices.below(8));
    }
    let slots: Box<[Slot<Value>]> = (0..depth).map(|_| Slot::new(Value::default())).collect();
    let ring = match choices.below(4) {
        0 => Ring::with_wait(slots, config, Spin, Spin),
        laps => Ring::near_the_wrap(slots, config, Spin, Spin, laps - 1),
    };
    let model = Model::new(depth, parts, delivery);
    assert_eq!((ring.depth(), ring.parts()), (depth, parts));
    let worker = ring.worker();
    let mut run = Run { worker: &worker, model, claims: Vec::new(), rows: Vec::new(), leases: Vec::new(), stamp: 0 };
    let mut consumer = ring.consumer().expect("the consumer is not taken yet");
    assert!(ring.consumer().is_none());
    while !choices.is_over() {
        match choices.below(19) {
            0..3 => run.claim(choices.within(1, parts + 1), choices.one_in(2)),
            3 => run.claim_many(choices.within(1, depth + 2)),
            4 => run.claim_of_row(&mut choices),
            5 => run.end_row(&mut choices),
            6..9 => run.finish(&mut choices),
            9..12 => run.next(if choices.one_in(2) { consumer.next_until(&Now) } else { consumer.try_next() }),
            12 | 13 => run.release(&mut choices),
            14 => {
                ring.seal();
                run.model.sealed = true;
            }
            15 => {
                let tickets = choices.of(&[None, Some(0), Some(1), Some(2), Some(5), Some(9), Some(usize::MAX)]);
                assert_eq!(consumer.open(tickets), run.model.open(tickets));
            }
            16 => {
                let look = run.model.look().map(drop);
                let nothing = look == Err(NextError::Empty);
                assert_eq!(consumer.wait(&Now), !nothing);
                assert_eq!(consumer.wait_or_work(&Now), !nothing || run.model.has_work());
                assert_eq!(consumer.wait_for_release(&Now), look != Err(NextError::Held));
                consumer.call_workers();
            }
            17 => {
                assert_eq!(consumer.ready(), run.model.ready());
                assert_eq!(consumer.is_ready(), run.model.ready() > 0);
                if run.model.may_run() {
                    assert_eq!(worker.wait_for_run().is_err(), run.model.closed);
                }
            }
            _ if choices.one_in(6) => {
                ring.close();
                run.model.closed = true;
            }
            _ => run.leak(&mut choices),
        }
        assert_eq!((ring.claimed(), ring.is_closed()), (run.model.begun, run.model.closed));
        assert_eq!(ring.is_sealed(), run.model.sealed);
    }
}

struct Run<'a> {
    worker: &'a slotline_core::ordered::Worker<&'a TheRing>,
    model: Model,
    claims: Vec<(Claim<'a, TheRing>, u64)>,
    /// Claims that have not been taken out of their iterators yet, with their places. The model has
    /// recorded them already.
    rows: Vec<(Claims<'a, TheRing>, Vec<ClaimedParts>)>,
    leases: Vec<(Lease<&'a TheRing>, u64)>,
    /// The last mark that was written into a value.
    stamp: u64,
}

fn claimed(claim: &Claim<'_, TheRing>) -> ClaimedParts {
    let parts = claim.parts();
    ClaimedParts { slot: claim.slot(), ticket: claim.ticket(), part: parts.start, count: parts.len() }
}

/// Returns the word of a finished part: its ticket and its number.
pub(crate) fn written(ticket: usize, part: usize) -> u64 {
    1 << 63 | (ticket as u64) << 8 | part as u64
}

impl<'a> Run<'a> {
    fn mark(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    fn claim(&mut self, max: usize, until: bool) {
        let claim = if until { self.worker.claim_until(max, &Now) } else { self.worker.try_claim(max) };
        match claim {
            Ok(claim) => {
                self.model.claim(claimed(&claim), max);
                self.hold(claim);
            }
            Err(error) => assert_eq!(Some(error), self.model.refusal()),
        }
    }

    fn claim_many(&mut self, max: usize) {
        let claims = match self.worker.try_claim_many(max) {
            Ok(claims) => claims,
            Err(error) => return assert_eq!(Some(error), self.model.refusal()),
        };
        assert_eq!(claims.len(), self.model.many(max));
        if self.model.delivery == Delivery::Arrival {
            // The model cannot predict the slot of this claim.
            let claim = { claims }.next().expect("one");
            self.model.claim(claimed(&claim), self.model.parts);
            return self.hold(claim);
        }
        let all_claimed = (0..claims.len()).map(|_| {
            let next = self.model.ahead();
            self.model.claim(next, self.model.parts);
            next
        });
        let all_claimed = all_claimed.collect();
        self.rows.push((claims, all_claimed));
    }

    fn claim_of_row(&mut self, choices: &mut Choices<'_>) {
        if self.rows.is_empty() {
            return;
        }
        let row = choices.below(self.rows.len());
        let (claims, all_claimed) = &mut self.rows[row];
        assert_eq!(claims.len(), all_claimed.len());
        match claims.next() {
            Some(claim) => {
                assert_eq!(claimed(&claim), all_claimed.remove(0));
                self.hold(claim);
            }
            None => drop(self.rows.swap_remove(row)),
        }
    }

    /// Drops an iterator of claims, or publishes its remaining claims if slots have one part.
    /// Dropped claims fail.
    fn end_row(&mut self, choices: &mut Choices<'_>) {
        if self.rows.is_empty() {
            return;
        }
        let (claims, all_claimed) = self.rows.swap_remove(choices.below(self.rows.len()));
        let fails = self.model.parts > 1 || choices.one_in(2);
        if fails {
            drop(claims);
        } else {
            claims.publish_each(|ticket, value| *value[0].get_mut() = written(ticket, 0));
        }
        all_claimed.into_iter().for_each(|claimed| self.model.finish(claimed, fails));
    }

    fn hold(&mut self, mut claim: Claim<'a, TheRing>) {
        let mark = self.mark();
        claim.parts().for_each(|part| claim.get()[part].store(mark, Ordering::Relaxed));
        assert_eq!(claim.get_mut().is_some(), claim.parts().len() == self.model.parts);
        self.claims.push((claim, mark));
    }

    fn finish(&mut self, choices: &mut Choices<'_>) {
        if self.claims.is_empty() {
            return;
        }
        let (claim, mark) = self.claims.swap_remove(choices.below(self.claims.len()));
        let fails = choices.one_in(5);
        for part in claim.parts() {
            let was = claim.get()[part].swap(written(claim.ticket(), part), Ordering::Relaxed);
            assert_eq!(was, mark, "a claim was written to from elsewhere");
        }
        self.model.finish(claimed(&claim), fails);
        if fails { drop(claim) } else { claim.publish() }
    }

    fn next(&mut self, next: Result<Lease<&'a TheRing>, NextError>) {
        let expected = self.model.next();
        match next {
            Ok(mut lease) => {
                assert_eq!(Ok((lease.slot(), lease.ticket())), expected);
                let mark = self.mark();
                for part in 0..self.model.parts {
                    let was = std::mem::replace(lease[part].get_mut(), mark);
                    assert_eq!(was, written(lease.ticket(), part), "the lease does not have what was published");
                }
                self.leases.push((lease, mark));
            }
            Err(error) => assert_eq!(Err(error), expected),
        }
    }

    fn release(&mut self, choices: &mut Choices<'_>) {
        if self.leases.is_empty() {
            return;
        }
        let (lease, mark) = self.leases.swap_remove(choices.below(self.leases.len()));
        for part in 0..self.model.parts {
            assert_eq!(lease[part].load(Ordering::Relaxed), mark, "a lease was written to from elsewhere");
        }
        self.model.release(lease.slot());
        drop(lease);
    }

    /// Leaks a claim or a lease, which keeps its slot forever and has no other effect.
    fn leak(&mut self, choices: &mut Choices<'_>) {
        if choices.one_in(2) {
            std::mem::forget(self.claims.pop());
        } else {
            std::mem::forget(self.leases.pop());
        }
    }
}
