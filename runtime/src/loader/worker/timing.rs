//! Claims that are timed.

use crate::loader::error::failure::Cause;
use crate::loader::metrics::activity::Activity;
use crate::loader::metrics::clock::{LONG, look};
use crate::loader::metrics::counters::nanos;
use crate::loader::spans;
use crate::loader::spans::Entered;
use crate::loader::worker::reader::Reader;
use crate::sync::Instant;

/// Fills a claim of so many parts and sees what it takes. For claims that the
/// reader's sizer does [not let go](crate::loader::worker::claim_size::ClaimSizer::lets_go). Fails if a subscriber panicked: it is filled all the same.
#[inline(never)]
pub(crate) fn timed(
    reader: &mut Reader,
    activity: &Activity,
    (task, parts): (usize, usize),
    fill: impl FnOnce(&mut Reader),
) -> Result<(), Cause> {
    let timing = Timing::begin(reader, activity, task);
    fill(reader);
    timing.end(reader, activity, parts)
}

/// A claim that is being timed.
#[derive(Debug)]
pub(crate) struct Timing {
    span: Option<Entered>,
    /// What became of the span so far.
    told: Result<(), Cause>,
    started: Instant,
    /// Samples that the thread had taken on before.
    samples: u64,
}

impl Timing {
    pub(crate) fn begin(reader: &mut Reader, activity: &Activity, task: usize) -> Self {
        let (span, told) = match spans::wanted() {
            true => {
                let (span, told) = spans::fill(task);
                (Some(span), told)
            }
            false => (None, Ok(())),
        };
        let samples = activity.counters.samples();
        let started = reader.watch.start();
        Self { span, told, started, samples }
    }

    /// It had so many parts. Fails if a subscriber panicked.
    pub(crate) fn end(self, reader: &mut Reader, activity: &Activity, parts: usize) -> Result<(), Cause> {
        let Self { span, told, started, samples } = self;
        let ended = Instant::now();
        let samples = activity.counters.samples() - samples;
        // Who listens to spans wants them all.
        let took = ended.saturating_duration_since(started);
        let listened_to = span.as_ref().is_some_and(|span| !span.is_disabled());
        let always = listened_to || nanos(took) >= LONG * look();
        let passed = reader.watch.stop(activity, (ended, nanos(took)), samples, reader.sizer.let_go(), always);
        reader.sizer.measured(took, parts, always, passed);
        let Some(mut span) = span else { return told };
        let filled = span.filled(samples);
        told.and(filled).and(span.leave())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::loader::worker::claim_size::ClaimSizer;

    #[test]
    fn a_slow_first_sample_is_not_laid_on_the_quick_ones_after_it() {
        let (mut reader, activity) = (Reader::new(0, None, ClaimSizer::fixed(1), 0), Activity::default());
        timed(&mut reader, &activity, (0, 1), |_| {
            activity.counters.claimed(1);
            std::thread::sleep(Duration::from_nanos(LONG * look()));
        })
        .unwrap();
        let took = activity.counters.busy_time();
        assert!(!took.is_zero());
        // These have no time of their own yet.
        activity.counters.claimed(29);
        assert_eq!(activity.counters.busy_time(), took);
    }
}
