//! Renders the report and its plots from the recorded lines. The text of the report is in
//! `template.md`.

pub mod overview;
pub mod plots;
pub mod sheet;
pub mod tables;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use self::sheet::Sheet;
use crate::record::{self, Kind, Line};
use crate::workload::{self, Section};

/// The text of the report. Each name in braces is replaced: the name of a section by its plot and
/// tables, other names by other tables.
const TEMPLATE: &str = include_str!("template.md");

/// Renders `REPORT.md` and the plots in `dir` from its `report.jsonl`, and from `notes.md` if it
/// exists.
pub fn render(dir: &Path) -> Result<()> {
    let sheet = Sheet::new(record::read(&dir.join("report.jsonl"))?);
    let plots = dir.join("plots");
    std::fs::create_dir_all(&plots).with_context(|| format!("cannot create {}", plots.display()))?;
    let notes = match std::fs::read_to_string(dir.join("notes.md")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("cannot read notes.md in {}", dir.display()))?,
    };
    let overview = match overview::render(&sheet)? {
        Some((table, chart)) => Some(picture(&plots, "overview", overview::TITLE, &chart)? + &table),
        None => None,
    };
    let tables = [
        ("{machines}", Some(machines(&sheet))),
        ("{overview}", overview),
        ("{notes}", notes.trim().strip_prefix("## ").map(str::to_owned)),
        ("{versions}", Some(versions(&sheet))),
        ("{absent}", Some(absences(&sheet))),
        ("{user-build}", tables::user_build(&sheet)),
        ("{processes}", tables::processes(&sheet)),
    ];
    let mut page = Vec::new();
    for part in TEMPLATE.split("\n\n## ") {
        let rendered = rendered(&sheet, &tables, part, &plots)?;
        page.extend(rendered.map(|part| part.trim_end().to_owned()));
    }
    let path = dir.join("REPORT.md");
    std::fs::write(&path, page.join("\n\n## ") + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// Writes a plot to a file, and returns the line of the report that shows it.
fn picture(plots: &Path, name: &str, title: &str, svg: &str) -> Result<String> {
    let path = plots.join(format!("{name}.svg"));
    std::fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(format!("![{title}](plots/{name}.svg)\n\n"))
}

/// Renders a part of the text. Returns `None` if no measurements were recorded for it.
fn rendered(sheet: &Sheet, tables: &[(&str, Option<String>)], part: &str, plots: &Path) -> Result<Option<String>> {
    let mut text = part.to_owned();
    for (name, table) in tables {
        match table {
            Some(table) => text = text.replace(name, table),
            None if text.contains(name) => return Ok(None),
            None => {}
        }
    }
    let Some(section) = workload::SECTIONS.iter().find(|section| part.contains(&format!("{{{}}}", section.name)))
    else {
        return Ok(Some(text));
    };
    let Section { name, plot, .. } = *section;
    if sheet.times(name).next().is_none() {
        return Ok(None);
    }
    let mut tables = tables::section(sheet, name);
    if plot {
        let title = part.lines().next().unwrap_or_default();
        tables = picture(plots, name, title, &plots::draw(sheet, name)?)? + &tables;
    }
    Ok(Some(text.replace(&format!("{{{name}}}"), &tables)))
}

/// Returns a table of the machines that the sections were measured on. Sections with the same
/// machine, date and rounds share a row.
fn machines(sheet: &Sheet) -> String {
    let mut rows: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for run in sheet.lines().filter_map(|line| if let Line::Run(run) = line { Some(run) } else { None }) {
        let at = &run.machine;
        let row =
            format!("{} | {}, {} cores | {} | {} | {}", at.date, at.cpu, at.cores, at.kernel, at.rustc, run.rounds);
        rows.entry(row).or_default().push(&run.section);
    }
    let rows = rows.iter().map(|(row, sections)| format!("| {} | {row} |", sections.join(", ")));
    let head = "| sections | date | machine | kernel | compiler | rounds |\n|---|---|---|---|---|---|";
    std::iter::once(head.to_owned()).chain(rows).collect::<Vec<_>>().join("\n")
}

/// Lists the versions of the peers.
fn versions(sheet: &Sheet) -> String {
    let times = sheet.lines().filter_map(|line| if let Line::Time(time) = line { Some(time) } else { None });
    let of_peers = times.filter(|time| time.kind != Kind::Limit);
    let versions: BTreeMap<_, _> = of_peers.filter_map(|time| Some((&time.peer, time.version.as_ref()?))).collect();
    versions.iter().map(|(peer, version)| format!("{peer} {version}")).collect::<Vec<_>>().join(", ")
}

/// Returns a table of why peers are absent.
fn absences(sheet: &Sheet) -> String {
    let mut absent: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for line in sheet.lines() {
        let Line::Absent(absence) = line else { continue };
        let places = absent.entry((&absence.peer, &absence.why)).or_default();
        let case = if absence.case.is_empty() { String::new() } else { format!(" ({})", absence.case) };
        let place = format!("{}{case}", absence.section);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    if absent.is_empty() {
        return String::new();
    }
    let mut table = String::from("| absent | where | why |\n|---|---|---|\n");
    for ((peer, why), places) in absent {
        let why = why.replace('|', "\\|").replace('\n', " ");
        writeln!(table, "| {peer} | {} | {why} |", places.join(", ")).expect("strings take all text");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::record::{Absent, Run, Time, Unit};

    fn time(peer: &str, kind: Kind, workers: usize, values: &[f64]) -> Line {
        let version = (kind == Kind::Peer).then(|| "1.2".into());
        let time = Time::new("", peer, kind, Unit::MicrosPerBatch, values.into());
        Line::Time(Time { section: "small-images".into(), workers: Some(workers), version, ..time })
    }

    #[test]
    fn the_template_has_all_sections_in_their_order() {
        let names = TEMPLATE.lines().filter_map(|line| line.strip_prefix('{')?.strip_suffix('}'));
        let others = ["machines", "overview", "user-build", "processes", "notes", "absent"];
        let names: Vec<&str> = names.filter(|name| !others.contains(name)).collect();
        assert_eq!(names, workload::SECTIONS.map(|section| section.name));
    }

    #[test]
    fn a_report_has_medians_ratios_and_absences() {
        let dir = tempfile::tempdir().unwrap();
        let section = || "small-images".to_owned();
        let (case, peer, why) = (String::new(), "grain".into(), "not|installed".into());
        let lines = [
            Line::Run(Run { section: section(), rounds: 3, machine: Machine::of_this_run() }),
            time("slotline", Kind::Ours, 0, &[2.0, 3.0, 2.1]),
            time(crate::peer::ours::USER_BUILD, Kind::Variant, 0, &[2.2, 3.0, 2.1]),
            time("burn", Kind::Peer, 0, &[4.0, 6.0, 8.4]),
            time("fast", Kind::Peer, 0, &[5.0, 5.0, 5.0]),
            time("plain loop", Kind::Limit, 0, &[4.2, 4.3, 4.4]),
            time("slotline", Kind::Ours, 1, &[9.0, 9.0, 9.0]),
            time("burn", Kind::Peer, 1, &[3.0, 3.0, 3.0]),
            time("slotline", Kind::Ours, 2, &[4.0, 8.0, 4.0]),
            time("slotline, processes", Kind::Variant, 2, &[4.4, 8.0, 8.0]),
            time("torch", Kind::Peer, 2, &[1.0, 4.0, 4.0]),
            Line::Absent(Absent { section: section(), case, workers: Some(1), peer, why }),
        ];
        record::write(&dir.path().join("report.jsonl"), &lines).unwrap();
        std::fs::write(dir.path().join("notes.md"), "## Notes\n\nSome text.\n").unwrap();
        render(dir.path()).unwrap();
        let page = std::fs::read_to_string(dir.path().join("REPORT.md")).unwrap();
        for part in [
            "| **slotline** | **2.10** (2.05–2.55) | **9.00** (9.00–9.00) | **4.00** (4.00–6.00) |",
            "| burn | 6.00 (5.00–7.20) | 3.00 (3.00–3.00) | – |",
            // The ratios in the three rounds are 2/4, 3/5 and 2.1/5.
            "| slotline ÷ best peer | 0.50 (0.46–0.55) | 3.00 (3.00–3.00) | 2.00 (1.50–3.00) |",
            "| small-images, w2 | 8.00 | – | 4.00 | 4.00 | – | 1.10 (1.05–1.55) | 2.00 (2.00–3.20) | µs per batch |",
            "| small-images, w0 | 2.10 | 2.20 | 1.00 (1.00–1.05) | µs per batch |",
            "| grain | small-images | not\\|installed |",
            "burn 1.2",
            "## Notes\n\nSome text.",
            "plots/small-images.svg",
        ] {
            assert!(page.contains(part), "{part}\nis not in\n{page}");
        }
        assert!(!page.contains("empty-items`: "), "an unmeasured section is in\n{page}");
        let plot = std::fs::read_to_string(dir.path().join("plots/small-images.svg")).unwrap();
        assert!(plot.contains("slotline") && plot.contains("plain loop"));
    }
}
