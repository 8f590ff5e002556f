//! The sections whose contenders are all separate programs: Python loaders, and readers of files,
//! tars, a bucket, tokens and tables.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use memmap2::Mmap;

use super::Setup;
use super::server::Server;
use crate::peer::external::{self, Program};
use crate::record::{Kind, Time, Unit};
use crate::rounds::{Contender, Entry, Recorder};

/// The number of samples of `folders`, `tars` and `tar-index`.
pub const SAMPLES: usize = 20_000;
/// The number of samples of `bucket`.
pub const OBJECTS: usize = 4_000;
/// The number of samples in a batch of all sections but `token-files`.
pub const BATCH: usize = 64;
/// The number of samples in a batch of `token-files`.
pub const SEQUENCES: usize = 16;
/// The number of tokens in a sample of `token-files`.
pub const CROP: usize = 1_024;
/// The number of batches in a pass of `token-files`.
pub const CROPS: usize = 500;
/// The number of rows in a pass of the case of `tables` with numbers.
pub const ROWS: usize = 300 * BATCH;
/// The number of rows in the case of `tables` with binaries.
pub const BINARIES: usize = 10_000;
/// The number of rows of the whole table in `tables`, and of a batch of it.
pub const WHOLE: [usize; 2] = [1_000_000, 4_096];

/// The time that the server of `bucket` waits before each answer.
const DELAY: Duration = Duration::from_millis(20);

/// A variant of a section.
struct Case {
    /// The name of the variant in the report.
    case: &'static str,
    /// The name of the workload in the programs, which begins with the section's name.
    workload: &'static str,
    workers: &'static [usize],
    /// The number of batches in a pass.
    batches: f64,
    check: Check,
}

/// The checksum of a pass.
#[derive(Clone, Copy)]
enum Check {
    /// The checksum is the number of samples: this number.
    Count(usize),
    /// The checksum is the number of bytes of this many samples.
    Bytes(usize),
}

const fn case(
    case: &'static str,
    workload: &'static str,
    workers: &'static [usize],
    (samples, batch): (usize, usize),
) -> Case {
    Case { case, workload, workers, batches: samples as f64 / batch as f64, check: Check::Count(samples) }
}

const fn bytes(case: &'static str, workload: &'static str, samples: usize) -> Case {
    let batches = samples as f64 / BATCH as f64;
    Case { case, workload, workers: &[2], batches, check: Check::Bytes(samples) }
}

const fn tokens(case: &'static str, workload: &'static str) -> Case {
    let check = Check::Count(CROPS * SEQUENCES * CROP);
    Case { case, workload, workers: &[0], batches: CROPS as f64, check }
}

const fn whole(case: &'static str, workload: &'static str) -> Case {
    let batches = WHOLE[0].div_ceil(WHOLE[1]) as f64;
    Case { case, workload, workers: &[0, 2], batches, check: Check::Count(WHOLE[0]) }
}

const CASES: [Case; 35] = [
    case("", "python-empty-items", &[0, 2], (3_000, 1)),
    case("", "python-small-images", &[0, 2], (60_000, 64)),
    case("tensors", "python-indexed-images-tensor", &[0, 2], (60_000, 64)),
    case("NumPy arrays", "python-indexed-images-numpy", &[0, 2], (60_000, 64)),
    case("bytes", "python-large-images-bytes", &[0, 2], (2_000, 32)),
    case("floats", "python-large-images-floats", &[0, 2], (2_000, 32)),
    case("Pillow", "python-jpegs-pillow", &[0, 2, 8], (512, 32)),
    case("torchvision", "python-jpegs-torchvision", &[0, 2, 8], (512, 32)),
    case("ImageFolder", "python-torchvision-folder", &[0, 2, 8], (512, 32)),
    case("ImageFolder, rewritten", "python-torchvision-rewritten", &[2], (512, 32)),
    case("RandAugment", "python-torchvision-rand-augment", &[2], (512, 32)),
    case("own transform", "python-torchvision-own-transform", &[2], (512, 32)),
    case("own dataset", "python-torchvision-own-dataset", &[0, 2], (512, 32)),
    case("CIFAR-10", "python-torchvision-cifar", &[0, 2], (5_120, 128)),
    case("rows", "python-datasets-rows", &[0, 2], (60_000, 64)),
    case("pictures", "python-datasets-pictures", &[0, 2], (512, 32)),
    case("", "python-mixture", &[2], (1_600, 8)),
    case("", "python-records", &[4], (300_000, 256)),
    case("TensorDataset", "python-first-batch-tensors", &[2], (32, 32)),
    case("Python", "python-first-batch-python", &[2], (32, 32)),
    case("", "python-slow-samples", &[2], (200, 8)),
    bytes("cold", "folders", SAMPLES),
    bytes("warm", "folders", SAMPLES),
    bytes("cold", "tars", SAMPLES),
    bytes("warm", "tars", SAMPLES),
    bytes("", "bucket", OBJECTS),
    tokens("nanoGPT", "token-files-nanogpt"),
    tokens("Megatron", "token-files-megatron"),
    case("Arrow, numbers", "tables-arrow-numbers", &[0], (ROWS, BATCH)),
    case("Arrow, binaries", "tables-arrow-binaries", &[0], (BINARIES, BATCH)),
    case("Parquet, numbers", "tables-parquet-numbers", &[0], (ROWS, BATCH)),
    case("Parquet, binaries", "tables-parquet-binaries", &[0], (BINARIES, BATCH)),
    whole("whole, opened, in order", "tables-whole-order"),
    whole("whole, shuffled", "tables-whole-shuffled"),
    case("", "tar-index", &[0], (SAMPLES, SAMPLES)),
];

/// Measures the Python loaders.
pub fn python(setup: &Setup, to: &mut Recorder, unit: Unit) -> Result<()> {
    run(setup, to, unit, &setup.data, &setup.programs)
}

/// Measures the readers of files.
pub fn files(setup: &Setup, to: &mut Recorder, unit: Unit) -> Result<()> {
    // Each contender gets more time, since passes take seconds.
    to.enough = Duration::from_secs(12);
    if to.section() != "bucket" || setup.programs.is_empty() {
        return run(setup, to, unit, &setup.files, &setup.programs);
    }
    let server = Server::start(&setup.files, DELAY)?;
    let environment = [
        "env".into(),
        format!("AWS_ENDPOINT_URL=http://{}", server.address()),
        "AWS_ALLOW_HTTP=true".into(),
        "AWS_ACCESS_KEY_ID=user".into(),
        "AWS_SECRET_ACCESS_KEY=password".into(),
        "AWS_REGION=us-east-1".into(),
    ]
    .map(Into::into);
    let programs = setup.programs.iter().cloned().map(|program| {
        let command = program.command.map(|command| [&environment[..], &command].concat());
        Program { command, ..program }
    });
    run(setup, to, unit, &setup.files, &programs.collect::<Vec<_>>())
}

fn run(setup: &Setup, to: &mut Recorder, unit: Unit, data: &Path, programs: &[Program]) -> Result<()> {
    let section = to.section().to_owned();
    for &Case { case, workload, workers, batches, check } in CASES.iter().filter(|of| of.workload.starts_with(&section))
    {
        let programs: Vec<&Program> = programs.iter().filter(|program| program.has(workload)).collect();
        if programs.is_empty() {
            continue; // This happens if programs are left out.
        }
        let check = match check {
            Check::Count(samples) => samples as u64,
            Check::Bytes(samples) => places(&setup.files)?[..samples].iter().map(|place| place.2).sum(),
        };
        for &workers in workers {
            let expected = move |_| (batches, Some(check));
            let mut entries = external::entries(programs.iter().copied(), data, workload, workers, expected);
            if case == "cold" {
                let folder = data.join(if section == "folders" { "folder" } else { "tars" });
                entries = entries.into_iter().map(|entry| cold(entry, &folder)).collect();
                evict(&folder)?;
                // Reads all files once, since a disk has a cache of its own, which the first
                // contender would otherwise fill for the others. On a virtual machine, the first
                // pass took seven times as long.
                each_file(&folder, &mut |mut file| {
                    std::io::copy(&mut file, &mut std::io::sink())?;
                    Ok(())
                })?;
            }
            to.compare(case, workers, unit, entries);
            // Memory is measured for contenders that keep batches, and not for those with cold
            // files, whose memory is the same.
            for program in programs.iter().filter(|program| program.kind != Kind::Limit && case != "cold") {
                memory(to, case, workload, workers, data, program);
            }
        }
    }
    Ok(())
}

/// Measures the memory of a program.
fn memory(to: &mut Recorder, case: &str, workload: &str, workers: usize, data: &Path, program: &Program) {
    match external::memory(program, data, workload, workers) {
        Ok(peak) => {
            let bytes = Unit::Bytes.value(peak.bytes as f64, 0.0);
            let time = Time::new(case, peak.peer, program.kind, Unit::Bytes, vec![bytes]);
            to.time(Time { workers: Some(workers), version: Some(peak.version), ..time });
        }
        Err(why) => to.absent(case, Some(workers), &program.peer, &why),
    }
}

/// Returns the number of the tar, the offset and the length of each sample, for samples that are
/// stored in tars.
pub fn places(files: &Path) -> Result<Vec<(usize, u64, u64)>> {
    let path = files.join("tars/index.json");
    let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let places: Vec<_> = serde_json::from_slice(&text)?;
    ensure!(places.len() == SAMPLES, "{} has {} samples", path.display(), places.len());
    Ok(places)
}

/// Wraps a contender so that the files of a folder are not in the page cache when a pass begins.
fn cold(entry: Entry, folder: &Path) -> Entry {
    let folder = folder.to_owned();
    let contender = entry.contender.map(|mut contender| -> Contender {
        Box::new(move || {
            evict(&folder)?;
            contender()
        })
    });
    Entry { contender, ..entry }
}

/// Calls `visit` with the files below a folder.
fn each_file(folder: &Path, visit: &mut dyn FnMut(File) -> Result<()>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            each_file(&entry.path(), visit)?;
        } else {
            visit(File::open(entry.path())?)?;
        }
    }
    Ok(())
}

/// Removes the files of a folder from the page cache.
fn evict(folder: &Path) -> Result<()> {
    let (mut resident, mut pages) = (0, 0);
    each_file(folder, &mut |file| {
        // SAFETY: the descriptor is open, and no memory is passed to the call.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        // SAFETY: the bytes of the map are not read.
        let map = unsafe { Mmap::map(&file)? };
        let mut states = vec![0_u8; map.len().div_ceil(4096)];
        // SAFETY: the range is mapped, and `states` has a byte for each of its pages, which have 4
        // KiB or more.
        let result = unsafe { libc::mincore(map.as_ptr().cast_mut().cast(), map.len(), states.as_mut_ptr()) };
        ensure!(result == 0, "mincore: {}", std::io::Error::last_os_error());
        resident += states.iter().filter(|&&state| state & 1 == 1).count();
        pages += states.len();
        Ok(())
    })?;
    // Pages that have not been written to the disk yet, or that a program has mapped, are not
    // removed.
    ensure!(
        resident * 50 <= pages,
        "{resident} of {pages} pages of {} are still in memory; are the files on a disk?",
        folder.display()
    );
    Ok(())
}
