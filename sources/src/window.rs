//! Reads a file sequentially, with gaps.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
use crate::files::{Files, Span};

/// The number of bytes that are read at once from a disk. For small files in a tar, such as labels,
/// this includes the next header, so no further read is needed.
const LOCAL: u64 = 4 << 10;

/// The number of bytes that are read at once from a server, where each request takes long.
const REMOTE: u64 = 4 << 20;

/// The number of bytes that are scanned between two reports of progress.
const TOLD: u64 = 16 << 20;

/// The number of bytes of the files that were scanned, shared between threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    on_progress: Option<OnProgress>,
    done: Arc<AtomicU64>,
    total: u64,
}

/// The function to which progress is reported: the number of bytes that were scanned, and the
/// number of bytes of all files.
#[derive(Clone)]
pub(crate) struct OnProgress(Arc<dyn Fn(u64, u64) + Send + Sync>);

impl OnProgress {
    pub(crate) fn new(on_progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(on_progress))
    }
}

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnProgress")
    }
}

impl Progress {
    /// Creates the progress over all files, at 0.
    pub(crate) fn new(on_progress: Option<OnProgress>, files: &Files) -> Self {
        let total = (0..files.len()).filter_map(|file| files.file_len(file)).fold(0, u64::saturating_add);
        Self { on_progress, done: Arc::default(), total }
    }

    /// Adds bytes that were scanned, and reports the progress.
    pub(crate) fn add(&self, bytes: u64) {
        if let Some(OnProgress(on_progress)) = &self.on_progress {
            on_progress(self.done.fetch_add(bytes, Ordering::Relaxed) + bytes, self.total);
        }
    }
}

/// A reader of a file that keeps a part of it in memory.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    files: &'a Files,
    file: usize,
    len: u64,
    size: u64,
    /// The position in the file at which the part in memory starts.
    start: u64,
    /// The number of bytes in memory.
    held: u64,
    /// The memory, which may be longer than the part.
    memory: Vec<u8>,
    progress: &'a Progress,
    /// The position up to which progress was reported.
    told: u64,
}

impl<'a> Window<'a> {
    /// Begins to read a file.
    pub(crate) fn new(files: &'a Files, file: usize, progress: &'a Progress) -> Self {
        let size = if files.is_remote() { REMOTE } else { LOCAL };
        let len = files.file_len(file).unwrap_or(0);
        Self { files, file, len, size, start: 0, held: 0, memory: Vec::new(), progress, told: 0 }
    }

    /// Ends reading, and reports the remaining progress.
    pub(crate) fn finish(self) {
        self.progress.add(self.len.saturating_sub(self.told));
    }

    /// Returns the length of the file, in bytes.
    pub(crate) fn file_len(&self) -> u64 {
        self.len
    }

    /// Returns `len` bytes from `at` on. Memory grows to this length if necessary.
    ///
    /// # Errors
    ///
    /// If the file can't be read, or ends before these bytes do.
    pub(crate) fn bytes(&mut self, at: u64, len: u64) -> Result<&[u8], Error> {
        let end = at.checked_add(len);
        let holds = |end| at >= self.start && end <= self.start + self.held;
        if !end.is_some_and(holds) {
            self.held = 0;
            let read = self.size.min(self.len.saturating_sub(at)).max(len);
            self.files.read_into(Span { file: self.file, start: at, len: Some(read) }, &mut self.memory)?;
            (self.start, self.held) = (at, read);
            if let Some(passed @ TOLD..) = at.checked_sub(self.told) {
                self.told = at;
                self.progress.add(passed);
            }
        }
        Ok(&self.memory[(at - self.start) as usize..][..len as usize])
    }
}

/// A position in a [`Window`], for parsers that read sequentially.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    window: Window<'a>,
    at: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(window: Window<'a>) -> Self {
        Self { window, at: 0 }
    }
}

impl std::io::Read for Cursor<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let len = self.window.len.saturating_sub(self.at).min(into.len() as u64);
        into[..len as usize].copy_from_slice(self.window.bytes(self.at, len).map_err(std::io::Error::other)?);
        self.at += len;
        Ok(len as usize)
    }
}

impl std::io::Seek for Cursor<'_> {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        use std::io::SeekFrom::{Current, End, Start};
        let at = match to {
            Start(at) => Some(at),
            End(offset) => self.window.len.checked_add_signed(offset),
            Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = at.ok_or(std::io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
