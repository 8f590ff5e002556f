//! Tests of the robust ring on one thread, step by step.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;

use slotline_core::ordered::{ClaimError, Delivery};
use slotline_core::robust::{Owner, Recovery, Ring, Shape, SlotStatus, Word};
use slotline_core::wait::Spin;

use crate::Now;

pub(crate) type Owned = Ring<Vec<Word>, Spin>;

pub(crate) const ONE: Owner = Owner::new(1);
const TWO: Owner = Owner::new(4095);

pub(crate) fn ring(depth: usize, parts: usize, delivery: Delivery) -> Owned {
    let shape = Shape::new(depth, parts);
    Ring::new((0..shape.words()).map(|_| Word::new(0)).collect(), shape, delivery, Spin, Spin)
}

/// Returns the ticket and the parts of the next claim.
fn claims(ring: &Owned, owner: Owner, max: usize) -> Option<(u64, std::ops::Range<usize>)> {
    let claim = ring.try_claim(owner, max).ok()?;
    let found = (claim.ticket(), claim.parts());
    claim.publish();
    Some(found)
}

#[test]
fn nothing_is_claimed_before_it_is_assigned() {
    for delivery in [Delivery::InOrder, Delivery::Arrival] {
        let ring = ring(4, 2, delivery);
        assert_eq!(ring.try_claim(ONE, 1).unwrap_err(), ClaimError::Full);
        assert_eq!(ring.claim(ONE, 1, &Now).unwrap_err(), ClaimError::Full);
        ring.assign(0, 0);
        assert_eq!(ring.slot_status(0, 0), SlotStatus::Pending);
        assert_eq!(claims(&ring, ONE, 1), Some((0, 0..1)));
        assert_eq!(claims(&ring, TWO, 9), Some((0, 1..2)));
        assert_eq!((ring.slot_status(0, 0), claims(&ring, ONE, 1)), (SlotStatus::Ready, None));
        ring.close();
        assert_eq!(ring.try_claim(ONE, 1).unwrap_err(), ClaimError::Closed);
    }
}

#[test]
fn tickets_are_claimed_in_order_over_many_laps() {
    let ring = ring(4, 1, Delivery::InOrder);
    (0..4).for_each(|ticket| ring.assign(ticket as usize, ticket));
    for ticket in 0..1000 {
        assert_eq!(claims(&ring, ONE, 1), Some((ticket, 0..1)));
        let slot = (ticket % 4) as usize;
        assert_eq!(ring.slot_status(slot, ticket), SlotStatus::Ready);
        ring.assign(slot, ticket + 4);
    }
}

#[test]
fn slots_may_be_assigned_in_any_order() {
    let ring = ring(4, 1, Delivery::InOrder);
    (0..4).for_each(|ticket| ring.assign(ticket as usize, ticket));
    (0..4).for_each(|ticket| assert_eq!(claims(&ring, ONE, 1), Some((ticket, 0..1))));
    ring.assign(2, 6);
    ring.assign(1, 5);
    assert_eq!(claims(&ring, ONE, 1), None, "ticket 4 comes first");
    ring.assign(0, 4);
    (4..7).for_each(|ticket| assert_eq!(claims(&ring, ONE, 1), Some((ticket, 0..1))));
}

#[test]
fn in_arrival_mode_the_lowest_ticket_is_claimed_first() {
    let ring = ring(4, 1, Delivery::Arrival);
    [(3, 7), (1, 9), (0, 8)].into_iter().for_each(|(slot, ticket)| ring.assign(slot, ticket));
    assert_eq!([(); 4].map(|()| claims(&ring, ONE, 1)), [Some((7, 0..1)), Some((8, 0..1)), Some((9, 0..1)), None]);
}

#[test]
fn a_dropped_claim_fails_its_ticket() {
    let ring = ring(2, 4, Delivery::InOrder);
    ring.assign(0, 0);
    drop(ring.try_claim(ONE, 2).unwrap());
    assert_eq!(ring.slot_status(0, 0), SlotStatus::Pending);
    ring.try_claim(ONE, 2).unwrap().publish();
    assert_eq!(ring.slot_status(0, 0), SlotStatus::Failed);
}

#[test]
fn only_the_parts_of_the_ended_worker_are_recovered() {
    let ring = ring(4, 4, Delivery::InOrder);
    (0..4).for_each(|ticket| ring.assign(ticket as usize, ticket));
    let assigned = || (0..4).map(|ticket| (ticket as usize, ticket));
    assert_eq!(claims(&ring, ONE, 1), Some((0, 0..1)));
    std::mem::forget(ring.try_claim(ONE, 2).unwrap());
    let other = ring.try_claim(TWO, 4).unwrap();
    assert_eq!((other.ticket(), other.parts()), (0, 3..4));
    std::mem::forget(ring.try_claim(ONE, 4).unwrap());
    assert_eq!(claims(&ring, TWO, 4), Some((2, 0..4)));

    let mut asked = Vec::new();
    let recovered = ring.recover(ONE, assigned(), |ticket, part| {
        asked.push((ticket, part));
        if ticket == 0 { Recovery::Redo } else { Recovery::Fail }
    });
    assert_eq!((recovered, asked), (6, vec![(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]));
    assert_eq!(
        [ring.slot_status(0, 0), ring.slot_status(1, 1), ring.slot_status(2, 2)],
        [SlotStatus::Pending, SlotStatus::Failed, SlotStatus::Ready]
    );
    assert_eq!(claims(&ring, TWO, 4), Some((0, 1..3)));
    assert_eq!(claims(&ring, TWO, 4), Some((3, 0..4)));
    other.publish();
    assert_eq!(ring.slot_status(0, 0), SlotStatus::Ready);
    assert_eq!(ring.recover(ONE, assigned(), |_, _| unreachable!()), 0);
}

#[test]
fn withdrawn_parts_cannot_be_claimed() {
    let ring = ring(2, 2, Delivery::InOrder);
    ring.assign(0, 0);
    ring.assign(1, 1);
    let claim = ring.try_claim(ONE, 1).unwrap();
    assert_eq!((ring.withdraw(0, 0), ring.withdraw(1, 1)), (1, 0));
    assert_eq!(claims(&ring, ONE, 2), None);
    claim.publish();
    assert_eq!(ring.withdraw(0, 0), 0);
    ring.start_at(100);
    ring.assign(0, 100);
    assert_eq!(claims(&ring, ONE, 2), Some((100, 0..2)));
}

#[test]
fn a_word_that_no_worker_writes_is_corrupt() {
    let shape = Shape::new(2, 2);
    let words: Vec<Word> = (0..shape.words()).map(|_| Word::new(0)).collect();
    let ring = Ring::new(&words[..], shape, Delivery::InOrder, Spin, Spin);
    ring.assign(1, 5);
    ring.try_claim(ONE, 2).unwrap_err();
    let part = words.iter().find(|word| word.load(Relaxed) == 5 << 16 | 1).expect("the word of a free part");
    for wrong in [0, 5 << 16, 5 << 16 | 7 << 4 | 1, 5 << 16 | 5, 5 << 16 | 15, 6 << 16 | 3, 4 << 16 | 3, u64::MAX] {
        part.store(wrong, Relaxed);
        assert_eq!(ring.slot_status(1, 5), SlotStatus::Corrupt, "{wrong:x}");
    }
}

/// A faulty worker wrote arbitrary values anywhere.
#[test]
fn random_words_cause_no_panic_and_no_hang() {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 20
    };
    for delivery in [Delivery::InOrder, Delivery::Arrival] {
        let shape = Shape::new(4, 2);
        let words: Vec<Word> = (0..shape.words()).map(|_| Word::new(0)).collect();
        let ring = Ring::new(&words[..], shape, delivery, Spin, Spin);
        for _ in 0..20_000 {
            for word in &words {
                let value = match random() % 4 {
                    0 => random() << 20 | random(),
                    1 => ((random() % 8) << 16) | (random() % 6),
                    2 => (random() % 8) << 16 | 1,
                    _ => word.load(Relaxed),
                };
                word.store(value, Relaxed);
            }
            words[1].store(random() % 8 / 7, Relaxed);
            for _ in 0..3 {
                if let Ok(claim) = ring.try_claim(TWO, 1 + (random() % 3) as usize) {
                    assert!(claim.slot() < 4 && claim.parts().end <= 2);
                    if random() % 2 == 0 {
                        claim.publish();
                    }
                }
            }
            for slot in 0..4 {
                let ticket = random() % 8;
                ring.slot_status(slot, ticket);
                ring.withdraw(slot, ticket);
            }
            ring.recover(ONE, (0..4).map(|slot| (slot, slot as u64)), |_, part| {
                if part == 0 { Recovery::Redo } else { Recovery::Fail }
            });
            ring.wait(None, &Now, || false);
        }
    }
}

#[test]
fn a_panic_in_a_recovery_strands_nothing() {
    let ring = ring(2, 1, Delivery::InOrder);
    (0..2).for_each(|ticket| ring.assign(ticket as usize, ticket));
    (0..2).for_each(|_| std::mem::forget(ring.try_claim(ONE, 1).unwrap()));
    assert_eq!(claims(&ring, TWO, 1), None);
    let assigned = [(0, 0), (1, 1)];
    let recovery = || {
        ring.recover(ONE, assigned, |ticket, _| {
            assert_eq!(ticket, 0, "planned");
            Recovery::Redo
        })
    };
    catch_unwind(AssertUnwindSafe(recovery)).unwrap_err();
    assert_eq!(ring.recover(ONE, assigned, |_, _| Recovery::Fail), 1);
    assert_eq!(claims(&ring, TWO, 1), Some((0, 0..1)));
}

#[test]
#[should_panic = "the number of slots is a power of two"]
fn a_depth_that_is_no_power_of_two_is_refused() {
    let _ = Shape::new(3, 1);
}

#[test]
#[should_panic = "words are too few"]
fn too_few_words_are_refused() {
    let _ = Ring::new(Vec::new(), Shape::new(2, 1), Delivery::InOrder, Spin, Spin);
}
