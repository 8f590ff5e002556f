//! The recorded measurements as JSON lines, from which the report is rendered.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// A part of the report that can be measured separately. Its alias is its name in earlier records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// Items that cost nothing.
    #[serde(alias = "w1")]
    EmptyItems,
    /// Small images, shuffled.
    #[serde(alias = "w2")]
    SmallImages,
    /// Large images, shuffled.
    #[serde(alias = "w3")]
    LargeImages,
    /// Crops of a mapped file of tokens.
    #[serde(alias = "w4")]
    TokenCrops,
    /// JPEGs, decoded, resized and normalised.
    #[serde(alias = "w5")]
    Jpegs,
    /// JPEGs, with the crops and flips of training.
    #[serde(alias = "w5r")]
    JpegCrops,
    /// PNGs, decoded, resized and normalised.
    #[serde(alias = "w5p")]
    Pngs,
    /// JPEGs, with crops, flips and `RandAugment`.
    #[serde(alias = "w5a")]
    RandAugment,
    /// From building a loader to its first batch.
    #[serde(alias = "w6")]
    FirstBatch,
    /// Some slow samples among fast ones.
    #[serde(alias = "w7")]
    SlowSamples,
    /// Packing a million documents.
    #[serde(alias = "t1")]
    Packing,
    /// Padded batches of sequences of similar lengths.
    #[serde(alias = "t2")]
    Padding,
    /// How long the loop waits for a batch.
    Latency,
    /// The death of a worker process.
    Deaths,
    /// The CPU time of a loop that waits, and of its loader.
    Cpu,
    /// The wake-ups of the same.
    Wakes,
    /// The rings without a loader.
    Rings,
    /// The cost depending on the dataset's size.
    Size,
    /// The cost depending on the number of workers.
    Workers,
    /// The threads that the ordered ring serves.
    Cores,
    /// The cost of a rank depending on the number of ranks.
    Ranks,
    /// Python's loaders: empty samples of a Python dataset.
    #[serde(alias = "p1")]
    PythonEmptyItems,
    /// Python's loaders: small images in a `TensorDataset`, shuffled.
    #[serde(alias = "p2")]
    PythonSmallImages,
    /// Python's loaders: the same images, by a Python dataset.
    #[serde(alias = "p2p")]
    PythonIndexedImages,
    /// Python's loaders: large images in a `TensorDataset`, shuffled.
    #[serde(alias = "p3")]
    PythonLargeImages,
    /// Python's loaders: JPEGs, decoded by a Python dataset.
    #[serde(alias = "p5")]
    PythonJpegs,
    /// Python's loaders: from building a loader to its first batch.
    #[serde(alias = "p6")]
    PythonFirstBatch,
    /// Python's loaders: some slow samples among fast ones.
    #[serde(alias = "p7")]
    PythonSlowSamples,
    /// Files in folders, shuffled.
    #[serde(alias = "s1")]
    Folders,
    /// The same samples in tars, shuffled.
    #[serde(alias = "s2")]
    Tars,
    /// The same tars in a bucket, shuffled.
    #[serde(alias = "s3")]
    Bucket,
    /// Tokens of nanoGPT and Megatron.
    #[serde(alias = "s4")]
    TokenFiles,
    /// Rows of Arrow and Parquet files, shuffled.
    #[serde(alias = "s5")]
    Tables,
    /// The index of tars.
    #[serde(alias = "s6")]
    TarIndex,
}

impl Section {
    /// Returns the name in records and on the command line.
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).expect("no section is skipped").get_name().to_owned()
    }

    /// Whether peers that are separate programs take part.
    pub fn has_programs(self) -> bool {
        use Section::{EmptyItems, FirstBatch, Jpegs, LargeImages, SlowSamples, SmallImages, TokenCrops};
        matches!(self, EmptyItems | SmallImages | LargeImages | TokenCrops | Jpegs | FirstBatch | SlowSamples)
    }

    /// Whether the report has a plot of it, beside its table.
    pub fn has_plot(self) -> bool {
        use Section::{Cores, Cpu, Deaths, Ranks, Size, Wakes, Workers};
        !matches!(self, Cores | Cpu | Deaths | Ranks | Size | Wakes | Workers)
    }

    /// Whether the contenders pack or pad sequences.
    pub fn is_sequences(self) -> bool {
        matches!(self, Self::Packing | Self::Padding)
    }

    /// Whether the programs are those that transform pictures.
    pub fn is_pictures(self) -> bool {
        matches!(self, Self::JpegCrops | Self::Pngs | Self::RandAugment)
    }

    /// Whether all contenders are loaders of Python.
    pub fn is_python(self) -> bool {
        matches!(
            self,
            Self::PythonEmptyItems
                | Self::PythonSmallImages
                | Self::PythonIndexedImages
                | Self::PythonLargeImages
                | Self::PythonJpegs
                | Self::PythonFirstBatch
                | Self::PythonSlowSamples
        )
    }

    /// Whether what a pass uses is measured, and not how long it takes.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Cpu | Self::Wakes)
    }

    /// Whether all contenders are programs that read files.
    pub fn is_files(self) -> bool {
        matches!(self, Self::Folders | Self::Tars | Self::Bucket | Self::TokenFiles | Self::Tables | Self::TarIndex)
    }
}

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
    /// Returns the section of the line.
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
    /// The section.
    pub section: Section,
    /// The number of rounds.
    pub rounds: usize,
    /// The machine, the compiler and the date.
    #[serde(flatten)]
    pub machine: Machine,
}

/// The times of one contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// The section.
    pub section: Section,
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
    /// The values of a contender without workers, a size, ranks or a version.
    pub fn new(
        section: Section,
        case: &str,
        peer: impl Into<String>,
        kind: Kind,
        unit: Unit,
        values: Vec<f64>,
    ) -> Self {
        let (case, peer) = (case.to_owned(), peer.into());
        Self { section, case, workers: None, size: None, ranks: None, peer, version: None, kind, unit, values }
    }
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
    /// slotline with an option set. Targets refer to it only if they name it.
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
    /// How many of what the case names.
    #[serde(rename = "count")]
    Count,
}

impl Unit {
    /// Returns the value of `batches` (or items) that took `seconds`, or that many wake-ups, rounded to five digits.
    pub fn value(self, batches: f64, seconds: f64) -> f64 {
        five_digits(match self {
            Self::NanosPerItem | Self::NanosPerBatch => seconds * 1e9 / batches,
            Self::MicrosPerBatch => seconds * 1e6 / batches,
            Self::MillisPerBatch => seconds * 1e3 / batches,
            Self::Millis | Self::MillisPerPass => seconds * 1e3,
            Self::WakesPerBatch => seconds / batches,
            Self::Bytes | Self::Count => batches,
        })
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

/// Rounds to five digits: clocks are not more precise, and lines stay short.
fn five_digits(value: f64) -> f64 {
    format!("{value:.4e}").parse().expect("a formatted number")
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
        ensure!(
            !values.is_empty() && values.iter().all(|&value| value > 0.0),
            "there must be values, and all must be above 0"
        );
        ensure!(*size != Some(0), "a size must be above 0");
    }
    Ok(line)
}

/// Replaces the content of a file by these lines. If this is interrupted, the old content is kept.
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
    fn sections_have_their_names_of_earlier_records() {
        let names = ["\"small-images\"", "\"w2\""].map(|name| serde_json::from_str::<Section>(name).unwrap());
        assert_eq!(names, [Section::SmallImages; 2]);
        assert_eq!(Section::PythonIndexedImages.name(), "python-indexed-images");
    }

    #[test]
    fn lines_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.jsonl");
        assert_eq!(read(&path).unwrap(), []);
        let time = Time {
            section: Section::SmallImages,
            case: String::new(),
            workers: Some(1),
            size: None,
            ranks: None,
            peer: "burn".into(),
            version: Some("0.22".into()),
            kind: Kind::Peer,
            unit: Unit::MicrosPerBatch,
            values: vec![12.5, 13.0],
        };
        let absent = Absent {
            section: Section::SmallImages,
            case: String::new(),
            workers: Some(1),
            peer: "x".into(),
            why: "none".into(),
        };
        let run = Run { section: Section::SmallImages, rounds: 2, machine: Machine::of_this_run() };
        let lines = [Line::Run(run), Line::Time(time), Line::Absent(absent)];
        write(&path, &lines).unwrap();
        assert_eq!(read(&path).unwrap(), lines);
        std::fs::write(&path, "{\"line\":\"run\"}").unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("report.jsonl, line 1"));
    }

    #[test]
    fn impossible_measurements_are_rejected() {
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
