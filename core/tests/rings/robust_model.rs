//! Random sequences of operations on the robust ring, compared with a simple model of it, on one
//! thread.

use std::collections::BTreeMap;

use slotline_core::ordered::{ClaimError, Delivery};
use slotline_core::robust::{Owner, Recovery, SlotStatus, Word};
use slotline_core::wait::Spin;

use crate::robust::{ONE, ring};

struct Rng(u64);
impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize) % n
    }
}

/// The expected state of a part.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    Free,
    Claimed(u16),
    Done,
    Failed,
    Withdrawn,
}

/// The reference model: for each slot, its ticket and its parts.
struct Reference {
    depth: usize,
    parts: usize,
    slots: Vec<Option<(u64, Vec<Part>)>>,
}

impl Reference {
    /// Returns the expected next claim.
    fn claim(&mut self, owner: u16, max: usize) -> Option<(usize, u64, std::ops::Range<usize>)> {
        let lowest = (0..self.depth)
            .filter_map(|s| self.slots[s].as_ref().filter(|(_, p)| p.contains(&Part::Free)).map(|(t, _)| (*t, s)))
            .min()?;
        let (ticket, slot) = lowest;
        let parts = &mut self.slots[slot].as_mut().unwrap().1;
        let first = parts.iter().position(|&p| p == Part::Free).unwrap();
        let mut end = first;
        while end < self.parts && parts[end] == Part::Free && end - first < max {
            parts[end] = Part::Claimed(owner);
            end += 1;
        }
        Some((slot, ticket, first..end))
    }
    fn slot_status(&self, slot: usize) -> SlotStatus {
        let p = &self.slots[slot].as_ref().unwrap().1;
        if p.contains(&Part::Withdrawn) {
            return SlotStatus::Corrupt;
        }
        if p.iter().any(|p| matches!(p, Part::Free | Part::Claimed(_))) {
            return SlotStatus::Pending;
        }
        if p.contains(&Part::Failed) { SlotStatus::Failed } else { SlotStatus::Ready }
    }
}

fn sequence(seed: u64, depth: usize, parts: usize, delivery: Delivery, base: u64) -> [usize; 6] {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    (0..4).for_each(|_| {
        rng.below(2);
    });
    let ring = ring(depth, parts, delivery);
    let order = delivery == Delivery::InOrder;
    let mut model = Reference { depth, parts, slots: vec![None; depth] };
    let mut counts = [0; 6];
    let (mut next, mut head) = (base, base); // The next to assign, and to take (in order).
    if base != 0 {
        ring.start_at(base);
    }
    let mut held: BTreeMap<usize, (slotline_core::robust::Claim<'_, Vec<Word>, Spin>, u16)> = BTreeMap::new();
    let mut key = 0;
    let ctx = |what: &str| format!("{what}: seed {seed} depth {depth} parts {parts} {delivery:?} base {base}");
    for step in 0..60 {
        match rng.below(12) {
            0..=2 => {
                // Assigns a ticket.
                let slot = if order {
                    if next - head >= depth as u64 {
                        continue;
                    }
                    (next % depth as u64) as usize
                } else {
                    rng.below(depth)
                };
                if model.slots[slot].is_some() {
                    continue;
                }
                if next > (1 << 48) - 1 {
                    continue;
                }
                ring.assign(slot, next);
                model.slots[slot] = Some((next, vec![Part::Free; parts]));
                next += 1;
                counts[0] += 1;
            }
            3..=5 => {
                let owner = rng.below(4) as u16;
                let max = 1 + rng.below(parts + 1);
                let want = model.claim(owner, max);
                let got = ring.try_claim(Owner::new(owner), max);
                match (want, got) {
                    (None, Err(e)) => assert_eq!(e, ClaimError::Full),
                    (Some(w), Ok(c)) => {
                        assert_eq!((c.slot(), c.ticket(), c.parts()), w, "{} step {step}", ctx("claim"));
                        held.insert(key, (c, owner));
                        key += 1;
                        counts[1] += 1;
                    }
                    (w, g) => panic!("{} step {step}: want {w:?} got {g:?}", ctx("claim")),
                }
            }
            6..=7 => {
                // Finishes one claim.
                if held.is_empty() {
                    continue;
                }
                let k = *held.keys().nth(rng.below(held.len())).unwrap();
                let (claim, _) = held.remove(&k).unwrap();
                let to = if rng.below(4) == 0 { Part::Failed } else { Part::Done };
                model.slots[claim.slot()].as_mut().unwrap().1[claim.parts()].fill(to);
                if to == Part::Done {
                    claim.publish()
                } else {
                    drop(claim)
                }
                counts[2] += 1;
            }
            8 => {
                // One or several workers die.
                let many = 1 + rng.below(2);
                for _ in 0..many {
                    let owner = rng.below(4) as u16;
                    let dead: Vec<_> = held.iter().filter(|(_, c)| c.1 == owner).map(|(k, _)| *k).collect();
                    dead.into_iter().for_each(|k| std::mem::forget(held.remove(&k)));
                    let assigned: Vec<_> =
                        (0..depth).filter_map(|s| model.slots[s].as_ref().map(|x| (s, x.0))).collect();
                    let mut expected = 0;
                    let (mode, mut asked) = (rng.below(3), Vec::new());
                    let got = ring.recover(Owner::new(owner), assigned, |t, p| {
                        let redo = match mode {
                            0 => true,
                            1 => false,
                            _ => rng.below(2) == 0,
                        };
                        asked.push((t, p, redo));
                        if redo { Recovery::Redo } else { Recovery::Fail }
                    });
                    for s in 0..depth {
                        let Some((t, ps)) = model.slots[s].as_mut() else { continue };
                        for (p, v) in ps.iter_mut().enumerate() {
                            if *v == Part::Claimed(owner) {
                                expected += 1;
                                let redo = asked.iter().find(|a| (a.0, a.1) == (*t, p)).expect("asked").2;
                                *v = if redo { Part::Free } else { Part::Failed };
                            }
                        }
                    }
                    assert_eq!((got, asked.len()), (expected, expected), "{}", ctx("recover"));
                    if got > 0 {
                        counts[3] += 1;
                    }
                }
            }
            9..=10 => {
                // Looks at all slots, and takes those that are finished.
                for s in 0..depth {
                    if let Some((t, _)) = model.slots[s] {
                        assert_eq!(ring.slot_status(s, t), model.slot_status(s), "{} step {step}", ctx("slot_status"));
                        let finished = matches!(model.slot_status(s), SlotStatus::Ready | SlotStatus::Failed);
                        if finished && !order {
                            model.slots[s] = None;
                            counts[4] += 1;
                        }
                    }
                }
                while order && head < next {
                    let s = (head % depth as u64) as usize;
                    if matches!(model.slot_status(s), SlotStatus::Ready | SlotStatus::Failed) {
                        model.slots[s] = None;
                        head += 1;
                        counts[4] += 1;
                    } else {
                        break;
                    }
                }
            }
            _ => {
                // Ends the run: withdraws all parts, and finishes or recovers the others.
                if rng.below(3) != 0 {
                    continue;
                }
                for s in 0..depth {
                    let Some((t, ps)) = model.slots[s].as_mut() else { continue };
                    let left = ps.iter().filter(|p| matches!(p, Part::Claimed(_))).count();
                    assert_eq!(ring.withdraw(s, *t), left, "{}", ctx("withdraw"));
                    ps.iter_mut().for_each(|p| {
                        if *p == Part::Free {
                            *p = Part::Withdrawn
                        }
                    });
                }
                assert_eq!(ring.try_claim(ONE, 1).err(), Some(ClaimError::Full), "{}", ctx("withdrawn"));
                while let Some((_, (c, owner))) = held.pop_first() {
                    if rng.below(2) == 0 {
                        c.publish();
                    } else {
                        std::mem::forget(c);
                        for k in held.iter().filter(|(_, c)| c.1 == owner).map(|(k, _)| *k).collect::<Vec<_>>() {
                            std::mem::forget(held.remove(&k));
                        }
                        let assigned: Vec<_> =
                            (0..depth).filter_map(|s| model.slots[s].as_ref().map(|x| (s, x.0))).collect();
                        ring.recover(Owner::new(owner), assigned, |_, _| {
                            if rng.below(2) == 0 { Recovery::Redo } else { Recovery::Fail }
                        });
                    }
                }
                for s in 0..depth {
                    let Some((t, _)) = model.slots[s] else { continue };
                    assert_eq!(ring.withdraw(s, t), 0, "{}", ctx("withdraw again"));
                    model.slots[s] = None;
                }
                assert_eq!(ring.try_claim(ONE, 1).err(), Some(ClaimError::Full), "{}", ctx("ended"));
                let skip = rng.below(3) as u64 * rng.below(2 * depth + 3) as u64;
                next = (next + skip).min((1 << 48) - 1);
                ring.start_at(next);
                head = next;
                counts[5] += 1;
            }
        }
    }
    held.into_iter().for_each(|(_, c)| std::mem::forget(c));
    counts
}

/// In the random sequences, workers die, also several at once, and workers with the numbers of dead
/// ones start; runs are withdrawn; and ticket numbers are close to the largest possible one.
#[test]
fn random_sequences_match_a_model() {
    const LAST: u64 = (1 << 48) - 1;
    let mut total = [0; 6];
    for delivery in [Delivery::InOrder, Delivery::Arrival] {
        for (depth, parts) in [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 4), (8, 2), (2, 32), (16, 1)] {
            for base in [0, 5, LAST - 4095, LAST - 19, LAST - 2] {
                for seed in 1..=300 {
                    let counts = sequence(seed, depth, parts, delivery, base);
                    total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
                }
            }
        }
    }
    assert!(total.iter().all(|&count| count > 1000), "assigned, claimed, finished, recovered, taken, runs: {total:?}");
}
