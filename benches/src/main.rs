//! Measures slotline beside its peers and writes the report.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use slotline_benches::counts;
use slotline_benches::peer::find;
use slotline_benches::record::{self, Section};
use slotline_benches::report;
use slotline_benches::rounds::Recorder;
use slotline_benches::workload::{self, Setup};

#[derive(Debug, Parser)]
#[command(name = "slotline-benches", version, about = "Measures slotline beside its peers")]
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
        /// Write them there instead
        #[arg(long)]
        update: bool,
    },
    /// What `counts` counts
    #[command(hide = true)]
    Count { case: String, passes: usize },
    /// Make REPORT.md and the plots again from report.jsonl
    Render {
        #[command(flatten)]
        out: Out,
    },
}

#[derive(Args, Debug)]
struct Out {
    /// Folder of report.jsonl, REPORT.md, notes.md and the plots [default: this crate's]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct Report {
    /// Measure only these; what report.jsonl has of the others stays
    #[arg(long, value_delimiter = ',')]
    only: Vec<Section>,

    /// How often each contender is visited [default: 11]
    #[arg(long)]
    rounds: Option<usize>,

    /// Few rounds, to see whether everything runs
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,

    /// A Python that has torch
    #[arg(long, value_name = "PYTHON", env = "TORCH_PYTHON", default_value = "python3")]
    torch: String,

    /// Leave out the peers that are programs of their own: burn, which takes a while to build, and those with torch
    #[arg(long)]
    no_programs: bool,

    #[command(flatten)]
    out: Out,
}

impl Out {
    fn dir(self) -> PathBuf {
        self.out.unwrap_or_else(|| crate_dir().to_owned())
    }
}

/// This crate's folder, where it was when this was built.
fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Task::Report(report) => measure(report),
        Task::Counts { update } => counts::check(&crate_dir().join("instructions.json"), update),
        Task::Count { case, passes } => counts::run(&case, passes),
        Task::Render { out } => report::render(&out.dir()),
    }
}

fn measure(report: Report) -> Result<()> {
    let out = report.out.dir();
    let path = out.join("report.jsonl");
    let rounds = report.rounds.unwrap_or(if report.quick { 2 } else { 11 }).max(1);
    let sections = if report.only.is_empty() { Section::value_variants().to_vec() } else { report.only };
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    // Before minutes are spent on what could not be kept.
    record::write(&path, &record::read(&path)?)?;
    let build = build_dir()?;
    std::fs::create_dir_all(&build).with_context(|| format!("cannot make {}", build.display()))?;
    // There, not where all programs have theirs: after an interruption 400 MB may be left.
    let data = tempfile::tempdir_in(&build)?;
    let programs = if !report.no_programs && sections.iter().any(|section| section.has_programs()) {
        find::programs(crate_dir(), &build, &report.torch)
    } else {
        Vec::new()
    };
    let setup = Setup { data: data.path().to_owned(), programs };
    for section in sections {
        // Its passes take half a second each.
        let rounds = if section == Section::W7 { rounds.div_ceil(3) } else { rounds };
        let mut recorder = Recorder::new(section, rounds);
        workload::run(section, &setup, &mut recorder)?;
        // After each section, so that nothing is lost if a later one is interrupted.
        let mut lines = record::read(&path)?;
        lines.retain(|line| line.section() != section);
        lines.extend(recorder.into_lines());
        lines.sort_by_key(record::Line::section);
        record::write(&path, &lines)?;
    }
    report::render(&out)
}

/// Where peers are compiled: beside this program.
fn build_dir() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program is nowhere")?;
    Ok(program.parent().context("this program is nowhere")?.join("peers"))
}
