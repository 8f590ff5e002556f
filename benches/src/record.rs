//! The recorded measurements, as JSON lines, from which the report is rendered.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// One line of `report.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
pub enum Line {
    /// The start of a section's measurement.
    Run(Run),
    /// The measurement of a contender.
    Time(Time),
    /// A contender that could not be measured.
    Absent(Absent),
}

impl Line {
    /// Returns the name of the section of the line.
    pub fn section(&self) -> &str {
        match self {
            Self::Run(run) => &run.section,
            Self::Time(time) => &time.section,
            Self::Absent(absent) => &absent.section,
        }
    }
}

/// The machine and the time of a section's measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The name of the section.
    pub section: String,
    /// The number of rounds.
    pub rounds: usize,
    /// The machine, the compiler and the date.
    #[serde(flatten)]
    pub machine: Machine,
}

/// The values measured for one contender: times, memory or counts, according to `unit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// The name of the section.
    pub section: String,
    /// The variant of the section; empty if there is only one.
    pub case: String,
    /// The number of workers, for sections that have workers.
    pub workers: Option<usize>,
    /// The number of samples of the dataset, for the section that varies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The number of ranks, for the section that varies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u64>,
    /// The name of the contender.
    pub peer: String,
    /// The version, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The kind of the contender.
    pub kind: Kind,
    /// The unit of the values.
    pub unit: Unit,
    /// One value for each round, from the first one on. Slow contenders have fewer values.
    pub values: Vec<f64>,
}

impl Time {
    /// Creates the record of a contender without a number of workers, a size, ranks or a version.
    /// The recorder adds the section.
    pub fn new(case: &str, peer: impl Into<String>, kind: Kind, unit: Unit, values: Vec<f64>) -> Self {
        let (section, case, peer) = (String::new(), case.to_owned(), peer.into());
        Self { section, case, workers: None, size: None, ranks: None, peer, version: None, kind, unit, values }
    }
}

/// A contender that is missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Absent {
    /// The name of the section.
    pub section: String,
    /// The variant of the section; empty if there is only one.
    pub case: String,
    /// The number of workers, for sections that have workers.
    pub workers: Option<usize>,
    /// The name of the contender.
    pub peer: String,
    /// The reason.
    pub why: String,
}

/// The role of a contender in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// slotline with its default options.
    Ours,
    /// slotline with an option set.
    Variant,
    /// Another loader.
    Peer,
    /// A limit of the machine, measured without a loader.
    Limit,
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds for each item.
    #[serde(rename = "ns/item")]
    NanosPerItem,
    /// Nanoseconds for one batch.
    #[serde(rename = "ns/batch")]
    NanosPerBatch,
    /// Microseconds for each batch.
    #[serde(rename = "µs/batch")]
    MicrosPerBatch,
    /// Milliseconds for each batch.
    #[serde(rename = "ms/batch")]
    MillisPerBatch,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millis,
    /// Milliseconds for a whole pass.
    #[serde(rename = "ms/pass")]
    MillisPerPass,
    /// How often threads went to sleep, for each batch.
    #[serde(rename = "wakes/batch")]
    WakesPerBatch,
    /// Bytes of memory.
    #[serde(rename = "bytes")]
    Bytes,
    /// A number of the things that the case names.
    #[serde(rename = "count")]
    Count,
}

impl Unit {
    /// Converts `seconds` for this many batches (or items), or a number of wake-ups, to this unit.
    /// The value is rounded to five digits: clocks are not more precise, and lines stay short.
    pub fn value(self, batches: f64, seconds: f64) -> f64 {
        let value = match self {
            Self::NanosPerItem | Self::NanosPerBatch => seconds * 1e9 / batches,
            Self::MicrosPerBatch => seconds * 1e6 / batches,
            Self::MillisPerBatch => seconds * 1e3 / batches,
            Self::Millis | Self::MillisPerPass => seconds * 1e3,
            Self::WakesPerBatch => seconds / batches,
            Self::Bytes | Self::Count => batches,
        };
        format!("{value:.4e}").parse().expect("a formatted number")
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NanosPerItem => "ns per item",
            Self::NanosPerBatch => "ns per batch",
            Self::MicrosPerBatch => "µs per batch",
            Self::MillisPerBatch => "ms per batch",
            Self::Millis => "ms",
            Self::MillisPerPass => "ms per pass",
            Self::WakesPerBatch => "wake-ups per batch",
            Self::Bytes => "bytes",
            Self::Count => "",
        })
    }
}

/// Reads the lines of a file. Returns none if the file does not exist.
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
        let positive = !values.is_empty() && values.iter().all(|&value| value > 0.0);
        ensure!(positive && *size != Some(0), "there must be values, and all of them and a size must be above 0");
    }
    Ok(line)
}

/// Replaces the contents of a file by these lines. If the program is interrupted, the old contents
/// are kept.
pub fn write(path: &Path, lines: &[Line]) -> Result<()> {
    let lines = lines.iter().map(|line| Ok(serde_json::to_string(line)? + "\n"));
    let text: String = lines.collect::<Result<_>>()?;
    let new = path.with_extension("new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip_and_impossible_measurements_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.jsonl");
        assert_eq!(read(&path).unwrap(), []);
        let time = |size, values| {
            let time = Time::new("", "burn", Kind::Peer, Unit::MicrosPerBatch, values);
            Line::Time(Time { section: "size".into(), workers: Some(1), size, version: Some("1".into()), ..time })
        };
        let (section, case, peer, why) = ("size".into(), String::new(), "x".into(), "none".into());
        let absent = Absent { section, case, workers: Some(1), peer, why };
        let run = Run { section: "size".into(), rounds: 2, machine: Machine::of_this_run() };
        let lines = [Line::Run(run), time(Some(1), vec![2.5, 3.0]), Line::Absent(absent)];
        write(&path, &lines).unwrap();
        assert_eq!(read(&path).unwrap(), lines);
        for bad in [(None, vec![]), (None, vec![2.5, 0.0]), (None, vec![-1.0]), (Some(0), vec![1.0])] {
            write(&path, &[lines[0].clone(), time(bad.0, bad.1)]).unwrap();
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(error.contains("report.jsonl, line 2: ") && error.contains("above 0"), "{error}");
        }
    }

    #[test]
    fn values_are_in_their_unit() {
        assert_eq!(Unit::MicrosPerBatch.value(64.0, 0.001), 15.625);
        assert_eq!(Unit::MillisPerPass.value(64.0, 0.25), 250.0);
        assert_eq!(Unit::NanosPerItem.value(3.0, 1e-9), 0.33333);
    }
}
