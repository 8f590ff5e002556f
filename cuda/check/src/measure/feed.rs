//! Measures the fraction of the link's bandwidth that a loader reaches, with a loop that takes
//! batches, makes them ready on its stream, and drops them.

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use slotline::dataset::Dataset;
use slotline_cuda::{DeviceLoader, Pinned};

use super::copy::{Link, bytes_of};
use crate::bench::{Bench, ROWS};
use crate::gpu::Training;
use crate::rows::{Rows, Stamps};
use crate::spread::Spread;

/// The bandwidth of one loader.
#[derive(Debug, Serialize)]
pub(crate) struct Feed {
    pub(crate) loader: &'static str,
    /// The dataset: `nothing` has rows that cost nothing to produce; `gather` has rows that workers
    /// copy from random places in memory.
    pub(crate) dataset: &'static str,
    /// The size of the samples of a batch, in bytes.
    pub(crate) batch_bytes: usize,
    pub(crate) slots: usize,
    pub(crate) workers: usize,
    /// The number of batches in a pass.
    pub(crate) batches: usize,
    /// The bandwidth, in 10⁹ bytes of samples per second, from the start of the pass to the end of
    /// the last copy.
    pub(crate) gb_per_s: Spread,
    /// The bandwidth divided by that of copies of the same size from registered memory, measured
    /// right before.
    pub(crate) share: Spread,
}

pub(crate) fn run(bench: &Bench) -> Result<Vec<Feed>> {
    let training = bench.gpu.stream()?;
    let scale = &bench.scale;
    let most = scale.batches.iter().copied().max().unwrap_or_default();
    let link = Link::new(bench, &training, most)?;
    // The memory has as many batches as a loader's, so that as little of it is in the CPU's caches.
    let source = Pinned::registered(&bench.gpu.device, 8 * most)?;
    let mut figures = Vec::new();
    for &batch_bytes in &scale.batches {
        let batches = (scale.copied / batch_bytes).clamp(scale.least, 2_000);
        let (len, row_bytes) = (batches * ROWS, batch_bytes / ROWS);
        for slots in [2, 3] {
            let case = Case { batch_bytes, slots, batches };
            let raw = || link.gb_per_s(bytes_of(&source), batch_bytes, scale.copied);
            figures.push(feed(bench, &training, case, "nothing", Stamps { len, row_bytes }, raw)?);
            let rows = Rows::new(len, row_bytes, scale.source / row_bytes);
            figures.push(feed(bench, &training, case, "gather", rows, raw)?);
        }
    }
    Ok(figures)
}

#[derive(Clone, Copy, Debug)]
struct Case {
    batch_bytes: usize,
    slots: usize,
    batches: usize,
}

fn feed<D: Dataset + 'static>(
    bench: &Bench,
    training: &Training<'_>,
    case: Case,
    dataset: &'static str,
    data: D,
    raw: impl Fn() -> Result<f64>,
) -> Result<Feed> {
    let Case { batch_bytes, slots, batches } = case;
    let mut loader = bench.device_loader(data, slots)?;
    pass(&mut loader, training)?;
    let (mut rates, mut shares) = (Vec::new(), Vec::new());
    for _ in 0..bench.scale.rounds.min(5) {
        let link = raw()?;
        let begin = Instant::now();
        pass(&mut loader, training)?;
        let rate = (batches * batch_bytes) as f64 / begin.elapsed().as_secs_f64() / 1e9;
        rates.push(rate);
        shares.push(rate / link);
    }
    let [gb_per_s, share] = [rates, shares].map(|values| Spread::of(values).expect("there is at least one round"));
    let workers = bench.scale.workers;
    Ok(Feed { loader: "slotline", dataset, batch_bytes, slots, workers, batches, gb_per_s, share })
}

/// Runs a pass, and waits for the end of its last copy.
fn pass(loader: &mut DeviceLoader, training: &Training<'_>) -> Result<()> {
    for batch in loader.epoch()? {
        batch?.ready_on(&training.seen)?;
    }
    training.synchronize()
}
