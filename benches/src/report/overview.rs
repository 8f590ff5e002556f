//! The overview: a line for each of some workloads, with two workers.

use super::plots;
use super::sheet::{Column, Sheet, Spread, median};
use super::tables::{or_dash, quartiles, short, table};
use crate::record::Kind;

/// The lines: the name, the section and the case.
const LINES: [(&str, &str, &str); 18] = [
    ("Items that cost nothing", "empty-items", ""),
    ("Small images in memory", "small-images", ""),
    ("Large images in memory", "large-images", ""),
    ("Crops of tokens", "token-crops", ""),
    ("Padded sequences", "padding", ""),
    ("JPEGs, cropped and flipped", "jpeg-crops", "500 × 375"),
    ("JPEGs, with RandAugment", "rand-augment", ""),
    ("PNGs", "pngs", ""),
    ("Files in folders, cached", "folders", "warm"),
    ("Tars, cached", "tars", "warm"),
    ("Tars in a bucket", "bucket", ""),
    ("Rows of Parquet, shuffled", "tables", "whole, shuffled"),
    ("Python: empty samples", "python-empty-items", ""),
    ("Python: small images, by index", "python-indexed-images", "NumPy arrays"),
    ("Python: a TensorDataset", "python-small-images", ""),
    ("Python: JPEGs by torchvision", "python-jpegs", "torchvision"),
    ("Python: torchvision's ImageFolder", "python-torchvision", "ImageFolder, rewritten"),
    ("Python: documents, mixed and packed", "python-mixture", ""),
];

/// The title of the chart.
pub const TITLE: &str = "With two workers: how many times as fast as the fastest other loader";

/// Renders the table, and the chart of slotline's speedup over the fastest peer. Returns `None` if
/// none of these sections was measured.
pub fn render(sheet: &Sheet) -> Result<Option<(String, String)>, std::fmt::Error> {
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for (name, section, case) in LINES {
        let column: Column = (case.to_owned(), Some(2));
        let (Some(ours), Some(ratio)) = (sheet.ours(section, &column), sheet.ratio(section, &column)) else { continue };
        let of = |kind| {
            let times = sheet.comparison(section, &column).filter(move |time| time.kind == kind);
            times.min_by(|a, b| median(a).total_cmp(&median(b)))
        };
        let best = |kind| or_dash(of(kind), |time| format!("{} {}", short(median(time)), time.peer));
        let section = format!("`{section}`");
        let figures =
            [short(median(ours)), best(Kind::Peer), quartiles(ratio), best(Kind::Limit), ours.unit.to_string()];
        rows.push([name.to_owned(), section].into_iter().chain(figures).collect());
        ratios.push((name, Spread { low: 1.0 / ratio.high, median: 1.0 / ratio.median, high: 1.0 / ratio.low }));
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let head = ["", "workload", "slotline", "fastest peer", "ratio of the times", "limit of the machine", ""];
    Ok(Some((table(&head.map(str::to_owned), rows).trim_end().to_owned(), plots::ratios(TITLE, &ratios)?)))
}
