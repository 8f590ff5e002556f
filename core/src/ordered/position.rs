//! The cursor of a ring: lap, slot, part, run number and two flags in one word.
//!
//! ```text
//! | lap ........ | slot | part | run | CLOSED | SEALED |
//! ```
//!
//! The part counts up to `parts` and carries into the slot, which counts up to `depth` and carries
//! into the lap. Neither `parts` nor `depth` has to be a power of two, and counting needs no
//! division. The lap may wrap, since positions are only compared for equality.
//!
//! This word is the only one that workers compete for. Because the flags are in it, every claim
//! comes either before or after a seal. Because the run number is in it (a few bits that change
//! when a run is opened), a claim that was begun in one run does not succeed in another.

/// Flag: the run gets no new tickets.
pub(super) const SEALED: usize = 1;
/// Flag: the ring is closed.
pub(super) const CLOSED: usize = 2;
/// The number of bits of the run number, which distinguishes a run from those before and after it.
/// The loom models use a single bit, so that they see run numbers repeat.
const RUN_BITS: u32 = if cfg!(loom) {
    1
} else if usize::BITS < 64 {
    2
} else {
    8
};
/// The number of bits of a cursor below its part.
pub(super) const FLAG_BITS: u32 = 2 + RUN_BITS;
const FLAGS: usize = mask(FLAG_BITS);
/// The lowest bit of the run number within the cursor.
const ONE_RUN: usize = 1 << 2;
const RUN: usize = FLAGS & !(ONE_RUN - 1);

/// A value that no position equals, since positions have no flags set.
pub(super) const NOWHERE: usize = FLAGS;

/// The layout of the positions of one ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// The number of slots in a lap, at least 1.
    pub(super) depth: usize,
    /// The number of parts in a slot, at least 1.
    pub(super) parts: usize,
    slot_shift: u32,
    lap_shift: u32,
    /// Masks of the bits below the slot and below the lap, stored because loading them is faster
    /// than shifting.
    below_slot: usize,
    below_lap: usize,
}

impl Geometry {
    /// Creates the layout. Panics if `depth` or `parts` is 0, or if too few bits are left to count
    /// laps.
    pub(super) const fn new(depth: usize, parts: usize) -> Self {
        assert!(depth > 0, "a ring needs at least one slot");
        assert!(parts > 0, "a slot needs at least one part");
        let slot_shift = FLAG_BITS + bits_for(parts);
        let lap_shift = slot_shift + bits_for(depth);
        // Eight bits are more than enough to distinguish laps. Parts are counted in half a word
        // (see `Slot::finished`).
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

    /// Returns the lap that is `by` laps after `lap` (before it, if `by` is negative), wrapping.
    #[inline]
    pub(super) const fn lap_near(self, lap: usize, by: isize) -> usize {
        lap.wrapping_add_signed(by) & (usize::MAX >> self.lap_shift)
    }

    /// Returns the cursor advanced by `parts` parts, with its flags kept. It must not go past the
    /// end of the slot.
    #[inline]
    pub(super) const fn advance(self, cursor: usize, parts: usize) -> usize {
        debug_assert!(parts > 0 && self.part(cursor) + parts <= self.parts);
        if self.part(cursor) + parts < self.parts { cursor + (parts << FLAG_BITS) } else { self.next_ticket(cursor) }
    }

    /// Returns the cursor at the first part of the next ticket, with its flags kept.
    #[inline]
    pub(super) const fn next_ticket(self, cursor: usize) -> usize {
        if self.slot(cursor) + 1 < self.depth {
            (cursor & !self.below_slot) + (1 << self.slot_shift) + (cursor & FLAGS)
        } else {
            (self.lap(cursor).wrapping_add(1) << self.lap_shift) + (cursor & FLAGS)
        }
    }

    /// Returns the position `tickets` tickets after `position`, which must be the first part of a
    /// ticket. Returns `None` if that is more than half a turn of the position.
    pub(super) const fn forward(self, position: usize, tickets: usize) -> Option<usize> {
        let slot = self.slot(position) as u128 + tickets as u128;
        let laps = slot / self.depth as u128;
        if laps > (usize::MAX >> self.lap_shift) as u128 / 2 {
            return None;
        }
        let lap = self.lap(position).wrapping_add(laps as usize) << self.lap_shift;
        Some(lap + (((slot % self.depth as u128) as usize) << self.slot_shift))
    }

    /// Returns the number of tickets between two positions, each of which is the first part of a
    /// ticket. Wraps as the laps do.
    #[inline]
    pub(super) const fn tickets_between(self, from: usize, to: usize) -> usize {
        let laps = self.lap(to).wrapping_sub(self.lap(from)) & (usize::MAX >> self.lap_shift);
        laps.wrapping_mul(self.depth).wrapping_add(self.slot(to)).wrapping_sub(self.slot(from))
    }

    /// Returns the position of the first part of the cursor's ticket, without flags.
    #[inline]
    pub(super) const fn ticket_start(self, cursor: usize) -> usize {
        cursor & !self.below_slot
    }

    /// Returns the first position of slot `slot` in lap `lap`.
    #[inline]
    pub(super) const fn at(self, lap: usize, slot: usize) -> usize {
        (lap << self.lap_shift) + (slot << self.slot_shift)
    }
}

/// Returns the cursor without its flags and run number.
#[inline]
pub(super) const fn position(cursor: usize) -> usize {
    cursor & !FLAGS
}

/// Returns the flags and the run number of the cursor.
#[inline]
pub(super) const fn flags(cursor: usize) -> usize {
    cursor & FLAGS
}

/// Returns the bits to flip in the cursor in order to open the next run: those of the run number,
/// and the seal if it is set.
#[inline]
pub(super) const fn to_next_run(cursor: usize) -> usize {
    let next = ((cursor & RUN) + ONE_RUN) & RUN;
    (cursor & (RUN | SEALED)) ^ next
}

/// Returns the number of bits that can hold `0..n`.
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
            let mut cursor = g.at(g.lap_near(0, -2), 0) | SEALED;
            for lap in [g.lap_near(0, -2), g.lap_near(0, -1), 0, 1] {
                for slot in 0..depth {
                    assert_eq!(g.forward(g.at(lap, 0), slot), Some(position(cursor)));
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
    fn opening_a_run_changes_only_its_number() {
        let place = Geometry::new(3, 5).at(7, 0);
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
        assert_eq!(g.forward(g.at(7, 0), 0), Some(g.at(7, 0)));
        assert_eq!(g.forward(g.at(7, 0), 4), Some(g.next_ticket(g.at(8, 0))));
    }
}
