//! Files, tars, a bucket, tokens and tables, each contender being a program.

mod server;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use memmap2::Mmap;

use self::server::Server;
use super::{Setup, python};
use crate::peer::external::{self, Program};
use crate::record::{Kind, Section, Unit};
use crate::rounds::{Entry, Heat, Recorder};

/// The number of samples of `folders`, `tars` and `tar-index`.
pub const SAMPLES: usize = 20_000;
/// The number of samples of `bucket`.
pub const OBJECTS: usize = 4_000;
/// The number of samples in a batch of all but `token-files`.
pub const BATCH: usize = 64;
/// The number of samples in a batch of `token-files`.
pub const SEQUENCES: usize = 16;
/// The number of tokens in a sample of `token-files`.
pub const CROP: usize = 1_024;
/// The number of batches in a pass of `token-files`.
pub const CROPS: usize = 500;
/// The number of rows in a pass of `tables`'s numbers.
pub const ROWS: usize = 300 * BATCH;
/// The number of rows of `tables`'s binaries.
pub const BINARIES: usize = 10_000;
/// The number of rows of `tables`'s whole table, and of a batch of it.
pub const WHOLE: [usize; 2] = [1_000_000, 4_096];

/// The time that the server of `bucket` waits before each answer.
const DELAY: Duration = Duration::from_millis(20);

/// A heat: its case, the workload's name in the programs, the number of workers, the number of batches in a pass and the
/// check sum.
struct Case(&'static str, &'static str, usize, f64, u64);

/// Runs the heats of a section.
pub fn run(section: Section, setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    if !setup.programs.iter().any(|program| program.has("tar-index")) {
        return Ok(()); // Programs are left out.
    }
    let bytes = |samples| Ok::<_, anyhow::Error>(places(&setup.files)?[..samples].iter().map(|place| place.2).sum());
    let batches = |samples: usize| samples as f64 / BATCH as f64;
    let tokens = (CROPS as f64, (CROPS * SEQUENCES * CROP) as u64);
    let whole = (WHOLE[0].div_ceil(WHOLE[1]) as f64, WHOLE[0] as u64);
    let (rows, binaries) = ((batches(ROWS), ROWS as u64), (batches(BINARIES), BINARIES as u64));
    let cases = match section {
        Section::Folders => {
            let (batches, bytes) = (batches(SAMPLES), bytes(SAMPLES)?);
            vec![Case("cold", "folders", 2, batches, bytes), Case("warm", "folders", 2, batches, bytes)]
        }
        Section::Tars => {
            let (batches, bytes) = (batches(SAMPLES), bytes(SAMPLES)?);
            vec![Case("cold", "tars", 2, batches, bytes), Case("warm", "tars", 2, batches, bytes)]
        }
        Section::Bucket => vec![Case("", "bucket", 2, batches(OBJECTS), bytes(OBJECTS)?)],
        Section::TokenFiles => vec![
            Case("nanoGPT", "token-files-nanogpt", 0, tokens.0, tokens.1),
            Case("Megatron", "token-files-megatron", 0, tokens.0, tokens.1),
        ],
        Section::Tables => vec![
            Case("Arrow, numbers", "tables-arrow-numbers", 0, rows.0, rows.1),
            Case("Arrow, binaries", "tables-arrow-binaries", 0, binaries.0, binaries.1),
            Case("Parquet, numbers", "tables-parquet-numbers", 0, rows.0, rows.1),
            Case("Parquet, binaries", "tables-parquet-binaries", 0, binaries.0, binaries.1),
            Case("whole, opened, in order", "tables-whole-order", 0, whole.0, whole.1),
            Case("whole, opened, in order", "tables-whole-order", 2, whole.0, whole.1),
            Case("whole, shuffled", "tables-whole-shuffled", 0, whole.0, whole.1),
            Case("whole, shuffled", "tables-whole-shuffled", 2, whole.0, whole.1),
        ],
        _ => vec![Case("", "tar-index", 0, 1.0, SAMPLES as u64)],
    };
    let unit = match section {
        Section::Folders | Section::Tars | Section::Bucket => Unit::MillisPerBatch,
        Section::TarIndex => Unit::MillisPerPass,
        _ => Unit::MicrosPerBatch,
    };
    let with_server;
    let readers = if section == Section::Bucket {
        with_server = with_bucket(&setup.programs, &Server::start(&setup.files, DELAY)?);
        &with_server
    } else {
        &setup.programs
    };
    for Case(case, name, workers, batches, check) in cases {
        let expected = move |_| (batches, Some(check));
        let mut entries = external::entries_of(readers, &setup.files, name, workers, expected);
        if case == "cold" {
            let folder = setup.files.join(if section == Section::Folders { "folder" } else { "tars" });
            entries = entries.into_iter().map(|entry| cold(entry, &folder)).collect();
            evict(&folder)?;
            read(&folder)?;
        }
        recorder.heat(Heat { case: case.into(), workers, unit, entries });
        if case == "cold" {
            continue; // The memory is that of the warm files.
        }
        for program in readers.iter().filter(|program| program.has(name) && program.kind != Kind::Limit) {
            recorder.push(python::memory(section, case, name, workers, &setup.files, program));
        }
    }
    Ok(())
}

/// Returns the number of the tar, the offset and the length of each sample.
pub fn places(files: &Path) -> Result<Vec<(usize, u64, u64)>> {
    let path = files.join("tars/index.json");
    let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let places: Vec<_> = serde_json::from_slice(&text)?;
    ensure!(places.len() == SAMPLES, "{} has {} samples", path.display(), places.len());
    Ok(places)
}

/// Returns the programs with the server in their environment.
fn with_bucket(programs: &[Program], server: &Server) -> Vec<Program> {
    let environment = [
        "env".into(),
        format!("AWS_ENDPOINT_URL=http://{}", server.address()),
        "AWS_ALLOW_HTTP=true".into(),
        "AWS_ACCESS_KEY_ID=user".into(),
        "AWS_SECRET_ACCESS_KEY=password".into(),
        "AWS_REGION=us-east-1".into(),
    ];
    let with = |program: &Program| Program {
        peer: program.peer.clone(),
        kind: program.kind,
        workloads: program.workloads,
        command: match &program.command {
            Ok(command) => Ok(environment.iter().map(OsString::from).chain(command.iter().cloned()).collect()),
            Err(why) => Err(anyhow::anyhow!("{why:#}")),
        },
    };
    programs.iter().map(with).collect()
}

/// Makes a contender begin each pass without the files of a folder in memory.
fn cold(entry: Entry, folder: &Path) -> Entry {
    let Entry { peer, version, kind, size, ranks, contender } = entry;
    let folder = folder.to_owned();
    let contender = contender.map(|mut contender| {
        move || {
            evict(&folder)?;
            contender.pass()
        }
    });
    Entry { version, size, ranks, ..Entry::new(peer, kind, contender) }
}

/// Reads the files of a folder once, since a disk has caches of its own: otherwise the first contender would fill them for the
/// others. On a virtual machine, its pass took seven times as long.
fn read(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            read(&entry.path())?;
        } else {
            std::io::copy(&mut File::open(entry.path())?, &mut std::io::sink())?;
        }
    }
    Ok(())
}

/// Removes the files of a folder from memory.
fn evict(folder: &Path) -> Result<()> {
    let (mut resident, mut pages) = (0, 0);
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            evict(&entry.path())?;
            continue;
        }
        let file = File::open(entry.path())?;
        // SAFETY: the descriptor is open, and no memory is passed.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        let (found, of) = residency(&file)?;
        resident += found;
        pages += of;
    }
    // Pages that have not been written to the disk yet, or that a program has mapped, stay in memory.
    ensure!(
        resident * 50 <= pages,
        "{resident} of {pages} pages of {} are still in memory; are the files on a disk?",
        folder.display()
    );
    Ok(())
}

/// Returns how many pages of a file are in memory, and how many it has.
fn residency(file: &File) -> Result<(usize, usize)> {
    // SAFETY: the bytes are not read.
    let map = unsafe { Mmap::map(file)? };
    let mut pages = vec![0_u8; map.len().div_ceil(4096)];
    // SAFETY: the range is mapped, and there is room for a byte of each of its pages, which have 4 KiB or more.
    let result = unsafe { libc::mincore(map.as_ptr().cast_mut().cast(), map.len(), pages.as_mut_ptr()) };
    ensure!(result == 0, "mincore: {}", std::io::Error::last_os_error());
    Ok((pages.iter().filter(|&&page| page & 1 == 1).count(), pages.len()))
}
