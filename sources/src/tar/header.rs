//! The headers of a tar: ustar, PAX, and GNU's long names.
//!
//! A header is a block of 512 bytes: name, size and checksum as octal digits, a type, and, in
//! ustar, the start of a longer name. PAX and GNU store longer names and sizes as the data of an
//! additional header before the header of the member. Headers are interpreted as by Python's
//! `tarfile` (3.11), with which webdataset reads tars.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::window::Window;

/// The length of a header, in bytes. Data is padded to a multiple of it.
pub(super) const BLOCK: u64 = 512;

/// The maximum length of the data of a PAX header or a GNU long name.
const LONGEST_EXTENSION: u64 = 1 << 20;

const DAMAGED: &str = "the tar is damaged: copy it or write it again";

/// A member of a tar that has data (a regular file).
#[derive(Debug)]
pub(super) struct Member {
    /// The full name of the member.
    pub(super) name: Vec<u8>,
    /// The position of the member's data in the tar, in bytes.
    pub(super) start: u64,
    /// The length of the member's data, in bytes.
    pub(super) len: u64,
}

/// A source of the bytes of a tar, which is read sequentially.
pub(super) trait ForwardSource {
    /// Returns the length in bytes, or an upper limit if the length is known only at the end.
    fn most(&self) -> u64;

    /// Returns the number of bytes from `at` to the end. If it is not known, returns at most
    /// [`BLOCK`].
    fn left(&mut self, at: u64) -> Result<u64, Error>;

    /// Returns `len` bytes from `at` on. `at` must not be less than in an earlier call.
    fn bytes(&mut self, at: u64, len: u64) -> Result<&[u8], Error>;
}

impl ForwardSource for Window<'_> {
    fn most(&self) -> u64 {
        self.file_len()
    }

    fn left(&mut self, at: u64) -> Result<u64, Error> {
        Ok(self.file_len().saturating_sub(at))
    }

    fn bytes(&mut self, at: u64, len: u64) -> Result<&[u8], Error> {
        self.bytes(at, len)
    }
}

/// An iterator over the members of a tar.
#[derive(Debug)]
pub(super) struct Members<W> {
    path: PathBuf,
    pub(super) window: W,
    len: u64,
    /// The position of the next header.
    at: u64,
    missing_end: bool,
}

/// The values that PAX or GNU headers set for the next header.
#[derive(Default)]
struct Extension {
    name: Option<Vec<u8>>,
    len: Option<u64>,
}

impl Members<Window<'_>> {
    /// Ends reading, and reports the remaining progress.
    pub(super) fn finish(self) {
        self.window.finish();
    }
}

impl<W: ForwardSource> Members<W> {
    /// Starts reading a tar. With `missing_end`, it may end without a block of zeros.
    pub(super) fn new(path: &Path, window: W, missing_end: bool) -> Self {
        Self { path: path.to_owned(), len: window.most(), window, at: 0, missing_end }
    }

    /// Returns the data of the member that [`next`](Self::next) returned last.
    pub(super) fn data(&mut self, member: &Member) -> Result<&[u8], Error> {
        self.window.bytes(member.start, member.len)
    }

    /// Returns the next regular file; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Member>, Error> {
        let mut extension = Extension::default();
        let mut extended = None;
        loop {
            let at = self.at;
            if at > 0 && self.missing_end && extended.is_none() && self.window.left(at)? == 0 {
                return Ok(None);
            }
            let block = self.block(at)?;
            if block == [0; BLOCK as usize] {
                return match extended {
                    None => Ok(None),
                    Some(at) => Err(self.error(at, "a PAX header or long name without a member", DAMAGED)),
                };
            }
            let header = self.check(at, &block)?;
            let start = at + BLOCK;
            match header.kind {
                b'x' | b'X' | b'g' | b'L' | b'K' => {
                    let data = self.extension_data(start, header.len)?;
                    self.at = self.after(start, header.len)?;
                    match header.kind {
                        b'L' => _ = extension.name.get_or_insert_with(|| until_nul(&data).to_vec()),
                        b'x' | b'X' => self.pax(start, &data, &mut extension)?,
                        b'g' => self.global(start, &data)?,
                        _ => {}
                    }
                    if header.kind != b'g' {
                        extended.get_or_insert(at);
                    }
                }
                b'S' => {
                    let advice = "write it without `--sparse`";
                    return Err(self.error(at, "a sparse file, which is not supported", advice));
                }
                // Links, devices, folders and pipes have no data, whatever size is stated.
                b'1'..=b'6' => {
                    self.at = start;
                    (extension, extended) = (Extension::default(), None);
                }
                kind => {
                    let len = extension.len.unwrap_or(header.len);
                    let name = extension.name.take().unwrap_or(header.name);
                    if kind == 0 && name.ends_with(b"/") {
                        // Before POSIX, folders were stored as regular files whose names end with a
                        // slash.
                        self.at = start;
                    } else {
                        self.at = self.after(start, len)?;
                        if matches!(kind, b'0' | b'7' | 0) {
                            return Ok(Some(Member { name, start, len }));
                        }
                    }
                    (extension, extended) = (Extension::default(), None);
                }
            }
        }
    }

    /// Reads the block at `at`.
    fn block(&mut self, at: u64) -> Result<[u8; BLOCK as usize], Error> {
        let left = self.window.left(at)?;
        if at == 0 && left >= 2 {
            self.unpacked(left.min(BLOCK))?;
        }
        if left < BLOCK {
            let problem = if left == 0 {
                "the file ends without the block of zeros that ends a tar".to_owned()
            } else {
                format!("expected a header of {BLOCK} bytes, found {left} bytes")
            };
            let advice = "it may be truncated: copy it again, or set `missing_end` if it is complete";
            return Err(self.error(at, problem, if left == 0 && at > 0 { advice } else { DAMAGED }));
        }
        Ok(*self.window.bytes(at, BLOCK)?.first_chunk().expect("a block was asked for"))
    }

    /// Returns an error if the first bytes show that the file is compressed.
    fn unpacked(&mut self, len: u64) -> Result<(), Error> {
        let block = self.window.bytes(0, len)?;
        // The name of a member may start with these bytes, too, so the checksum is checked.
        if block.first_chunk().is_some_and(checksum_is_right) {
            return Ok(());
        }
        let start = [block[0], block[1]];
        let (name, advice) = match &start {
            b"\x1f\x8b" => ("gzip", "unpack it with `gunzip`, or name it `.tar.gz`, which is read as a stream"),
            b"BZ" => ("bzip2", "unpack it with `bunzip2`, or name it `.tar.bz2`, which is read as a stream"),
            b"\xfd7" => ("xz", "unpack it with `unxz`"),
            b"\x28\xb5" => ("zstd", "unpack it with `unzstd`, or name it `.tar.zst`, which is read as a stream"),
            _ => return Ok(()),
        };
        Err(self.error(0, format!("expected a tar, found a {name} file"), advice))
    }

    /// Parses a header.
    fn check(&self, at: u64, block: &[u8; BLOCK as usize]) -> Result<Header, Error> {
        if !checksum_is_right(block) {
            return Err(self.error(at, "expected a tar header, found a block whose checksum is wrong", DAMAGED));
        }
        let len = number(&block[124..136]).and_then(|len| u64::try_from(len).ok());
        let len = len.ok_or_else(|| {
            let found = String::from_utf8_lossy(&block[124..136]).escape_debug().to_string();
            self.error(at + 124, format!("expected a size in octal digits, found `{found}`"), DAMAGED)
        })?;
        let kind = block[156];
        let (name, prefix) = (until_nul(&block[..100]), until_nul(&block[345..500]));
        // The headers of GNU's own types have other fields in the place of the prefix.
        let name = if prefix.is_empty() || matches!(kind, b'L' | b'K' | b'S') {
            name.to_vec()
        } else {
            [prefix, b"/", name].concat()
        };
        Ok(Header { name, len, kind })
    }

    /// Returns the position after the data of a member and its padding.
    fn after(&self, start: u64, len: u64) -> Result<u64, Error> {
        let end = start.checked_add(len).filter(|&end| end <= self.len);
        let padded = end.map(|end| end.next_multiple_of(BLOCK));
        // With `missing_end`, the padding of the last member may be missing, too.
        let padded = if self.missing_end { padded.map(|end| end.min(self.len)) } else { padded };
        padded.filter(|&end| end <= self.len).ok_or_else(|| {
            let left = self.len.saturating_sub(start);
            let problem =
                format!("a member of {len} bytes, padded to blocks of {BLOCK}, but the file ends after {left}");
            self.error(start, problem, "the tar is truncated: copy it or write it again")
        })
    }

    /// Reads the data of a header that describes another header.
    fn extension_data(&mut self, start: u64, len: u64) -> Result<Vec<u8>, Error> {
        self.after(start, len)?;
        if len > LONGEST_EXTENSION {
            let problem = format!("a PAX header or long name of {len} bytes; the maximum is {LONGEST_EXTENSION}");
            return Err(self.error(start, problem, DAMAGED));
        }
        Ok(self.window.bytes(start, len)?.to_vec())
    }

    /// Takes the name and the size from a PAX header. Values that are set by earlier headers have
    /// precedence, as in `tarfile`.
    fn pax(&self, start: u64, data: &[u8], extension: &mut Extension) -> Result<(), Error> {
        let (mut name, mut len) = (None, None);
        self.records(start, data, |at, key, value| {
            match key {
                b"path" => name = Some(without_slashes(value).to_vec()),
                b"size" => {
                    let digits = std::str::from_utf8(value).ok();
                    let parsed = digits.and_then(|digits| digits.parse().ok());
                    len = Some(parsed.ok_or_else(|| self.error(at, "a size that is not a number", DAMAGED))?);
                }
                _ if key.starts_with(b"GNU.sparse.") => {
                    let advice = "write it without `--sparse`";
                    return Err(self.error(at, "a sparse file, which is not supported", advice));
                }
                _ => {}
            }
            Ok(())
        })?;
        extension.name = extension.name.take().or(name);
        extension.len = extension.len.or(len);
        Ok(())
    }

    /// Checks that a PAX header for all following members sets no names or sizes.
    fn global(&self, start: u64, data: &[u8]) -> Result<(), Error> {
        self.records(start, data, |at, key, _| match key {
            b"path" | b"size" => {
                Err(self.error(at, "a name or size for all following members, which is not supported", DAMAGED))
            }
            _ => Ok(()),
        })
    }

    /// Calls `each` with the position, key and value of each record of a PAX header. A record is
    /// `LENGTH KEY=VALUE\n`.
    fn records(
        &self,
        start: u64,
        data: &[u8],
        mut each: impl FnMut(u64, &[u8], &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut rest = data;
        while !rest.is_empty() {
            let at = start + (data.len() - rest.len()) as u64;
            let record = (|| {
                let space = rest.iter().position(|&byte| byte == b' ')?;
                let len: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
                let (record, after) = rest.split_at_checked(len)?;
                let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
                let equals = record.iter().position(|&byte| byte == b'=')?;
                Some((&record[..equals], &record[equals + 1..], after))
            })();
            let (key, value, after) = record.ok_or_else(|| {
                self.error(at, "expected a PAX record `LENGTH KEY=VALUE`, found something else", DAMAGED)
            })?;
            each(at, key, value)?;
            rest = after;
        }
        Ok(())
    }

    fn error(&self, at: u64, problem: impl Into<String>, advice: &'static str) -> Error {
        Error::format(self.path.display(), at, problem, advice)
    }
}

/// The fields of a header that this module uses.
struct Header {
    name: Vec<u8>,
    len: u64,
    kind: u8,
}

/// Returns the size stated in a header, if the checksum is right.
pub(super) fn size(block: &[u8; BLOCK as usize]) -> Option<u64> {
    checksum_is_right(block).then(|| number(&block[124..136]))?.and_then(|len| u64::try_from(len).ok())
}

/// Whether the sum of the header's bytes is the one that it states. Old writers summed signed
/// bytes.
fn checksum_is_right(block: &[u8; BLOCK as usize]) -> bool {
    let others = || block[..148].iter().chain(&block[156..]);
    let blanks = 8 * i64::from(b' ');
    let unsigned = blanks + others().map(|&byte| i64::from(byte)).sum::<i64>();
    let signed = blanks + others().map(|&byte| i64::from(byte.cast_signed())).sum::<i64>();
    number(&block[148..156]).is_some_and(|sum| sum == unsigned || sum == signed)
}

/// Parses a number: octal digits, or GNU's big-endian bytes after 0x80 (after 0xff for a negative
/// number).
fn number(field: &[u8]) -> Option<i64> {
    let (&first, rest) = field.split_first()?;
    if matches!(first, 0x80 | 0xff) {
        let sign = if first == 0xff { -1 } else { 0 };
        let number = rest.iter().fold(sign, |number: i128, &byte| (number << 8) | i128::from(byte));
        return number.try_into().ok();
    }
    let digits = std::str::from_utf8(until_nul(field)).ok()?.trim();
    if digits.is_empty() { Some(0) } else { i64::from_str_radix(digits, 8).ok() }
}

/// Returns the bytes before the first NUL.
fn until_nul(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|&byte| byte == 0).unwrap_or(field.len())]
}

/// Returns a name without the slashes at its end.
fn without_slashes(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_big_endian() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b" 17 \0junk"), Some(0o17));
        assert_eq!(number(b"\0\0\0\0"), Some(0));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\x02\0\0\0\0"), Some(2 << 32));
        assert_eq!(number(b"\xff\xff\xff\xff"), Some(-1));
        for bad in [&b"9"[..], b"0x1\0", b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\xc3\xa9"] {
            assert_eq!(number(bad), None);
        }
    }
}
