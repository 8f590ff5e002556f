//! What was measured, as JSON lines: the report is made of these alone.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// A part of the report that can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    /// Items that cost nothing.
    W1,
    /// Small images, shuffled.
    W2,
    /// Large images, shuffled.
    W3,
    /// Crops of a mapped file of tokens.
    W4,
    /// JPEGs, decoded, resized and normalised.
    W5,
    /// From building a loader to its first batch.
    W6,
    /// Some slow samples among quick ones.
    W7,
    /// The rings by themselves.
    Rings,
    /// Cost against the dataset's size.
    Size,
    /// Cost against the number of workers.
    Workers,
}

impl Section {
    /// Its name in records and on the command line.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Whether peers that are programs of their own take part.
    pub fn has_programs(self) -> bool {
        !matches!(self, Self::Rings | Self::Size | Self::Workers)
    }
}

/// One line of `report.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
pub enum Line {
    /// A section's measurement begins.
    Run(Run),
    /// A contender was measured.
    Time(Time),
    /// A contender could not be.
    Absent(Absent),
}

impl Line {
    /// The section that it belongs to.
    pub fn section(&self) -> Section {
        match self {
            Self::Run(run) => run.section,
            Self::Time(time) => time.section,
            Self::Absent(absent) => absent.section,
        }
    }
}

/// Where and when a section was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Which one.
    pub section: Section,
    /// How often its contenders were visited.
    pub rounds: usize,
    /// The machine, the compiler and the date.
    #[serde(flatten)]
    pub machine: Machine,
}

/// One contender's times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// The section.
    pub section: Section,
    /// Which variant of it; empty if there is but one.
    pub case: String,
    /// How many workers loaded, where there are any.
    pub workers: Option<usize>,
    /// How many samples the dataset had, where that is what varies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Who.
    pub peer: String,
    /// The version, of those that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What kind of contender that is.
    pub kind: Kind,
    /// What the values count.
    pub unit: Unit,
    /// One for each round, from the first on; slow contenders leave out the last ones.
    pub values: Vec<f64>,
}

/// A contender that is missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Absent {
    /// The section.
    pub section: Section,
    /// As in [`Time`].
    pub case: String,
    /// As in [`Time`].
    pub workers: Option<usize>,
    /// Who.
    pub peer: String,
    /// And why.
    pub why: String,
}

/// What a contender is to the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// slotline as it comes.
    Ours,
    /// slotline with an option set; not what targets speak of, unless they say so.
    Variant,
    /// Another loader.
    Peer,
    /// What the machine does without a loader.
    Limit,
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds for each item.
    #[serde(rename = "ns/item")]
    NanosPerItem,
    /// Microseconds for each batch.
    #[serde(rename = "µs/batch")]
    MicrosPerBatch,
    /// Milliseconds for each batch.
    #[serde(rename = "ms/batch")]
    MillisPerBatch,
    /// Milliseconds for a whole pass.
    #[serde(rename = "ms/pass")]
    MillisPerPass,
    /// Bytes of memory.
    #[serde(rename = "bytes")]
    Bytes,
}

impl Unit {
    /// The value of `batches` (or items) that took `seconds`, to five digits.
    pub fn value(self, batches: f64, seconds: f64) -> f64 {
        five_digits(match self {
            Self::NanosPerItem => seconds * 1e9 / batches,
            Self::MicrosPerBatch => seconds * 1e6 / batches,
            Self::MillisPerBatch => seconds * 1e3 / batches,
            Self::MillisPerPass => seconds * 1e3,
            Self::Bytes => batches,
        })
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NanosPerItem => "ns per item",
            Self::MicrosPerBatch => "µs per batch",
            Self::MillisPerBatch => "ms per batch",
            Self::MillisPerPass => "ms per pass",
            Self::Bytes => "bytes",
        })
    }
}

/// Clocks tell no more than that, and lines stay short.
fn five_digits(value: f64) -> f64 {
    format!("{value:.4e}").parse().expect("a number as it was printed")
}

/// Reads lines; none if there is no such file.
///
/// # Errors
///
/// If the file can't be read, or a line of it is none of ours; says which.
pub fn read(path: &Path) -> Result<Vec<Line>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let parse = |(i, line)| parse(line).with_context(|| format!("{}, line {}", path.display(), i + 1));
    text.lines().enumerate().map(parse).collect()
}

fn parse(line: &str) -> Result<Line> {
    let line = serde_json::from_str(line)?;
    if let Line::Time(Time { values, size, .. }) = &line {
        ensure!(!values.is_empty() && values.iter().all(|&value| value > 0.0), "values must be there, and above 0");
        ensure!(*size != Some(0), "a size must be above 0");
    }
    Ok(line)
}

/// Writes lines in place of what the file was, which stays if that is interrupted.
///
/// # Errors
///
/// If the file can't be written.
pub fn write(path: &Path, lines: &[Line]) -> Result<()> {
    let mut text = String::new();
    for line in lines {
        text.push_str(&serde_json::to_string(line)?);
        text.push('\n');
    }
    let new = path.with_extension("new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.jsonl");
        assert_eq!(read(&path).unwrap(), []);
        let time = Time {
            section: Section::W2,
            case: String::new(),
            workers: Some(1),
            size: None,
            peer: "burn".into(),
            version: Some("0.22".into()),
            kind: Kind::Peer,
            unit: Unit::MicrosPerBatch,
            values: vec![12.5, 13.0],
        };
        let absent = Absent {
            section: Section::W2,
            case: String::new(),
            workers: Some(1),
            peer: "x".into(),
            why: "none".into(),
        };
        let run = Run { section: Section::W2, rounds: 2, machine: Machine::of_this_run() };
        let lines = [Line::Run(run), Line::Time(time), Line::Absent(absent)];
        write(&path, &lines).unwrap();
        assert_eq!(read(&path).unwrap(), lines);
        std::fs::write(&path, "{\"line\":\"run\"}").unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("report.jsonl, line 1"));
    }

    #[test]
    fn lines_that_cannot_have_been_measured_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.jsonl");
        let line = |size: u64, values: &str| {
            format!(
                "{{\"line\":\"time\",\"section\":\"size\",\"case\":\"\",\"workers\":0,\"size\":{size},\"peer\":\"slotline\",\
                 \"kind\":\"ours\",\"unit\":\"bytes\",\"values\":{values}}}\n"
            )
        };
        let good = line(1, "[2.5]");
        std::fs::write(&path, &good).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        for bad in [line(1, "[]"), line(1, "[2.5,0]"), line(1, "[-1]"), line(0, "[1]")] {
            std::fs::write(&path, good.clone() + &bad).unwrap();
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(error.contains("line 2: ") && error.contains("above 0"), "{error}");
        }
    }

    #[test]
    fn values_are_in_their_unit() {
        assert_eq!(Unit::MicrosPerBatch.value(64.0, 0.001), 15.625);
        assert_eq!(Unit::MillisPerPass.value(64.0, 0.25), 250.0);
        assert_eq!(Unit::NanosPerItem.value(3.0, 1e-9), 0.33333);
    }
}
