//! Tables in Markdown.

use std::fmt::Write as _;

use anyhow::Result;

use super::sheet::{Column, Sheet, median, over};
use super::targets::{ALONE, OURS, PROCESSES};
use crate::peer::ours::USER_BUILD;
use crate::record::{Kind, Section, Time, Unit};
use crate::stats::Spread;

/// Formats a number with three digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        ..0.01 => format!("{value:.4}"),
        ..0.1 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        ..10_000.0 => format!("{value:.0}"),
        _ => format!("{}{}", if value < 0.0 { "-" } else { "" }, thousands(value.abs().round() as u64)),
    }
}

/// Formats a whole number with commas.
fn thousands(number: u64) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", thousands(number / 1000), number % 1000) }
}

/// Formats a median with its quartiles.
pub fn spread(spread: Spread) -> String {
    format!("{} ({}–{})", short(spread.median), short(spread.low), short(spread.high))
}

/// Returns the name of a heat within its section.
pub fn heading((case, workers): &Column) -> String {
    match workers {
        None => case.clone(),
        Some(workers) if case.is_empty() => format!("w{workers}"),
        Some(workers) => format!("{case}, w{workers}"),
    }
}

/// Renders the tables of a section.
pub fn section(sheet: &Sheet, section: Section) -> Result<String> {
    let columns = sheet.columns(section);
    match section {
        Section::Size => sizes(sheet, &columns),
        Section::Ranks => ranks(sheet),
        // One table for each variant, since each has many numbers of workers.
        Section::Workers => {
            let tables = columns.chunk_by(|a, b| a.0 == b.0).map(|columns| peers(sheet, section, columns));
            Ok(tables.collect::<Result<Vec<_>>>()?.join("\n"))
        }
        // One table for each number of workers, with the percentiles as columns.
        Section::Latency => {
            let mut columns = columns;
            columns.sort_by_key(|column| column.1);
            let tables = columns.chunk_by(|a, b| a.1 == b.1).map(|columns| peers(sheet, section, columns));
            Ok(tables.collect::<Result<Vec<_>>>()?.join("\n"))
        }
        _ if section.is_python() || section.is_files() => {
            let tables = [peers(sheet, section, &columns)?, memory(sheet, section, &columns)?];
            Ok(tables.join("\n"))
        }
        _ => peers(sheet, section, &columns),
    }
}

/// Renders a table that compares slotline in cargo's default profile with the workspace's profile, where both were
/// measured.
pub fn user_build(sheet: &Sheet) -> Result<String> {
    let mut rows = String::new();
    for section in sheet.sections() {
        for column in sheet.columns(section) {
            let Some(ours) = sheet.best(section, &column, Kind::Ours) else { continue };
            let Some(user) = sheet.of(section, &column, USER_BUILD) else { continue };
            let Some(ratio) = over(user, &[ours]) else { continue };
            let (name, unit) = (section.name(), ours.unit);
            let times = [ours, user].map(|time| short(median(time)));
            writeln!(
                rows,
                "| {name}, {} | {} | {} | {} | {unit} |",
                heading(&column),
                times[0],
                times[1],
                spread(ratio)
            )?;
        }
    }
    let head = "| | the workspace's profile | cargo's default | ratio | |\n|---|---|---|---|---|\n";
    Ok(if rows.is_empty() { rows } else { format!("{head}{rows}") })
}

/// Renders a table that compares worker processes with slotline's threads and with torch, where these were measured.
pub fn processes(sheet: &Sheet) -> Result<String> {
    let mut rows = String::new();
    for section in sheet.sections() {
        for column in sheet.columns(section) {
            let Some(processes) = sheet.of(section, &column, PROCESSES) else { continue };
            let others = [ALONE, OURS, "torch"].map(|peer| sheet.of(section, &column, peer));
            // A section without threads has nothing to compare.
            if others[1].is_none() {
                continue;
            }
            let (name, unit) = (section.name(), processes.unit);
            write!(rows, "| {name}, {} | {} |", heading(&column), short(median(processes)))?;
            for other in others {
                write!(rows, " {} |", other.map_or_else(|| "–".into(), |other| short(median(other))))?;
            }
            for other in others {
                let ratio = other.and_then(|other| over(processes, &[other]));
                write!(rows, " {} |", ratio.map_or_else(|| "–".into(), spread))?;
            }
            writeln!(rows, " {unit} |")?;
        }
    }
    let head = "| | processes | threads alone | threads | torch | ÷ threads alone | ÷ threads | ÷ torch | |\n\
                |---|---|---|---|---|---|---|---|---|\n";
    Ok(if rows.is_empty() { rows } else { format!("{head}{rows}") })
}

/// Renders a table with a row for each contender and a column for each heat.
fn peers(sheet: &Sheet, section: Section, columns: &[Column]) -> Result<String> {
    let mut rows: Vec<&Time> = Vec::new();
    for time in columns.iter().flat_map(|column| sheet.heat(section, column)) {
        if !rows.iter().any(|row| row.peer == time.peer) {
            rows.push(time);
        }
    }
    rows.sort_by_key(|time| time.kind as u8);
    let unit = rows.first().map_or(String::new(), |time| time.unit.to_string());
    let mut table = format!("| {unit} |");
    columns.iter().try_for_each(|column| write!(table, " {} |", heading(column)))?;
    write!(table, "\n|---|{}", "---|".repeat(columns.len()))?;
    for row in rows {
        let ours = row.kind == Kind::Ours;
        let name = match row.kind {
            Kind::Ours => format!("**{}**", row.peer),
            Kind::Limit => format!("*{}*", row.peer),
            Kind::Variant | Kind::Peer => row.peer.clone(),
        };
        write!(table, "\n| {name} |")?;
        for column in columns {
            let values = sheet.of(section, column, &row.peer).and_then(|time| Spread::of(time.values.iter().copied()));
            let cell = values.map_or_else(|| "–".into(), spread);
            let cell = match cell.split_once(' ') {
                Some((median, quartiles)) if ours => format!("**{median}** {quartiles}"),
                _ => cell,
            };
            write!(table, " {cell} |")?;
        }
    }
    let ratio = |column| sheet.ratio(section, column, sheet.best(section, column, Kind::Ours)?);
    let ratios: Vec<_> = columns.iter().map(ratio).collect();
    if ratios.iter().any(Option::is_some) {
        write!(table, "\n| slotline ÷ best peer |")?;
        for ratio in ratios {
            write!(table, " {} |", ratio.map_or_else(|| "–".into(), spread))?;
        }
    }
    table.push('\n');
    Ok(table)
}

/// Renders a table of memory with a row for each contender and a column for each heat.
fn memory(sheet: &Sheet, section: Section, columns: &[Column]) -> Result<String> {
    let mut rows: Vec<&Time> = Vec::new();
    for time in sheet.times(section).filter(|time| time.unit == Unit::Bytes) {
        if !rows.iter().any(|row| row.peer == time.peer) {
            rows.push(time);
        }
    }
    rows.sort_by_key(|time| time.kind as u8);
    let mut table = String::from("| memory, MiB |");
    columns.iter().try_for_each(|column| write!(table, " {} |", heading(column)))?;
    writeln!(table, "\n|---|{}", "---|".repeat(columns.len()))?;
    for row in rows {
        let name = if row.kind == Kind::Ours { format!("**{}**", row.peer) } else { row.peer.clone() };
        write!(table, "| {name} |")?;
        for column in columns {
            let bytes = sheet.memory(section, column, &row.peer).map(median);
            write!(table, " {} |", bytes.map_or_else(|| "–".into(), mebibytes))?;
        }
        table.push('\n');
    }
    Ok(table)
}

/// Formats bytes as MiB.
pub fn mebibytes(bytes: f64) -> String {
    short((bytes / f64::from(1 << 20)).round())
}

/// Renders a table with a row for each size and two columns for each heat.
fn sizes(sheet: &Sheet, columns: &[Column]) -> Result<String> {
    let mut sizes: Vec<u64> = sheet.times(Section::Size).filter_map(|time| time.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut table = String::from("| samples |");
    columns.iter().try_for_each(|column| write!(table, " {}: µs per batch | memory |", heading(column)))?;
    write!(table, "\n|---|{}", "---|---|".repeat(columns.len()))?;
    for size in sizes {
        write!(table, "\n| 10^{} |", size.ilog10())?;
        for column in columns {
            let here = |time: &&Time| time.case == column.0 && time.workers == column.1 && time.size == Some(size);
            let of_unit =
                |bytes: bool| sheet.times(Section::Size).filter(here).find(|time| (time.unit == Unit::Bytes) == bytes);
            let time = of_unit(false).and_then(|time| Spread::of(time.values.iter().copied()));
            let memory = of_unit(true).map(|time| format!("{} KiB", short(median(time) / 1024.0)));
            let none = || "–".to_owned();
            write!(table, " {} | {} |", time.map_or_else(none, spread), memory.unwrap_or_else(none))?;
        }
    }
    table.push('\n');
    Ok(table)
}

/// Renders a table with a row for each case and size and a column for each number of ranks.
fn ranks(sheet: &Sheet) -> Result<String> {
    let times: Vec<&Time> = sheet.times(Section::Ranks).collect();
    let mut worlds: Vec<u64> = times.iter().filter_map(|time| time.ranks).collect();
    worlds.sort_unstable();
    worlds.dedup();
    let mut rows: Vec<(&str, Option<u64>)> = Vec::new();
    for row in times.iter().map(|time| (time.case.as_str(), time.size)) {
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let mut table = String::from("| ranks | samples |");
    worlds.iter().try_for_each(|world| write!(table, " {} |", grouped(*world as f64)))?;
    write!(table, "\n|---|---|{}", "---|".repeat(worlds.len()))?;
    for (case, size) in rows {
        write!(table, "\n| {case} | {} |", size.map_or_else(|| "–".into(), |size| format!("10^{}", size.ilog10())))?;
        for world in &worlds {
            let here = |time: &&&Time| (time.case.as_str(), time.size, time.ranks) == (case, size, Some(*world));
            let cell = times.iter().find(here).map_or_else(|| "–".into(), |time| with_unit(median(time), time.unit));
            write!(table, " {cell} |")?;
        }
    }
    table.push('\n');
    Ok(table)
}

/// Formats a value with its unit.
fn with_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => grouped(value),
        Unit::Bytes => {
            let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
            let power = ((value.max(1.0).log2() / 10.0) as usize).min(units.len() - 1);
            format!("{} {}", short(value / 1024_f64.powi(power as i32)), units[power])
        }
        Unit::MicrosPerBatch => format!("{} µs", short(value)),
        Unit::Millis if value < 1.0 => format!("{} µs", short(value * 1e3)),
        Unit::Millis if value >= 1000.0 => format!("{} s", short(value / 1e3)),
        unit => format!("{} {unit}", short(value)),
    }
}

/// Formats a whole number.
fn grouped(value: f64) -> String {
    if value < 1000.0 { format!("{value:.0}") } else { format!("{},{:03}", value as u64 / 1000, value as u64 % 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Line;

    #[test]
    fn values_of_ranks_have_a_unit_that_fits() {
        let written = [
            (0.0123, Unit::Millis),
            (12.3, Unit::Millis),
            (45_600.0, Unit::Millis),
            (0.5, Unit::MicrosPerBatch),
            (364.0, Unit::Bytes),
            (8e12, Unit::Bytes),
            (32_767.0, Unit::Count),
            (9.0, Unit::Count),
        ]
        .map(|(value, unit)| with_unit(value, unit));
        assert_eq!(written, ["12.3 µs", "12.3 ms", "45.6 s", "0.50 µs", "364 bytes", "7.28 TiB", "32,767", "9"]);
    }

    #[test]
    fn numbers_have_three_digits() {
        let written = [0.0, 0.00123, 0.0123, 0.5, 2.208, 14.94, 457.2, 1_234.0, 12_034.4, 12_999.6].map(short);
        assert_eq!(written, ["0", "0.0012", "0.012", "0.50", "2.21", "14.9", "457", "1234", "12,034", "13,000"]);
        assert_eq!([-12_034.4, 4_072_700.0, 1e9].map(short), ["-12,034", "4,072,700", "1,000,000,000"]);
    }

    #[test]
    fn the_table_of_ranks_has_a_row_for_each_case_and_size() {
        let time = |case: &str, size, ranks, unit, value| {
            let time = Time::new(Section::Ranks, case, "slotline", Kind::Ours, unit, vec![value]);
            Line::Time(Time { workers: Some(0), size: Some(size), ranks: Some(ranks), ..time })
        };
        let sheet = Sheet::new(vec![
            time("first batch", 1000, 1, Unit::Millis, 2.0),
            time("first batch", 1000, 4096, Unit::Millis, 0.5),
            time("first batch", 1_000_000, 4096, Unit::Millis, 2500.0),
            time("states", 1000, 4096, Unit::Bytes, 2048.0),
        ]);
        let table = "| ranks | samples | 1 | 4,096 |\n|---|---|---|---|\n| first batch | 10^3 | 2.00 ms | 500 µs |\n\
                     | first batch | 10^6 | – | 2.50 s |\n| states | 10^3 | – | 2.00 KiB |\n";
        assert_eq!(section(&sheet, Section::Ranks).unwrap(), table);
    }
}
