//! Measures the fraction of time in which a training stream waits for data. Steps take a known
//! time, with which the link and the workers can keep up.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use slotline::Loader;
use slotline_cuda::{DeviceLoader, Pinned, TimedEvent};

use super::copy::{Link, bytes_of};
use crate::bench::{Bench, ROWS};
use crate::gpu::Training;
use crate::rows::Rows;
use crate::spread::Spread;

/// The duration of a step, as a multiple of the time that the slower one of link and workers takes
/// for a batch.
const EASE: f64 = 1.25;
/// The minimum duration of a step, in seconds. In shorter steps, the launch of a kernel is a large
/// part of the wait.
const MIN: f64 = 1e-3;

/// The result of one loop.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) loader: &'static str,
    /// The size of the samples of a batch, in bytes.
    pub(crate) batch_bytes: usize,
    pub(crate) slots: usize,
    pub(crate) workers: usize,
    /// The number of steps in a pass.
    pub(crate) steps: usize,
    /// The requested run time of a step's kernel, in microseconds.
    pub(crate) step_us: f64,
    /// The time of one copy of a batch, and the time in which the workers produce one, both in
    /// microseconds.
    pub(crate) copy_us: f64,
    pub(crate) make_us: f64,
    /// The fraction of the time, from the start of the first step to the end of the last one, in
    /// which the stream ran no step.
    pub(crate) wait_share: Spread,
    /// The same fraction in a loop without a loader, which is the cost of launches and events.
    pub(crate) floor_share: Spread,
}

pub(crate) fn run(bench: &Bench) -> Result<Vec<Step>> {
    let training = bench.gpu.stream()?;
    let scale = &bench.scale;
    let most = scale.batches.iter().copied().max().unwrap_or_default();
    let link = Link::new(bench, &training, most)?;
    let source = Pinned::registered(&bench.gpu.device, 8 * most)?;
    let watch = Watch::new(bench, scale.steps)?;
    let mut figures = Vec::new();
    for &batch_bytes in &scale.batches {
        let copy = batch_bytes as f64 / 1e9 / link.gb_per_s(bytes_of(&source), batch_bytes, scale.copied)?;
        for slots in [2, 3] {
            let row_bytes = batch_bytes / ROWS;
            let rows = Rows::new(scale.steps * ROWS, row_bytes, scale.source / row_bytes);
            let mut loader = bench.device_loader(rows, slots)?;
            let make = making(loader.loader_mut(), scale.steps)?;
            let step = Duration::from_secs_f64((EASE * copy.max(make)).max(MIN));
            let (mut waits, mut floors) = (Vec::new(), Vec::new());
            for _ in 0..scale.rounds.min(5) {
                waits.push(watch.steps(&training, &mut loader, step)?);
                floors.push(watch.floor(&training, step)?);
            }
            figures.push(Step {
                loader: "slotline",
                batch_bytes,
                slots,
                workers: scale.workers,
                steps: scale.steps,
                step_us: 1e6 * step.as_secs_f64(),
                copy_us: 1e6 * copy,
                make_us: 1e6 * make,
                wait_share: Spread::of(waits).expect("there is at least one round"),
                floor_share: Spread::of(floors).expect("there is at least one round"),
            });
        }
    }
    Ok(figures)
}

/// Returns how many seconds the workers take for a batch, if batches are dropped immediately.
fn making(loader: &mut Loader, batches: usize) -> Result<f64> {
    let mut pass = || -> Result<Duration> {
        let begin = Instant::now();
        loader.epoch()?.try_for_each(|batch| batch.map(drop))?;
        Ok(begin.elapsed())
    };
    pass()?;
    Ok(pass()?.as_secs_f64() / batches as f64)
}

/// Events before and after each step.
#[derive(Debug)]
struct Watch(Vec<[TimedEvent; 2]>);

impl Watch {
    fn new(bench: &Bench, steps: usize) -> Result<Self> {
        let device = &bench.gpu.device;
        let pair = |_| Ok([TimedEvent::new(device)?, TimedEvent::new(device)?]);
        Ok(Self((0..steps).map(pair).collect::<Result<_>>()?))
    }

    /// Returns the fraction of a pass in which the stream waits.
    fn steps(&self, training: &Training<'_>, loader: &mut DeviceLoader, step: Duration) -> Result<f64> {
        for (batch, events) in loader.epoch()?.zip(&self.0) {
            let batch = batch?;
            batch.ready_on(&training.seen)?;
            take(training, events, step)?;
            batch.release_on(&training.seen)?;
        }
        self.waited(training)
    }

    /// Returns the fraction of the time in which the stream runs no step, for the same steps
    /// without a loader.
    fn floor(&self, training: &Training<'_>, step: Duration) -> Result<f64> {
        self.0.iter().try_for_each(|events| take(training, events, step))?;
        self.waited(training)
    }

    fn waited(&self, training: &Training<'_>) -> Result<f64> {
        training.synchronize()?;
        let mut waited = Duration::ZERO;
        for pair in self.0.windows(2) {
            waited += pair[1][0].elapsed_since(&pair[0][1])?;
        }
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else { return Ok(0.0) };
        let all = last[1].elapsed_since(&first[0])?;
        // The fake driver's clock may stand still.
        Ok(if all.is_zero() { 0.0 } else { waited.as_secs_f64() / all.as_secs_f64() })
    }
}

/// Runs one step.
fn take(training: &Training<'_>, [begin, end]: &[TimedEvent; 2], step: Duration) -> Result<()> {
    begin.record(&training.seen)?;
    training.spin(step.as_nanos() as u64)?;
    Ok(end.record(&training.seen)?)
}
