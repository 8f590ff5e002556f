//! Opens and reads regular files, with the path in every error.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::error::SourceError;

/// An open regular file.
#[derive(Debug)]
pub(super) struct Source<'a> {
    path: &'a Path,
    file: File,
    /// The file's size in bytes when it was opened.
    pub(super) len: u64,
}

impl<'a> Source<'a> {
    /// Opens a file. Fails if the path is not a regular file.
    pub(super) fn open(path: &'a Path) -> Result<Self, SourceError> {
        let failed = |error| SourceError::io(path, "open", error);
        // Checked first, because opening a named pipe without a writer would block.
        let kind = fs::metadata(path).map_err(failed)?.file_type();
        if kind.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        if !kind.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        let file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        Ok(Source { path, file, len })
    }

    /// Reads the first `most` bytes, or all bytes if there are fewer.
    pub(super) fn prefix(&mut self, most: u64) -> Result<Vec<u8>, SourceError> {
        let mut bytes = Vec::new();
        let read = (&self.file).take(most.min(self.len)).read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(|error| self.error("read", error))
    }

    /// Reads `len` bytes from `start` on. The caller must have checked that the file has them.
    pub(super) fn read(&mut self, start: usize, len: usize) -> Result<Vec<u8>, SourceError> {
        self.try_read(start, len).map_err(|error| self.error("read", error))
    }

    fn try_read(&mut self, start: usize, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let refused = |_| io::Error::new(io::ErrorKind::OutOfMemory, format!("cannot allocate {len} bytes"));
        bytes.try_reserve_exact(len).map_err(refused)?;
        self.file.seek(SeekFrom::Start(start as u64))?;
        (&self.file).take(len as u64).read_to_end(&mut bytes)?;
        // If the file is truncated during the read, the system may return zeros. The file's length
        // has changed by then.
        if bytes.len() < len || self.file.metadata()?.len() < (start + len) as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }

    /// Returns the file, so that it can be mapped.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Makes an I/O error for this file.
    pub(super) fn error(&self, action: &'static str, error: io::Error) -> SourceError {
        SourceError::io(self.path, action, error)
    }
}
