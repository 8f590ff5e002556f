//! How long a side that has caught up leaves the other one alone.

use crate::sync::spin_hint;

/// One side's memory of when it caught up.
///
/// A side that looks at the other one's position takes its cache line, and the other one, about to write, has to fetch
/// it back. In a stream of items that take nanoseconds each, one who looks again at once finds few of them each time,
/// and both sides do little else than move that line. So in a stream, told by many items since it last caught up, a
/// side pauses before it looks again, and longer the next time. Where items come one by one, it looks at once.
#[derive(Debug)]
pub(super) struct Pace {
    /// The side's number when it last caught up.
    caught_up: usize,
    /// For how many spins it paused then.
    spins: usize,
    /// The longest pause: a microsecond or two, but in a short ring no longer than until it is full, or empty.
    longest: usize,
}

impl Pace {
    /// So many items since it last caught up are a stream.
    const STREAM: usize = 16;

    pub(super) fn new(number: usize, capacity: usize) -> Self {
        Self { caught_up: number, spins: 0, longest: (capacity / 16).min(64) }
    }

    /// Notes that the side has caught up with the other one at `number`, and pauses in a stream.
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
    fn a_side_pauses_longer_and_longer_in_a_stream_and_not_at_all_after_it() {
        let mut pace = Pace::new(usize::MAX, 64);
        let mut spins_at = |number| {
            pace.pause(number);
            pace.spins
        };
        assert_eq!([14, 30, 46, 62, 78].map(&mut spins_at), [0, 1, 3, 4, 4]);
        assert_eq!([79, 95, 110].map(&mut spins_at), [0, 1, 0]);
    }

    #[test]
    fn a_pause_is_no_longer_than_a_ring_of_any_size_can_make_use_of() {
        for (capacity, longest) in [(1, 0), (15, 0), (100, 6), (usize::MAX, 64)] {
            let mut pace = Pace::new(0, capacity);
            (1..20).for_each(|round| pace.pause(round * Pace::STREAM));
            assert_eq!(pace.spins, longest);
        }
    }
}
