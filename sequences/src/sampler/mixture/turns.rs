//! The sequence of sources: in proportion to their weights, as evenly as possible, computed from
//! the position without a table.
//!
//! Source j has a share sⱼ of the positions, and the shares add up to 1. At the times t = 0, 1, 2,
//! …, ⌊t·sⱼ + ½⌋ samples of source j are due. From t to t + 1, about one sample becomes due in
//! total, and at most one of each source; they are taken in the sources' order. At time t, the
//! number of samples that are due differs from t by at most half the number of sources, so the time
//! of a position is found by a binary search over that range. Among the first p positions, the
//! count of source j differs from p·sⱼ by at most ½ + sⱼ·(1 + n/2), where n is the number of
//! sources. (This rounding is known as that of Webster or Sainte-Laguë. The order is nearly the
//! same as always taking the source that is furthest behind its weight, but that method needs all
//! previous counts.)

/// The share 1, in units of 2⁻⁶³.
const ONE: u128 = 1 << 63;

/// The largest position. The time of a position is close to the position, and the product of a time
/// and a share fits in 128 bits.
pub(super) const MAX: u64 = 1 << 62;

/// The shares of a set of sources.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    /// The share of each source, in units of 2⁻⁶³. Shares are positive and add up to 1.
    shares: Box<[u64]>,
}

/// A position, with the values from which the counts before it are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    time: u64,
    /// The number of samples that become due right after `time` and come before the position.
    rest: u64,
}

impl Turns {
    /// Computes the shares from the weights, which must be positive with a finite sum.
    pub(super) fn new(weights: &[f64]) -> Self {
        let sum: f64 = weights.iter().sum();
        let share = |weight: &f64| ((weight / sum * ONE as f64) as u64).max(1);
        let mut shares: Box<[u64]> = weights.iter().map(share).collect();
        let total: u128 = shares.iter().map(|&share| u128::from(share)).sum();
        // The largest share absorbs the rounding error, which is negligible for it.
        if let Some(largest) = shares.iter_mut().max() {
            *largest = (ONE + u128::from(*largest) - total) as u64;
        }
        Self { shares }
    }

    fn due(&self, time: u64) -> u64 {
        self.shares.iter().map(|&share| due(share, time)).sum()
    }

    /// Returns the moment of a position, which must be at most [`MAX`].
    pub(super) fn moment(&self, position: u64) -> Moment {
        let slack = self.shares.len() as u64 / 2 + 1;
        let (mut time, mut after) = (position.saturating_sub(slack), position + slack);
        while after - time > 1 {
            let middle = time + (after - time) / 2;
            *(if self.due(middle) <= position { &mut time } else { &mut after }) = middle;
        }
        Moment { time, rest: position - self.due(time) }
    }

    /// Returns the number of samples of each source before a moment.
    pub(super) fn counts(&self, Moment { time, mut rest }: Moment) -> impl Iterator<Item = u64> {
        self.shares.iter().map(move |&share| {
            let count = due(share, time);
            let is_next = rest > 0 && due(share, time + 1) > count;
            rest -= u64::from(is_next);
            count + u64::from(is_next)
        })
    }

    /// Returns the first position at which `is_enough` is true of the counts, or `None` if there is
    /// none up to [`MAX`]. Once `is_enough` is true, it must stay true for later positions.
    pub(super) fn first(&self, mut is_enough: impl FnMut(&mut dyn Iterator<Item = u64>) -> bool) -> Option<u64> {
        let mut at = |position| is_enough(&mut self.counts(self.moment(position)));
        if !at(MAX) {
            return None;
        }
        let (mut before, mut after) = (0, MAX);
        while before < after {
            let middle = before + (after - before) / 2;
            if at(middle) { after = middle } else { before = middle + 1 }
        }
        Some(after)
    }
}

/// Returns the number of samples of a source that are due at a time.
fn due(share: u64, time: u64) -> u64 {
    ((u128::from(time) * u128::from(share) + ONE / 2) >> 63) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(turns: &Turns, position: u64) -> Vec<u64> {
        turns.counts(turns.moment(position)).collect()
    }

    #[test]
    fn equal_weights_take_turns() {
        let turns = Turns::new(&[1.0; 3]);
        for p in 0..3000 {
            assert_eq!(counts(&turns, p), [p.div_ceil(3), (p + 1) / 3, p / 3]);
        }
    }

    #[test]
    fn numbers_of_samples_are_exact_weights() {
        for weights in [[3.0, 5.0, 1.0], [1e9, 7.0, 123_456_789.0], [1.0, 1.0, 1e12]] {
            let sum: f64 = weights.iter().sum();
            assert_eq!(counts(&Turns::new(&weights), sum as u64), weights.map(|weight| weight as u64));
        }
    }

    #[test]
    fn extreme_weights_and_positions_do_not_overflow() {
        for weights in [vec![1.0], vec![1.0; 1000], vec![f64::MIN_POSITIVE, 1e300], vec![5e-324, 5e-324, 1.0]] {
            let turns = Turns::new(&weights);
            assert_eq!(counts(&turns, MAX).iter().sum::<u64>(), MAX);
            assert_eq!(turns.first(|counts| counts.sum::<u64>() >= MAX), Some(MAX));
        }
        assert_eq!(Turns::new(&[1e-30, 1.0]).first(|counts| counts.next() > Some(1)), None);
    }

    proptest! {
        #[test]
        fn counts_grow_one_by_one_and_keep_to_the_weights(
            weights in proptest::collection::vec(prop_oneof![0.001..1.0, 1.0..1000.0], 1..40), start in 0_u64..1 << 40,
        ) {
            let turns = Turns::new(&weights);
            let sum: f64 = weights.iter().sum();
            let mut last = counts(&turns, start);
            for p in start + 1..start + 300 {
                let next = counts(&turns, p);
                prop_assert_eq!(next.iter().sum::<u64>(), p);
                prop_assert_eq!(next.iter().zip(&last).filter(|(next, last)| **next == **last + 1).count(), 1);
                prop_assert_eq!(next.iter().zip(&last).filter(|(next, last)| next == last).count(), weights.len() - 1);
                for (count, weight) in next.iter().zip(&weights) {
                    let share = weight / sum;
                    let off = (*count as f64 - p as f64 * share).abs();
                    prop_assert!(off <= 0.5 + share * (1.0 + weights.len() as f64 / 2.0) + 1e-3, "{off} at {p}");
                }
                last = next;
            }
        }
    }
}
