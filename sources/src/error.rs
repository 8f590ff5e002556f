//! The error of all formats.

use std::fmt::{self, Display};
use std::io;
use std::ops::Range;
use std::path::Path;

use slotline::with_causes;

/// Why a file, or a sample in it, can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file can't be listed, opened, read or mapped.
    #[error("cannot {action} {name}; {advice}: {}", with_causes(source))]
    Io {
        /// The path or URL.
        name: String,
        /// The failed operation: "open", "read", …
        action: &'static str,
        /// What to do about it.
        advice: &'static str,
        /// The system's error.
        r#source: io::Error,
    },
    /// A request for an object in a bucket, or on a server, failed.
    #[error("cannot read {name}{}; {advice}: {}", Bytes(.range), with_causes(&**source))]
    Remote {
        /// The URL.
        name: String,
        /// The bytes that were asked for, if it was some.
        range: Option<Range<u64>>,
        /// What to do about it.
        advice: &'static str,
        /// What the server or the network did.
        r#source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The contents of a file violate its format, or are not supported.
    #[error("{name}{}: {problem}; {advice}", At(*.offset))]
    Format {
        /// The path or URL.
        name: String,
        /// The position in the file, in bytes, if the problem has one.
        offset: Option<u64>,
        /// What was expected, and what was found.
        problem: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// An option or a list of files can't be used.
    #[error("{problem}; {advice}")]
    Usage {
        /// What is wrong.
        problem: String,
        /// What to do about it.
        advice: &'static str,
    },
}

/// The position in a message.
struct At(Option<u64>);

impl Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |offset| write!(f, ", byte {offset}"))
    }
}

/// A range of bytes in a message.
struct Bytes<'a>(&'a Option<Range<u64>>);

impl Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(range) => write!(f, ", bytes {} to {}", range.start, range.end),
            None => Ok(()),
        }
    }
}

/// Returns a text of a file, a server or a user for a message: without the secrets of URLs, and without characters that a
/// terminal obeys or that turn text around. All messages of this crate are such texts.
///
/// ```
/// use slotline_sources::error::shown;
///
/// assert_eq!(shown("https://host/a.tar?key=secret"), "https://host/a.tar?…");
/// assert_eq!(shown("a\x1b[2J.jpg"), r"a\u{1b}[2J.jpg");
/// ```
pub fn shown(text: &str) -> String {
    let text = text.split(' ').map(without_secrets).collect::<Vec<_>>().join(" ");
    let acts = |char: char| {
        char.is_control() || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(acts) {
        return text;
    }
    let escape = |char: char| if acts(char) { char.escape_default().to_string() } else { char.to_string() };
    text.chars().map(escape).collect()
}

/// Returns the same without what follows so many characters.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a word without the users, passwords and queries of the URLs in it. (In `abfs://container@account/`, the part
/// before the `@` is no user.)
fn without_secrets(word: &str) -> String {
    let mut parts = word.split("://");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_web = text.ends_with("http") || text.ends_with("https");
        let (part, query) = part.split_once('?').filter(|_| is_web).map_or((part, false), |(part, _)| (part, true));
        let (host, path) = part.split_at(part.find('/').unwrap_or(part.len()));
        // In a password, a slash should be escaped.
        let is_port =
            |port: &str| port.trim_end_matches(['"', ')', ',', ':', ';']).bytes().all(|byte| byte.is_ascii_digit());
        let cut =
            !host.contains('@') && !host.contains('[') && host.split_once(':').is_some_and(|(_, port)| !is_port(port));
        let user = if cut { path.rfind('@').map(|at| host.len() + at) } else { host.rfind('@') };
        let user = user.filter(|&at| is_web || part[..at].contains(':'));
        text.push_str("://");
        text.push_str(user.map_or("", |_| "…"));
        text.push_str(&part[user.unwrap_or(0)..]);
        if query {
            text.push_str("?…");
            break;
        }
    }
    text
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
        Self::Io { name: shown(&name.to_string()), action, advice, source }
    }

    /// Makes the error for contents that violate the format.
    pub fn format(
        name: impl Display,
        offset: impl Into<Option<u64>>,
        problem: impl Into<String>,
        advice: &'static str,
    ) -> Self {
        Self::Format { name: shown(&name.to_string()), offset: offset.into(), problem: shown(&problem.into()), advice }
    }

    /// Returns the same error again, if it is of what a file contains.
    pub(crate) fn again(&self) -> Option<Self> {
        let Self::Format { name, offset, problem, advice } = self else { return None };
        Some(Self::Format { name: name.clone(), offset: *offset, problem: problem.clone(), advice })
    }

    /// Makes the error for an option or a list of files that can't be used.
    pub fn usage(problem: impl Into<String>, advice: &'static str) -> Self {
        Self::Usage { problem: shown(&problem.into()), advice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_secrets_of_urls() {
        for (text, expected) in [
            ("http://a:b@host/x.tar?c=d::e", "http://…@host/x.tar?…"),
            ("get https://token@host:80/a@b.tar now", "get https://…@host:80/a@b.tar now"),
            ("https://a:b/c@host/x", "https://…@host/x"),
            ("https://a:b@host/x::http://c:d@host/y", "https://…@host/x::http://…@host/y"),
            ("http://host:80/a@b.tar http://[::1]/a@b", "http://host:80/a@b.tar http://[::1]/a@b"),
            ("abfs://container@account/x?y s3://b/a?c", "abfs://container@account/x?y s3://b/a?c"),
            ("s3://key:secret@bucket/x", "s3://…@bucket/x"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn messages_have_nothing_that_a_terminal_obeys() {
        let error = Error::format("a\x1b]0;b\x07.tar", None, "the name \u{202e}gpj.\u{9b}1m\n", "rename it");
        assert_eq!(error.to_string(), r"a\u{1b}]0;b\u{7}.tar: the name \u{202e}gpj.\u{9b}1m\n; rename it");
        assert_eq!(Error::usage("ä\u{7f}", "none").to_string(), r"ä\u{7f}; none");
        assert_eq!(shortened("äöü", 2), "äö…");
    }
}
