//! Reads the records of a file. A record is the length of its data (u64), the masked CRC-32C of the
//! length (u32), the data, and the masked CRC-32C of the data (u32). Numbers are little-endian.

use std::path::Path;

use crate::Error;
use crate::files::{Files, read_whole};
use crate::saved::Codec;
use crate::window::{Progress, Window};

/// The number of bytes before the data.
pub(super) const HEADER: u64 = 12;

/// The number of bytes after the data.
pub(super) const FOOTER: u64 = 4;

pub(super) const DAMAGED: &str = "the file is truncated or damaged: copy it or write it again";

/// Returns the end of each record of a file, from the lengths in the file.
pub(super) fn walk(files: &Files, file: usize, progress: &Progress) -> Result<Vec<u64>, Error> {
    let (path, mut window) = (files.path(file), Window::new(files, file, progress));
    let (mut ends, mut at, len) = (Vec::new(), 0, window.file_len());
    while at < len {
        let error = |problem: String, advice| Error::format(path.display(), at, problem, advice);
        if len - at < HEADER {
            return Err(error(format!("expected a header of {HEADER} bytes, found {}", len - at), DAMAGED));
        }
        let header = *window.bytes(at, HEADER)?.first_chunk().expect("a header was asked for");
        let Some(data) = data_len(&header) else {
            let (problem, advice) = match header {
                [0x1f, 0x8b, ..] if at == 0 => ("a gzip file", "unpack it with `gunzip`"),
                [0x78, ..] if at == 0 => ("a length with a wrong checksum", "it may be compressed: write it without"),
                _ => ("a length with a wrong checksum", DAMAGED),
            };
            return Err(error(format!("expected a record, found {problem}"), advice));
        };
        let end = data.checked_add(HEADER + FOOTER).and_then(|whole| at.checked_add(whole));
        let end = end.filter(|&end| end <= len);
        at = end.ok_or_else(|| {
            error(format!("a record of {data} bytes, but the file ends after {}", len - at - HEADER), DAMAGED)
        })?;
        ends.push(at);
    }
    window.finish();
    Ok(ends)
}

/// Reads an index that `tfrecord2idx` wrote. It has a line for each record, with its position and
/// its length.
pub(super) fn index(path: &Path, len: u64) -> Result<Vec<u64>, Error> {
    let text = String::from_utf8_lossy(&read_whole(path)?).into_owned();
    let mut ends = Vec::new();
    let mut end = 0_u64;
    for (number, line) in text.lines().enumerate() {
        let parsed =
            line.split_once(' ').and_then(|(start, len)| Some((start.parse().ok()?, len.trim().parse().ok()?)));
        let next = parsed.filter(|&(start, len): &(u64, u64)| start == end && len >= HEADER + FOOTER);
        let next = next.and_then(|(start, len)| start.checked_add(len)).filter(|&next| next <= len);
        end = next.ok_or_else(|| {
            let problem = format!("line {}: expected the record from byte {end} on, found `{line:.60}`", number + 1);
            Error::in_file(path, problem, "make the index again, or go without it")
        })?;
        ends.push(end);
    }
    if end != len {
        let problem = format!("its records end at byte {end} of {len}");
        return Err(Error::in_file(path, problem, "make the index again, or go without it"));
    }
    Ok(ends)
}

/// The encoding of the saved ends of records: a u64 for each.
pub(super) const CODEC: Codec<Vec<u64>> = Codec {
    magic: b"SLOTTFR1",
    encode: |ends, bytes| ends.iter().for_each(|end| bytes.extend_from_slice(&end.to_le_bytes())),
    decode: |bytes, len| {
        let (words, rest) = bytes.as_chunks::<8>();
        let ends: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let room = |start: u64, end: u64| end.checked_sub(start).is_some_and(|whole| whole >= HEADER + FOOTER);
        let apart = ends.first().is_none_or(|&end| room(0, end)) && ends.windows(2).all(|pair| room(pair[0], pair[1]));
        (rest.is_empty() && apart && ends.last().copied().unwrap_or(0) == len).then_some(ends)
    },
};

/// Returns the length stated in a header, if the header's checksum is right.
pub(super) fn data_len(header: &[u8; HEADER as usize]) -> Option<u64> {
    let (len, checksum) = header.split_first_chunk::<8>()?;
    (*checksum == masked(len)).then(|| u64::from_le_bytes(*len))
}

/// Returns the data of a record that includes header and checksums, or what is wrong with it.
pub(super) fn data(record: &[u8], check: bool) -> Result<&[u8], &'static str> {
    let too_short = "a record without header and data";
    let (header, rest) = record.split_first_chunk().ok_or(too_short)?;
    let (data, checksum) = rest.split_last_chunk::<{ FOOTER as usize }>().ok_or(too_short)?;
    if data_len(header) != Some(data.len() as u64) {
        return Err("a length with a wrong checksum, or another one than in the index");
    }
    if check && *checksum != masked(data) {
        return Err("data with a wrong checksum");
    }
    Ok(data)
}

/// Returns the checksum of TFRecord: CRC-32C, rotated and with a number added, so that it can be
/// part of checked data.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}
