//! The output of commands: human-readable lines, and JSON.

use std::fmt;
use std::io::{self, BufWriter, Stdout, Write};

use anyhow::{Context, Result};
use clap::{ArgAction, Args};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use slotline::{is_terminal_control, shown};

use crate::digest::DIGEST_HELP;

const UNWRITABLE: &str = "cannot write to stdout";

/// The command-line flags about reports.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Report")]
pub struct ReportOptions {
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
    /// Returns whether to compute digests.
    pub fn digest(&self) -> bool {
        self.digest.unwrap_or(self.json)
    }
}

/// The output of a command.
#[derive(Debug)]
pub struct Output {
    json: bool,
    out: BufWriter<Stdout>,
}

impl Output {
    /// Creates the output of a command with these options.
    pub fn new(report: &ReportOptions) -> Self {
        Self { json: report.json, out: BufWriter::new(io::stdout()) }
    }

    /// Writes a human-readable line and flushes it.
    ///
    /// # Errors
    ///
    /// Returns an error if stdout cannot be written to.
    pub fn line(&mut self, text: impl fmt::Display) -> Result<()> {
        let text = plain(text);
        if self.json {
            // If stderr is closed, the JSON is still written.
            let _ = writeln!(io::stderr(), "{text}");
            return Ok(());
        }
        writeln!(self.out, "{text}").and_then(|()| self.out.flush()).context(UNWRITABLE)
    }

    /// Writes a line of JSON, without flushing it.
    ///
    /// # Errors
    ///
    /// Returns an error if stdout cannot be written to.
    pub fn record(&mut self, value: &impl Serialize) -> Result<()> {
        let written = value.serialize(&mut Serializer::with_formatter(&mut self.out, Escaped)).map_err(io::Error::from);
        written.and_then(|()| self.out.write_all(b"\n")).context(UNWRITABLE)
    }

    /// Flushes the output; with `--json`, writes `summary` first.
    ///
    /// # Errors
    ///
    /// Returns an error if stdout cannot be written to.
    pub fn finish(&mut self, summary: &impl Serialize) -> Result<()> {
        if self.json {
            self.record(summary)?;
        }
        self.out.flush().context(UNWRITABLE)
    }
}

/// A JSON formatter that escapes control characters in texts, such as names of files, so that they
/// cannot control a terminal.
struct Escaped;

impl Formatter for Escaped {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        fragment.split_inclusive(is_terminal_control).try_for_each(|part| match part.chars().next_back() {
            // All control characters are below 2^16.
            Some(last) if is_terminal_control(last) => {
                write!(out, "{}\\u{:04x}", &part[..part.len() - last.len_utf8()], u32::from(last))
            }
            _ => out.write_all(part.as_bytes()),
        })
    }
}

/// Prints a line on stdout.
pub fn print_line(text: impl fmt::Display) -> Result<()> {
    // Not `println!`, which panics if the reader has closed the pipe.
    writeln!(io::stdout(), "{}", plain(text)).context(UNWRITABLE)
}

/// Prints a line on stderr. A failure is ignored, since it could not be reported.
pub fn print_error_line(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", plain(text));
}

/// Returns a text of several lines without terminal control characters, which names of files and
/// fields could contain.
pub fn plain(text: impl fmt::Display) -> String {
    text.to_string().split('\n').map(shown).collect::<Vec<_>>().join("\n")
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
