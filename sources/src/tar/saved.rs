//! Indexes that are saved, so that a shard is walked over once.
//!
//! All numbers are little-endian: 8 bytes of magic; u64 length of the shard, i64 seconds and u32 nanoseconds of its last
//! modification; u64 counts of the bytes of the names of fields, the fields, the bytes of the keys, the samples, the
//! members; u32 ends of the names, the names, the keys; two u64 for each sample; u32, u64, u64 for each member; u32
//! CRC-32C of everything before.
//!
//! A file that is damaged or belongs to another state of the shard is as good as none. It is written under another name
//! and renamed, so that no reader sees a part of it.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::index::{Ends, Index, Member};
use super::{IndexFiles, header};
use crate::Error;

const MAGIC: &[u8; 8] = b"SLOTTAR1";

/// What follows the name of a shard in the name of its index.
const EXTENSION: &str = ".slotline-idx";

/// The state of a shard that an index belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    len: u64,
    seconds: i64,
    nanos: u32,
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self { len: found.len(), seconds: found.mtime(), nanos: found.mtime_nsec() as u32 }
    }
}

/// Returns the index of a shard: the saved one if it belongs to the shard, else a new one, which is saved.
pub(super) fn load_or_build(path: &Path, files: &IndexFiles, missing_end: bool) -> Result<Index, Error> {
    let failed = |source| Error::io(path, "open", source);
    // Checked before opening, which would block on a pipe.
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let file = File::open(path).map_err(failed)?;
    let stamp = Stamp::of(&file.metadata().map_err(failed)?);
    let saved = match files {
        IndexFiles::Beside => path.file_name().map(|name| path.with_file_name(with_extension(name.to_owned()))),
        IndexFiles::In(folder) => named_in(folder, path),
        IndexFiles::None => None,
    };
    // An index of a tar without its end is not one for readers that require it.
    let saved = saved.filter(|_| !missing_end);
    if let Some(index) = saved.as_ref().and_then(|saved| fs::read(saved).ok()).and_then(|bytes| decode(&bytes, stamp)) {
        return Ok(index);
    }
    let index = Index::build(path, &file, stamp.len, missing_end)?;
    if let Some(saved) = saved
        && file.metadata().is_ok_and(|found| Stamp::of(&found) == stamp)
    {
        // A folder that can't be written to only costs the next walk.
        let _ = write(&saved, &encode(&index, stamp));
    }
    Ok(index)
}

/// Returns the path of an index in a folder for the indexes of many shards, some of which may have the same name.
fn named_in(folder: &Path, shard: &Path) -> Option<PathBuf> {
    let place = crc32c::crc32c(shard.canonicalize().ok()?.parent()?.as_os_str().as_bytes());
    let mut name = shard.file_name()?.to_owned();
    name.push(format!("-{place:08x}"));
    Some(folder.join(with_extension(name)))
}

fn with_extension(mut name: OsString) -> OsString {
    name.push(EXTENSION);
    name
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{count}", std::process::id()));
    let aside = PathBuf::from(name);
    let written = File::create_new(&aside).and_then(|mut file| file.write_all(bytes));
    let written = written.and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

fn encode(index: &Index, stamp: Stamp) -> Vec<u8> {
    let names: usize = index.suffixes.iter().map(String::len).sum();
    let mut bytes = Vec::new();
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&stamp.len.to_le_bytes());
    bytes.extend_from_slice(&stamp.seconds.to_le_bytes());
    bytes.extend_from_slice(&stamp.nanos.to_le_bytes());
    for count in [names, index.suffixes.len(), index.keys.len(), index.samples.len(), index.members.len()] {
        bytes.extend_from_slice(&(count as u64).to_le_bytes());
    }
    let mut end = 0;
    for suffix in &index.suffixes {
        end += suffix.len() as u32;
        bytes.extend_from_slice(&end.to_le_bytes());
    }
    index.suffixes.iter().for_each(|suffix| bytes.extend_from_slice(suffix.as_bytes()));
    bytes.extend_from_slice(&index.keys);
    for ends in &index.samples {
        bytes.extend_from_slice(&ends.key.to_le_bytes());
        bytes.extend_from_slice(&ends.members.to_le_bytes());
    }
    for member in &index.members {
        bytes.extend_from_slice(&member.suffix.to_le_bytes());
        bytes.extend_from_slice(&member.start.to_le_bytes());
        bytes.extend_from_slice(&member.len.to_le_bytes());
    }
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Returns the index, if the bytes are one for this state of the shard.
fn decode(bytes: &[u8], stamp: Stamp) -> Option<Index> {
    let (rest, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(rest) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let mut rest = rest.strip_prefix(MAGIC)?;
    let found = Stamp {
        len: u64::from_le_bytes(take(&mut rest)?),
        seconds: i64::from_le_bytes(take(&mut rest)?),
        nanos: u32::from_le_bytes(take(&mut rest)?),
    };
    if found != stamp {
        return None;
    }
    let mut counts = [0; 5];
    for count in &mut counts {
        *count = usize::try_from(u64::from_le_bytes(take(&mut rest)?)).ok()?;
    }
    let [names, suffixes, keys, samples, members] = counts;
    let part = |rest: &mut &[u8], count: usize, size: usize| {
        let (part, after) = rest.split_at_checked(count.checked_mul(size)?)?;
        *rest = after;
        Some(part.to_vec())
    };
    let ends = part(&mut rest, suffixes, 4)?;
    let names = part(&mut rest, names, 1)?;
    let keys = part(&mut rest, keys, 1)?;
    let samples = part(&mut rest, samples, 16)?;
    let members = part(&mut rest, members, 20)?;
    let mut start = 0;
    let suffixes = ends.as_chunks::<4>().0.iter().map(|end| {
        let end = u32::from_le_bytes(*end) as usize;
        let name = names.get(std::mem::replace(&mut start, end)..end)?;
        String::from_utf8(name.to_vec()).ok()
    });
    let suffixes = suffixes.collect::<Option<_>>()?;
    let word = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
    let sample = |bytes: &[u8; 16]| Ends { key: word(bytes), members: word(&bytes[8..]) };
    let member = |bytes: &[u8; 20]| Member {
        suffix: u32::from_le_bytes(*bytes.first_chunk().expect("four bytes")),
        start: word(&bytes[4..]),
        len: word(&bytes[12..]),
    };
    let index = Index {
        suffixes,
        keys,
        samples: samples.as_chunks().0.iter().map(sample).collect(),
        members: members.as_chunks().0.iter().map(member).collect(),
    };
    (rest.is_empty() && index.is_sound(stamp.len)).then_some(index)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*bytes)
}

/// Reads an index that DALI's `wds2idx.py` wrote (`v1.2`): after a line with the number of samples, a line for each, with
/// extension, position, length and name of each member.
pub(super) fn dali(path: &Path, shard: &Path) -> Result<Index, Error> {
    use std::os::unix::fs::FileExt;
    let text = fs::read_to_string(path).map_err(|source| Error::io(path, "read", source))?;
    let failed = |source| Error::io(shard, "open", source);
    if !shard.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let file = File::open(shard).map_err(failed)?;
    let shard_len = file.metadata().map_err(failed)?.len();
    let error = |line: usize, problem: String| {
        let problem = format!("line {}: {problem}", line + 1);
        Error::format(path.display(), None, problem, "make the index again, with DALI's wds2idx, or go without it")
    };
    let mut lines = text.lines().enumerate();
    let first = lines.next().map_or("", |(_, line)| line);
    let count = first.strip_prefix("v1.2 ").and_then(|count| count.trim().parse::<usize>().ok());
    let count = count.ok_or_else(|| error(0, format!("expected `v1.2` and a number, found `{first:.40}`")))?;
    let mut building = super::index::Building::new(shard);
    let mut end = 0;
    for (number, line) in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (groups, rest) = words.as_chunks::<4>();
        if groups.is_empty() || !rest.is_empty() {
            let problem =
                format!("expected extension, position, length and name of each file, found {} words", words.len());
            return Err(error(number, problem));
        }
        let samples = building.index.samples.len();
        for [extension, start, len, name] in groups {
            let bad = || error(number, format!("no position and length of a file in the shard: {start} {len}"));
            let (start, len): (u64, u64) = (start.parse().map_err(|_| bad())?, len.parse().map_err(|_| bad())?);
            // Members have headers, so they do not touch each other.
            let follows = start.checked_sub(header::BLOCK).is_some_and(|header| header >= end);
            let finish = start.checked_add(len).filter(|&finish| finish <= shard_len && follows);
            end = finish.ok_or_else(bad)?;
            let mut block = [0; header::BLOCK as usize];
            file.read_exact_at(&mut block, start - header::BLOCK).map_err(|source| Error::io(shard, "read", source))?;
            if header::size(&block) != Some(len) {
                return Err(error(number, format!("{name} is not at byte {start} of {}", shard.display())));
            }
            let Some((key, suffix)) = super::name::split(name.as_bytes()) else { continue };
            if suffix != extension.as_bytes() {
                return Err(error(number, format!("the name {name} does not have the extension {extension}")));
            }
            building.add(key, suffix, start, len)?;
        }
        if building.index.samples.len() > samples + 1 {
            return Err(error(number, "files of several samples".to_owned()));
        }
    }
    let lines = text.lines().count() - 1;
    if lines != count {
        return Err(error(0, format!("expected {count} samples, found {lines}")));
    }
    Ok(building.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Index, Stamp) {
        let index = Index {
            suffixes: vec!["jpg".to_owned(), "cls".to_owned()],
            keys: b"onetwo".to_vec(),
            samples: vec![Ends { key: 3, members: 2 }, Ends { key: 6, members: 3 }],
            members: vec![
                Member { suffix: 0, start: 512, len: 7 },
                Member { suffix: 1, start: 1536, len: 1 },
                Member { suffix: 0, start: 2560, len: 0 },
            ],
        };
        (index, Stamp { len: 10240, seconds: -5, nanos: 17 })
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let (index, stamp) = example();
        let bytes = encode(&index, stamp);
        assert_eq!(decode(&bytes, stamp), Some(index));
        assert_eq!(decode(&bytes, Stamp { nanos: 18, ..stamp }), None);
    }

    #[test]
    fn a_damaged_index_is_none() {
        let (index, stamp) = example();
        let bytes = encode(&index, stamp);
        for at in 0..bytes.len() {
            assert_eq!(decode(&bytes[..at], stamp), None);
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert_eq!(decode(&flipped, stamp), None);
        }
    }

    #[test]
    fn an_index_that_lies_is_none() {
        let (index, stamp) = example();
        let lies: [fn(&mut Index); 7] = [
            |index| index.members[2].start = u64::MAX,
            |index| index.members[2].len = 8000,
            |index| index.members[1].start = 515,
            |index| index.members[1].suffix = 2,
            |index| index.members[1].suffix = 0,
            |index| index.samples[0].key = 7,
            |index| index.samples[1].members = 2,
        ];
        for lie in lies {
            let mut index = index.clone();
            lie(&mut index);
            assert_eq!(decode(&encode(&index, stamp), stamp), None);
        }
    }
}
