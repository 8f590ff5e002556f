//! The table of a shard: the number of samples n as u32, then n + 1 positions in bytes, each u32.

use std::ops::Range;
use std::path::Path;

use super::ADVICE;
use crate::Error;

/// The positions of the samples of a shard.
#[derive(Debug)]
pub(super) struct Offsets(Vec<u32>);

impl Offsets {
    /// Parses the table at the start of a shard of `len` bytes.
    pub(super) fn parse(path: &Path, bytes: &[u8], samples: usize, len: u64) -> Result<Self, Error> {
        let offsets = table(path, bytes, samples)?;
        let offsets: Vec<_> = offsets.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let start = 8 + 4 * samples as u64;
        let mut before = start;
        for (i, &offset) in offsets.iter().enumerate() {
            if u64::from(offset) < before || u64::from(offset) > len {
                let problem = format!("position {i} is {offset}, and it must be from {before} to {len}");
                return Err(Error::format(path.display(), 4 + 4 * i as u64, problem, ADVICE));
            }
            before = offset.into();
        }
        if before != len {
            let problem = format!("the samples end at byte {before}, and the shard has {len} bytes");
            return Err(Error::format(path.display(), 4 + 4 * samples as u64, problem, ADVICE));
        }
        Ok(Self(offsets))
    }

    /// Returns the start and the end of sample `i`.
    pub(super) fn range(&self, i: usize) -> (u64, u64) {
        (self.0[i].into(), self.0[i + 1].into())
    }
}

/// Returns the positions in the table, after checking the number of samples.
fn table<'a>(path: &Path, bytes: &'a [u8], samples: usize) -> Result<&'a [[u8; 4]], Error> {
    let (words, _) = bytes.as_chunks::<4>();
    let found = words.first().map(|bytes| u32::from_le_bytes(*bytes));
    if found.is_none_or(|found| found as usize != samples) {
        let found = found.map_or("none".to_owned(), |found| found.to_string());
        let problem = format!("the index says {samples} samples, and the shard has {found}");
        return Err(Error::format(path.display(), 0, problem, ADVICE));
    }
    words.get(1..samples + 2).ok_or_else(|| {
        Error::format(path.display(), bytes.len() as u64, "the shard ends in its table of positions", ADVICE)
    })
}

/// Returns the range of sample `i` in an unpacked shard.
pub(super) fn range(path: &Path, shard: &[u8], samples: usize, i: usize) -> Result<Range<usize>, Error> {
    let words = table(path, shard, samples)?;
    let [start, end] = [words[i], words[i + 1]].map(|bytes| u32::from_le_bytes(bytes) as usize);
    if start < 8 + 4 * samples || start > end || end > shard.len() {
        let problem = format!("sample {i} is from byte {start} to {end}, and the shard has {} bytes", shard.len());
        return Err(Error::format(path.display(), 4 + 4 * i as u64, problem, ADVICE));
    }
    Ok(start..end)
}
