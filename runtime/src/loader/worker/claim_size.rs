//! Decides how much of a batch a thread claims at once. A batch is divided into parts of
//! consecutive rows, and a claim takes one or more parts.
//!
//! With small claims all workers share one batch, so a slow sample delays little else; but each
//! claim costs some hundred nanoseconds if several cores make claims. A sizer measures how long the
//! claims of its thread take, and adjusts their size so that a claim takes about [`TARGET`]. The
//! contents of batches do not depend on the size of claims.
//!
//! A worker's sizer also detects batches that are too quick for a worker to be of use (see
//! [`backoff`](crate::loader::worker::backoff)).

use std::time::Duration;

use crate::loader::worker::backoff::PASSING;

/// How long a claim should take: long compared with the cost of claiming, but short compared with a
/// batch that is worth sharing.
const TARGET: Duration = Duration::from_micros(20);
/// The number of claims of whole batches that are not measured between two that are, since reading
/// the clock twice costs about 50 ns.
const EVERY: u32 = 32;
/// The maximum number of claims that are not measured between two that are, for sizers that do not
/// adapt the size. Between the first claims, fewer are left out.
const SELDOM: u32 = 511;
/// The price of a measurement, in clock reads: one is affordable whenever the time of this many
/// clock reads has passed. A measurement takes two clock reads, so this limits the cost to 1.6 % of
/// the time.
const PRICE: u64 = 128;
/// The time that a thread can spend on measurements at the start, and the maximum that it can save
/// up, in clock reads.
const SAVINGS: [u64; 2] = [1024 * PRICE, 4096 * PRICE];

#[derive(Clone, Debug)]
pub(crate) struct ClaimSizer {
    /// The number of parts of a batch to claim.
    parts: usize,
    /// The number of parts that a batch has.
    most: usize,
    /// Whether the sizer adapts the size.
    adapts: bool,
    /// The number of claims until the next measurement, and its value when it was last set.
    skip: u32,
    period: u32,
    /// The number of claims until the last measurement.
    claims: u32,
    /// Whether the last measured claim was a whole batch, and was quicker than passing a batch
    /// between cores.
    tiny: bool,
    /// The time that is available for measurements, in clock reads.
    savings: u64,
}

impl ClaimSizer {
    /// Makes a sizer that always claims `parts` parts.
    pub(crate) fn fixed(parts: usize) -> Self {
        Self { parts, most: parts, adapts: false, skip: 0, period: 0, claims: 0, tiny: false, savings: SAVINGS[0] }
    }

    /// Makes a sizer that claims from one part up to `most`.
    pub(crate) fn adaptive(most: usize) -> Self {
        Self { parts: 1, adapts: most > 1, ..Self::fixed(most) }
    }

    /// Makes a sizer that claims one part if the user has set the part size, and otherwise from one
    /// part up to `most`.
    pub(crate) fn of(is_fixed: bool, most: usize) -> Self {
        if is_fixed { Self::fixed(1) } else { Self::adaptive(most) }
    }

    /// Makes the sizer measure claims more often than the statistics need, even if claims cannot
    /// grow, to detect tiny ones.
    pub(crate) fn watching(self) -> Self {
        Self { adapts: true, ..self }
    }

    #[inline]
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// Whether the next claim is filled without reading the clock. If not, call
    /// [`measured`](Self::measured) with its time.
    #[inline]
    pub(crate) fn skips_timing(&mut self) -> bool {
        match self.skip.checked_sub(1) {
            Some(skip) => {
                self.skip = skip;
                true
            }
            None => false,
        }
    }

    /// The number of unmeasured claims between the last measurement and the next one. For use when
    /// the next one is due.
    pub(crate) fn untimed(&self) -> u64 {
        u64::from(self.period)
    }

    /// Records that a claim of `parts` parts took `took`. `always` forces the next one to be
    /// measured, too. `passed` is the time since the last measurement, in clock reads.
    ///
    /// All claims are measured while that is affordable: if they take much longer than a clock
    /// read, or if some are so slow that they pay for the others.
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

    /// Whether the last claim was measured, was a whole batch, and took less time than passing a
    /// batch to another core.
    #[inline]
    pub(crate) fn is_tiny(&self) -> bool {
        self.tiny && self.skip == self.period
    }

    fn adapt(&mut self, took: Duration, parts: usize) {
        self.tiny = parts == self.most && took < PASSING;
        let each = (took.as_nanos() / parts as u128).max(1);
        let fit = usize::try_from(TARGET.as_nanos() / each).unwrap_or(usize::MAX).clamp(1, self.most);
        // Shrink half-way, so that one unusual sample or a lost time slice does not change the size
        // completely.
        self.parts = if fit > self.parts { fit } else { self.parts.midpoint(fit) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_samples_are_claimed_by_batch_and_slow_ones_singly() {
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
    fn only_very_quick_whole_batches_are_tiny() {
        let mut sizer = ClaimSizer::adaptive(2).watching();
        for (took, parts, tiny) in [(30, 1, false), (30, 2, true), (3000, 2, false), (30, 2, true)] {
            sizer.adapt(Duration::from_nanos(took), parts);
            assert_eq!(sizer.is_tiny(), tiny, "{took} ns for {parts} parts");
        }
        sizer.savings = 0;
        sizer.measured(Duration::from_nanos(30), 2, false, 1);
        assert!(sizer.is_tiny() && sizer.skips_timing() && !sizer.is_tiny(), "the next one is not measured");
    }

    const QUICK: Duration = Duration::from_nanos(500);

    /// Returns how many of `claims` claims are measured.
    fn measured(sizer: &mut ClaimSizer, claims: usize, passed: u64) -> usize {
        let mut measured = 0;
        for _ in 0..claims {
            if !sizer.skips_timing() {
                sizer.measured(QUICK, 1, false, passed);
                measured += 1;
            }
        }
        measured
    }

    #[test]
    fn claims_are_measured_less_often_over_time() {
        for mut sizer in [ClaimSizer::adaptive(1), ClaimSizer::fixed(5)] {
            assert_eq!(measured(&mut sizer, 1024, 0), 1024);
            let next = measured(&mut sizer, 4096, 0);
            assert!((8..64).contains(&next), "{next}");
            assert_eq!(measured(&mut sizer, 512_000, 0), 1000);
            sizer.measured(QUICK, 1, true, 0);
            assert!(!sizer.skips_timing(), "all are measured");
        }
        let mut watching = ClaimSizer { savings: 0, ..ClaimSizer::adaptive(1).watching() };
        assert_eq!((measured(&mut watching, 33, 0), watching.untimed()), (1, 32));
    }

    #[test]
    fn all_claims_are_measured_while_that_is_affordable() {
        let mut sizer = ClaimSizer::fixed(1);
        measured(&mut sizer, 100_000, 0);
        let rare = measured(&mut sizer, 51_200, 0);
        assert!(rare <= 101, "{rare}");
        // 40 ms pass, with a clock that takes 25 ns to read.
        while sizer.skips_timing() {}
        sizer.measured(QUICK, 1, false, 1_600_000);
        assert_eq!(measured(&mut sizer, 4095, 0), 4095);
        assert!(measured(&mut sizer, 5120, 0) <= 11);
        while sizer.skips_timing() {}
        assert_eq!(measured(&mut sizer, 100_000, PRICE), 100_000);
    }
}
