//! `slotline feed`: how fast a dataset comes out of the loader, and what holds it back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use slotline::Batch;
use slotline::array::AnyArray;
use slotline::dataset::Dataset;
use slotline::loader::Pass;

use crate::checkpoint::{Checkpoint, CheckpointOptions};
use crate::meter::{Meter, Tally};
use crate::options::{LoaderOptions, TORCH};
use crate::screen::{ReportOptions, Screen, bytes};
use crate::source::{Arrays, SOURCE_HELP, Source};
use crate::stream::{Step, stream};

/// The flags.
#[derive(Args, Debug)]
pub(crate) struct Feed {
    #[arg(help = SOURCE_HELP)]
    source: Source,

    /// Work for so long on each batch, as a training step would
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    compute_us: u64,

    #[command(flatten)]
    report: ReportOptions,

    #[command(flatten)]
    options: LoaderOptions,

    #[command(flatten)]
    checkpoint: CheckpointOptions,
}

impl Feed {
    pub(crate) fn run(self) -> Result<()> {
        let mut screen = Screen::new(&self.report);
        let arrays = self.source.load()?;
        screen.line(format_args!("{}: {} samples of {}", self.source, arrays.len(), fields(&arrays)))?;
        let mut loader = self.options.builder(arrays, &TORCH).build().context("cannot build the loader")?;
        let checkpoint = Checkpoint::open(&self.checkpoint, &mut loader)?;
        let mut meter = Meter::new(self.report.digest());
        let mut step = Train { compute: Duration::from_micros(self.compute_us), checkpoint };
        let epochs = self.options.epochs(&TORCH);
        stream(&mut loader, epochs, self.options.hold, &mut meter, &mut screen, &mut step)?;
        step.checkpoint.save(&loader.state())?;

        let total = meter.total();
        let share = 100.0 * total.wait_fraction();
        screen.line(format_args!(
            "total: {} batches, {} samples in {:.6} s: {:.0} samples/s, {:.1} MB/s",
            total.batches,
            total.samples,
            total.time.as_secs_f64(),
            total.samples_per_s(),
            total.bytes_per_s() / 1e6,
        ))?;
        screen.line(format_args!(
            "{share:.1} % of the time was spent in the loader: waiting, or loading while waiting"
        ))?;
        screen.line(format_args!("memory ceiling: {} in {} slots", bytes(loader.memory_ceiling()), loader.depth()))?;
        screen.line(self.verdict(total))?;
        let summary = meter.summary(loader.memory_ceiling());
        if let (Some(order), Some(data)) = (&summary.order_digest, &summary.data_digest) {
            screen.line(format_args!("order digest: {order}\ndata digest:  {data}"))?;
        }
        screen.finish(&summary)
    }

    /// What held the loop back, and what to try.
    fn verdict(&self, total: &Tally) -> String {
        if total.batches == 0 {
            return "there was no batch to load".to_owned();
        }
        let step = match (self.compute_us > 0, self.report.digest()) {
            (true, true) => "the step (simulated work and digests)",
            (true, false) => "the simulated step",
            (false, true) => "the step (digests)",
            (false, false) => "the step (which does nothing; --compute-us simulates one)",
        };
        match total.wait_fraction() {
            ..0.1 => format!("bound by {step}: the loader kept up"),
            share @ ..0.5 => format!("bound by {step}, and held up by loading for {:.0} % of the time", 100.0 * share),
            _ => format!("bound by loading, not by {step}: {}", self.advice()),
        }
    }

    fn advice(&self) -> String {
        let workers = self.options.num_workers(&TORCH);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match workers {
            0 => format!("the loop's own thread loads everything; --num-workers starts others ({cores} cores)"),
            _ if workers < cores => format!("{workers} of {cores} cores have a worker; more workers may help"),
            _ => format!("all {cores} cores have a worker"),
        }
    }
}

/// The shape of a sample.
fn fields(arrays: &Arrays) -> String {
    let field = |array: &AnyArray| format!("{} {:?}", array.dtype(), array.shape().get(1..).unwrap_or_default());
    arrays.rows().iter().map(field).collect::<Vec<_>>().join(", ")
}

/// A training step.
struct Train {
    /// How long it takes.
    compute: Duration,
    checkpoint: Checkpoint,
}

impl Step for Train {
    #[inline]
    fn batch<D: Dataset>(&mut self, _: &mut Screen, batch: &Batch<D>, pass: &Pass<'_, D>) -> Result<()> {
        if !self.compute.is_zero() {
            let begun = Instant::now();
            // Busy, as a step on the CPU is: a sleeping thread would leave its core to the workers.
            while begun.elapsed() < self.compute {
                std::hint::spin_loop();
            }
        }
        self.checkpoint.batch(batch, || pass.state())
    }

    fn pass(&mut self, screen: &mut Screen, epoch: u32, tally: &Tally) -> Result<()> {
        let (rate, share) = (tally.samples_per_s(), 100.0 * tally.wait_fraction());
        screen.line(format_args!(
            "epoch {epoch}: {} batches, {} samples, {rate:.0} samples/s, {share:.1} % of the time in the loader",
            tally.batches, tally.samples
        ))
    }
}
