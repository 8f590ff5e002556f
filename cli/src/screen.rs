//! The output of commands that run for long, and a progress bar if it is a terminal.

use std::fmt;
use std::io::{self, IsTerminal};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use slotline_demo::output::{Output, ReportOptions};

/// The output of a command. The progress bar is on stderr, and shown only if that is a terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    output: Output,
    bar: Option<ProgressBar>,
}

impl Screen {
    /// Creates a screen with a progress bar, for a command that writes few lines.
    pub(crate) fn new(report: &ReportOptions) -> Self {
        let bar = io::stderr().is_terminal().then(bar);
        Self { output: Output::new(report), bar }
    }

    /// Creates a screen for a command that writes many lines: without a progress bar if stdout is a terminal.
    pub(crate) fn streaming(report: &ReportOptions) -> Self {
        let mut screen = Self::new(report);
        if io::stdout().is_terminal() {
            screen.bar = None;
        }
        screen
    }

    /// Sets the expected number of batches.
    pub(crate) fn expect(&self, batches: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(batches);
        }
    }

    /// Sets the number of batches so far.
    #[inline]
    pub(crate) fn progress(&self, batches: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(batches);
        }
    }

    /// Writes a human-readable line and flushes it.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<()> {
        let Self { output, bar } = self;
        match bar {
            Some(bar) => bar.suspend(|| output.line(text)),
            None => output.line(text),
        }
    }

    /// Writes a line of JSON, without flushing it.
    pub(crate) fn record(&mut self, value: &impl Serialize) -> Result<()> {
        self.output.record(value)
    }

    /// Removes the progress bar, after the last batch.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Flushes the output; with `--json`, writes `summary` first.
    pub(crate) fn finish(mut self, summary: &impl Serialize) -> Result<()> {
        self.output.finish(summary)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After an error, the message that follows must start on a new line.
        self.clear();
    }
}

/// Returns a progress callback for indexing files, and its progress bar, which is shown on stderr
/// if that is a terminal.
pub(crate) fn walking() -> (impl Fn(u64, u64) + Send + Sync + 'static, ProgressBar) {
    let template = "indexing {wide_bar} {binary_bytes}/{binary_total_bytes}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = if io::stderr().is_terminal() { ProgressBar::no_length() } else { ProgressBar::hidden() };
    let bar = bar.with_style(style);
    let told = bar.clone();
    let tell = move |done, total| {
        told.set_length(total);
        told.set_position(done);
    };
    (tell, bar)
}

fn bar() -> ProgressBar {
    let template = "{wide_bar} {pos}/{len} batches, {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::no_length().with_style(style)
}

/// Formats a number of bytes with a suitable unit.
pub(crate) fn bytes(count: usize) -> impl fmt::Display {
    indicatif::BinaryBytes(count as u64)
}
