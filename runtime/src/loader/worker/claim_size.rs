//! How much of a batch a thread claims at once.
//!
//! Small claims share one batch among all workers, and a slow sample then holds up little; but each costs some hundred
//! nanoseconds between cores. A sizer measures what its thread's claims take and makes them about [`TARGET`] long. The
//! batches do not depend on it.
//!
//! A worker's sizer also says when a whole batch is hardly worth a claim (see [`backoff`](crate::loader::worker::backoff)).

use std::time::Duration;

use crate::loader::worker::backoff::PASSING;

/// How long a claim should take: long against the cost of claiming, short against a batch that is worth sharing.
const TARGET: Duration = Duration::from_micros(20);
/// Of whole batches one is measured after so many that are not, since reading the clock twice costs about 50 ns;
const EVERY: u32 = 32;
/// or, where no better size is looked for, after so many at most, the first ones more often.
const SELDOM: u32 = 511;
/// A measurement costs two looks at the clock. It is affordable each time that 128 looks would have taken: 1.6 % of the time.
const PRICE: u64 = 128;
/// What each thread can afford at the start, and the most that it saves: so many measurements.
const SAVINGS: [u64; 2] = [1024 * PRICE, 4096 * PRICE];

#[derive(Clone, Debug)]
pub(crate) struct ClaimSizer {
    /// Parts to claim.
    parts: usize,
    /// Parts of a batch.
    most: usize,
    /// Whether it looks for the right size.
    adapts: bool,
    /// Claims until the next measurement, and how many those were when it began.
    skip: u32,
    period: u32,
    /// Claims so far, when the last measurement was made.
    claims: u32,
    /// The claim last measured was a whole batch, and small.
    tiny: bool,
    /// The time that was not spent on measurements yet, in looks at the clock.
    savings: u64,
}

impl ClaimSizer {
    /// Claims always `parts` parts.
    pub(crate) fn fixed(parts: usize) -> Self {
        Self { parts, most: parts, adapts: false, skip: 0, period: 0, claims: 0, tiny: false, savings: SAVINGS[0] }
    }

    /// Claims from one part up to `most`.
    pub(crate) fn adaptive(most: usize) -> Self {
        Self { parts: 1, adapts: most > 1, ..Self::fixed(most) }
    }

    /// Measures claims more often than for the statistics even if they can't be made larger, to notice tiny ones.
    pub(crate) fn watching(self) -> Self {
        Self { adapts: true, ..self }
    }

    #[inline]
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// Whether the next claim is to be filled without a look at the clock; else [`measured`](Self::measured) is to be told
    /// what it took.
    #[inline]
    pub(crate) fn lets_go(&mut self) -> bool {
        match self.skip.checked_sub(1) {
            Some(skip) => {
                self.skip = skip;
                true
            }
            None => false,
        }
    }

    /// How many claims were let go since the last measurement, when it is time for another.
    pub(crate) fn let_go(&self) -> u64 {
        u64::from(self.period)
    }

    /// A claim of so many parts took so long; `always`: measure the next one, too. Since the last measurement as much time has
    /// passed as `passed` looks at the clock take.
    ///
    /// So all claims are measured where they are not much quicker than a look at the clock, and where some are so slow that
    /// they pay for the others.
    pub(crate) fn measured(&mut self, took: Duration, parts: usize, always: bool, passed: u64) {
        self.claims = self.claims.saturating_add(self.period + 1);
        self.savings = self.savings.saturating_add(passed).min(SAVINGS[1]);
        let affordable = self.savings >= PRICE;
        self.savings = self.savings.saturating_sub(PRICE);
        if self.adapts {
            self.adapt(took, parts);
        }
        let growing = self.adapts && self.parts < self.most;
        self.period = match self.adapts {
            _ if always || growing || affordable => 0,
            true => EVERY,
            false => (self.claims / 8).min(SELDOM),
        };
        self.skip = self.period;
    }

    /// Whether the last claim was measured, was a whole batch, and took less time than passing it to another core.
    #[inline]
    pub(crate) fn is_tiny(&self) -> bool {
        self.tiny && self.skip == self.period
    }

    fn adapt(&mut self, took: Duration, parts: usize) {
        self.tiny = parts == self.most && took < PASSING;
        let each = (took.as_nanos() / parts as u128).max(1);
        let fit = usize::try_from(TARGET.as_nanos() / each).unwrap_or(usize::MAX).clamp(1, self.most);
        // Half-way, so that one odd sample or a lost time slice does not turn everything over.
        self.parts = if fit > self.parts { fit } else { self.parts.midpoint(fit) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_samples_are_claimed_by_the_batch_and_slow_ones_one_by_one() {
        let mut sizer = ClaimSizer::adaptive(64);
        assert_eq!(sizer.parts(), 1);
        sizer.adapt(Duration::from_nanos(40), 1);
        assert_eq!(sizer.parts(), 64);
        (0..9).for_each(|_| sizer.adapt(Duration::from_millis(1), 1));
        assert_eq!(sizer.parts(), 1);
        sizer.adapt(Duration::from_micros(10), 4);
        assert_eq!(sizer.parts(), 8);
    }

    #[test]
    fn only_whole_batches_that_took_next_to_nothing_are_tiny() {
        let mut sizer = ClaimSizer::adaptive(2).watching();
        for (took, parts, tiny) in [(30, 1, false), (30, 2, true), (3000, 2, false), (30, 2, true)] {
            sizer.adapt(Duration::from_nanos(took), parts);
            assert_eq!(sizer.is_tiny(), tiny, "{took} ns for {parts} parts");
        }
        sizer.savings = 0;
        sizer.measured(Duration::from_nanos(30), 2, false, 1);
        assert!(sizer.is_tiny() && sizer.lets_go() && !sizer.is_tiny(), "the next one is not measured");
    }

    const QUICK: Duration = Duration::from_nanos(500);

    /// How many of these claims are measured.
    fn measured(sizer: &mut ClaimSizer, claims: usize, passed: u64) -> usize {
        let mut measured = 0;
        for _ in 0..claims {
            if !sizer.lets_go() {
                sizer.measured(QUICK, 1, false, passed);
                measured += 1;
            }
        }
        measured
    }

    #[test]
    fn claims_are_measured_the_less_often_the_more_there_were_unless_all_are_wanted() {
        for mut sizer in [ClaimSizer::adaptive(1), ClaimSizer::fixed(5)] {
            assert_eq!(measured(&mut sizer, 1024, 0), 1024);
            let next = measured(&mut sizer, 4096, 0);
            assert!((8..64).contains(&next), "{next}");
            assert_eq!(measured(&mut sizer, 512_000, 0), 1000);
            sizer.measured(QUICK, 1, true, 0);
            assert!(!sizer.lets_go(), "all are wanted");
        }
        let mut watching = ClaimSizer { savings: 0, ..ClaimSizer::adaptive(1).watching() };
        assert_eq!((measured(&mut watching, 33, 0), watching.let_go()), (1, 32));
    }

    #[test]
    fn all_claims_are_measured_as_long_as_the_time_that_passes_pays_for_it() {
        let mut sizer = ClaimSizer::fixed(1);
        measured(&mut sizer, 100_000, 0);
        let rare = measured(&mut sizer, 51_200, 0);
        assert!(rare <= 101, "{rare}");
        // 40 ms, by a clock that takes 25 ns to look at.
        while sizer.lets_go() {}
        sizer.measured(QUICK, 1, false, 1_600_000);
        assert_eq!(measured(&mut sizer, 4095, 0), 4095);
        assert!(measured(&mut sizer, 5120, 0) <= 11);
        while sizer.lets_go() {}
        assert_eq!(measured(&mut sizer, 100_000, PRICE), 100_000);
    }
}
