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
    Target(Section::W1, "", Some(0), OURS, Aim::Value(0.010)),
    Target(Section::W1, "", Some(1), OURS, Aim::Value(0.06)),
    Target(Section::W1, "", Some(2), OURS, Aim::Value(0.08)),
    Target(Section::W1, "", Some(2), PROCESSES, Aim::Times(1.3, ALONE)),
    Target(Section::W2, "", Some(0), OURS, Aim::Value(2.2)),
    Target(Section::W2, "", Some(1), OURS, Aim::Value(1.5)),
    Target(Section::W2, "", Some(2), OURS, Aim::Value(1.5)),
    Target(Section::W2, "", Some(2), PROCESSES, Aim::Times(1.2, OURS)),
    Target(Section::W3, "", Some(0), OURS, ONE),
    Target(Section::W3, "", Some(1), OURS, TWO),
    Target(Section::W3, "", Some(2), OURS, TWO),
    Target(Section::W3, "", Some(2), PROCESSES, Aim::Times(1.2, OURS)),
    Target(Section::W4, "", Some(0), OURS, Aim::Value(13.0)),
    Target(Section::W4, "", Some(1), OURS, Aim::Value(8.0)),
    Target(Section::W4, "", Some(2), OURS, Aim::Value(8.0)),
    Target(Section::W5, "", Some(0), OURS, Aim::Value(15.0)),
    Target(Section::W5, "", Some(1), OURS, Aim::Value(8.0)),
    Target(Section::W5, "", Some(2), OURS, Aim::Value(8.0)),
    Target(Section::W5r, "500 × 375", Some(0), OURS, Aim::Times(1.0 / 1.3, WHOLE)),
    Target(Section::W5r, "500 × 375", Some(2), OURS, Aim::Times(1.0, "torch")),
    Target(Section::W5r, "2,000 × 1,500", Some(0), OURS, Aim::Times(1.0 / 1.3, WHOLE)),
    Target(Section::W5r, "2,000 × 1,500", Some(2), OURS, Aim::Times(1.0, "torch")),
    Target(Section::W5p, "", Some(0), OURS, Aim::Times(1.0, "torch")),
    Target(Section::W5p, "", Some(2), OURS, Aim::Times(1.0, "torch")),
    Target(Section::W5a, "", Some(0), OURS, Aim::Times(1.0, "torch")),
    Target(Section::W5a, "", Some(2), OURS, Aim::Times(1.0, "torch")),
    Target(Section::T1, "", Some(0), OURS, Aim::Value(500.0)),
    Target(Section::T2, "", Some(0), OURS, Aim::Times(0.1, "torch")),
    Target(Section::T2, "", Some(1), OURS, Aim::Times(0.1, "torch")),
    Target(Section::T2, "", Some(2), OURS, Aim::Times(0.1, "torch")),
    Target(Section::W6, "", Some(2), OURS, Aim::Value(1.2)),
    Target(Section::W6, "", Some(2), PROCESSES, Aim::Value(5.0)),
    Target(Section::W7, "batches of 8", Some(2), ALONE, Aim::Value(430.0)),
    Target(Section::W7, "batches of 8", Some(2), OURS, Aim::Value(300.0)),
    Target(Section::W7, "batches of 1", Some(2), ALONE, Aim::Value(560.0)),
    Target(Section::W7, "batches of 1", Some(2), OURS, Aim::Value(300.0)),
    Target(Section::W7, "batches of 1, prefetch 16", Some(2), ALONE, Aim::Value(450.0)),
    Target(Section::W7, "batches of 1, prefetch 16", Some(2), OURS, Aim::Value(300.0)),
    Target(Section::W7, "batches of 8, as they arrive", Some(2), OURS, Aim::Value(430.0)),
    Target(Section::W7, "batches of 8, as they arrive", Some(2), HELPED, Aim::Value(300.0)),
    Target(Section::W7, "batches of 1, as they arrive", Some(2), OURS, Aim::Value(430.0)),
    Target(Section::W7, "batches of 1, as they arrive", Some(2), HELPED, Aim::Value(300.0)),
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
    Target(Section::P1, "", Some(0), OURS, Aim::Value(6.0)),
    Target(Section::P1, "", Some(2), OURS, Aim::Value(15.0)),
    Target(Section::P2, "", Some(0), OURS, Aim::Value(6.0)),
    Target(Section::P2, "", Some(2), OURS, Aim::Value(5.0)),
    Target(Section::P2p, "tensors", Some(0), OURS, Aim::Value(130.0)),
    Target(Section::P2p, "tensors", Some(2), OURS, Aim::Value(90.0)),
    Target(Section::P2p, "NumPy arrays", Some(0), OURS, Aim::Value(130.0)),
    Target(Section::P2p, "NumPy arrays", Some(2), OURS, Aim::Value(90.0)),
    Target(Section::P3, "bytes", Some(0), OURS, Aim::Value(300.0)),
    Target(Section::P3, "bytes", Some(2), OURS, Aim::Value(250.0)),
    Target(Section::P3, "floats", Some(0), OURS, Aim::Value(1200.0)),
    Target(Section::P3, "floats", Some(2), OURS, Aim::Value(1000.0)),
    Target(Section::P5, "Pillow", Some(0), OURS, Aim::Times(1.0, "torch")),
    Target(Section::P5, "Pillow", Some(2), OURS, Aim::Times(0.8, "torch")),
    Target(Section::P5, "Pillow", Some(8), OURS, Aim::Memory(0.5, "torch")),
    Target(Section::P5, "torchvision", Some(0), OURS, Aim::Times(1.0, "torch")),
    Target(Section::P5, "torchvision", Some(2), OURS, Aim::Times(0.8, "torch")),
    Target(Section::P5, "torchvision", Some(8), OURS, Aim::Memory(0.5, "torch")),
    Target(Section::P6, "TensorDataset", Some(2), OURS, Aim::Value(3.0)),
    Target(Section::P6, "Python", Some(2), OURS, Aim::Times(1.0, "torch")),
    Target(Section::P7, "", Some(2), OURS, Aim::Value(460.0)),
    Target(Section::P7, "", Some(2), ANY_WORKER, Aim::Value(460.0)),
    Target(Section::S1, "cold", Some(2), OURS, Aim::Times(1.0 / 0.9, "16 threads that read")),
    Target(Section::S1, "warm", Some(2), OURS, Aim::Times(1.0, "torchvision")),
    Target(Section::S2, "cold", Some(2), OURS, Aim::Times(1.0, "webshart")),
    Target(Section::S2, "warm", Some(2), OURS, Aim::Times(1.0, "webshart")),
    Target(Section::S3, "", Some(2), OURS, Aim::Times(1.0 / 0.95, "64 ranges at a time")),
    Target(Section::S4, "nanoGPT", Some(0), OURS, Aim::Times(0.1, "NumPy's memmap")),
    Target(Section::S4, "Megatron", Some(0), OURS, Aim::Times(0.1, "Megatron's GPTDataset")),
    Target(Section::S5, "Arrow, numbers", Some(0), OURS, Aim::Times(1.0, "datasets, rows")),
    Target(Section::S5, "Arrow, binaries", Some(0), OURS, Aim::Times(1.0, "datasets, rows")),
    Target(Section::S5, "Parquet, numbers", Some(0), OURS, Aim::Times(1.0, "pyarrow")),
    Target(Section::S5, "Parquet, binaries", Some(0), OURS, Aim::Times(1.0, "pyarrow")),
    Target(Section::S5, "whole, opened, in order", Some(0), OURS, Aim::Times(1.0 / 1.5, "pyarrow")),
    Target(Section::S5, "whole, opened, in order", Some(2), OURS, Aim::Times(1.0 / 1.5, "pyarrow")),
    Target(Section::S5, "whole, shuffled", Some(0), OURS, Aim::Times(1.0, "pyarrow")),
    Target(Section::S5, "whole, shuffled", Some(2), OURS, Aim::Times(1.0, "pyarrow")),
    Target(Section::S6, "", Some(0), OURS, Aim::Value(1000.0)),
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
    let units = "\nIn µs per batch; W5, W5R, W5P, W5A, P5 and S1 to S3 in ms per batch, W6, W7, P6, P7, S6, T1 and deaths in ms per pass, wake-ups in numbers per batch, rings in ns per item. A target is met if the median is at most the target and no peer is faster; a multiple of another contender is compared within each round. Processes need not be faster than peers, most of which have threads.\n";
    Ok(format!("{head}{rows}{units}"))
}

fn title(section: Section) -> String {
    match section {
        Section::Rings => "Rings".into(),
        Section::Deaths => "Deaths".into(),
        Section::Cpu => "CPU time".into(),
        Section::Wakes => "Wake-ups".into(),
        _ => section.name().to_uppercase(),
    }
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
        title(section),
        heading(column),
        short(median(ours)),
        named(sheet.best(section, column, Kind::Peer)),
        ratio.map_or_else(|| "–".into(), spread),
        named(limit),
    )?;
    Ok(())
}
