//! Decides when a worker leaves the batches to the consumer.
//!
//! A batch that takes less time to make than to move between cores is best made where it is used, and the consumer
//! works while it would otherwise wait. So a worker whose claims are that small takes a nap, and checks at the end how
//! many batches were begun during the nap. As long as that is more than workers and consumer could pass to each other,
//! it keeps napping. Otherwise it resumes work: the batches have become larger, or the caller does something else
//! between them, and then there is time to load ahead. If the nap was wrong, it costs one nap; after each such nap the
//! next one is tried later.

use std::time::Duration;

use crate::sync::{self, Instant};

/// The approximate time to pass a small batch between cores: 60 to 300 ns were measured.
pub(crate) const PASSING: Duration = Duration::from_nanos(200);
/// The first nap, and the longest one.
const NAPS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];
/// The maximum number of occasions to nap that are skipped.
const MAX_SKIPPED: u32 = 1024;

/// One worker's naps.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Occasions to skip.
    skip: u32,
    /// The number of occasions to skip after the next unsuccessful nap.
    patience: u32,
}

impl Backoff {
    /// Naps while the other threads begin batches faster than they could be passed; `begun` returns how many were
    /// begun.
    ///
    /// For threads whose last claim was tiny. Returns how long the nap took.
    #[cold]
    pub(crate) fn nap(&mut self, begun: impl Fn() -> usize) -> Duration {
        if self.skip > 0 {
            self.skip -= 1;
            return Duration::ZERO;
        }
        let asleep = Instant::now();
        let [mut nap, longest] = NAPS;
        loop {
            let (before, start) = (begun(), Instant::now());
            sync::nap(nap);
            // The count starts again with each pass.
            let now = begun();
            let made = now.checked_sub(before).unwrap_or(now);
            let slow = u32::try_from(made).is_ok_and(|made| PASSING * made < start.elapsed());
            if slow {
                break;
            }
            self.patience = 0;
            nap = (nap * 2).min(longest);
        }
        self.skip = self.patience;
        self.patience = (self.patience * 2 + 1).min(MAX_SKIPPED);
        asleep.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_worker_naps_while_batches_are_fast_and_less_often_otherwise() {
        let (mut backoff, looks) = (Backoff::default(), Cell::new(0_usize));
        // Three naps with more batches than could be passed, and then one with none.
        let fast = || {
            looks.set(looks.get() + 1);
            if looks.get() <= 6 { looks.get() * 1_000_000_000 } else { usize::MAX }
        };
        backoff.nap(fast);
        assert_eq!((looks.get(), backoff.skip, backoff.patience), (8, 0, 1));
        // A pass begins during the first of two naps.
        let counts = [4_000_000_000, 3_000_000_000, 5, 5];
        let restarted = || {
            looks.set(looks.get() + 1);
            counts[looks.get() - 9]
        };
        backoff.nap(restarted);
        assert_eq!((looks.get(), backoff.skip, backoff.patience), (12, 0, 1));
        backoff.nap(|| 7);
        assert_eq!((backoff.skip, backoff.patience), (1, 3));
        backoff.nap(|| panic!("this occasion is skipped"));
        for skipped in [3, 7, 15] {
            backoff.nap(|| 7);
            assert_eq!(backoff.skip, skipped);
            backoff.skip = 0;
        }
    }
}
