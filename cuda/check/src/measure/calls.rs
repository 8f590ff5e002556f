//! The number of driver calls for each batch, counted by the fake driver.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use slotline_cuda_fake::Fake;

use crate::bench::{Bench, ROWS};
use crate::rows::Stamps;

/// The numbers of driver calls for each batch of a loop. They include taking the batch, making it
/// ready on the training stream, and releasing it there.
#[derive(Debug, Serialize)]
pub(crate) struct Calls {
    pub(crate) batches: usize,
    /// The calls if each copy is done when its batch is taken, as in a loop whose steps take longer
    /// than copies.
    pub(crate) in_time: Count,
    /// The calls if copies are late, so that the host polls until they are done.
    pub(crate) late: Count,
    /// The number of copies whose memory was not page-locked.
    pub(crate) pageable: u64,
}

/// The mean number of calls for one batch.
#[derive(Debug, Serialize)]
pub(crate) struct Count {
    pub(crate) all: f64,
    pub(crate) by_name: BTreeMap<&'static str, f64>,
}

/// The functions that may be called for a batch.
const NAMES: [&str; 8] = [
    "cuMemcpyHtoDAsync_v2",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuStreamQuery",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
];

/// The number of batches at the start that are not counted. By then, all slots were used once.
const FIRST: usize = 8;

/// The number of batches that are counted.
const BATCHES: usize = 100;

pub(crate) fn run(bench: &Bench) -> Result<Option<Calls>> {
    let Some(fake) = bench.fake else { return Ok(None) };
    let pageable = fake.pageable_copies();
    let in_time = count(bench, fake, || {
        // The sleep stands for a training step, during which the workers produce the batch that is
        // copied during the next one.
        std::thread::sleep(Duration::from_millis(1));
        fake.advance(u64::MAX);
    })?;
    let late = count(bench, fake, || {})?;
    Ok(Some(Calls { batches: BATCHES, in_time, late, pageable: fake.pageable_copies() - pageable }))
}

/// Counts the calls of a loop that runs `before_each` before each batch.
fn count(bench: &Bench, fake: &Fake, before_each: impl Fn()) -> Result<Count> {
    let training = bench.gpu.stream()?;
    let mut loader = bench.device_loader(Stamps { len: (FIRST + BATCHES) * ROWS, row_bytes: 1024 }, 3)?;
    let mut pass = loader.epoch()?;
    let now = || (fake.calls(), NAMES.map(|name| fake.count(name)));
    let mut begin = now();
    for task in 0..FIRST + BATCHES {
        if task == FIRST {
            begin = now();
        }
        before_each();
        let batch = pass.next().context("the pass ended early")??;
        batch.ready_on(&training.seen)?;
        batch.release_on(&training.seen)?;
    }
    let end = now();
    let share = |calls: u64| calls as f64 / BATCHES as f64;
    let named = NAMES.iter().enumerate().map(|(i, &name)| (name, share(end.1[i] - begin.1[i])));
    Ok(Count { all: share(end.0 - begin.0), by_name: named.filter(|&(_, calls)| calls > 0.0).collect() })
}
