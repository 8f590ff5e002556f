//! Shards with a table of their samples, as MosaicML Streaming and LitData write them, raw or compressed.

mod offsets;
mod packed;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use slotline::dataset::decoding;

use self::offsets::Offsets;
pub(crate) use self::packed::{Compression, inside};
use crate::files::{Files, Span};
use crate::part_cache::PartCache;
use crate::{Error, Input};

pub(crate) const ADVICE: &str = "write the dataset again, or copy the file again";

/// The shards of a dataset.
#[derive(Debug)]
pub(crate) struct Store {
    files: Files,
    shards: Vec<Shard>,
    unpacked: PartCache<Vec<u8>, Vec<u8>>,
    len: usize,
}

/// A shard, as an index lists it.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) path: PathBuf,
    pub(crate) compression: Option<Compression>,
    pub(crate) samples: u64,
    /// The minimum length of the shard in bytes, after decompression.
    pub(crate) least: u64,
    /// The maximum length.
    pub(crate) most: u64,
    pub(crate) cut: Cut,
}

/// Where the samples of a shard are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// In a table at its start.
    Table,
    /// One after another, all of the same length in bytes.
    Blocks { start: u64, len: u64 },
}

/// An unpacked shard, and where a sample is in it.
type InShard = (Arc<Vec<u8>>, Range<usize>);

#[derive(Debug)]
struct Shard {
    /// The index of the shard's first sample in the dataset.
    first: usize,
    listed: Listed,
    /// The table of a shard that is not compressed.
    offsets: Option<Offsets>,
}

impl Store {
    /// Checks the shards in `files`, which are listed in this order, and reads the tables of those that are not compressed.
    pub(crate) fn new(
        files: Files,
        index: &Path,
        listed: impl Iterator<Item = Listed>,
        memory_limit: u64,
    ) -> Result<Self, Error> {
        let wrong = |problem: String, advice| Err(Error::format(index.display(), None, problem, advice));
        let (mut shards, mut len, mut memory) = (Vec::new(), 0_usize, Vec::new());
        for (file, listed) in listed.enumerate() {
            let found = files.file_len(file).unwrap_or(0);
            let (samples, least) = (listed.samples, listed.least);
            let needed = match listed.cut {
                Cut::Table => samples.checked_mul(4).and_then(|table| table.checked_add(8)),
                Cut::Blocks { start, len } => samples.checked_mul(len).and_then(|blocks| blocks.checked_add(start)),
            };
            if needed.is_none_or(|needed| needed > listed.most) {
                return wrong(format!("shard {file} has {samples} samples in {} bytes", listed.most), ADVICE);
            }
            let offsets = match (listed.compression, listed.cut) {
                (Some(_), _) if least > memory_limit => {
                    let problem = format!("shard {file} has {least} bytes, unpacked, and the limit is {memory_limit}");
                    return wrong(problem, "raise `memory_limit`, or unpack it on disk");
                }
                (Some(_), _) => None,
                (None, _) if found < least || found > listed.most => {
                    let problem = format!("{found} bytes, and the index says {least}");
                    return Err(Error::format(listed.path.display(), None, problem, ADVICE));
                }
                (None, Cut::Table) => {
                    let table = Span { file, start: 0, len: Some((8 + 4 * samples).min(found)) };
                    let table = files.read(table, &mut memory)?;
                    Some(Offsets::parse(&listed.path, table, samples as usize, found)?)
                }
                (None, Cut::Blocks { .. }) if needed.is_some_and(|needed| needed > found) => {
                    let problem = format!("{found} bytes, and its blocks end at {}", needed.unwrap_or_default());
                    return Err(Error::format(listed.path.display(), None, problem, ADVICE));
                }
                (None, Cut::Blocks { .. }) => None,
            };
            shards.push(Shard { first: len, listed, offsets });
            let Some(total) = len.checked_add(samples as usize) else {
                return wrong("too many samples".into(), ADVICE);
            };
            len = total;
        }
        let unpacked = PartCache::new(shards.len(), memory_limit);
        Ok(Self { files, shards, unpacked, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the number of samples in each shard.
    pub(crate) fn shard_lens(&self) -> Vec<usize> {
        // A larger number would not have fitted in `len`.
        self.shards.iter().map(|shard| shard.listed.samples as usize).collect()
    }

    /// Returns the path of the shard that has a sample, and the index of the sample in that shard.
    pub(crate) fn place(&self, index: usize) -> (&Path, usize) {
        let (shard, i) = self.find(index);
        (&self.shards[shard].listed.path, i)
    }

    /// Returns the number of the file of a sample.
    pub(crate) fn file_of(&self, index: usize) -> usize {
        self.find(index).0
    }

    fn find(&self, index: usize) -> (usize, usize) {
        let shard = self.shards.partition_point(|shard| shard.first <= index) - 1;
        (shard, index - self.shards[shard].first)
    }

    /// Returns the bytes that must be read for a sample: all of a compressed shard.
    pub(crate) fn span(&self, index: usize) -> Span {
        let (file, i) = self.find(index);
        let shard = &self.shards[file];
        match (&shard.offsets, shard.listed.cut) {
            _ if shard.listed.compression.is_some() => Span { file, start: 0, len: None },
            (_, Cut::Blocks { start, len }) => Span { file, start: start + i as u64 * len, len: Some(len) },
            (Some(offsets), Cut::Table) => {
                let (start, end) = offsets.range(i);
                Span { file, start, len: Some(end - start) }
            }
            (None, Cut::Table) => unreachable!("the table was read"),
        }
    }

    /// Calls `each` with the bytes that must be read for a sample, and are not in memory.
    pub(crate) fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        let span = self.span(index);
        if !self.unpacked.has(span.file) {
            each(span);
        }
    }

    /// Reads a sample.
    pub(crate) fn sample<'a>(&'a self, index: usize, input: Input<'a>) -> Result<&'a [u8], Error> {
        match self.unpack(index)? {
            Some((shard, range)) => Ok(&input.hold(shard)[range]),
            None => input.joined([self.span(index)]),
        }
    }

    /// Calls `each` with the first samples, up to `most` of them, in one shard.
    pub(crate) fn visit_first(
        &self,
        most: usize,
        mut each: impl FnMut(usize, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(shard) = self.shards.iter().find(|shard| shard.listed.samples > 0) else { return Ok(()) };
        let mut memory = Vec::new();
        for index in shard.first..shard.first + most.min(shard.listed.samples as usize) {
            match self.unpack(index)? {
                Some((shard, range)) => each(index, &shard[range])?,
                None => each(index, self.files.read(self.span(index), &mut memory)?)?,
            }
        }
        Ok(())
    }

    /// Returns the unpacked shard of a sample, and where it is there; `None` if the shard is not compressed.
    fn unpack(&self, index: usize) -> Result<Option<InShard>, Error> {
        let (file, i) = self.find(index);
        let Listed { path, samples, least, most, cut, compression: Some(compression) } = &self.shards[file].listed
        else {
            return Ok(None);
        };
        let unpack = |_, _: &AtomicU64| {
            let mut memory = Vec::new();
            let packed = self.files.read(Span { file, start: 0, len: None }, &mut memory)?;
            let bytes = compression.unpack(path, packed, (*most).min(self.unpacked.limit()))?;
            if (bytes.len() as u64) < *least {
                let problem = format!("unpacks to {} bytes, and the index says {least}", bytes.len());
                return Err(Error::format(path.display(), None, problem, ADVICE));
            }
            Ok(bytes)
        };
        let only = |bytes: Vec<Vec<u8>>| {
            let bytes = bytes.into_iter().next().unwrap_or_default();
            let len = bytes.len() as u64;
            (bytes, len)
        };
        let shard = decoding(|| self.unpacked.get(file, 1, unpack, only))?;
        let range = match *cut {
            Cut::Table => offsets::range(path, &shard, *samples as usize, i)?,
            Cut::Blocks { start, len } => {
                let start = start + i as u64 * len;
                if start + len > shard.len() as u64 {
                    let problem = format!("sample {i} starts at byte {start}, and the shard has {}", shard.len());
                    return Err(Error::format(path.display(), start, problem, ADVICE));
                }
                start as usize..(start + len) as usize
            }
        };
        Ok(Some((shard, range)))
    }
}
