//! Checks slotline's transfers to a device, then measures them. This is a single program, made to
//! be copied to a machine with a GPU and no toolchain. `README.md` next to it describes its use and
//! the meaning of each figure.

mod bench;
mod check;
mod fold;
mod gpu;
mod host;
mod machine;
mod measure;
mod rows;
mod spread;
mod within;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use serde::Serialize;
use slotline_cuda::probe;
use slotline_cuda_fake::Skip;

use crate::bench::{Bench, Scale};
use crate::check::Outcome;
use crate::gpu::Gpu;
use crate::machine::Machine;
use crate::measure::Figures;

#[derive(Debug, Parser)]
#[command(name = "slotline-cuda-check", version, about = "Checks and measures slotline on a CUDA device")]
struct Cli {
    /// What to run
    #[arg(value_enum, default_value_t = Task::All)]
    task: Task,

    /// End with one JSON object on the last line of stdout, and print human-readable lines to
    /// stderr
    #[arg(long)]
    json: bool,

    /// The number of the device
    #[arg(long, default_value_t = 0)]
    device: usize,

    /// The number of worker threads [default: the number of cores, up to 8]
    #[arg(long)]
    workers: Option<usize>,

    /// Measure only these: copy, lock, feed, step, next, calls
    #[arg(long, value_delimiter = ',', value_name = "FIGURES")]
    only: Vec<String>,

    /// Run a small version of everything, to see whether it works; the times are then meaningless
    #[arg(long)]
    quick: bool,

    /// Run over the fake driver, from this file or from where cargo put it, instead of a real one;
    /// implies --quick
    #[arg(long, value_name = "LIBRARY", num_args = 0..=1, require_equals = true)]
    fake: Option<Option<PathBuf>>,

    /// The seed of the fake driver's schedule
    #[arg(long, default_value_t = 0, requires = "fake")]
    seed: u64,

    /// Make the fake driver disable one gate of the protocol: the checks must notice
    #[arg(long, value_enum, value_name = "GATE", requires = "fake")]
    without: Option<Gate>,
}

/// The gates of the overlap protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Gate {
    /// The host waits for copies out of its memory
    Host,
    /// The copy stream waits for the kernels that read the slot
    Copy,
    /// The training stream waits for the copy
    Training,
    /// The training stream records that it is done with a batch
    Consumed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Task {
    /// Check that it works
    Check,
    /// Measure how fast it is
    Measure,
    /// Check, then measure
    All,
}

/// The JSON object on the last line.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether every check passed and everything could be measured.
    ok: bool,
    machine: Machine,
    quick: bool,
    check: Option<Vec<Outcome>>,
    measure: Option<Figures>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let ok = run(&cli)?;
    // If a check hangs, its thread is still running, so the process exits without waiting for
    // threads.
    std::process::exit(if ok { 0 } else { 1 });
}

fn run(cli: &Cli) -> Result<bool> {
    let fake = cli.fake.as_ref().map(|path| host::load(path.as_deref(), cli.seed)).transpose()?;
    if let (Some(fake), Some(gate)) = (fake, cli.without) {
        fake.skip(&[match gate {
            Gate::Host => Skip::HostWait,
            Gate::Copy => Skip::CopyWait,
            Gate::Training => Skip::TrainingWait,
            Gate::Consumed => Skip::Consumed,
        }]);
    }
    let driver = probe().context("no device to check (--fake runs over the fake driver)")?;
    let gpu = Gpu::new(cli.device)?;
    let machine = Machine::of_this_run(&driver, gpu.device.info(), fake.is_some());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let quick = cli.quick || fake.is_some();
    let scale = if quick { Scale::quick } else { Scale::full }(cli.workers.unwrap_or(cores.min(8)));
    let bench = Bench { gpu, scale, only: cli.only.clone(), fake, json: cli.json };
    bench.say(&machine);

    let check = (cli.task != Task::Measure).then(|| check::run(&bench));
    let measure = (cli.task != Task::Check).then(|| measure::run(&bench));
    let ok =
        check.iter().flatten().all(|outcome| outcome.ok) && measure.iter().all(|figures| figures.failed.is_empty());
    let report = Report { ok, machine, quick, check, measure };
    if let Some(figures) = &report.measure {
        bench.say(figures);
    }
    if cli.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(ok)
}
