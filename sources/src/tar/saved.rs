//! Saved indexes of tars, and indexes that DALI wrote.
//!
//! The format's own data in a [saved](crate::saved) index of a tar begins with five counts as u64:
//! the bytes of the names of fields, the fields, the bytes of the keys, the samples, and the
//! members. Then follow the end of each name (u32), the names, the keys, two u64 for each sample
//! (`Ends`), and a u32 and two u64 for each member (`Member`).

use std::path::Path;

use super::header;
use super::index::{Ends, Index, Member};
use crate::Error;
use crate::files::{Files, Span, read_whole};
use crate::saved::{Codec, take};

/// The encoding of the indexes of tars.
pub(super) const CODEC: Codec<Index> = Codec { magic: b"SLOTTAR2", encode, decode };

fn encode(index: &Index, bytes: &mut Vec<u8>) {
    let names: usize = index.suffixes.iter().map(String::len).sum();
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
}

/// Decodes the index of a shard of this length. Returns `None` if the bytes are not an index.
fn decode(bytes: &[u8], shard_len: u64) -> Option<Index> {
    let mut rest = bytes;
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
    (rest.is_empty() && index.is_sound(shard_len)).then_some(index)
}

/// Reads an index that DALI's `wds2idx.py` wrote (`v1.2`). After a line with the number of samples,
/// it has a line for each sample, with the extension, position, length and name of each member.
pub(super) fn dali(path: &Path, files: &Files, shard: usize) -> Result<Index, Error> {
    let text = String::from_utf8_lossy(&read_whole(path)?).into_owned();
    let (shard_len, shard_path, mut memory) = (files.file_len(shard).unwrap_or(0), files.path(shard), Vec::new());
    let error = |line: usize, problem: String| {
        let problem = format!("line {}: {problem}", line + 1);
        Error::in_file(path, problem, "make the index again, with DALI's wds2idx, or go without it")
    };
    let mut lines = text.lines().enumerate();
    let first = lines.next().map_or("", |(_, line)| line);
    let count = first.strip_prefix("v1.2 ").and_then(|count| count.trim().parse::<usize>().ok());
    let count = count.ok_or_else(|| error(0, format!("expected `v1.2` and a number, found `{first:.40}`")))?;
    let mut building = super::index::Building::new(&shard_path);
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
            // A header precedes each member, so there is a gap between two members.
            let follows = start.checked_sub(header::BLOCK).is_some_and(|header| header >= end);
            let finish = start.checked_add(len).filter(|&finish| finish <= shard_len && follows);
            end = finish.ok_or_else(bad)?;
            let block = Span { file: shard, start: start - header::BLOCK, len: Some(header::BLOCK) };
            let block = files.read(block, &mut memory)?.first_chunk();
            if block.and_then(header::size) != Some(len) {
                return Err(error(number, format!("{name} is not at byte {start} of {}", shard_path.display())));
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

    const LEN: u64 = 10240;

    fn example() -> Index {
        Index {
            suffixes: vec!["jpg".to_owned(), "cls".to_owned()],
            keys: b"onetwo".to_vec(),
            samples: vec![Ends { key: 3, members: 2 }, Ends { key: 6, members: 3 }],
            members: vec![
                Member { suffix: 0, start: 512, len: 7 },
                Member { suffix: 1, start: 1536, len: 1 },
                Member { suffix: 0, start: 2560, len: 0 },
            ],
        }
    }

    fn encoded(index: &Index) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(index, &mut bytes);
        bytes
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let index = example();
        assert_eq!(decode(&encoded(&index), LEN), Some(index));
    }

    #[test]
    fn a_part_of_an_index_is_none() {
        let bytes = encoded(&example());
        for at in 0..bytes.len() {
            assert_eq!(decode(&bytes[..at], LEN), None);
        }
    }

    #[test]
    fn an_index_that_lies_is_none() {
        let index = example();
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
            assert_eq!(decode(&encoded(&index), LEN), None);
        }
    }
}
