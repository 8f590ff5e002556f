//! Decides when a worker leaves the batches to the consumer.
//!
//! If making a batch takes less time than passing it between cores, it is best made by the thread
//! that uses it: the consumer, which makes batches while it would otherwise wait. So a worker whose
//! claims are that small takes a nap, and then checks how many batches were begun during the nap.
//! If they are more than workers could have passed to the consumer in that time, the worker naps
//! again. Otherwise it goes back to work: batches take longer now, or the caller does something
//! else between them, so that there is time to load ahead. A nap that was not worthwhile costs its
//! own time only; after each such nap, more occasions are skipped before the next one.

use std::time::Duration;

use crate::sync::{self, Instant};

/// The approximate time to pass a small batch between cores. 60 to 300 ns were measured.
pub(crate) const PASSING: Duration = Duration::from_nanos(200);
/// The duration of the first nap, and of the longest one.
const NAPS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];
/// The maximum number of occasions for a nap that are skipped.
const MAX_SKIPPED: u32 = 1024;

/// The state of one worker's naps.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// The number of occasions that are still skipped.
    skip: u32,
    /// The number of occasions to skip after the next nap that was not worthwhile.
    patience: u32,
}

impl Backoff {
    /// Naps for as long as other threads begin batches faster than they could be passed between
    /// cores. `begun` returns how many batches were begun. Returns the time that the naps took.
    ///
    /// For threads whose last claim was tiny.
    #[cold]
    pub(crate) fn nap(&mut self, begun: &dyn Fn() -> usize) -> Duration {
        if self.skip > 0 {
            self.skip -= 1;
            return Duration::ZERO;
        }
        let asleep = Instant::now();
        let [mut nap, longest] = NAPS;
        loop {
            let (before, start) = (begun(), Instant::now());
            sync::nap(nap);
            // `begun` starts at 0 again in each pass.
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
        // The count grows quickly in three naps, and not at all in the fourth.
        let fast = || {
            looks.set(looks.get() + 1);
            if looks.get() <= 6 { looks.get() * 1_000_000_000 } else { usize::MAX }
        };
        backoff.nap(&fast);
        assert_eq!((looks.get(), backoff.skip, backoff.patience), (8, 0, 1));
        // The count is reset during the first of two naps, because a pass begins.
        let counts = [4_000_000_000, 3_000_000_000, 5, 5];
        let restarted = || {
            looks.set(looks.get() + 1);
            counts[looks.get() - 9]
        };
        backoff.nap(&restarted);
        assert_eq!((looks.get(), backoff.skip, backoff.patience), (12, 0, 1));
        backoff.nap(&|| 7);
        assert_eq!((backoff.skip, backoff.patience), (1, 3));
        backoff.nap(&|| panic!("this occasion is skipped"));
        for skipped in [3, 7, 15] {
            backoff.nap(&|| 7);
            assert_eq!(backoff.skip, skipped);
            backoff.skip = 0;
        }
    }
}
