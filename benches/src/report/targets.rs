//! The targets, and whether they are met.

use std::fmt::Write as _;

use anyhow::Result;

use super::sheet::{Column, Sheet, median, over};
use super::tables::{heading, short, spread};
use crate::record::{Kind, Section, Time};

/// The maximum for a contender's median.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Aim {
    /// A value in the section's unit.
    Value(f64),
    /// The median of this limit, divided by 0.95.
    Limit(&'static str),
    /// This multiple of this contender, within each round.
    Times(f64, &'static str),
    /// This multiple of this contender's memory.
    Memory(f64, &'static str),
}

/// A target: the section, the case, the number of workers, the contender and the maximum.
struct Target(Section, &'static str, Option<usize>, &'static str, Aim);

/// slotline with its default options.
pub const OURS: &str = "slotline";
/// Results through a channel, and a map for those that are early, as in torch.
const CHANNEL: &str = "channel + map";
/// slotline without the help of the loop's thread.
pub const ALONE: &str = "slotline, workers alone";
/// slotline with worker processes.
pub const PROCESSES: &str = "slotline, processes";
/// slotline without a crop.
const WHOLE: &str = "slotline, whole pictures";
/// slotline's loader in Python, with batches for whichever worker is free.
const ANY_WORKER: &str = "slotline, round_robin=False";
const HELPED: &str = "slotline, the loop helps";
const ONE: Aim = Aim::Limit("memcpy on one thread");
const TWO: Aim = Aim::Limit("memcpy on two threads");

/// All targets. With one worker, two threads load, since the loop's thread helps.
const TARGETS: &[Target] = &[
    Target(Section::EmptyItems, "", Some(0), OURS, Aim::Value(0.010)),
    Target(Section::EmptyItems, "", Some(1), OURS, Aim::Value(0.06)),
    Target(Section::EmptyItems, "", Some(2), OURS, Aim::Value(0.08)),
    Target(Section::EmptyItems, "", Some(2), PROCESSES, Aim::Times(1.3, ALONE)),
    Target(Section::SmallImages, "", Some(0), OURS, Aim::Value(2.2)),
    Target(Section::SmallImages, "", Some(1), OURS, Aim::Value(1.5)),
    Target(Section::SmallImages, "", Some(2), OURS, Aim::Value(1.5)),
    Target(Section::SmallImages, "", Some(2), PROCESSES, Aim::Times(1.2, OURS)),
    Target(Section::LargeImages, "", Some(0), OURS, ONE),
    Target(Section::LargeImages, "", Some(1), OURS, TWO),
    Target(Section::LargeImages, "", Some(2), OURS, TWO),
    Target(Section::LargeImages, "", Some(2), PROCESSES, Aim::Times(1.2, OURS)),
    Target(Section::TokenCrops, "", Some(0), OURS, Aim::Value(13.0)),
    Target(Section::TokenCrops, "", Some(1), OURS, Aim::Value(8.0)),
    Target(Section::TokenCrops, "", Some(2), OURS, Aim::Value(8.0)),
    Target(Section::Jpegs, "", Some(0), OURS, Aim::Value(15.0)),
    Target(Section::Jpegs, "", Some(1), OURS, Aim::Value(8.0)),
    Target(Section::Jpegs, "", Some(2), OURS, Aim::Value(8.0)),
    Target(Section::JpegCrops, "500 × 375", Some(0), OURS, Aim::Times(1.0 / 1.3, WHOLE)),
    Target(Section::JpegCrops, "500 × 375", Some(2), OURS, Aim::Times(1.0, "torch")),
    Target(Section::JpegCrops, "2,000 × 1,500", Some(0), OURS, Aim::Times(1.0 / 1.3, WHOLE)),
    Target(Section::JpegCrops, "2,000 × 1,500", Some(2), OURS, Aim::Times(1.0, "torch")),
    Target(Section::Pngs, "", Some(0), OURS, Aim::Times(1.0, "torch")),
    Target(Section::Pngs, "", Some(2), OURS, Aim::Times(1.0, "torch")),
    Target(Section::RandAugment, "", Some(0), OURS, Aim::Times(1.0, "torch")),
    Target(Section::RandAugment, "", Some(2), OURS, Aim::Times(1.0, "torch")),
    Target(Section::Packing, "", Some(0), OURS, Aim::Value(500.0)),
    Target(Section::Padding, "", Some(0), OURS, Aim::Times(0.1, "torch")),
    Target(Section::Padding, "", Some(1), OURS, Aim::Times(0.1, "torch")),
    Target(Section::Padding, "", Some(2), OURS, Aim::Times(0.1, "torch")),
    Target(Section::FirstBatch, "", Some(2), OURS, Aim::Value(1.2)),
    Target(Section::FirstBatch, "", Some(2), PROCESSES, Aim::Value(5.0)),
    Target(Section::SlowSamples, "batches of 8", Some(2), ALONE, Aim::Value(430.0)),
    Target(Section::SlowSamples, "batches of 8", Some(2), OURS, Aim::Value(300.0)),
    Target(Section::SlowSamples, "batches of 1", Some(2), ALONE, Aim::Value(560.0)),
    Target(Section::SlowSamples, "batches of 1", Some(2), OURS, Aim::Value(300.0)),
    Target(Section::SlowSamples, "batches of 1, prefetch 16", Some(2), ALONE, Aim::Value(450.0)),
    Target(Section::SlowSamples, "batches of 1, prefetch 16", Some(2), OURS, Aim::Value(300.0)),
    Target(Section::SlowSamples, "batches of 8, as they arrive", Some(2), OURS, Aim::Value(430.0)),
    Target(Section::SlowSamples, "batches of 8, as they arrive", Some(2), HELPED, Aim::Value(300.0)),
    Target(Section::SlowSamples, "batches of 1, as they arrive", Some(2), OURS, Aim::Value(430.0)),
    Target(Section::SlowSamples, "batches of 1, as they arrive", Some(2), HELPED, Aim::Value(300.0)),
    Target(Section::Deaths, "", Some(2), PROCESSES, Aim::Value(10.0)),
    Target(Section::Cpu, "slow loop", Some(2), OURS, Aim::Times(1.0, CHANNEL)),
    Target(Section::Cpu, "idle loop", Some(2), OURS, Aim::Times(1.0, CHANNEL)),
    Target(Section::Wakes, "slow loop", Some(2), OURS, Aim::Times(1.0, CHANNEL)),
    Target(Section::Wakes, "idle loop", Some(2), OURS, Aim::Times(1.0, CHANNEL)),
    Target(Section::Rings, "spsc, one by one", None, OURS, Aim::Value(2.2)),
    Target(Section::Rings, "spsc, bursts of 64", None, OURS, Aim::Value(0.6)),
    Target(Section::Rings, "round trip", None, OURS, Aim::Value(103.0)),
    Target(Section::Rings, "ordered, two producers", None, OURS, Aim::Value(25.0)),
    Target(Section::Rings, "ordered, two producers, runs of 32", None, OURS, Aim::Value(5.0)),
    Target(Section::PythonEmptyItems, "", Some(0), OURS, Aim::Value(6.0)),
    Target(Section::PythonEmptyItems, "", Some(2), OURS, Aim::Value(15.0)),
    Target(Section::PythonSmallImages, "", Some(0), OURS, Aim::Value(6.0)),
    Target(Section::PythonSmallImages, "", Some(2), OURS, Aim::Value(5.0)),
    Target(Section::PythonIndexedImages, "tensors", Some(0), OURS, Aim::Value(130.0)),
    Target(Section::PythonIndexedImages, "tensors", Some(2), OURS, Aim::Value(90.0)),
    Target(Section::PythonIndexedImages, "NumPy arrays", Some(0), OURS, Aim::Value(130.0)),
    Target(Section::PythonIndexedImages, "NumPy arrays", Some(2), OURS, Aim::Value(90.0)),
    Target(Section::PythonLargeImages, "bytes", Some(0), OURS, Aim::Value(300.0)),
    Target(Section::PythonLargeImages, "bytes", Some(2), OURS, Aim::Value(250.0)),
    Target(Section::PythonLargeImages, "floats", Some(0), OURS, Aim::Value(1200.0)),
    Target(Section::PythonLargeImages, "floats", Some(2), OURS, Aim::Value(1000.0)),
    Target(Section::PythonJpegs, "Pillow", Some(0), OURS, Aim::Times(1.0, "torch")),
    Target(Section::PythonJpegs, "Pillow", Some(2), OURS, Aim::Times(0.8, "torch")),
    Target(Section::PythonJpegs, "Pillow", Some(8), OURS, Aim::Memory(0.5, "torch")),
    Target(Section::PythonJpegs, "torchvision", Some(0), OURS, Aim::Times(1.0, "torch")),
    Target(Section::PythonJpegs, "torchvision", Some(2), OURS, Aim::Times(0.8, "torch")),
    Target(Section::PythonJpegs, "torchvision", Some(8), OURS, Aim::Memory(0.5, "torch")),
    Target(Section::PythonFirstBatch, "TensorDataset", Some(2), OURS, Aim::Value(3.0)),
    Target(Section::PythonFirstBatch, "Python", Some(2), OURS, Aim::Times(1.0, "torch")),
    Target(Section::PythonSlowSamples, "", Some(2), OURS, Aim::Value(460.0)),
    Target(Section::PythonSlowSamples, "", Some(2), ANY_WORKER, Aim::Value(460.0)),
    Target(Section::Folders, "cold", Some(2), OURS, Aim::Times(1.0 / 0.9, "16 threads that read")),
    Target(Section::Folders, "warm", Some(2), OURS, Aim::Times(1.0, "torchvision")),
    Target(Section::Tars, "cold", Some(2), OURS, Aim::Times(1.0, "webshart")),
    Target(Section::Tars, "warm", Some(2), OURS, Aim::Times(1.0, "webshart")),
    Target(Section::Bucket, "", Some(2), OURS, Aim::Times(1.0 / 0.95, "64 ranges at a time")),
    Target(Section::TokenFiles, "nanoGPT", Some(0), OURS, Aim::Times(0.1, "NumPy's memmap")),
    Target(Section::TokenFiles, "Megatron", Some(0), OURS, Aim::Times(0.1, "Megatron's GPTDataset")),
    Target(Section::Tables, "Arrow, numbers", Some(0), OURS, Aim::Times(1.0, "datasets, rows")),
    Target(Section::Tables, "Arrow, binaries", Some(0), OURS, Aim::Times(1.0, "datasets, rows")),
    Target(Section::Tables, "Parquet, numbers", Some(0), OURS, Aim::Times(1.0, "pyarrow")),
    Target(Section::Tables, "Parquet, binaries", Some(0), OURS, Aim::Times(1.0, "pyarrow")),
    Target(Section::Tables, "whole, opened, in order", Some(0), OURS, Aim::Times(1.0 / 1.5, "pyarrow")),
    Target(Section::Tables, "whole, opened, in order", Some(2), OURS, Aim::Times(1.0 / 1.5, "pyarrow")),
    Target(Section::Tables, "whole, shuffled", Some(0), OURS, Aim::Times(1.0, "pyarrow")),
    Target(Section::Tables, "whole, shuffled", Some(2), OURS, Aim::Times(1.0, "pyarrow")),
    Target(Section::TarIndex, "", Some(0), OURS, Aim::Value(1000.0)),
];

/// Renders the table of targets. Empty if no contender with a target was measured.
pub fn table(sheet: &Sheet) -> Result<String> {
    let mut rows = String::new();
    for Target(section, case, workers, peer, aim) in TARGETS {
        let column = ((*case).to_owned(), *workers);
        if let Some(ours) = sheet.of(*section, &column, peer) {
            row(&mut rows, sheet, &column, ours, *aim)?;
        }
    }
    if rows.is_empty() {
        return Ok(rows);
    }
    let head = "| | slotline | best peer | ratio | limit of the machine | target | |\n|---|---|---|---|---|---|---|\n";
    let units = "\nIn µs per batch; `jpegs`, `jpeg-crops`, `pngs`, `rand-augment`, `python-jpegs`, `folders`, `tars` and `bucket` in ms per batch, `first-batch`, `slow-samples`, `python-first-batch`, `python-slow-samples`, `tar-index`, `packing` and deaths in ms per pass, wake-ups in numbers per batch, rings in ns per item. A target is met if the median is at most the target and no peer is faster; a multiple of another contender is compared within each round. Processes need not be faster than peers, most of which have threads.\n";
    Ok(format!("{head}{rows}{units}"))
}

fn row(rows: &mut String, sheet: &Sheet, column: &Column, ours: &Time, aim: Aim) -> Result<()> {
    let section = ours.section;
    let named =
        |time: Option<&Time>| time.map_or_else(|| "–".into(), |time| format!("{} {}", short(median(time)), time.peer));
    let limit = sheet.best(section, column, Kind::Limit);
    let ratio = sheet.ratio(section, column, ours);
    let (target, reached) = match aim {
        Aim::Value(most) => (format!("≤ {most}"), median(ours) <= most),
        Aim::Limit(name) => {
            let limit = sheet.of(section, column, name);
            (format!("≥ 95 % of {name}"), limit.is_some_and(|limit| median(ours) <= median(limit) / 0.95))
        }
        Aim::Times(most, name) => {
            let times = sheet.of(section, column, name).and_then(|other| over(ours, &[other]));
            let rounded = (100.0 * most).round() / 100.0;
            (format!("≤ {rounded} × {name}"), times.is_some_and(|times| times.median <= most))
        }
        Aim::Memory(most, name) => {
            let bytes = |peer| sheet.memory(section, column, peer).map(median);
            let share = bytes(&ours.peer).zip(bytes(name)).map(|(ours, other)| ours / other);
            let share_of = share.map_or_else(|| "–".into(), short);
            (format!("memory ≤ {most} × {name} (is {share_of})"), share.is_some_and(|share| share <= most))
        }
    };
    let first = ours.peer == PROCESSES || ratio.is_none_or(|ratio| ratio.median <= 1.0);
    let verdict = match (reached, first) {
        (true, true) => "met",
        (true, false) => "**not first**",
        (false, _) => "**not met**",
    };
    let variant = ours.peer.strip_prefix(OURS).unwrap_or_default();
    writeln!(
        rows,
        "| {}, {}{variant} | {} | {} | {} | {} | {target} | {verdict} |",
        section.name(),
        heading(column),
        short(median(ours)),
        named(sheet.best(section, column, Kind::Peer)),
        ratio.map_or_else(|| "–".into(), spread),
        named(limit),
    )?;
    Ok(())
}
