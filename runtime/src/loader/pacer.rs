//! How much of a batch a thread claims at once.
//!
//! Small claims share one batch among all workers, and a slow sample then holds up little; but each costs some hundred
//! nanoseconds between cores. A pacer measures what its thread's claims take and makes them about [`TARGET`] long. The
//! batches do not depend on it.
//!
//! A worker's pacer also says when a whole batch is hardly worth a claim (see [`rest`](super::rest)).

use std::time::{Duration, Instant};

use super::rest::PASSING;

/// How long a claim should take: long against the cost of claiming, short against a batch that is worth sharing.
const TARGET: Duration = Duration::from_micros(20);
/// Whole batches below the target are measured only now and then, since reading the clock twice costs about 50 ns.
const EVERY: u32 = 32;

#[derive(Clone, Debug)]
pub(super) struct Pacer {
    /// Parts to claim.
    parts: usize,
    /// Parts of a batch.
    most: usize,
    /// Whether it measures.
    adapts: bool,
    /// Claims until the next measurement.
    skip: u32,
    /// The claim just measured was a whole batch, and small.
    tiny: bool,
}

impl Pacer {
    /// Claims always `parts` parts.
    pub(super) fn fixed(parts: usize) -> Self {
        Self { parts, most: parts, adapts: false, skip: 0, tiny: false }
    }

    /// Claims from one part up to `most`.
    pub(super) fn adaptive(most: usize) -> Self {
        Self { parts: 1, most, adapts: most > 1, skip: 0, tiny: false }
    }

    /// Measures claims even if they can't be made larger, to notice tiny ones.
    pub(super) fn watching(self) -> Self {
        Self { adapts: true, ..self }
    }

    #[inline]
    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    #[inline]
    pub(super) fn start(&mut self) -> Option<Instant> {
        if !self.adapts {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        Some(Instant::now())
    }

    #[inline]
    pub(super) fn stop(&mut self, started: Option<Instant>, parts: usize) {
        self.tiny = false;
        if let Some(started) = started {
            self.adapt(started.elapsed(), parts);
        }
    }

    /// Whether the last claim was measured, was a whole batch, and took less time than passing it to another core.
    #[inline]
    pub(super) fn is_tiny(&self) -> bool {
        self.tiny
    }

    fn adapt(&mut self, took: Duration, parts: usize) {
        self.tiny = parts == self.most && took < PASSING;
        let each = (took.as_nanos() / parts as u128).max(1);
        let fit = usize::try_from(TARGET.as_nanos() / each).unwrap_or(usize::MAX).clamp(1, self.most);
        // Half-way, so that one odd sample or a lost time slice does not turn everything over.
        self.parts = if fit > self.parts { fit } else { self.parts.midpoint(fit) };
        self.skip = if self.parts == self.most { EVERY } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_samples_are_claimed_by_the_batch_and_slow_ones_one_by_one() {
        let mut pacer = Pacer::adaptive(64);
        assert_eq!(pacer.parts(), 1);
        pacer.adapt(Duration::from_nanos(40), 1);
        assert_eq!(pacer.parts(), 64);
        (0..9).for_each(|_| pacer.adapt(Duration::from_millis(1), 1));
        assert_eq!(pacer.parts(), 1);
        pacer.adapt(Duration::from_micros(10), 4);
        assert_eq!(pacer.parts(), 8);
        assert!(Pacer::adaptive(1).start().is_none() && Pacer::fixed(5).start().is_none());
    }

    #[test]
    fn only_whole_batches_that_took_next_to_nothing_are_tiny() {
        let mut pacer = Pacer::adaptive(2).watching();
        for (took, parts, tiny) in [(30, 1, false), (30, 2, true), (3000, 2, false), (30, 2, true)] {
            pacer.adapt(Duration::from_nanos(took), parts);
            assert_eq!(pacer.is_tiny(), tiny, "{took} ns for {parts} parts");
        }
        pacer.stop(None, 2);
        assert!(!pacer.is_tiny(), "it was not measured");
        assert!(Pacer::adaptive(1).watching().start().is_some());
    }
}
