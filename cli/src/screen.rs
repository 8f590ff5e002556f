//! What the user sees: lines, JSON, and on a terminal a progress bar.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use anyhow::{Context, Result};
use clap::{ArgAction, Args};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::digest::DIGEST_HELP;

const UNWRITABLE: &str = "cannot write to stdout";

/// How a command reports.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Report")]
pub(crate) struct ReportOptions {
    /// End with one JSON object on the last line of stdout; lines for people go to stderr then
    ///
    /// Its wait_fraction is the share of the time that the loop's thread spent inside the loader (epoch() and next()):
    /// waiting for a batch, or loading while it would otherwise wait. Its memory_ceiling_bytes are those of the batches
    /// and the order, known before the first batch.
    #[arg(long)]
    json: bool,

    /// Whether to take the digests of what was delivered [default: with --json]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = ArgAction::Set, long_help = DIGEST_HELP)]
    digest: Option<bool>,
}

impl ReportOptions {
    pub(crate) fn digest(&self) -> bool {
        self.digest.unwrap_or(self.json)
    }
}

/// Where a command writes. The bar is on stderr, and only if that is a terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    json: bool,
    out: BufWriter<Stdout>,
    bar: Option<ProgressBar>,
}

impl Screen {
    /// A screen with a bar, for a command that writes few lines.
    pub(crate) fn new(report: &ReportOptions) -> Self {
        let bar = io::stderr().is_terminal().then(bar);
        Self { json: report.json, out: BufWriter::new(io::stdout()), bar }
    }

    /// A screen for a command whose output streams by: a bar only if that goes somewhere else.
    pub(crate) fn streaming(report: &ReportOptions) -> Self {
        let mut screen = Self::new(report);
        if io::stdout().is_terminal() {
            screen.bar = None;
        }
        screen
    }

    /// How many batches there will be.
    pub(crate) fn expect(&self, batches: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(batches);
        }
    }

    /// How many batches there were.
    #[inline]
    pub(crate) fn progress(&self, batches: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(batches);
        }
    }

    /// A line for people, shown at once.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<()> {
        let Self { json, out, bar } = self;
        let mut write = || {
            if *json {
                // Without a stderr there is still the JSON.
                let _ = writeln!(io::stderr(), "{text}");
                return io::Result::Ok(());
            }
            writeln!(out, "{text}")?;
            out.flush()
        };
        let written = match bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        };
        written.context(UNWRITABLE)
    }

    /// A line of JSON, shown in due time.
    pub(crate) fn record(&mut self, value: &impl Serialize) -> Result<()> {
        let written = serde_json::to_writer(&mut self.out, value).map_err(io::Error::from);
        written.and_then(|()| self.out.write_all(b"\n")).context(UNWRITABLE)
    }

    /// Takes the bar away: there are no more batches.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Shows all that was written, with `--json` ended by `summary`.
    pub(crate) fn finish(mut self, summary: &impl Serialize) -> Result<()> {
        if self.json {
            self.record(summary)?;
        }
        self.out.flush().context(UNWRITABLE)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After an error: its message comes next, on a line of its own.
        self.clear();
    }
}

fn bar() -> ProgressBar {
    let template = "{wide_bar} {pos}/{len} batches, {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::no_length().with_style(style)
}

/// A number of bytes with a fitting unit.
pub(crate) fn bytes(count: usize) -> impl fmt::Display {
    indicatif::BinaryBytes(count as u64)
}
