//! How long a side (producer or consumer) that has caught up with the other side pauses before it
//! reads the other side's position again.

use crate::sync::spin_hint;

/// The state from which a side decides how long to pause when it has caught up with the other side.
///
/// Reading the other side's position takes its cache line, which the other side must fetch back
/// before its next write. In a stream of items that take nanoseconds each, a side that looks again
/// at once finds only a few items each time, and both sides mostly move that line back and forth.
/// So in a stream, which is recognised by many items since the side last caught up, the side pauses
/// before it looks again, longer each time. Where items come one by one, it looks again at once.
#[derive(Debug)]
pub(super) struct Pace {
    /// The number of the side's next item when it last caught up.
    caught_up: usize,
    /// The length of the pause at that time, in spins.
    spins: usize,
    /// The longest pause, in spins. It is a microsecond or two, but in a short ring no longer than
    /// the ring takes to become full (for the consumer) or empty (for the producer).
    longest: usize,
}

impl Pace {
    /// The number of items since a side last caught up from which on they count as a stream.
    const STREAM: usize = 16;

    pub(super) fn new(number: usize, capacity: usize) -> Self {
        Self { caught_up: number, spins: 0, longest: (capacity / 16).min(64) }
    }

    /// Records that the side has caught up with the other side at item `number`, and pauses in a
    /// stream.
    pub(super) fn pause(&mut self, number: usize) {
        let stream = number.wrapping_sub(self.caught_up) >= Self::STREAM;
        self.caught_up = number;
        self.spins = if stream { (2 * self.spins + 1).min(self.longest) } else { 0 };
        (0..self.spins).for_each(|_| spin_hint());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_in_a_stream_and_end_with_it() {
        let mut pace = Pace::new(usize::MAX, 64);
        let mut spins_at = |number| {
            pace.pause(number);
            pace.spins
        };
        assert_eq!([14, 30, 46, 62, 78].map(&mut spins_at), [0, 1, 3, 4, 4]);
        assert_eq!([79, 95, 110].map(&mut spins_at), [0, 1, 0]);
    }

    #[test]
    fn the_capacity_limits_the_pause() {
        for (capacity, longest) in [(1, 0), (15, 0), (100, 6), (usize::MAX, 64)] {
            let mut pace = Pace::new(0, capacity);
            (1..20).for_each(|round| pace.pause(round * Pace::STREAM));
            assert_eq!(pace.spins, longest);
        }
    }
}
