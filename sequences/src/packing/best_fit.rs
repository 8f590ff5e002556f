//! The best-fit decreasing algorithm: each piece, from the longest to the shortest, goes into the
//! fullest bin that has room for it.
//!
//! Bins with the same number of free tokens (their *room*) are in one list. A tree of 64-bit words
//! says which lists are not empty: its lowest level has a bit for each room, and each level above
//! has a bit for each word that is not 0. So finding the smallest sufficient room takes one step
//! for each level of the tree; there are three levels for a capacity of 8,192.

use crate::packing::PackingError;
use crate::packing::plan::{filled, reserve};

/// The end of a list, in place of a bin number plus 1.
const NONE: u32 = 0;

/// Lists of bins, one for each room (number of free tokens).
struct Rooms {
    /// For each room, the last bin that was added to its list, plus 1.
    heads: Vec<u32>,
    /// For each bin, the bin that was added to the same list before it, plus 1.
    before: Vec<u32>,
    /// The tree of rooms whose lists are not empty, from the lowest level to the one that is a
    /// single word.
    levels: Vec<Vec<u64>>,
}

impl Rooms {
    fn new(capacity: usize) -> Result<Self, PackingError> {
        let mut levels = vec![filled(capacity / 64 + 1)?];
        while levels[levels.len() - 1].len() > 1 {
            levels.push(filled(levels[levels.len() - 1].len().div_ceil(64))?);
        }
        Ok(Self { heads: filled(capacity + 1)?, before: Vec::new(), levels })
    }

    /// Returns the smallest room (number of free tokens) of a bin that is at least `room`.
    #[inline]
    fn least(&self, room: usize) -> Option<usize> {
        let mut at = room;
        for (height, level) in self.levels.iter().enumerate() {
            let bits = level.get(at / 64)? >> (at % 64);
            if bits != 0 {
                at += bits.trailing_zeros() as usize;
                for lower in self.levels[..height].iter().rev() {
                    at = at * 64 + lower[at].trailing_zeros() as usize;
                }
                return Some(at);
            }
            at = at / 64 + 1;
        }
        None
    }

    #[inline]
    fn put(&mut self, bin: u32, room: usize) {
        let head = &mut self.heads[room];
        self.before[bin as usize] = *head;
        if std::mem::replace(head, bin + 1) == NONE {
            let mut at = room;
            for level in &mut self.levels {
                let word = &mut level[at / 64];
                let was = std::mem::replace(word, *word | 1 << (at % 64));
                if was != 0 {
                    break;
                }
                at /= 64;
            }
        }
    }

    /// Removes a bin with `room` free tokens from the list of such bins, which must not be empty.
    #[inline]
    fn take(&mut self, room: usize) -> u32 {
        let bin = self.heads[room] - 1;
        self.heads[room] = self.before[bin as usize];
        if self.heads[room] == NONE {
            let mut at = room;
            for level in &mut self.levels {
                let word = &mut level[at / 64];
                *word &= !(1 << (at % 64));
                if *word != 0 {
                    break;
                }
                at /= 64;
            }
        }
        bin
    }
}

/// Packs pieces of these lengths, which must be in descending order. Calls `place` with the bin of
/// each piece, and returns the number of bins. Lengths must be 1 to `capacity`, and there must be
/// fewer than 2³² pieces.
pub(super) fn best_fit(
    lengths: impl Iterator<Item = u32>,
    capacity: usize,
    mut place: impl FnMut(u32),
) -> Result<usize, PackingError> {
    let mut rooms = Rooms::new(capacity)?;
    let mut bins = 0_u32;
    for length in lengths.map(|length| length as usize) {
        let (bin, room) = match rooms.least(length) {
            Some(room) => (rooms.take(room), room),
            None => {
                reserve(&mut rooms.before, 1)?;
                rooms.before.push(NONE);
                bins += 1;
                (bins - 1, capacity)
            }
        };
        // A full bin is in no list.
        if room > length {
            rooms.put(bin, room - length);
        }
        place(bin);
    }
    Ok(bins as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(lengths: &[u32], capacity: usize) -> (usize, Vec<u32>) {
        let mut placed = Vec::new();
        let bins = best_fit(lengths.iter().copied(), capacity, |bin| placed.push(bin)).unwrap();
        (bins, placed)
    }

    /// Packs in the simplest way, for comparison: looks at all bins for the fullest one with enough
    /// room.
    fn plainly(lengths: &[u32], capacity: u32) -> (usize, Vec<u32>) {
        let mut left: Vec<u32> = Vec::new();
        for &length in lengths {
            match left.iter_mut().filter(|left| **left >= length).min() {
                Some(left) => *left -= length,
                None => left.push(capacity - length),
            }
        }
        let bins = left.len();
        left.sort_unstable();
        (bins, left)
    }

    #[test]
    fn a_piece_goes_into_the_fullest_bin_with_room() {
        assert_eq!(packed(&[8, 7, 5, 3, 2, 1], 10), (3, vec![0, 1, 2, 1, 0, 2]));
        assert_eq!(packed(&[], 10), (0, vec![]));
        assert_eq!(packed(&[1; 5], 1).0, 5);
    }

    proptest! {
        #[test]
        fn bins_are_those_of_a_plain_search(
            capacity in prop_oneof![1_u32..80, 4000_u32..5000, Just(1 << 18), Just(262_145)],
            parts in proptest::collection::vec(0.0..1.0, 0..300),
        ) {
            let lengths: Vec<u32> = parts.iter().map(|part: &f64| 1 + (part * f64::from(capacity)) as u32).collect();
            let mut lengths: Vec<u32> = lengths.into_iter().map(|length| length.min(capacity)).collect();
            lengths.sort_by_key(|&length| std::cmp::Reverse(length));
            let (bins, placed) = packed(&lengths, capacity as usize);
            let mut left = vec![capacity; bins];
            placed.iter().zip(&lengths).for_each(|(&bin, length)| left[bin as usize] -= length);
            left.sort_unstable();
            prop_assert_eq!((bins, left), plainly(&lengths, capacity));
        }
    }
}
