//! The error of all formats.

use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::path::Path;

pub use slotline::sanitized;
use slotline::with_causes;

/// The reason why a file or a sample can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file can't be listed, opened, read or mapped.
    #[error("cannot {action} {name}; {advice}: {}", with_causes(source))]
    Io {
        /// The path or URL of the file.
        name: String,
        /// The failed operation: "open", "read", …
        action: &'static str,
        /// What the user can do about it.
        advice: &'static str,
        /// The error of the operating system.
        r#source: io::Error,
    },
    /// A request for an object in a bucket, or on a server, failed.
    #[error("cannot read {name}{}; {advice}: {}", bytes(range), with_causes(&**source))]
    Remote {
        /// The URL of the object.
        name: String,
        /// The range of bytes that was requested, or `None` for the whole object.
        range: Option<Range<u64>>,
        /// What the user can do about it.
        advice: &'static str,
        /// What the server or the network did.
        r#source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The contents of a file violate its format, or are not supported.
    #[error("{name}{}: {problem}; {advice}", at(*offset))]
    Format {
        /// The path or URL of the file.
        name: String,
        /// The position in the file, in bytes, if the problem has one.
        offset: Option<u64>,
        /// What was expected, and what was found.
        problem: String,
        /// What the user can do about it.
        advice: &'static str,
    },
    /// An option or a list of files can't be used.
    #[error("{problem}; {advice}")]
    Usage {
        /// What is wrong with the option or the files.
        problem: String,
        /// What the user can do about it.
        advice: &'static str,
    },
}

/// Returns the position in a message.
fn at(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(", byte {offset}"))
}

/// Returns a range of bytes in a message.
fn bytes(range: &Option<Range<u64>>) -> String {
    range.as_ref().map_or_else(String::new, |range| format!(", bytes {} to {}", range.start, range.end))
}

/// Truncates a text after `most` characters, and marks that with an ellipsis.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Error {
    /// Makes the error for an operation on a path that failed.
    pub fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::io_named(path.display(), action, source)
    }

    /// Makes the error for an operation on a file that failed.
    pub fn io_named(name: impl Display, action: &'static str, source: io::Error) -> Self {
        let advice = match source.kind() {
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::PermissionDenied => "make it readable for this user",
            io::ErrorKind::IsADirectory => "pass the path of a file in it",
            io::ErrorKind::NotADirectory => "pass the path of a folder",
            io::ErrorKind::OutOfMemory => "it needs more memory than there is: check its size",
            io::ErrorKind::UnexpectedEof => "the file is shorter than it was, or than its index says; copy it again",
            _ => "check that it can be read on this machine",
        };
        Self::Io { name: sanitized(&name.to_string()), action, advice, source }
    }

    /// Creates the error for contents that violate the format, at a position in the file.
    pub fn format(
        name: impl Display,
        offset: impl Into<Option<u64>>,
        problem: impl Into<String>,
        advice: &'static str,
    ) -> Self {
        Self::Format {
            name: sanitized(&name.to_string()),
            offset: offset.into(),
            problem: sanitized(&problem.into()),
            advice,
        }
    }

    /// Creates the error for contents that violate the format, without a position.
    pub(crate) fn in_file(path: impl AsRef<Path>, problem: impl Into<String>, advice: &'static str) -> Self {
        Self::format(path.as_ref().display(), None, problem, advice)
    }

    /// Whether the contents of a file are the cause, so that other samples may still be readable.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Format { .. } | Self::Io { action: "unpack", .. })
    }

    /// Returns a copy of the error, if it is about the contents of a file.
    pub(crate) fn again(&self) -> Option<Self> {
        let Self::Format { name, offset, problem, advice } = self else { return None };
        Some(Self::Format { name: name.clone(), offset: *offset, problem: problem.clone(), advice })
    }

    /// Makes the error for an option or a list of files that can't be used.
    pub fn usage(problem: impl Into<String>, advice: &'static str) -> Self {
        Self::Usage { problem: sanitized(&problem.into()), advice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_nothing_that_a_terminal_obeys() {
        let error = Error::format("a\x1b]0;b\x07.tar", None, "the name \u{202e}gpj.\u{9b}1m\n", "rename it");
        assert_eq!(error.to_string(), r"a\u{1b}]0;b\u{7}.tar: the name \u{202e}gpj.\u{9b}1m\n; rename it");
        assert_eq!(Error::usage("ä\u{7f}", "none").to_string(), r"ä\u{7f}; none");
        assert_eq!(shortened("äöü", 2), "äö…");
    }
}
