//! The errors of reading files, and their messages.

use std::io;
use std::path::{Path, PathBuf};

use crate::causes::with_causes;
use crate::sanitized::sanitized;

/// The error for a file that can't be used as an array.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file can't be opened, read or mapped.
    #[error("cannot {action} {}; {advice}: {}", sanitized(&path.to_string_lossy()), with_causes(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The failed operation: "open", "read" or "map".
        action: &'static str,
        /// Advice for the user.
        advice: &'static str,
        /// The system's error.
        r#source: io::Error,
    },
    /// The file can be read, but its contents can't be used.
    #[error("{}: {problem}", sanitized(&path.to_string_lossy()))]
    Format {
        /// The file.
        path: PathBuf,
        /// The problem with the contents, which is part of this error's message.
        problem: FormatError,
    },
}

impl SourceError {
    /// Makes an I/O error for this path.
    pub(super) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        let advice = match source.kind() {
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::PermissionDenied => "make the file readable for this user",
            io::ErrorKind::IsADirectory => "pass the path of a file in it",
            io::ErrorKind::InvalidInput => "it isn't a regular file; copy its contents into one",
            io::ErrorKind::UnexpectedEof => "the file became shorter while reading; wait until it is complete",
            io::ErrorKind::OutOfMemory => "the file doesn't fit in memory",
            _ => "check that the path is a readable file on this machine",
        };
        SourceError::Io { path: path.to_owned(), action, advice, source }
    }

    /// Returns the kind of problem if it is in the file's contents; `None` for an I/O error.
    pub fn format_kind(&self) -> Option<FormatErrorKind> {
        match self {
            SourceError::Format { problem, .. } => Some(problem.kind),
            SourceError::Io { .. } => None,
        }
    }
}

/// The error for invalid bytes of a file: what was expected, what was found, and advice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found}; {advice}")]
pub struct FormatError {
    kind: FormatErrorKind,
    expected: String,
    found: String,
    advice: &'static str,
}

/// The kinds of [`FormatError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FormatErrorKind {
    /// The first bytes are those of another kind of file, or the file is empty.
    Magic,
    /// The header violates its format.
    Header,
    /// The elements have a type or an order that arrays don't support.
    Unsupported,
    /// There are too many dimensions, or more elements than can be counted.
    Shape,
    /// The file ends before its data does.
    Truncated,
    /// The file continues after its data.
    TooLong,
    /// An element has a value that is invalid for its type.
    Value,
}

impl FormatError {
    pub(super) fn new(
        kind: FormatErrorKind,
        expected: impl Into<String>,
        found: impl Into<String>,
        advice: &'static str,
    ) -> Self {
        FormatError { kind, expected: expected.into(), found: found.into(), advice }
    }

    /// Returns the kind of problem.
    pub fn kind(&self) -> FormatErrorKind {
        self.kind
    }

    /// Makes the error for the file at `path`.
    pub(super) fn of(self, path: &Path) -> SourceError {
        SourceError::Format { path: path.to_owned(), problem: self }
    }

    /// Makes the error for a file that doesn't start like the format `expected`. The message names
    /// the format that the file seems to have.
    pub(super) fn magic(expected: &str, bytes: &[u8]) -> Self {
        let (found, advice) = match KNOWN.iter().find(|(magic, ..)| bytes.starts_with(magic)) {
            Some(&(_, found, advice)) => (found.to_owned(), advice),
            None if bytes.is_empty() => ("an empty file".to_owned(), "copy or download it again"),
            None => {
                let start = &bytes[..bytes.len().min(8)];
                (format!("a file that starts with the bytes {start:02x?}"), "check the path")
            }
        };
        FormatError::new(FormatErrorKind::Magic, expected, found, advice)
    }
}

/// Formats that are often passed by mistake: the first bytes, the name of the format, and advice.
const KNOWN: &[(&[u8], &str, &str)] = &[
    (b"\x1f\x8b", "a gzip file", "unpack it first, with `gunzip`"),
    (b"PK", "an .npz or other zip archive", "unpack it first, with `unzip`, and name one of the files in it"),
    (b"\xfd7zXZ", "an xz file", "unpack it first, with `unxz`"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "unpack it first, with `unzstd`"),
    (b"BZh", "a bzip2 file", "unpack it first, with `bunzip2`"),
    (b"\x93NUMPY", "a NumPy .npy file", "read it as a .npy file"),
    (b"\0\0\x08", "an IDX file", "read it as an IDX file"),
    (b"\x89HDF", "an HDF5 file", "save the array with NumPy's `np.save`"),
    (b"\x80", "a Python pickle", "load it in Python and save the array with NumPy's `np.save`"),
    (b"<", "a web page or XML", "download the file again: the server may have sent an error page"),
    (b"version https://git-lfs", "a Git LFS pointer", "get the file itself with `git lfs pull`"),
];

/// Returns the first line of a string, truncated to a length that is suitable for a message.
pub(super) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 80;
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
