//! Compares slotline with other loaders and writes the report.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use slotline_benches::peer::find::{self, Places};
use slotline_benches::record::{self, Line};
use slotline_benches::rounds::Recorder;
use slotline_benches::workload::{SECTIONS, Setup};
use slotline_benches::{counts, report};

#[derive(Debug, Parser)]
#[command(name = "slotline-benches", version, about = "Compares slotline with other loaders")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Measure, print JSON lines, and write report.jsonl, REPORT.md and the plots
    Report(Report),
    /// Count instructions with valgrind, and compare them with instructions.json
    Counts {
        /// Write the counts to instructions.json instead of comparing them
        #[arg(long)]
        update: bool,
    },
    /// Run the code that `counts` counts
    #[command(hide = true)]
    Count { case: String, passes: usize },
    /// Read the files of the sections about files as one of the peers
    #[cfg(feature = "sources")]
    #[command(hide = true)]
    Files(slotline_benches::peer::files::Arguments),
    /// Render REPORT.md and the plots from report.jsonl again
    Render {
        #[command(flatten)]
        out: Out,
    },
}

#[derive(Args, Debug)]
struct Out {
    /// Folder of report.jsonl, REPORT.md, notes.md and the plots [default: this crate's folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct Report {
    /// Measure only these sections; report.jsonl keeps its lines of the others
    #[arg(long, value_delimiter = ',', value_parser = SECTIONS.map(|section| section.name))]
    only: Vec<String>,

    /// Number of rounds, in each of which every contender is measured once [default: 11]
    #[arg(long)]
    rounds: Option<usize>,

    /// Run few rounds, to check that everything works
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,

    /// Numbers of workers of the sections empty-items, small-images, large-images, token-crops and
    /// jpegs
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 2])]
    workers: Vec<usize>,

    /// Folder of this crate's source, for the peers that are built or interpreted
    #[arg(long, value_name = "DIR", default_value = env!("CARGO_MANIFEST_DIR"))]
    source: PathBuf,

    /// Python interpreter with torch, for jpeg-crops, pngs and rand-augment the packages of the peers (torchvision, Pillow, spdl, nvidia-dali-cuda120, ffcv), for the sections of Python slotline (for python-torchvision also the packages for pictures), for packing TRL (trl, datasets, accelerate), and for the sections about files NumPy and the peers' packages
    #[arg(long, value_name = "PYTHON", env = "TORCH_PYTHON", default_value = "python3")]
    torch: String,

    /// Folder of photographs (JPEGs or PNGs, and nothing else) that the pictures of jpeg-crops,
    /// pngs and rand-augment are windows of; those that scikit-image and scikit-learn come with are
    /// written by `peers/python/photographs.py` [default: generated scenes]
    #[arg(long, value_name = "DIR")]
    photographs: Option<PathBuf>,

    /// Leave out the peers that are separate programs: burn, which takes a while to build, and
    /// those that use torch
    #[arg(long)]
    no_programs: bool,

    /// Folder for the files that the sections about files read: 6 GB, made by the first report
    /// [default: beside the compiled peers]
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,

    #[command(flatten)]
    out: Out,
}

impl Out {
    fn dir(self) -> PathBuf {
        self.out.unwrap_or_else(|| crate_dir().to_owned())
    }
}

/// Returns this crate's folder at build time.
fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Task::Report(report) => measure(report),
        Task::Counts { update } => counts::check(&crate_dir().join("instructions.json"), update),
        Task::Count { case, passes } => counts::run(&case, passes),
        #[cfg(feature = "sources")]
        Task::Files(arguments) => arguments.serve(),
        Task::Render { out } => report::render(&out.dir()),
    }
}

fn measure(report: Report) -> Result<()> {
    let out = report.out.dir();
    let path = out.join("report.jsonl");
    let rounds = report.rounds.unwrap_or(if report.quick { 2 } else { 11 }).max(1);
    let is_chosen = |name: &str| report.only.is_empty() || report.only.iter().any(|only| only == name);
    let sections: Vec<_> = SECTIONS.into_iter().filter(|section| is_chosen(section.name)).collect();
    let names: Vec<&str> = sections.iter().map(|section| section.name).collect();
    std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    // Checks that the results can be written before minutes are spent on measuring.
    record::write(&path, &record::read(&path)?)?;
    // Peers are compiled next to this program.
    let build = std::env::current_exe().context("cannot find the folder of this program")?.with_file_name("peers");
    std::fs::create_dir_all(&build).with_context(|| format!("cannot create {}", build.display()))?;
    // The data is not in the system's temporary folder, since an interruption may leave 400 MB
    // behind.
    let data = tempfile::tempdir_in(&build)?;
    let files = report.files.unwrap_or_else(|| build.join("files"));
    let places = Places { source: &report.source, build: &build, python: &report.torch, files: &files };
    let programs = if report.no_programs { Vec::new() } else { find::programs(&places, &names)? };
    let (workers, photographs) = (report.workers, report.photographs);
    let setup = Setup { data: data.path().to_owned(), workers, programs, photographs, files };
    for section in sections {
        // Sections with fewer rounds: a pass takes half a second, or there are many of them.
        let has_fewer = matches!(section.name, "slow-samples" | "python-slow-samples" | "ranks");
        let mut recorder = Recorder::new(section.name, if has_fewer { rounds.div_ceil(3) } else { rounds });
        (section.run)(&setup, &mut recorder)?;
        // Writes after each section, so that its results are kept if a later one is interrupted.
        let mut lines = record::read(&path)?;
        lines.retain(|line| line.section() != section.name);
        lines.extend(recorder.into_lines());
        lines.sort_by_key(|line: &Line| SECTIONS.iter().position(|section| section.name == line.section()));
        record::write(&path, &lines)?;
    }
    report::render(&out)
}
