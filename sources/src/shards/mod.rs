//! Shards that begin with a table of their samples, as MosaicML Streaming and LitData write them,
//! raw or compressed.
//!
//! A sample consists of the sizes (u32) of the columns that have no fixed size, followed by the
//! values of all columns.

mod column;
mod offsets;
mod packed;

use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use slotline::dataset::decoding;
use smallvec::SmallVec;

pub(crate) use self::column::{Array, Column, Encoding};
use self::offsets::Offsets;
pub(crate) use self::packed::{Compression, inside};
use crate::files::{Files, Span};
use crate::part_cache::PartCache;
use crate::record::TRIED;
use crate::{Error, Format, Input, Record, RecordFields, Records, Value};

pub(crate) const ADVICE: &str = "write the dataset again, or copy the file again";

/// The number of samples that are examined to choose the capacity for columns without a fixed size.
const LOOKED_AT: usize = 256;

/// A dataset of the samples of shards. `K` is the program that wrote them.
#[derive(Debug)]
pub struct Sharded<K> {
    files: Files,
    shards: Vec<Shard>,
    unpacked: PartCache<Vec<u8>, Vec<u8>>,
    len: usize,
    columns: Vec<Column>,
    fields: RecordFields,
    kind: PhantomData<fn() -> K>,
}

/// A shard as the index lists it.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) path: PathBuf,
    pub(crate) compression: Option<Compression>,
    pub(crate) samples: u64,
    /// The minimum length of the shard in bytes, after decompression.
    pub(crate) least: u64,
    /// The maximum length of the shard in bytes, after decompression.
    pub(crate) most: u64,
    pub(crate) cut: Cut,
}

/// The way in which the samples of a shard are found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// The shard begins with a table of the positions of its samples.
    Table,
    /// The samples have `len` bytes each and follow one another from byte `start` of the shard on.
    Blocks { start: u64, len: u64 },
}

/// An unpacked shard, and the range of a sample in it.
type InShard = (Arc<Vec<u8>>, Range<usize>);

#[derive(Debug)]
struct Shard {
    /// The index of the shard's first sample in the dataset.
    first: usize,
    listed: Listed,
    /// The table of samples, if the shard is not compressed.
    offsets: Option<Offsets>,
}

impl<K: std::fmt::Debug + 'static> Sharded<K> {
    /// Checks the shards in `files`, which the index lists in this order, and reads the tables of
    /// shards that are not compressed.
    pub(crate) fn new(
        files: Files,
        index: &Path,
        listed: impl IntoIterator<Item = Listed>,
        columns: Vec<Column>,
        memory_limit: u64,
    ) -> Result<Records<Self>, Error> {
        let wrong = |problem: String, advice| Err(Error::in_file(index, problem, advice));
        let (mut shards, mut len, mut memory) = (Vec::new(), 0_usize, Vec::new());
        for (file, listed) in listed.into_iter().enumerate() {
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
                    return Err(Error::in_file(&listed.path, problem, ADVICE));
                }
                (None, Cut::Table) => {
                    let table = Span { file, start: 0, len: Some((8 + 4 * samples).min(found)) };
                    let table = files.read(table, &mut memory)?;
                    Some(Offsets::parse(&listed.path, table, samples as usize, found)?)
                }
                (None, Cut::Blocks { .. }) if needed.is_some_and(|needed| needed > found) => {
                    let problem = format!("{found} bytes, and its blocks end at {}", needed.unwrap_or_default());
                    return Err(Error::in_file(&listed.path, problem, ADVICE));
                }
                (None, Cut::Blocks { .. }) => None,
            };
            shards.push(Shard { first: len, listed, offsets });
            let Some(total) = len.checked_add(samples as usize) else {
                return wrong("too many samples".into(), ADVICE);
            };
            len = total;
        }
        let (unpacked, fields) = (PartCache::new(shards.len(), memory_limit), RecordFields::default());
        let mut sharded = Self { files, shards, unpacked, len, columns, fields, kind: PhantomData };
        sharded.fields = sharded.infer_fields()?;
        Ok(Records::new(sharded))
    }

    /// Examines samples of the first shard to choose the fields.
    fn infer_fields(&self) -> Result<RecordFields, Error> {
        let mut found = vec![Vec::new(); self.columns.len()];
        if self.columns.iter().any(|column| column.chosen && column.size.is_none()) {
            let samples = self.map_first(LOOKED_AT, |index, sample| {
                let mut measures = Vec::new();
                self.split(index, sample, |number, bytes| {
                    measures.push((number, self.columns[number].encoding.measure(bytes)?));
                    Ok(())
                })?;
                Ok(measures)
            })?;
            samples.into_iter().flatten().for_each(|(number, measure)| found[number].push(measure));
        }
        let chosen = self.columns.iter().zip(&found).filter(|(column, _)| column.chosen);
        let fields: Vec<_> = chosen.flat_map(|(column, found)| column.fields(found)).collect();
        let same =
            |(i, name): (usize, &String)| fields[..i].iter().any(|(other, _)| other == name).then(|| name.clone());
        if let Some(name) = fields.iter().map(|(name, _)| name).enumerate().find_map(same) {
            return Err(Error::usage(format!("two fields have the name {name:?}"), "leave one out with `columns`"));
        }
        Ok(RecordFields::new(fields))
    }

    /// Calls `each` with the index and the bytes of every chosen column of a sample.
    fn split<'a>(
        &self,
        index: usize,
        sample: &'a [u8],
        mut each: impl FnMut(usize, &'a [u8]) -> Result<(), String>,
    ) -> Result<(), Error> {
        let wrong = |column: Option<&Column>, problem: &str| {
            let (shard, i) = self.find(index);
            let of = column.map(|column| format!(", column {:?}", column.name)).unwrap_or_default();
            Error::in_file(&self.shards[shard].listed.path, format!("sample {i}{of}: {problem}"), ADVICE)
        };
        let variable = self.columns.iter().filter(|column| column.size.is_none()).count();
        let sizes = sample.split_at_checked(4 * variable);
        let (sizes, mut rest) = sizes.ok_or_else(|| wrong(None, "it ends in the sizes of its columns"))?;
        let mut sizes = sizes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes) as usize);
        for (i, column) in self.columns.iter().enumerate() {
            let size = column.size.or_else(|| sizes.next());
            let split = size.and_then(|size| rest.split_at_checked(size));
            let bytes;
            (bytes, rest) = split.ok_or_else(|| wrong(Some(column), "the sample ends before it"))?;
            if column.chosen {
                each(i, bytes).map_err(|problem| wrong(Some(column), &problem))?;
            }
        }
        match rest.len() {
            0 => Ok(()),
            more => Err(wrong(None, &format!("{more} bytes follow its columns"))),
        }
    }

    fn find(&self, index: usize) -> (usize, usize) {
        let shard = self.shards.partition_point(|shard| shard.first <= index) - 1;
        (shard, index - self.shards[shard].first)
    }

    /// Returns the range of bytes that must be read for a sample. For a compressed shard this is
    /// the whole file.
    fn span(&self, index: usize) -> Span {
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

    /// Returns what `each` returns for the first samples of one shard, up to `most` of them. Damaged
    /// samples are left out, and are errors when they are read. If most of them are, the next shard
    /// is tried.
    fn map_first<T>(&self, most: usize, each: impl Fn(usize, &[u8]) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let (mut memory, mut first) = (Vec::new(), None);
        for shard in self.shards.iter().filter(|shard| shard.listed.samples > 0).take(TRIED) {
            let (samples, mut damaged) = (most.min(shard.listed.samples as usize), 0);
            let mut found = Vec::with_capacity(samples);
            for index in shard.first..shard.first + samples {
                let visited = self.unpack(index).and_then(|unpacked| match unpacked {
                    Some((shard, range)) => each(index, &shard[range]),
                    None => each(index, self.files.read(self.span(index), &mut memory)?),
                });
                match visited {
                    Ok(value) => found.push(value),
                    Err(error) if error.is_damage() => {
                        first.get_or_insert(error);
                        damaged += 1;
                        if damaged > samples / 2 {
                            break;
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            if damaged <= samples / 2 {
                return Ok(found);
            }
        }
        first.map_or(Ok(Vec::new()), Err)
    }

    /// Returns the unpacked shard that contains a sample, and the sample's range in it. Returns
    /// `None` if the shard is not compressed.
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
                return Err(Error::in_file(path, problem, ADVICE));
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

impl<K: std::fmt::Debug + 'static> Format for Sharded<K> {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn file_of(&self, index: usize) -> Option<usize> {
        Some(self.find(index).0)
    }

    fn shard_lens(&self) -> Vec<usize> {
        // A number that does not fit in a `usize` would not have fitted in `len`.
        self.shards.iter().map(|shard| shard.listed.samples as usize).collect()
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        let span = self.span(index);
        if !self.unpacked.has(span.file) {
            each(span);
        }
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let sample = match self.unpack(index)? {
            Some((shard, range)) => &input.hold(shard)[range],
            None => input.joined([self.span(index)])?,
        };
        let mut values = SmallVec::<[Value<'a>; 4]>::new();
        self.split(index, sample, |column, bytes| {
            let dtype = self.fields.as_slice()[values.len()].kind.dtype();
            self.columns[column].encoding.decode(bytes, dtype, &mut |value| values.push(value))
        })?;
        Ok(Record::new(&self.fields, values))
    }
}
