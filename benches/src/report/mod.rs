//! Renders the report and its plots from the recorded lines.
//!
//! [`sheet`] queries the lines and computes ratios, [`targets`] has the targets, [`tables`] writes tables and [`plots`] draws
//! plots.

pub mod plots;
pub mod sheet;
pub mod tables;
pub mod targets;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use self::sheet::Sheet;
use crate::record::{self, Kind, Line, Section};

/// Returns the title and the description of a section.
fn about(section: Section) -> (&'static str, &'static str) {
    match section {
        Section::EmptyItems => {
            ("Items that cost nothing", "200,000 items whose value is their index, in batches of 1.")
        }
        Section::SmallImages => (
            "Small images, shuffled",
            "60,000 × 28 × 28 bytes with an i64 label, in memory, in batches of 64. The time includes drawing the order, \
             except for the plain loops, which get it for free. The plain loops run on one or two threads; the \
             prefetching ones prefetch the row 8 ahead.",
        ),
        Section::LargeImages => {
            ("Large images, shuffled", "2,000 × 3 × 224 × 224 bytes with labels, in memory, in batches of 32.")
        }
        Section::TokenCrops => (
            "Crops of tokens",
            "1,024 + 1 tokens at random places of a mapped u16 file of 400 MB, widened to i64 x and y, in batches of 16.",
        ),
        Section::Jpegs => (
            "JPEGs",
            "512 JPEGs of about 500 × 375 in memory, decoded, resized to 224 × 224 and normalised to f32, in batches of 32. \
             The peers in Rust and the limits decode to RGB with libjpeg-turbo (or zune-jpeg) and resize with \
             fast_image_resize; torch uses torchvision if it is installed, and grain uses Pillow. slotline resizes \
             brightness and colours separately; the result is checked to be nearly the same. It decodes all of a picture, as the \
             peers do, but for \"reduced decoding\", which decodes at half or less of the size where that is enough.",
        ),
        Section::JpegCrops => (
            "JPEGs, with the crops and flips of training",
            "512 JPEGs of about 500 × 375, and 64 of about 2,000 × 1,500, in memory: RandomResizedCrop to 224 × 224 (scale 0.08 to 1), \
             RandomHorizontalFlip, and normalised to f32, in batches of 32. They are windows of photographs, given by `--photographs`, or \
             else of generated scenes. \"Whole pictures\" is slotline without a crop, and \"reduced decoding\" is the option of that name. The peers in Rust decode \
             with libjpeg-turbo, and crop and resize with fast_image_resize; torch has `decode_jpeg` and `transforms.v2`, or Pillow's \
             decoder and `transforms.v2` of its pictures; SPDL runs the same functions as torch, in threads; DALI decodes a random part on \
             the CPU; FFCV reads its own file of the same JPEGs. Crops are drawn anew in each pass, from the same distribution.",
        ),
        Section::Pngs => (
            "PNGs",
            "128 PNGs of about 500 × 375 in memory, decoded, resized to 224 × 224 and normalised to f32, in batches of 32, \
             with the peers of `jpeg-crops`; those in Rust decode with the crate png.",
        ),
        Section::RandAugment => (
            "JPEGs, with RandAugment",
            "The smaller pictures of `jpeg-crops` with the same transforms, and RandAugment (two operations, magnitude 9) in front of \
             normalising.",
        ),
        Section::FirstBatch => {
            ("To the first batch", "The time from building the loader of `large-images` to its first batch.")
        }
        Section::SlowSamples => (
            "Slow samples among fast ones",
            "200 samples, of which every sixteenth sleeps for 50 ms and the others for 1 ms. Two workers need at least half \
             of the time of one thread; with the help of the loop's thread, at least a third.",
        ),
        Section::Packing => (
            "Packing a million documents",
            "The plan of which of 1,000,000 documents of log-normal lengths (median 400, σ = 1, up to 8,192 tokens) are in which \
             row of 8,192 tokens, by best-fit decreasing. All but seqpacker's parallel one need the same number of rows. TRL's \
             also packs the tokens, here of one byte each.",
        ),
        Section::Padding => (
            "Padded batches of sequences",
            "50,000 sequences of log-normal lengths (median 200, σ = 0.8, up to 2,048 tokens of i64) in memory, in batches of \
             64 of similar lengths, padded to the longest, with the attention mask (i64) and the lengths. torch's \
             DataLoader has a collate function with `pad_sequence`.",
        ),
        Section::Latency => (
            "Latency: how long the loop waits for a batch",
            "The time that the loop spends in `next()`, which also frees the batch before: batches of one sample of four numbers \
             and a label, in order, taken as fast as the loop can, 300,000 in each round. Percentiles and the maximum of each \
             round. \"Spread\": worker i runs on the i-th core. \"OwnedSample\": both workers run on the last core, and the loop on the \
             first. \"No help\": the loop only waits. \"Real time\": apart, without help, with the loop in `SCHED_FIFO` and memory \
             locked. \"C++\" is the same loop in `peers/beside/latency.cpp`, which also runs libtorch's `DataLoader` with `Stack`. \
             All times include a reading of the clock.",
        ),
        Section::Deaths => (
            "The death of a worker",
            "The time from the death of a worker process, killed by SIGKILL in the middle of a pass over the images of `large-images` \
             in order, to the batch that it was reading, which its replacement or the other worker reads again; and to \
             the end of an idle process with the same memory, which the kernel frees first. torch ends the pass with an \
             error instead.",
        ),
        Section::Cpu => (
            "The CPU time of a loop that waits",
            "The CPU time of the whole process, with the images of `small-images`. The slow loop sleeps for a millisecond after each batch, so \
             that its loader has always finished; loading a batch is in its figure. The idle loop takes a batch, waits until the \
             queues are full, and then takes none for half a second, whose CPU time is the figure.",
        ),
        Section::Wakes => (
            "The wake-ups of a loop that waits",
            "How often a thread of the same process went to sleep, and so was woken up, which is what keeps a core from resting: \
             once for each batch by the slow loop itself, and once by the idle one.",
        ),
        Section::Rings => (
            "Rings",
            "The cost of passing a u64 from one thread to another, on two pinned cores; in a round trip, there and back. \
             All rings have a capacity of 1,024.",
        ),
        Section::Size => (
            "Cost by dataset size",
            "Items whose value is their index, in batches of 8, at most 20,000 batches per pass; without the start of the \
             pass, which costs the same for any size.",
        ),
        Section::Workers => ("Cost by number of workers", "`empty-items` and `small-images` with up to 8 workers."),
        Section::Cores => (
            "Cost by number of cores",
            "What a ticket of the ordered ring takes while threads claim, work for a while, and publish, each on its own core. Two \
             threads without work show what a claim takes when it comes from another core each time. The model: with n threads, a \
             ticket takes 1/n of what it takes one thread with such a claim, but never less than the claim.",
        ),
        Section::Ranks => (
            "Cost by number of ranks",
            "What one of R ranks pays, with items whose value is their index, in batches of 64 without workers, so that no data is read: \
             from the start of a pass to its first batch; for the batches after it, each; and resuming: from loading a state of the middle of a \
             pass, with 3/4 of the ranks (2 instead of 1), to the first batch. Each rank of `shuffle` makes the whole permutation, so it was measured once, for \
             32,768 ranks. Shards are opened by index in the order of `ShardShuffleSampler` (10^9 samples, a window of 100 shards), or \
             divided among the ranks as `TarStream` divides them; the most that one rank opens. States are JSON.",
        ),
        Section::PythonEmptyItems => {
            ("Empty samples", "3,000 items whose value is their index, by a Python dataset, in batches of 1.")
        }
        Section::PythonSmallImages => (
            "Small images in a TensorDataset",
            "The images of `small-images`, as uint8 tensors, shuffled, in batches of 64.",
        ),
        Section::PythonIndexedImages => (
            "Small images, by a Python dataset",
            "The images of `small-images`, shuffled, in batches of 64. `__getitem__` returns a row and its label: a row of a tensor, or of a \
             NumPy array, and an int. The bare calls are the same calls in a loop, without a loader.",
        ),
        Section::PythonLargeImages => (
            "Large images in a TensorDataset",
            "The images of `large-images`, as uint8 tensors of 4.8 MB for a batch, and as float32 tensors of 19.3 MB, shuffled, in batches \
             of 32. Grain has no floats: its processes map a file of the bytes.",
        ),
        Section::PythonJpegs => (
            "JPEG files, by a Python dataset",
            "256 files of about 500 × 375, which `__getitem__` decodes, resizes, crops to 224 × 224 and normalises to float32, \
             with Pillow or with torchvision, in batches of 32. The bare calls are the same calls in a loop, without a loader.",
        ),
        Section::PythonFirstBatch => (
            "To the first batch, in Python",
            "The time from building the loader to its first batch, with the images of `python-large-images` (uint8), shuffled, in batches of 32, \
             from a TensorDataset and from a Python dataset.",
        ),
        Section::PythonSlowSamples => (
            "Slow samples among fast ones, in Python",
            "The samples of `slow-samples` in batches of 8, delivered in order.",
        ),
        Section::Folders => (
            "Files in folders",
            "20,000 files of 50 to 150 KB (2 GB) in 20 folders, bytes only, shuffled, in batches of 64. Cold: none of them is in \
             memory when a pass begins. torchvision is `DatasetFolder` in torch's DataLoader, whose batches are lists of bytes; \
             SPDL reads with 16 threads. The threads that read make no batches.",
        ),
        Section::Tars => (
            "Tars",
            "The samples of `folders` in 20 tars, shuffled, in batches of 64. webdataset shuffles the shards, and samples within a buffer \
             of 1,000. webshart reads by index in torch's DataLoader.",
        ),
        Section::Bucket => (
            "Tars in a bucket",
            "4,000 of these samples (four tars, 400 MB) on a server of S3's protocol on the same machine, which waits for 20 ms \
             before each answer; shuffled, in batches of 64. LitData has the same samples in chunks of 64 MB, and an empty cache \
             when a pass begins. The ranges at a time are requests of the crate object_store, without a loader.",
        ),
        Section::TokenFiles => (
            "Tokens of nanoGPT and Megatron",
            "1,024 + 1 tokens of 400 MB, widened to i64 x and y, in batches of 16: at random places, as nanoGPT's `get_batch` draws \
             them, and by Megatron's index. NumPy's memmap is what `get_batch` does, with a new map for each batch, and with one. \
             GPTDataset also makes the loss mask and the position ids.",
        ),
        Section::Tables => (
            "Rows of tables",
            "Arrow and Parquet files: 19,200 random rows of 200,000 with 100 columns of i32, and all of 10,000 rows of 20,000 bytes, in \
             batches of 64. datasets are Hugging Face's: with the format NumPy by lists of indices, and as rows by \
             `__getitems__`, which a DataLoader calls. pyarrow is `Table.take`. Both have the Parquet files in memory as Arrow tables. \
             The whole table is a Parquet file of 1,000,000 rows with 20 columns of i32, in batches of 4,096: in order, with the file \
             opened in each pass (pyarrow is `iter_batches` with NumPy's `stack`), and shuffled, with the table in memory (pyarrow is \
             `read_table`, whose columns torch indexes by `randperm`; TensorDataset is of the same columns). pyarrow and polars may \
             use as many threads as there are workers, or one.",
        ),
        Section::TarIndex => (
            "The index of tars",
            "Finding the samples of the tars of `tars` (2 GB), which are in memory. webshart writes its index to files; tarfile is Python's.",
        ),
    }
}

/// Renders `REPORT.md` and the plots in `dir` from its `report.jsonl`, and from `notes.md` if it exists.
pub fn render(dir: &Path) -> Result<()> {
    let sheet = Sheet::new(record::read(&dir.join("report.jsonl"))?);
    let plots = dir.join("plots");
    std::fs::create_dir_all(&plots).with_context(|| format!("cannot create {}", plots.display()))?;
    let notes = dir.join("notes.md");
    let notes = match std::fs::read_to_string(&notes) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("cannot read {}", notes.display()))?,
    };
    let draw = |section, name: &str| {
        let path = plots.join(name);
        std::fs::write(&path, plots::draw(&sheet, section)?).with_context(|| format!("cannot write {}", path.display()))
    };
    let page = page(&sheet, &notes, &draw)?;
    let path = dir.join("REPORT.md");
    std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// What the sections about Python have in common.
const PYTHON: &str = "\n## The loaders of Python\n\n\
    The sections of Python compare loaders of Python. All run the same program (`peers/python/pipelines.py`), each in a process \
    of its own with one torch thread. \"slotline\" is `slotline.torch.DataLoader`, \"torch\" is `torch.utils.data.DataLoader`, \
    and \"torchdata\" is `StatefulDataLoader`, all with the same arguments; their workers are processes, started by `fork`, which \
    persist from pass to pass (except in `python-first-batch`). \"torch, whole batches\" has `batch_size=None` and a `BatchSampler`, so that a \
    `TensorDataset` looks up a whole batch at once. SPDL has threads and no mode without them; it starts them in each pass. \
    Grain makes NumPy arrays. The timed passes count samples. Memory is the most that the program and its processes had at any \
    time of some passes, measured while no other peer ran, with one look every 10 ms: a page that several processes share \
    counts once (PSS), and so does a file in memory that no process has mapped. It includes Python, torch and the dataset.\n";

/// What the sections about files have in common.
const FILES: &str = "\n## Files\n\n\
    The sections about files read files. Each contender is a program of its own (`peers/python/files.py`, or this one). Before the \
    timed passes, every byte is checked; the timed passes count bytes, or rows. \"slotline\" takes bytes from files by reading \
    them, and \"slotline, mapped\" maps them. Where nothing else is said, the files are in memory. Memory is measured as for \
    Python's loaders, and includes the mapped parts of files.\n";

/// Renders the text of the report. `draw` draws the plot of a section to a file name.
fn page(sheet: &Sheet, notes: &str, draw: &dyn Fn(Section, &str) -> Result<()>) -> Result<String> {
    let mut page = String::from(
        "# slotline compared with other loaders\n\n\
         This file is generated by `cargo run --release -- report` in `benches` from `report.jsonl`; don't edit it. \
         `-- render` generates it again from the recorded lines.\n\n\
         In each round, all contenders of a workload are measured in turn, each with enough whole passes to take 20 ms. \
         Times are medians of the rounds, with the quartiles in brackets. Ratios are taken within each round, and then \
         their median and quartiles. Before that, each contender ran a pass in which every byte was checked; the timed \
         passes compare check sums. One batch is alive at a time. A contender that has taken 3 s is left out of the \
         remaining rounds. w0, w1 and w2 mean 0, 1 and 2 workers. Every loader has its default prefetch depth. For \
         slotline, only `num_workers` is set: the thread that takes the batches then also loads instead of waiting, so \
         that two threads load with w1. It does not in the rows \"workers alone\", nor in the rows \"processes\", in which the \
         workers are processes like those of torch and grain; the other peers have threads. libtorch's program is compiled for \
         this CPU, and all Rust code for any CPU of its architecture.\n",
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
            "\n## cargo's default release profile\n\nMost programs are built in cargo's default release profile: without \
             link-time optimisation, and with 16 codegen units per crate. `user-build` is such a program, which runs \
             slotline on these workloads.\n\n{user_build}"
        )?;
    }
    let processes = tables::processes(sheet)?;
    if !processes.is_empty() {
        write!(
            page,
            "\n## Worker processes\n\nslotline's worker processes, compared with its threads and with torch's worker \
             processes. \"Alone\" means that the loop's thread does not load.\n\n{processes}"
        )?;
    }
    if !notes.trim().is_empty() {
        write!(page, "\n{}\n", notes.trim())?;
    }
    let mut in_part = None;
    for section in sheet.sections() {
        let part = section.is_python().then_some(PYTHON).or(section.is_files().then_some(FILES));
        if part != std::mem::replace(&mut in_part, part) {
            page.push_str(part.unwrap_or_default());
        }
        let (title, about) = about(section);
        write!(page, "\n## {title}\n\n`{}`: {about}\n\n", section.name())?;
        if section.has_plot() {
            let name = format!("{}.svg", section.name());
            draw(section, &name)?;
            write!(page, "![{title}](plots/{name})\n\n")?;
        }
        page.push_str(&tables::section(sheet, section)?);
    }
    versions(&mut page, sheet)?;
    Ok(page)
}

/// Writes the machines that the sections were measured on. Sections with the same machine, date and rounds share a row.
fn machines(page: &mut String, sheet: &Sheet) -> Result<()> {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for run in sheet.lines().filter_map(|line| if let Line::Run(run) = line { Some(run) } else { None }) {
        let at = &run.machine;
        let row =
            format!("{} | {}, {} cores | {} | {} | {}", at.date, at.cpu, at.cores, at.kernel, at.rustc, run.rounds);
        rows.entry(row).or_default().push(run.section.name());
    }
    writeln!(page, "\n| sections | date | machine | kernel | compiler | rounds |\n|---|---|---|---|---|---|")?;
    for (row, sections) in rows {
        writeln!(page, "| {} | {row} |", sections.join(", "))?;
    }
    Ok(())
}

/// Writes the versions of the peers, and why some are absent.
fn versions(page: &mut String, sheet: &Sheet) -> Result<()> {
    let mut versions = BTreeMap::new();
    let mut absent: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for line in sheet.lines() {
        match line {
            Line::Time(time) => {
                if let Some(version) = time.version.as_ref().filter(|_| time.kind != Kind::Limit) {
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
        "\n## Peers\n\nVersions: {}. \"channel + map\" is the structure of torch's loader, implemented with \
         crossbeam-channel: index lists are sent to workers, and batches in fresh memory come back and wait in a map for \
         their turn. \"channel loop\" is the same without workers. burn with workers delivers batches as they arrive.\n",
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
    use crate::record::{Absent, Run, Time, Unit};

    fn time(peer: &str, kind: Kind, workers: usize, values: &[f64]) -> Line {
        let version = (kind == Kind::Peer).then(|| "1.2".into());
        let time = Time::new(Section::SmallImages, "", peer, kind, Unit::MicrosPerBatch, values.into());
        Line::Time(Time { workers: Some(workers), version, ..time })
    }

    #[test]
    fn the_latency_has_a_table_for_each_number_of_workers() {
        let time = |case: &str, workers, value| {
            let unit = Unit::NanosPerBatch;
            let time = Time::new(Section::Latency, case, "slotline", Kind::Ours, unit, vec![value]);
            Line::Time(Time { workers: Some(workers), ..time })
        };
        let lines = [time("p50", 0, 70.0), time("maximum", 0, 3e6), time("p50", 2, 60.0), time("maximum", 2, 4e6)];
        let text = tables::section(&Sheet::new(lines.into()), Section::Latency).unwrap();
        for row in [
            "| ns per batch | p50, w0 | maximum, w0 |",
            "| **slotline** | **70.0** (70.0–70.0) | **3,000,000** (3,000,000–3,000,000) |",
            "| ns per batch | p50, w2 | maximum, w2 |",
            "| **slotline** | **60.0** (60.0–60.0) | **4,000,000** (4,000,000–4,000,000) |",
        ] {
            assert!(text.contains(row), "{row}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_report_has_medians_ratios_verdicts_and_absences() {
        let dir = tempfile::tempdir().unwrap();
        let absent = Absent {
            section: Section::SmallImages,
            case: String::new(),
            workers: Some(1),
            peer: "grain".into(),
            why: "not|installed".into(),
        };
        let lines = [
            Line::Run(Run { section: Section::SmallImages, rounds: 3, machine: Machine::of_this_run() }),
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
            Line::Absent(absent),
        ];
        record::write(&dir.path().join("report.jsonl"), &lines).unwrap();
        std::fs::write(dir.path().join("notes.md"), "## Notes\n\nSome text.\n").unwrap();
        render(dir.path()).unwrap();
        let page = std::fs::read_to_string(dir.path().join("REPORT.md")).unwrap();
        for part in [
            "| **slotline** | **2.10** (2.05–2.55) | **9.00** (9.00–9.00) | **4.00** (4.00–6.00) |",
            "| burn | 6.00 (5.00–7.20) | 3.00 (3.00–3.00) | – |",
            // The ratios of the rounds: 2/4, 3/5, 2.1/5.
            "| slotline ÷ best peer | 0.50 (0.46–0.55) | 3.00 (3.00–3.00) | 2.00 (1.50–3.00) |",
            "| small-images, w0 | 2.10 | 5.00 fast | 0.50 (0.46–0.55) | 4.30 plain loop | ≤ 2.2 | met |",
            "| small-images, w1 | 9.00 | 3.00 burn | 3.00 (3.00–3.00) | – | ≤ 1.5 | **not met** |",
            // The ratio to the threads is 1.1 in the median round. No peer needs to be slower.
            "| small-images, w2, processes | 8.00 | 4.00 torch | 2.00 (2.00–3.20) | – | ≤ 1.2 × slotline | met |",
            "| small-images, w2 | 8.00 | – | 4.00 | 4.00 | – | 1.10 (1.05–1.55) | 2.00 (2.00–3.20) | µs per batch |",
            "| small-images, w0 | 2.10 | 2.20 | 1.00 (1.00–1.05) | µs per batch |",
            "| grain | small-images | not\\|installed |",
            "burn 1.2",
            "## Notes\n\nSome text.",
            "plots/small-images.svg",
        ] {
            assert!(page.contains(part), "{part}\nis not in\n{page}");
        }
        let plot = std::fs::read_to_string(dir.path().join("plots/small-images.svg")).unwrap();
        assert!(plot.contains("slotline") && plot.contains("plain loop"));
    }
}
