//! When a worker leaves the batches to the consumer.
//!
//! A batch that takes less time to make than to move from one core to another is best made where it is used, and the
//! consumer works while it would wait. So a worker whose claims are that small takes a nap, and looks at its end how many
//! batches were begun meanwhile. As long as that is more than workers and consumer could pass to each other, it naps on.
//! Otherwise it goes back to work: the batches have become larger, or the caller does something else between them, and
//! then there is time to load ahead. What that costs if it was in vain is one nap; after each such nap the next is tried later.

use std::time::Duration;

use crate::sync::{self, Instant};

/// What it takes to pass a small batch from core to core, about: 60 to 300 ns were measured.
pub(crate) const PASSING: Duration = Duration::from_nanos(200);
/// The first nap, and the longest one.
const NAPS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];
/// The most occasions to nap that are let go by.
const MOST_SKIPPED: u32 = 1024;

/// One worker's naps.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Occasions to let go by.
    skip: u32,
    /// How many to let go by after the next nap in vain.
    patience: u32,
}

impl Backoff {
    /// Naps while the others begin batches faster than they could be passed; `begun` says how many were.
    ///
    /// For threads that found their last claim to be tiny. Gives the time that the nap took.
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
            // The count starts anew with each pass.
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
        self.patience = (self.patience * 2 + 1).min(MOST_SKIPPED);
        asleep.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_worker_naps_on_while_batches_are_begun_fast_and_tries_less_often_when_they_are_not() {
        let (mut backoff, looks) = (Backoff::default(), Cell::new(0_usize));
        // Three naps with more batches than could be passed, and then one without any.
        let fast = || {
            looks.set(looks.get() + 1);
            if looks.get() <= 6 { looks.get() * 1_000_000_000 } else { usize::MAX }
        };
        backoff.nap(fast);
        assert_eq!((looks.get(), backoff.skip, backoff.patience), (8, 0, 1));
        // A pass has begun during the first of two.
        let counts = [4_000_000_000, 3_000_000_000, 5, 5];
        let anew = || {
            looks.set(looks.get() + 1);
            counts[looks.get() - 9]
        };
        backoff.nap(anew);
        assert_eq!((looks.get(), backoff.skip, backoff.patience), (12, 0, 1));
        backoff.nap(|| 7);
        assert_eq!((backoff.skip, backoff.patience), (1, 3));
        backoff.nap(|| panic!("this occasion is let go by"));
        for skipped in [3, 7, 15] {
            backoff.nap(|| 7);
            assert_eq!(backoff.skip, skipped);
            backoff.skip = 0;
        }
    }
}
