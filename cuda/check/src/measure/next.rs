//! Measures how long a loop waits for a batch that is ready: the time of `next` and `ready_on`. In
//! this loop, each step ends before the next batch is requested, as if the loop read the loss after
//! each step.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bench::{Bench, ROWS};
use crate::rows::Rows;
use crate::spread::Spread;

/// The duration of a step, as a multiple of the time that the loader needs for a batch.
const EASE: f64 = 1.5;
const MIN: Duration = Duration::from_millis(1);

/// The times for one size of batches.
#[derive(Debug, Serialize)]
pub(crate) struct Next {
    pub(crate) batch_bytes: usize,
    pub(crate) workers: usize,
    pub(crate) batches: usize,
    pub(crate) step_us: f64,
    /// The time of `next` and `ready_on` together, in microseconds: median, 99th and 99.9th
    /// percentile, maximum.
    pub(crate) median_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    /// How much longer an iteration of the loop takes than the step alone; and how long the loop
    /// waits for the device after it has slept for the duration of the step. Medians, in
    /// microseconds.
    pub(crate) beside_step_us: f64,
    pub(crate) late_us: f64,
    /// The median wait of every second batch, during whose step the loop computes instead of
    /// sleeping: a host that is idle may be slower.
    pub(crate) late_busy_us: f64,
    /// The device memory that the loader takes, as the driver reports it, and the size of its
    /// slots, both in bytes.
    pub(crate) device_bytes: usize,
    pub(crate) slot_bytes: usize,
}

pub(crate) fn run(bench: &Bench) -> Result<Vec<Next>> {
    bench.scale.batches.iter().map(|&batch_bytes| next(bench, batch_bytes)).collect()
}

fn next(bench: &Bench, batch_bytes: usize) -> Result<Next> {
    const SLOTS: usize = 3;
    let training = bench.gpu.stream()?;
    let row_bytes = batch_bytes / ROWS;
    let rows = Rows::new(bench.scale.waits * ROWS, row_bytes, bench.scale.source / row_bytes);
    let free = bench.gpu.free_bytes()?;
    let mut loader = bench.device_loader(rows, SLOTS)?;
    let device_bytes = free.saturating_sub(bench.gpu.free_bytes()?);
    let begin = Instant::now();
    let mut batches = 0;
    for batch in loader.epoch()?.take(bench.scale.waits.div_ceil(8)) {
        batch?.ready_on(&training.seen)?;
        batches += 1;
    }
    training.synchronize()?;
    let step = MIN.max(begin.elapsed().div_f64(f64::from(batches) / EASE));

    let [mut times, mut laps, mut late, mut late_busy] = [const { Vec::new() }; 4];
    let mut pass = loader.epoch()?;
    for batch_number in 0.. {
        let begin = Instant::now();
        let Some(batch) = pass.next().transpose()? else { break };
        batch.ready_on(&training.seen)?;
        times.push(1e6 * begin.elapsed().as_secs_f64());
        training.spin(step.as_nanos() as u64)?;
        batch.release_on(&training.seen)?;
        let is_busy = batch_number % 2 == 1;
        if is_busy {
            let until = Instant::now() + step;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        } else {
            std::thread::sleep(step);
        }
        let slept = Instant::now();
        training.synchronize()?;
        if is_busy { &mut late_busy } else { &mut late }.push(1e6 * slept.elapsed().as_secs_f64());
        laps.push(1e6 * (begin.elapsed() - step).as_secs_f64());
    }
    // The first batches wait for the workers.
    let first = times.len() / 20;
    let mut times = times.split_off(first);
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    Ok(Next {
        batch_bytes,
        workers: bench.scale.workers,
        batches: times.len(),
        step_us: 1e6 * step.as_secs_f64(),
        median_us: at(0.5),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: *times.last().context("there are batches")?,
        beside_step_us: median(laps),
        late_us: median(late),
        late_busy_us: median(late_busy),
        device_bytes,
        slot_bytes: SLOTS * (batch_bytes + ROWS * 8),
    })
}

fn median(values: Vec<f64>) -> f64 {
    Spread::of(values).map_or(0.0, |spread| spread.median)
}
