//! Interruptible runs: the loader's state in a file, and a log of the delivered batches.
//!
//! A new state is written to a separate file next to the old one, and then renamed to replace it,
//! so that a complete state exists even if the run is killed at any time. A state covers only
//! batches whose training step is done. The log's lines about these batches are written to the disk
//! before the state. Batches delivered after the last state are delivered again by the run that
//! resumes from it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use slotline::loader::State;
use slotline::sample::Schema;
use slotline::{Batch, Loader};
use slotline_demo::options::seconds;

use crate::files::{is_special, real};

/// The command-line flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "Interrupted runs")]
pub(crate) struct CheckpointOptions {
    /// Save the loader's state to FILE during the run, so that an interrupted run can be resumed from it
    ///
    /// The state is saved at the start of the run, after a training step (at most once per
    /// --state-every), and at the end. Each save writes FILE.next and renames it to FILE, so FILE
    /// is always complete. Batches delivered after the last save are delivered again when the run
    /// is resumed.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Least time between two saves of the state; with 0, the state is saved after each batch
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds, default_value = "1",
        requires = "state")]
    state_every: Duration,

    /// Resume from the state in FILE; the number of workers, the prefetch factor and the part size may differ, and
    /// --epochs includes the passes before the interruption
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,

    /// Append a line of JSON for each batch to FILE: its epoch, number and indices
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

impl CheckpointOptions {
    /// Returns the files to write with their flags, and the file to resume from unless `--state` replaces it.
    pub(crate) fn files(&self) -> Vec<(&'static str, PathBuf)> {
        let state = self.state.iter().flat_map(|path| [path.clone(), next(path)]).map(|path| ("--state", path));
        let resume =
            self.resume.clone().filter(|path| self.state.as_ref().is_none_or(|state| real(path) != real(state)));
        let resume = resume.map(|path| ("--resume", path));
        state.chain(resume).chain(self.log.clone().map(|path| ("--log", path))).collect()
    }
}

/// The files of a run.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    state: Option<StateFile>,
    log: Option<Log>,
}

impl Checkpoint {
    /// Opens the files, and moves `loader` to the position where the run starts.
    pub(crate) fn open<S: Schema>(options: &CheckpointOptions, loader: &mut Loader<Batch<S>>) -> Result<Self> {
        if let Some(path) = &options.resume {
            let resumed = read(path).and_then(|state| Ok(loader.load_state(&state)?));
            resumed.with_context(|| format!("cannot resume from {}", path.display()))?;
        }
        let log = options.log.clone().map(Log::open).transpose()?;
        let state = options.state.clone().map(|path| StateFile::create(path, options.state_every, &loader.state()));
        Ok(Self { state: state.transpose()?, log })
    }

    /// Logs a batch whose training step is done. Calls `state` to get the loader's state if it is
    /// time to save it.
    pub(crate) fn batch<S>(&mut self, batch: &Batch<S>, state: impl FnOnce() -> State) -> Result<()> {
        if let Some(log) = &mut self.log {
            log.append(&BatchLine::of(batch))?;
        }
        match &mut self.state {
            Some(file) if file.is_due() => self.save(&state()),
            _ => Ok(()),
        }
    }

    /// Writes the state immediately.
    pub(crate) fn save(&mut self, state: &State) -> Result<()> {
        let Some(file) = &mut self.state else { return Ok(()) };
        if let Some(log) = &mut self.log {
            log.sync()?;
        }
        file.replace(state)
    }
}

/// The JSON line for a batch.
#[derive(Debug, Serialize)]
pub(crate) struct BatchLine<'a> {
    epoch: u32,
    batch: usize,
    indices: &'a [i64],
}

impl<'a> BatchLine<'a> {
    pub(crate) fn of<S>(batch: &'a Batch<S>) -> Self {
        Self { epoch: batch.epoch(), batch: batch.batch_index(), indices: batch.indices() }
    }
}

pub(crate) fn read(path: &Path) -> Result<State> {
    let text = fs::read(path).context("cannot read the file")?;
    serde_json::from_slice(&text).context("the file is not the state of a loader")
}

/// Returns the path to which a new state is written before it replaces the one at `path`.
fn next(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".next");
    path.with_file_name(name)
}

/// The file with the loader's state.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    /// The path to which the next state is written first.
    next: PathBuf,
    every: Duration,
    written: Instant,
}

impl StateFile {
    /// Writes the first state.
    pub(crate) fn create(path: PathBuf, every: Duration, state: &State) -> Result<Self> {
        if is_special(&path) {
            bail!("cannot write the state to {}: it is not a regular file; choose another path", path.display());
        }
        // Follow a symbolic link, so that its target is replaced and not the link.
        let path = fs::canonicalize(&path).unwrap_or(path);
        let mut file = Self { next: next(&path), path, every, written: Instant::now() };
        file.replace(state)?;
        Ok(file)
    }

    fn is_due(&self) -> bool {
        self.written.elapsed() >= self.every
    }

    fn replace(&mut self, state: &State) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(state)?;
        text.push(b'\n');
        let write = || {
            let mut file = File::create(&self.next)?;
            file.write_all(&text)?;
            // Without this, the rename could reach the disk before the content of the file.
            file.sync_all()?;
            fs::rename(&self.next, &self.path)
        };
        write().with_context(|| format!("cannot write the state to {}", self.path.display()))?;
        self.written = Instant::now();
        Ok(())
    }
}

/// The log of batches.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    /// Whether the file is not a regular one, such as a pipe, so that it has no end to check and
    /// cannot be synced.
    special: bool,
    /// The line that is being written.
    line: Vec<u8>,
}

impl Log {
    fn open(path: PathBuf) -> Result<Self> {
        let special = is_special(&path);
        let open = || {
            let mut file = OpenOptions::new().read(!special).append(true).create(true).open(&path)?;
            if !special && !ends_with_a_line(&mut file)? {
                // A run was killed while it wrote a line: end that line.
                file.write_all(b"\n")?;
            }
            Ok::<_, io::Error>(file)
        };
        let file = open().with_context(|| format!("cannot open the log {}", path.display()))?;
        Ok(Self { path, file, special, line: Vec::new() })
    }

    fn append(&mut self, batch: &BatchLine<'_>) -> Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, batch)?;
        self.line.push(b'\n');
        self.file.write_all(&self.line).with_context(|| self.unwritable())
    }

    fn sync(&mut self) -> Result<()> {
        if self.special { Ok(()) } else { self.file.sync_data().with_context(|| self.unwritable()) }
    }

    fn unwritable(&self) -> String {
        format!("cannot write to the log {}", self.path.display())
    }
}

/// Returns whether a file is empty or ends with a complete line.
fn ends_with_a_line(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}
