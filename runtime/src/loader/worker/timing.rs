//! Fills claims and records how long that takes.

use crate::loader::error::failure::Cause;
use crate::loader::error::guard::caught;
use crate::loader::metrics::activity::Activity;
use crate::loader::metrics::clock::{LONG, clock_read_ns};
use crate::loader::metrics::counters::nanos;
use crate::loader::trace;
use crate::loader::trace::Entered;
use crate::loader::worker::reader::Reader;
use crate::sync::Instant;

/// Fills a claim of `parts` parts by calling `fill`, and records the time. Not for claims that the
/// sizer [skips](crate::loader::worker::claim_size::ClaimSizer::skips_timing). `fill` is told
/// whether to time the samples one by one. Fails if `fill` or a `tracing` subscriber panics; if it
/// was the subscriber, the rows are valid nevertheless.
#[inline(never)]
pub(crate) fn timed<T: Copy>(
    reader: &mut Reader,
    activity: &Activity,
    (task, parts): (usize, usize),
    fill: impl Fn(&mut Reader, bool) -> T,
) -> Result<T, Cause> {
    caught(|| {
        let timing = Timing::begin(reader, activity, task);
        let timed = reader.timer.laps().is_some();
        let filled = fill(reader, timed);
        timing.end(reader, activity, parts).map(|()| filled)
    })
    .flatten()
}

/// A claim that is being timed.
#[derive(Debug)]
pub(crate) struct Timing {
    span: Option<Entered>,
    /// The outcome of the subscriber's calls so far.
    traced: Result<(), Cause>,
    started: Instant,
    /// The number of samples that the thread had started before this claim.
    samples: u64,
}

impl Timing {
    pub(crate) fn begin(reader: &mut Reader, activity: &Activity, task: usize) -> Self {
        let (span, traced) = match trace::wanted() {
            true => {
                let (span, traced) = trace::fill(task);
                (Some(span), traced)
            }
            false => (None, Ok(())),
        };
        let samples = activity.counters.samples();
        let started = reader.timer.start(&activity.counters);
        Self { span, traced, started, samples }
    }

    /// Ends the timing of a claim that had `parts` parts. Fails if a subscriber has panicked.
    pub(crate) fn end(self, reader: &mut Reader, activity: &Activity, parts: usize) -> Result<(), Cause> {
        let Self { span, traced, started, samples } = self;
        let ended = Instant::now();
        let samples = activity.counters.samples() - samples;
        // Time all claims if they are slow, or if a subscriber listens to the spans.
        let took = ended.saturating_duration_since(started);
        let listened_to = span.as_ref().is_some_and(|span| !span.is_disabled());
        let always = listened_to || nanos(took) >= LONG * clock_read_ns();
        let passed = reader.timer.stop(activity, (ended, nanos(took)), samples, reader.sizer.untimed(), always);
        reader.sizer.measured(took, parts, always, passed);
        let Some(mut span) = span else { return traced };
        let filled = span.filled(samples);
        traced.and(filled).and(span.leave())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::loader::worker::claim_size::ClaimSizer;

    #[test]
    fn a_slow_first_sample_does_not_count_for_later_ones() {
        let (mut reader, activity) = (Reader::new(0, None, ClaimSizer::fixed(1), 0, None), Activity::default());
        timed(&mut reader, &activity, (0, 1), |_, _| {
            activity.counters.claimed(1);
            std::thread::sleep(Duration::from_nanos(LONG * clock_read_ns()));
        })
        .unwrap();
        let took = activity.counters.busy_time();
        assert!(!took.is_zero());
        // The following samples have no measured time yet.
        activity.counters.claimed(29);
        assert_eq!(activity.counters.busy_time(), took);
    }
}
