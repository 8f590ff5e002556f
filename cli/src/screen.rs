//! The program's output: lines, JSON, and on a terminal a progress bar.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use anyhow::{Context, Result};
use clap::{ArgAction, Args};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use slotline::acts_on_terminal;
use slotline_sources::error::shown;

use crate::digest::DIGEST_HELP;

const UNWRITABLE: &str = "cannot write to stdout";

/// How a command reports.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Report")]
pub(crate) struct ReportOptions {
    /// Print one JSON object as the last line of stdout; the human-readable lines go to stderr
    ///
    /// wait_fraction is the fraction of the time that the loop's thread spent inside the loader (epoch() and next()):
    /// waiting for a batch, or loading while it would otherwise wait. memory_ceiling_bytes is the maximum memory of the
    /// batches and the order, known before the first batch.
    #[arg(long)]
    json: bool,

    /// Whether to compute digests of the delivered samples [default: with --json]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = ArgAction::Set, long_help = DIGEST_HELP)]
    digest: Option<bool>,
}

impl ReportOptions {
    pub(crate) fn digest(&self) -> bool {
        self.digest.unwrap_or(self.json)
    }
}

/// The output of a command. The progress bar is on stderr, and shown only if that is a terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    json: bool,
    out: BufWriter<Stdout>,
    bar: Option<ProgressBar>,
}

impl Screen {
    /// Creates a screen with a progress bar, for a command that writes few lines.
    pub(crate) fn new(report: &ReportOptions) -> Self {
        let bar = io::stderr().is_terminal().then(bar);
        Self { json: report.json, out: BufWriter::new(io::stdout()), bar }
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
        let Self { json, out, bar } = self;
        let text = plain(text);
        let mut write = || {
            if *json {
                // If stderr is closed, the JSON is still written.
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

    /// Writes a line of JSON, without flushing it.
    pub(crate) fn record(&mut self, value: &impl Serialize) -> Result<()> {
        let written = value.serialize(&mut Serializer::with_formatter(&mut self.out, Escaped)).map_err(io::Error::from);
        written.and_then(|()| self.out.write_all(b"\n")).context(UNWRITABLE)
    }

    /// Removes the progress bar, after the last batch.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Flushes the output; with `--json`, writes `summary` first.
    pub(crate) fn finish(mut self, summary: &impl Serialize) -> Result<()> {
        if self.json {
            self.record(summary)?;
        }
        self.out.flush().context(UNWRITABLE)
    }
}

/// JSON whose texts, such as names of files, do nothing to a terminal.
struct Escaped;

impl Formatter for Escaped {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        fragment.split_inclusive(acts_on_terminal).try_for_each(|part| match part.chars().next_back() {
            // All of these are below 2^16.
            Some(last) if acts_on_terminal(last) => {
                write!(out, "{}\\u{:04x}", &part[..part.len() - last.len_utf8()], u32::from(last))
            }
            _ => out.write_all(part.as_bytes()),
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After an error, the message that follows must start on a new line.
        self.clear();
    }
}

/// Prints a line.
pub(crate) fn say(text: impl fmt::Display) {
    println!("{}", plain(text));
}

/// Returns a text of several lines that does nothing to a terminal, whatever the names of files and fields in it are.
pub(crate) fn plain(text: impl fmt::Display) -> String {
    text.to_string().split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// Returns a progress bar for files that are walked over, on stderr if that is a terminal, and what tells it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_nothing_that_a_terminal_obeys_and_is_equal() {
        let names = ["a\u{9b}2J\u{85}", "\u{7f}\u{202e}gpj.ä\"\n\u{1b}", ""];
        let mut text = Vec::new();
        names.serialize(&mut Serializer::with_formatter(&mut text, Escaped)).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, r#"["a\u009b2J\u0085","\u007f\u202egpj.ä\"\n\u001b",""]"#);
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), names);
    }
}
