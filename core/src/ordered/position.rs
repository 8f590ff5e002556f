//! Where a ring's cursor stands: lap, slot, part, run and two flags in one word.
//!
//! ```text
//! | lap ........ | slot | part | run | CLOSED | SEALED |
//! ```
//!
//! Slot and part count up to any `depth` and `parts` (not only powers of two) and carry into the lap, so that no
//! operation divides, and the lap may wrap: positions are only ever compared for equality. The word is the only thing
//! that workers compete for, so the flags in it stop a claim and a seal from passing each other, and the run (a few bits
//! that change when one is opened) stops a claim that was begun in one run from being made in another one.

/// No new tickets.
pub(super) const SEALED: usize = 1;
/// The ring is at its end.
pub(super) const CLOSED: usize = 2;
/// Bits that tell a run from those before and after it. With one of them the models see numbers repeat.
const RUN_BITS: u32 = if cfg!(loom) {
    1
} else if usize::BITS < 64 {
    2
} else {
    8
};
/// Bits of a cursor below its parts.
pub(super) const FLAG_BITS: u32 = 2 + RUN_BITS;
const FLAGS: usize = mask(FLAG_BITS);
/// The first one of these bits.
const ONE_RUN: usize = 1 << 2;
const RUN: usize = FLAGS & !(ONE_RUN - 1);

/// A position that no cursor reaches, since positions carry no flags.
pub(super) const NOWHERE: usize = FLAGS;

/// The shape of the positions of one ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// Slots in a lap, at least 1.
    pub(super) depth: usize,
    /// Parts in a slot, at least 1.
    pub(super) parts: usize,
    slot_shift: u32,
    lap_shift: u32,
    /// The bits below a slot, and below a lap: shifting takes longer than looking them up.
    below_slot: usize,
    below_lap: usize,
}

impl Geometry {
    /// Panics if `depth` or `parts` is 0, or if too few bits are left to count laps.
    pub(super) const fn new(depth: usize, parts: usize) -> Self {
        assert!(depth > 0, "a ring needs at least one slot");
        assert!(parts > 0, "a slot needs at least one part");
        let slot_shift = FLAG_BITS + bits_for(parts);
        let lap_shift = slot_shift + bits_for(depth);
        // Eight bits tell laps apart with ease; half a word counts parts (see `Slot::pending`).
        assert!(lap_shift + 8 <= usize::BITS, "too many slots and parts for the pointer width");
        assert!(bits_for(parts) < usize::BITS / 2 - 1, "too many parts for the pointer width");
        let (below_slot, below_lap) = (mask(slot_shift), mask(lap_shift));
        Self { depth, parts, slot_shift, lap_shift, below_slot, below_lap }
    }

    #[inline]
    pub(super) const fn part(self, cursor: usize) -> usize {
        (cursor & self.below_slot) >> FLAG_BITS
    }

    #[inline]
    pub(super) const fn slot(self, cursor: usize) -> usize {
        (cursor & self.below_lap) >> self.slot_shift
    }

    #[inline]
    pub(super) const fn lap(self, cursor: usize) -> usize {
        cursor >> self.lap_shift
    }

    /// The lap before or after (`by` = -1 or 1), with the wrap.
    #[inline]
    pub(super) const fn lap_near(self, lap: usize, by: isize) -> usize {
        lap.wrapping_add_signed(by) & (usize::MAX >> self.lap_shift)
    }

    /// The cursor `parts` parts on, flags kept; `parts` must not lead past the end of the slot.
    #[inline]
    pub(super) const fn advance(self, cursor: usize, parts: usize) -> usize {
        debug_assert!(parts > 0 && self.part(cursor) + parts <= self.parts);
        if self.part(cursor) + parts < self.parts { cursor + (parts << FLAG_BITS) } else { self.next_ticket(cursor) }
    }

    /// The first part of the ticket after the cursor's, flags kept.
    #[inline]
    pub(super) const fn next_ticket(self, cursor: usize) -> usize {
        if self.slot(cursor) + 1 < self.depth {
            self.next_slot(cursor & !self.below_slot) + (cursor & FLAGS)
        } else {
            (self.lap(cursor).wrapping_add(1) << self.lap_shift) + (cursor & FLAGS)
        }
    }

    /// The position `tickets` tickets after `position` (which must be the first part of one), or `None` if the count
    /// comes close to a whole turn of the position.
    pub(super) const fn forward(self, position: usize, tickets: usize) -> Option<usize> {
        let slot = self.slot(position) as u128 + tickets as u128;
        let laps = slot / self.depth as u128;
        if laps > (usize::MAX >> self.lap_shift) as u128 / 2 {
            return None;
        }
        let lap = self.lap(position).wrapping_add(laps as usize) << self.lap_shift;
        Some(lap + (((slot % self.depth as u128) as usize) << self.slot_shift))
    }

    /// The same part of the next slot of the lap, which there must be.
    #[inline]
    pub(super) const fn next_slot(self, cursor: usize) -> usize {
        cursor + (1 << self.slot_shift)
    }

    /// How many tickets lie between two positions, each the first part of one; wraps as the laps do.
    pub(super) const fn tickets_between(self, from: usize, to: usize) -> usize {
        let laps = self.lap(to).wrapping_sub(self.lap(from)) & (usize::MAX >> self.lap_shift);
        laps.wrapping_mul(self.depth).wrapping_add(self.slot(to)).wrapping_sub(self.slot(from))
    }

    /// The first part of the cursor's ticket, flags dropped.
    #[inline]
    pub(super) const fn ticket_start(self, cursor: usize) -> usize {
        cursor & !self.below_slot
    }

    /// The first position of lap `lap`.
    pub(super) const fn start_of(self, lap: usize) -> usize {
        lap << self.lap_shift
    }
}

/// The cursor without its flags.
#[inline]
pub(super) const fn position(cursor: usize) -> usize {
    cursor & !FLAGS
}

/// What to flip in the cursor to open the run after this one: its number, and the seal.
#[inline]
pub(super) const fn to_next_run(cursor: usize) -> usize {
    let next = ((cursor & RUN) + ONE_RUN) & RUN;
    (cursor & (RUN | SEALED)) ^ next
}

/// Bits that hold `0..n`.
const fn bits_for(n: usize) -> u32 {
    usize::BITS - (n - 1).leading_zeros()
}

const fn mask(bits: u32) -> usize {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_counts_parts_then_slots_then_laps_and_wraps() {
        for (depth, parts) in [(1, 1), (1, 3), (2, 1), (3, 2), (5, 7), (8, 4)] {
            let g = Geometry::new(depth, parts);
            let mut cursor = g.start_of(g.lap_near(0, -2)) | SEALED;
            for lap in [g.lap_near(0, -2), g.lap_near(0, -1), 0, 1] {
                for slot in 0..depth {
                    assert_eq!(g.forward(g.start_of(lap), slot), Some(position(cursor)));
                    for part in 0..parts {
                        assert_eq!((g.lap(cursor), g.slot(cursor), g.part(cursor)), (lap, slot, part));
                        assert_eq!(cursor & FLAGS, SEALED);
                        let whole = g.advance(cursor, parts - part);
                        assert_eq!(whole, g.next_ticket(cursor));
                        cursor = g.advance(cursor, 1);
                    }
                }
            }
        }
    }

    #[test]
    fn opening_a_run_changes_its_number_and_nothing_else() {
        let place = Geometry::new(3, 5).start_of(7);
        let mut seen = vec![place | CLOSED];
        for _ in 0..1 << RUN_BITS {
            let last = seen.last().unwrap();
            let opened = last ^ to_next_run(*last);
            assert_eq!(opened, (last | SEALED) ^ to_next_run(last | SEALED));
            assert_eq!((position(opened), opened & (CLOSED | SEALED)), (place, CLOSED));
            seen.push(opened);
        }
        assert_eq!(seen.pop(), Some(seen[0]));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1 << RUN_BITS);
    }

    #[test]
    fn forward_refuses_a_whole_turn() {
        let g = Geometry::new(3, 5);
        assert_eq!(g.forward(0, usize::MAX), None);
        assert_eq!(g.forward(g.start_of(7), 0), Some(g.start_of(7)));
        assert_eq!(g.forward(g.start_of(7), 4), Some(g.next_ticket(g.start_of(8))));
    }
}
