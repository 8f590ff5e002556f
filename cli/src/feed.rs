//! `slotline feed`: measures how fast the loader delivers a dataset, and reports the bottleneck.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[cfg(feature = "trace")]
use anyhow::bail;
use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use slotline::Loader;
use slotline::dataset::Dataset;
use slotline::loader::{Batch, Pass, Stats};
use slotline::sample::Schema;
use slotline_demo::meter::{Meter, Tally};
#[cfg(feature = "trace")]
use slotline_demo::options::WorkerKind;
use slotline_demo::options::{LoaderOptions, TORCH};
use slotline_demo::output::ReportOptions;
use slotline_sources::tar::TarStream;

use crate::checkpoint::{Checkpoint, CheckpointOptions};
use crate::files::{check_apart, check_not_source};
use crate::screen::{Screen, bytes};
use crate::source::{Described, Input, Opened, notes};
use crate::stream::{Step, stream};

/// The command-line flags.
#[derive(Args, Debug)]
pub(crate) struct Feed {
    #[command(flatten)]
    input: Input,

    /// Busy-wait for this long on each batch, in place of a training step
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    compute_us: u64,

    /// Write the loader's statistics to FILE as JSON: counts, and times in seconds
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,

    /// Write a timeline of what each thread did to FILE, for ui.perfetto.dev
    #[cfg(feature = "trace")]
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    #[command(flatten)]
    report: ReportOptions,

    #[command(flatten)]
    options: LoaderOptions,

    #[command(flatten)]
    checkpoint: CheckpointOptions,
}

impl Feed {
    /// Checks that all files to write are different, that none of them is a file of the source, and
    /// that a trace could show the workers.
    pub(crate) fn check_flags(&self) -> Result<()> {
        #[cfg(feature = "trace")]
        if self.trace.is_some() && self.options.worker_kind == WorkerKind::Process {
            bail!("--trace does not see what worker processes do; use --worker-kind thread, or drop --trace");
        }
        let mut files = self.checkpoint.files();
        files.extend(self.stats.clone().map(|path| ("--stats", path)));
        #[cfg(feature = "trace")]
        files.extend(self.trace.clone().map(|path| ("--trace", path)));
        check_not_source(&self.input.source, &files)?;
        check_apart(&files)
    }

    pub(crate) fn run(self) -> Result<()> {
        // SAFETY: the help text requires that the files do not change while the program runs, and `check_flags` has checked
        // that this program does not write to them.
        match unsafe { self.input.open()? } {
            Opened::Arrays(arrays) => self.feed(arrays, Vec::new),
            Opened::Records(records) => self.feed(records.clone(), || notes(&records)),
            Opened::Stream(tars) => {
                let what = format!("a stream of samples of {}", tars.describe());
                let loader = self.options.build_stream(self.share(tars)?, &TORCH)?;
                self.run_loader(&what, loader, Vec::new)
            }
            #[cfg(feature = "image")]
            // Pictures are decoded while they are written into batches, which the records'
            // statistics do not cover, so only warnings are reported.
            Opened::Pictures(pictures) => {
                let seen = pictures.clone();
                self.feed(*pictures, || seen.warnings().into_iter().map(|text| format!("warning: {text}")).collect())
            }
        }
    }

    /// Sets the order of compressed tars, and selects those of this rank.
    fn share(&self, mut tars: TarStream) -> Result<TarStream> {
        if let Some(ranks) = self.options.ranks()? {
            tars = tars.replica(ranks.world_size(), ranks.rank())?;
        }
        Ok(if self.options.shuffle { tars.shuffle(self.options.shuffle_buffer) } else { tars })
    }

    fn feed(self, dataset: impl Dataset + Described, notes: impl Fn() -> Vec<String>) -> Result<()> {
        let what = format!("{} samples of {}", dataset.len(), dataset.describe());
        let loader = self.options.build(dataset, &TORCH)?;
        self.run_loader(&what, loader, notes)
    }

    fn run_loader<S: Schema>(
        self,
        what: &str,
        mut loader: Loader<Batch<S>>,
        notes: impl Fn() -> Vec<String>,
    ) -> Result<()> {
        let mut screen = Screen::new(&self.report);
        screen.line(format_args!("{}: {what}", self.input.source))?;
        let checkpoint = Checkpoint::open(&self.checkpoint, &mut loader)?;
        let stats_file = self.stats.map(StatsFile::open).transpose()?;
        let mut meter = Meter::new(self.report.digest());
        let mut step = Train { compute: Duration::from_micros(self.compute_us), checkpoint };
        let epochs = self.options.epochs(&TORCH);
        if loader.next_epoch() >= epochs {
            screen.line(format_args!(
                "nothing is left to do: --epochs is {epochs}, which includes the passes before the resume"
            ))?;
        }
        if let Err(error) = stream(&mut loader, epochs, self.options.hold, &mut meter, &mut screen, &mut step) {
            // Print the verdict, since what slowed the run down may also be why it failed.
            screen.clear();
            _ = screen.line(loader.stats().verdict());
            return Err(error);
        }
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
            "{share:.1} % of the time was spent in the loader: waiting for a batch, or loading while waiting"
        ))?;
        screen.line(format_args!("memory ceiling: {} in {} slots", bytes(loader.memory_ceiling()), loader.depth()))?;
        let stats = loader.stats();
        screen.line(stats.verdict())?;
        for note in notes() {
            screen.line(note)?;
        }
        let summary = meter.summary(loader.memory_ceiling());
        if let (Some(order), Some(data)) = (&summary.order_digest, &summary.data_digest) {
            screen.line(format_args!("order digest: {order}\ndata digest:  {data}"))?;
        }
        screen.finish(&summary)?;
        // Written last, so that everything else has been printed if it fails.
        stats_file.map_or(Ok(()), |file| file.write(&stats))
    }
}

/// The file for the loader's statistics. It is opened before the run, so that a wrong path fails
/// immediately.
struct StatsFile {
    path: PathBuf,
    file: File,
}

impl StatsFile {
    fn open(path: PathBuf) -> Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = file.with_context(|| Self::unwritable(&path))?;
        Ok(Self { path, file })
    }

    /// Writes the statistics and the verdict.
    fn write(mut self, stats: &Stats) -> Result<()> {
        #[derive(Serialize)]
        struct Report<'a> {
            verdict: String,
            #[serde(flatten)]
            stats: &'a Stats,
        }
        let report = Report { verdict: stats.verdict().to_string(), stats };
        let text = serde_json::to_string_pretty(&report)? + "\n";
        let mut write = || {
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            self.file.write_all(text.as_bytes())
        };
        write().with_context(|| Self::unwritable(&self.path))
    }

    fn unwritable(path: &Path) -> String {
        format!("cannot write the statistics to {}", path.display())
    }
}

/// A simulated training step.
struct Train {
    /// How long the step takes.
    compute: Duration,
    checkpoint: Checkpoint,
}

impl Step for Train {
    #[inline]
    fn batch<S: Schema>(&mut self, _: &mut Screen, batch: &Batch<S>, pass: &Pass<'_, Batch<S>>) -> Result<()> {
        if !self.compute.is_zero() {
            let begun = Instant::now();
            // Spin, as a step on the CPU would: a sleeping thread would leave its core to the
            // workers.
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
