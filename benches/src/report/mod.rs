//! The page and its plots, made of the recorded lines alone.
//!
//! [`sheet`] looks things up and takes ratios, [`targets`] knows what was aimed at, [`tables`] writes tables and [`plots`]
//! draws.

pub mod plots;
pub mod sheet;
pub mod tables;
pub mod targets;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use self::sheet::Sheet;
use crate::record::{self, Line, Section};

/// What each section measures.
fn about(section: Section) -> (&'static str, &'static str) {
    match section {
        Section::W1 => ("W1: items that cost nothing", "200,000 numbers that are their index, one in a batch."),
        Section::W2 => (
            "W2: small images, shuffled",
            "60,000 × 28 × 28 bytes with an i64 label, in memory, 64 in a batch. All draw their order in \
             the time that is measured, but the plain loops, which get it as a present; those are on one thread or on two, \
             and prefetching ones hint at the row 8 ahead.",
        ),
        Section::W3 => {
            ("W3: large images, shuffled", "2,000 × 3 × 224 × 224 bytes with labels, in memory, 32 in a batch.")
        }
        Section::W4 => (
            "W4: crops of tokens",
            "1,024 + 1 tokens at random places of a mapped u16 file of 400 MB, widened to i64 x and y, 16 in a batch.",
        ),
        Section::W5 => (
            "W5: JPEGs",
            "512 of about 500 × 375 in memory, decoded, resized to 224 × 224 and normalised to f32, 32 in a batch. The peers in \
             Rust, and the limits, decode with libjpeg-turbo (or zune-jpeg) to red, green and blue and resize with \
             fast_image_resize; torch does with torchvision if that is installed, grain with Pillow. slotline resizes \
             brightness and colours each by itself, which is checked to be nearly the same.",
        ),
        Section::W6 => ("W6: to the first batch", "W3 from building the loader to its first batch."),
        Section::W7 => (
            "W7: slow samples among quick ones",
            "200 samples, of which every sixteenth sleeps for 50 ms and the others for 1 ms. Two workers need at least half \
             of what one thread needs, with the loop's own thread a third.",
        ),
        Section::Rings => (
            "Rings",
            "What it costs to get a u64 from one thread to another one, which run on two pinned cores; in a round trip, there \
             and back. All rings hold 1,024.",
        ),
        Section::Size => (
            "Cost against size",
            "Numbers that are their index, 8 in a batch, at most 20,000 batches of a pass; without the start of the pass, \
             which is the same for any size.",
        ),
        Section::Workers => ("Cost against workers", "W1 and W2 with up to 8 workers."),
    }
}

/// Makes `REPORT.md` and the plots in `dir` of its `report.jsonl`, and of `notes.md` if that is there.
///
/// # Errors
///
/// If the lines can't be read, or the page or a plot can't be written.
pub fn render(dir: &Path) -> Result<()> {
    let sheet = Sheet::new(record::read(&dir.join("report.jsonl"))?);
    let plots = dir.join("plots");
    std::fs::create_dir_all(&plots).with_context(|| format!("cannot make {}", plots.display()))?;
    let notes = dir.join("notes.md");
    let notes = match std::fs::read_to_string(&notes) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("cannot read {}", notes.display()))?,
    };
    let page = page(&sheet, &notes, &mut |section, name| plots::draw(&sheet, section, &plots.join(name)))?;
    let path = dir.join("REPORT.md");
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// The page; `draw` draws a section's plot under a name.
fn page(sheet: &Sheet, notes: &str, draw: &mut dyn FnMut(Section, &str) -> Result<()>) -> Result<String> {
    let mut page = String::from(
        "# slotline beside its peers\n\n\
         Written by `cargo run --release -p slotline-benches -- report` from `report.jsonl`; don't edit it. (`-- render` \
         writes it again.)\n\n\
         A workload's contenders are visited in turn, round after round, with so many whole passes each that a visit takes \
         20 ms. Times are medians of the rounds, with the quartiles in brackets; ratios are taken within each round, then \
         their median and quartiles. Each contender went through a pass before, in which every byte was checked; in the \
         timed passes check sums are. One batch is alive at a time. Who has taken 3 s is left out of the rounds that remain. \
         w0, w1, w2: 0, 1 and 2 workers. Every loader has its default depth, and slotline nothing but `num_workers` set: \
         the thread that takes its batches then loads, too, instead of waiting, so that with w1 two threads load. (W7 has \
         slotline without that, too.) libtorch's program is compiled for this CPU, all that is Rust for any.\n",
    );
    machines(&mut page, sheet)?;
    let targets = targets::table(sheet)?;
    if !targets.is_empty() {
        write!(page, "\n## Targets\n\n{targets}")?;
    }
    let user_build = tables::user_build(sheet)?;
    if !user_build.is_empty() {
        write!(
            page,
            "\n## A user's build\n\nMost programs are built in cargo's release profile as it is: without link-time optimisation, \
             in 16 units for each crate. `user-build` is such a program, with slotline's part of these workloads.\n\n{user_build}"
        )?;
    }
    if !notes.trim().is_empty() {
        write!(page, "\n{}\n", notes.trim())?;
    }
    for section in sheet.sections() {
        let (title, about) = about(section);
        let name = format!("{}.svg", section.name());
        draw(section, &name)?;
        write!(page, "\n## {title}\n\n{about}\n\n![{title}](plots/{name})\n\n{}", tables::section(sheet, section)?)?;
    }
    versions(&mut page, sheet)?;
    Ok(page)
}

/// On what the sections were measured; sections measured alike share a row.
fn machines(page: &mut String, sheet: &Sheet) -> Result<()> {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for run in sheet.lines().filter_map(|line| if let Line::Run(run) = line { Some(run) } else { None }) {
        let at = &run.machine;
        let row =
            format!("{} | {}, {} cores | {} | {} | {}", at.date, at.cpu, at.cores, at.kernel, at.rustc, run.rounds);
        rows.entry(row).or_default().push(run.section.name());
    }
    writeln!(page, "\n| measured | on | machine | kernel | compiler | rounds |\n|---|---|---|---|---|---|")?;
    for (row, sections) in rows {
        writeln!(page, "| {} | {row} |", sections.join(", "))?;
    }
    Ok(())
}

/// The peers' versions, and why some are missing.
fn versions(page: &mut String, sheet: &Sheet) -> Result<()> {
    let mut versions = BTreeMap::new();
    let mut absent: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for line in sheet.lines() {
        match line {
            Line::Time(time) => {
                if let Some(version) = &time.version {
                    versions.insert(&time.peer, version);
                }
            }
            Line::Absent(absence) => {
                let places = absent.entry((&absence.peer, &absence.why)).or_default();
                let case = if absence.case.is_empty() { String::new() } else { format!(" ({})", absence.case) };
                let place = format!("{}{case}", absence.section.name());
                if !places.contains(&place) {
                    places.push(place);
                }
            }
            Line::Run(_) => {}
        }
    }
    let list: Vec<String> = versions.iter().map(|(peer, version)| format!("{peer} {version}")).collect();
    write!(
        page,
        "\n## Peers\n\nVersions: {}. \"channel + map\" is torch's own structure, written here over crossbeam-channel: index \
         lists go to workers, batches in fresh memory come back and wait in a map for their turn; \"channel loop\" is its \
         loop without workers. burn delivers batches as they arrive when it has workers.\n",
        list.join(", ")
    )?;
    if !absent.is_empty() {
        writeln!(page, "\n| absent | where | why |\n|---|---|---|")?;
    }
    for ((peer, why), places) in absent {
        writeln!(page, "| {peer} | {} | {} |", places.join(", "), why.replace('|', "\\|").replace('\n', " "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::record::{Absent, Kind, Run, Time, Unit};

    fn time(peer: &str, kind: Kind, workers: usize, values: &[f64]) -> Line {
        Line::Time(Time {
            section: Section::W2,
            case: String::new(),
            workers: Some(workers),
            size: None,
            peer: peer.into(),
            version: (kind == Kind::Peer).then(|| "1.2".into()),
            kind,
            unit: Unit::MicrosPerBatch,
            values: values.into(),
        })
    }

    #[test]
    fn a_page_has_medians_ratios_verdicts_and_who_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let absent = Absent {
            section: Section::W2,
            case: String::new(),
            workers: Some(1),
            peer: "grain".into(),
            why: "no|pe".into(),
        };
        let lines = [
            Line::Run(Run { section: Section::W2, rounds: 3, machine: Machine::of_this_run() }),
            time("slotline", Kind::Ours, 0, &[2.0, 3.0, 2.1]),
            time(crate::peer::ours::USER_BUILD, Kind::Variant, 0, &[2.2, 3.0, 2.1]),
            time("burn", Kind::Peer, 0, &[4.0, 6.0, 8.4]),
            time("fast", Kind::Peer, 0, &[5.0, 5.0, 5.0]),
            time("plain loop", Kind::Limit, 0, &[4.2, 4.3, 4.4]),
            time("slotline", Kind::Ours, 1, &[9.0, 9.0, 9.0]),
            time("burn", Kind::Peer, 1, &[3.0, 3.0, 3.0]),
            Line::Absent(absent),
        ];
        record::write(&dir.path().join("report.jsonl"), &lines).unwrap();
        std::fs::write(dir.path().join("notes.md"), "## What is known\n\nMuch.\n").unwrap();
        render(dir.path()).unwrap();
        let page = std::fs::read_to_string(dir.path().join("REPORT.md")).unwrap();
        for part in [
            "| **slotline** | **2.10** (2.05–2.55) | **9.00** (9.00–9.00) |",
            "| burn | 6.00 (5.00–7.20) | 3.00 (3.00–3.00) |",
            // By round: 2/4, 3/5, 2.1/5.
            "| slotline ÷ best peer | 0.50 (0.46–0.55) | 3.00 (3.00–3.00) |",
            "| W2, w0 | 2.10 | 5.00 fast | 0.50 (0.46–0.55) | 4.30 plain loop | ≤ 2.2 | met |",
            "| W2, w1 | 9.00 | 3.00 burn | 3.00 (3.00–3.00) | – | ≤ 1.5 | **not met** |",
            "| W2, w0 | 2.10 | 2.20 | 1.00 (1.00–1.05) | µs per batch |",
            "| grain | w2 | no\\|pe |",
            "burn 1.2",
            "## What is known\n\nMuch.",
            "plots/w2.svg",
        ] {
            assert!(page.contains(part), "{part}\nis not in\n{page}");
        }
        let plot = std::fs::read_to_string(dir.path().join("plots/w2.svg")).unwrap();
        assert!(plot.contains("slotline") && plot.contains("plain loop"));
    }
}
