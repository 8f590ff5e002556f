//! The text of a verdict.

use std::fmt;

use super::{Bound, IDLE, Verdict};
use crate::loader::metrics::stats::Slow;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        match self {
            Self::Nothing => f.write_str("no batch was delivered"),
            Self::Loop { lost } => write!(
                f,
                "bound by the loop: it was inside the loader for {:.1} % of the time; the loader kept up",
                percent(*lost)
            ),
            Self::Stuck(Slow { index, samples, time, by }) => {
                let at = if *samples > 0 { format!("at sample {index}") } else { "beginning its stream".to_owned() };
                write!(
                    f,
                    "held up by a sample that has not ended: {by} has been {at} for {time:.1?}, more than half of the \
                     time"
                )
            }
            Self::Reading(bound) => write!(f, "bound by reading: {bound}"),
            Self::Disk(bound) => write!(f, "bound by reading files: {bound}"),
            Self::Network(bound) => write!(f, "bound by the network: {bound}"),
            Self::Decoding(bound) => write!(f, "bound by decoding: {bound}"),
            Self::Writing(bound) => write!(f, "bound by writing samples into batches: {bound}"),
            Self::Starved { share, workers, cores } => {
                let fewer = if workers > cores { "fewer workers, or " } else { "" };
                write!(
                    f,
                    "starved of cores: loading could run, but waited {:.0} % of the time for one of {cores} cores; \
                     {fewer}fewer other threads and programs would help",
                    percent(*share)
                )
            }
            Self::SmallBatches { waited, each } => write!(
                f,
                "bound by handing over small batches: there is one every {each:.1?}, and the loop waited {:.0} % of the \
                 time; a greater batch_size would help",
                percent(*waited)
            ),
            Self::Sampler { busy } => write!(
                f,
                "bound by the sampler: loading threads ran it or waited for it {:.0} % of the time; only one thread at a \
                 time draws from it, so more workers would not help",
                percent(*busy)
            ),
            Self::Uneven { worker, busy, others } => write!(
                f,
                "held up by worker {worker}: it was busy {:.0} % of the time, and the others {:.0} % on average; its share \
                 of the samples takes longer than theirs",
                percent(*busy),
                percent(*others)
            ),
            Self::OneSample { index, share } => write!(
                f,
                "held up by one sample: sample {index}, or one that was read just before it, alone took {:.0} % of \
                 the time; no option makes it faster",
                percent(*share)
            ),
            Self::SlowSamples { waited, idle } => write!(
                f,
                "held up by slow samples: the loop waited {:.0} % of the time for the next batch, while workers were idle \
                 {:.0} % of it because everything that may be loaded ahead was; a greater prefetch_factor would help, or \
                 in_order(false)",
                percent(*waited),
                percent(*idle)
            ),
            Self::Held { waited } => write!(
                f,
                "held up by held batches: the loop waited {:.0} % of the time for one to be dropped; drop them sooner, or \
                 raise hold, or let on_held take more memory",
                percent(*waited)
            ),
            Self::Starting { share } => write!(
                f,
                "held up by beginning passes: {:.0} % of the time went into worker_init, drawing the order, and ending \
                 the previous pass",
                percent(*share)
            ),
            Self::Mixed { waited, busy } => write!(
                f,
                "bound by loading, but by no single part of it: the loop waited {:.0} % of the time, and workers were busy \
                 {:.0} % of it",
                percent(*waited),
                percent(*busy)
            ),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, own, busy, resting, enough, cores, waits } = *self;
        let busy = 100.0 * busy;
        match (own, workers) {
            (true, 0) => write!(f, "the loop's own thread loads everything, {busy:.0} % of the time; ")?,
            (true, _) if resting < IDLE => {
                write!(f, "the loop's own thread did most of it while it would have waited, {busy:.0} % of the time; ")?
            }
            (true, _) => {
                return write!(
                    f,
                    "the loop's own thread did most of it, {busy:.0} % of the time: batches are made faster than \
                     workers could pass them on"
                );
            }
            (false, _) => write!(f, "{workers} of {workers} workers busy {busy:.0} %; ")?,
        }
        if waits && enough > workers {
            write!(
                f,
                "more workers would help, such as {enough}, even beyond the {cores} cores: they wait most of the time"
            )
        } else if workers >= cores {
            write!(
                f,
                "there are {workers} for {cores} cores: more would help only if samples spend their time waiting, for \
                 example for a network"
            )
        } else if enough <= workers {
            write!(f, "on average that is enough: a greater prefetch_factor may help")
        } else if workers == 0 {
            write!(f, "workers would help, up to {enough} ({cores} cores), or more if samples spend their time waiting")
        } else {
            write!(f, "more workers would help, up to {enough} ({cores} cores)")
        }
    }
}
