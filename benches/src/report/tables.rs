//! Tables in Markdown.

use super::sheet::{Column, Sheet, Spread, distinct, median, over, spread};
use crate::peer::ours::USER_BUILD;
use crate::record::{Kind, Time, Unit};
use crate::workload::SECTIONS;

/// Formats a number with three significant digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        ..0.01 => format!("{value:.4}"),
        ..0.1 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        ..10_000.0 => format!("{value:.0}"),
        _ => format!("{}{}", if value < 0.0 { "-" } else { "" }, grouped(value.abs().round() as u64)),
    }
}

/// Formats a whole number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", grouped(number / 1000), number % 1000) }
}

/// Formats a median with its quartiles.
pub fn quartiles(spread: Spread) -> String {
    format!("{} ({}–{})", short(spread.median), short(spread.low), short(spread.high))
}

/// Formats a value, or a dash if it is missing.
pub fn or_dash<T>(value: Option<T>, format: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "–".into(), format)
}

/// Writes a table.
pub fn table(head: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |");
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    line(head) + &rule + &rows.into_iter().map(|row| line(&row)).collect::<String>()
}

/// Returns the name of a comparison within its section.
pub fn heading((case, workers): &Column) -> String {
    match workers {
        None => case.clone(),
        Some(workers) if case.is_empty() => format!("w{workers}"),
        Some(workers) => format!("{case}, w{workers}"),
    }
}

/// Renders the tables of a section.
pub fn section(sheet: &Sheet, section: &str) -> String {
    let mut columns = sheet.columns(section);
    let tables = |same: fn(&Column, &Column) -> bool, columns: Vec<Column>| {
        let tables = columns.chunk_by(same).map(|columns| peers(sheet, section, columns));
        tables.collect::<Vec<_>>().join("\n")
    };
    match section {
        "size" => sizes(sheet, &columns),
        "ranks" => ranks(sheet),
        // There is one table for each variant, since each has many numbers of workers.
        "workers" => tables(|a, b| a.0 == b.0, columns),
        // There is one table for each number of workers, with the percentiles as columns.
        "latency" => {
            columns.sort_by_key(|column| column.1);
            tables(|a, b| a.1 == b.1, columns)
        }
        _ if sheet.times(section).any(|time| time.unit == Unit::Bytes) => {
            peers(sheet, section, &columns) + "\n" + &memory(sheet, section, &columns)
        }
        _ => peers(sheet, section, &columns),
    }
}

/// Renders a table with a row for each comparison of any section for which `row` returns cells.
fn of_comparisons(sheet: &Sheet, head: &[&str], row: impl Fn(&str, &Column) -> Option<Vec<String>>) -> Option<String> {
    let mut rows = Vec::new();
    for name in SECTIONS.map(|section| section.name) {
        for column in sheet.columns(name) {
            if let (Some(cells), Some(ours)) = (row(name, &column), sheet.ours(name, &column)) {
                let place = vec![format!("{name}, {}", heading(&column))];
                rows.push([place, cells, vec![ours.unit.to_string()]].concat());
            }
        }
    }
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    (!rows.is_empty()).then(|| table(&head, rows))
}

/// Renders a table that compares slotline in cargo's default profile with slotline in the
/// workspace's profile, for the comparisons in which both were measured.
pub fn user_build(sheet: &Sheet) -> Option<String> {
    of_comparisons(sheet, &["", "the workspace's profile", "cargo's default", "ratio", ""], |section, column| {
        let (ours, user) = (sheet.ours(section, column)?, sheet.of(section, column, USER_BUILD)?);
        Some(vec![short(median(ours)), short(median(user)), quartiles(over(user, &[ours])?)])
    })
}

/// Renders a table that compares worker processes with slotline's threads and with torch, for the
/// comparisons in which these were measured.
pub fn processes(sheet: &Sheet) -> Option<String> {
    let head = ["", "processes", "threads alone", "threads", "torch", "÷ threads alone", "÷ threads", "÷ torch", ""];
    of_comparisons(sheet, &head, |section, column| {
        let processes = sheet.of(section, column, "slotline, processes")?;
        let others = ["slotline, workers alone", "slotline", "torch"].map(|peer| sheet.of(section, column, peer));
        let times = others.map(|other| or_dash(other, |other| short(median(other))));
        let ratios = others.map(|other| or_dash(other.and_then(|other| over(processes, &[other])), quartiles));
        Some([&[short(median(processes))][..], &times, &ratios].concat())
    })
}

/// Returns the contenders of a section, by kind.
fn contenders<'a>(times: impl Iterator<Item = &'a Time>) -> Vec<(&'a str, Kind)> {
    let mut rows = distinct(times.map(|time| (time.peer.as_str(), time.kind)));
    rows.sort_by_key(|&(_, kind)| kind as u8);
    rows
}

/// Returns the header of a table with a column for each comparison.
fn heads(first: String, columns: &[Column]) -> Vec<String> {
    std::iter::once(first).chain(columns.iter().map(heading)).collect()
}

/// Renders a table with a row for each contender and a column for each comparison.
fn peers(sheet: &Sheet, section: &str, columns: &[Column]) -> String {
    let times = || columns.iter().flat_map(|column| sheet.comparison(section, column));
    let row = |(peer, kind): (&str, Kind)| {
        let cell = |column| or_dash(sheet.of(section, column, peer).map(spread), quartiles);
        let cells = columns.iter().map(cell).map(|cell| match cell.split_once(' ') {
            Some((median, quartiles)) if kind == Kind::Ours => format!("**{median}** {quartiles}"),
            _ => cell,
        });
        let name = match kind {
            Kind::Ours => format!("**{peer}**"),
            Kind::Limit => format!("*{peer}*"),
            Kind::Variant | Kind::Peer => peer.to_owned(),
        };
        std::iter::once(name).chain(cells).collect()
    };
    let mut rows: Vec<_> = contenders(times()).into_iter().map(row).collect();
    let ratios: Vec<_> = columns.iter().map(|column| sheet.ratio(section, column)).collect();
    if ratios.iter().any(Option::is_some) {
        let cells = ratios.into_iter().map(|ratio| or_dash(ratio, quartiles));
        rows.push(std::iter::once("slotline ÷ best peer".to_owned()).chain(cells).collect());
    }
    let unit = times().next().map_or_else(String::new, |time| time.unit.to_string());
    table(&heads(unit, columns), rows)
}

/// Renders a table of memory with a row for each contender and a column for each comparison.
fn memory(sheet: &Sheet, section: &str, columns: &[Column]) -> String {
    let row = |(peer, kind): (&str, Kind)| {
        let name = if kind == Kind::Ours { format!("**{peer}**") } else { peer.to_owned() };
        let mebibytes = |time| short((median(time) / f64::from(1 << 20)).round());
        let cells = columns.iter().map(|column| or_dash(sheet.memory(section, column, peer), mebibytes));
        std::iter::once(name).chain(cells).collect()
    };
    let rows = contenders(sheet.times(section).filter(|time| time.unit == Unit::Bytes)).into_iter().map(row);
    table(&heads("memory, MiB".into(), columns), rows)
}

/// Renders a table with a row for each size and two columns for each comparison.
fn sizes(sheet: &Sheet, columns: &[Column]) -> String {
    let mut sizes = distinct(sheet.times("size").filter_map(|time| time.size));
    sizes.sort_unstable();
    let row = |size: u64| {
        let cells = columns.iter().flat_map(|column| {
            let here = |time: &&Time| time.case == column.0 && time.workers == column.1 && time.size == Some(size);
            let of = |bytes| sheet.times("size").filter(here).find(|time| (time.unit == Unit::Bytes) == bytes);
            let kibibytes = |time| format!("{} KiB", short(median(time) / 1024.0));
            [or_dash(of(false).map(spread), quartiles), or_dash(of(true), kibibytes)]
        });
        std::iter::once(format!("10^{}", size.ilog10())).chain(cells).collect()
    };
    let of_column = |column| [format!("{}: µs per batch", heading(column)), "memory".to_owned()];
    let head: Vec<String> = std::iter::once("samples".into()).chain(columns.iter().flat_map(of_column)).collect();
    table(&head, sizes.into_iter().map(row))
}

/// Renders a table with a row for each case and size and a column for each number of ranks.
fn ranks(sheet: &Sheet) -> String {
    let times = || sheet.times("ranks");
    let mut worlds = distinct(times().filter_map(|time| time.ranks));
    worlds.sort_unstable();
    let row = |(case, size): (&str, Option<u64>)| {
        let at = |world: &u64| times().find(|time| (&*time.case, time.size, time.ranks) == (case, size, Some(*world)));
        let cells = worlds.iter().map(|world| or_dash(at(world), |time| with_unit(median(time), time.unit)));
        let size = or_dash(size, |size| format!("10^{}", size.ilog10()));
        [case.to_owned(), size].into_iter().chain(cells).collect()
    };
    let rows = distinct(times().map(|time| (time.case.as_str(), time.size)));
    let head = ["ranks".to_owned(), "samples".to_owned()].into_iter().chain(worlds.iter().copied().map(grouped));
    table(&head.collect::<Vec<_>>(), rows.into_iter().map(row))
}

/// Formats a value with its unit.
fn with_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => grouped(value.round() as u64),
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
            let time = Time::new(case, "slotline", Kind::Ours, unit, vec![value]);
            Line::Time(Time { section: "ranks".into(), size: Some(size), ranks: Some(ranks), ..time })
        };
        let sheet = Sheet::new(vec![
            time("first batch", 1000, 1, Unit::Millis, 2.0),
            time("first batch", 1000, 4096, Unit::Millis, 0.5),
            time("first batch", 1_000_000, 4096, Unit::Millis, 2500.0),
            time("states", 1000, 4096, Unit::Bytes, 2048.0),
        ]);
        let table = "| ranks | samples | 1 | 4,096 |\n|---|---|---|---|\n| first batch | 10^3 | 2.00 ms | 500 µs |\n\
                     | first batch | 10^6 | – | 2.50 s |\n| states | 10^3 | – | 2.00 KiB |\n";
        assert_eq!(section(&sheet, "ranks"), table);
    }

    #[test]
    fn the_latency_has_a_table_for_each_number_of_workers() {
        let time = |case: &str, workers, value| {
            let time = Time::new(case, "slotline", Kind::Ours, Unit::NanosPerBatch, vec![value]);
            Line::Time(Time { section: "latency".into(), workers: Some(workers), ..time })
        };
        let lines = [time("p50", 0, 70.0), time("maximum", 0, 3e6), time("p50", 2, 60.0), time("maximum", 2, 4e6)];
        let text = section(&Sheet::new(lines.into()), "latency");
        for row in [
            "| ns per batch | p50, w0 | maximum, w0 |",
            "| **slotline** | **70.0** (70.0–70.0) | **3,000,000** (3,000,000–3,000,000) |",
            "| ns per batch | p50, w2 | maximum, w2 |",
            "| **slotline** | **60.0** (60.0–60.0) | **4,000,000** (4,000,000–4,000,000) |",
        ] {
            assert!(text.contains(row), "{row}\nis not in\n{text}");
        }
    }
}
