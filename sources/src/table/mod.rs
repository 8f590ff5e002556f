//! Tables: the rows of Parquet files and of Arrow files and streams, such as those of Hugging Face
//! Datasets.
//!
//! | column | field |
//! |---|---|
//! | integers of 8 to 64 bits, floats of 16 to 64 bits, truth values | a number of the same type |
//! | dates, times, timestamps, durations | the stored integer, `i32` or `i64`; for Parquet's timestamps of 96 bits, nanoseconds since 1970 |
//! | strings and binaries of any length, also as views | text, bytes |
//! | binaries of a fixed length | `u8` tensors |
//! | lists of numbers, also as views; lists of a fixed length | lists; tensors |
//! | values in a dictionary (categories) of any of these | the values |
//! | decimals of up to 128 bits, with [`decimals_as_f64`](TableOptions::decimals_as_f64) | `f64` |
//! | structs, such as Hugging Face's `Image` and `Audio` | a field for each member: `image.bytes`, `image.path` |
//!
//! Other lists, maps, unions and columns of only nulls are not supported. To open a file that has
//! such columns, choose others with [`columns`](TableOptions::columns). Missing values are errors,
//! unless [`missing_as_zero`](TableOptions::missing_as_zero) or the column's
//! [default](TableOptions::default_number) is set. A list of a fixed length in Parquet is a tensor
//! if the writer stored Arrow's schema, as pyarrow and polars do, and otherwise a list.
//!
//! Many rows are decoded together, column by column. For Arrow, these are the rows of a batch. For
//! Parquet, they are the rows of a row group or, if the file has a page index, a part of it that
//! begins at a page and takes a megabyte or more. Decoded rows are kept in memory up to
//! [`memory_limit`](TableOptions::memory_limit). If a table is larger than this, an order that
//! jumps through all of it decodes the same rows again and again. To avoid this, write Parquet with
//! a page index (as Hugging Face Datasets does since version 4) and Arrow in small batches,
//! [map](TableOptions::mapped) Arrow files that are not compressed, or shuffle within a few row
//! groups at a time ([`shard_lens`](crate::Records::shard_lens)).
//!
//! A damaged file that makes the decoder panic is an error, too. However, the panic hook is called,
//! and a program that is built with `panic = "abort"` ends.

mod column;
#[cfg(feature = "parquet")]
mod frames;
mod gather;
#[cfg(feature = "parquet")]
mod header;
#[cfg(feature = "arrow")]
mod ipc;
#[cfg(feature = "parquet")]
mod parquet;
mod schema;
#[cfg(feature = "parquet")]
mod thrift;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use slotline::dataset::decoding;
use slotline::sample::RowsMut;

use self::column::{Chunk, Column, Missing};
use self::gather::Gather;
use self::schema::{Columns, Leaf};
use crate::columns::choose;
use crate::files::{Files, Span, below, is_url, names_in, read_whole};
use crate::format::place;
use crate::open::{ARROW, PARQUET, Settings};
use crate::parallel::par_map;
use crate::part_cache::PartCache;
use crate::paths::expand;
use crate::record::Rows;
use crate::{CapacityHint, Error, Format, Input, Options, Record, RecordFields, Records};

const DAMAGED: &str = "the file is truncated or damaged: copy it or write it again";

/// The smallest recorded size of a part, in bytes, that is used to compute its growth: the ratio of
/// its decoded size to the recorded one. The growth of smaller parts says little about that of
/// larger ones.
const SMALL: u64 = 64 << 10;

/// The number of rows that are examined to choose the capacity of columns without a fixed length.
const LOOKED_AT: usize = 256;

/// The rows of Parquet and Arrow files.
///
/// ```no_run
/// use slotline::Loader;
/// use slotline_sources::table::TableOptions;
///
/// let options = TableOptions::new().columns(["image.bytes", "label"]);
/// let photos = options.open(["data/train-*.parquet"])?;
/// let mut loader = Loader::builder(photos).batch_size(32).shuffle(true).num_workers(2).build()?;
/// for batch in loader.epoch()? {
///     let batch = batch?;
///     println!("{:?}", batch.tensors().offsets(0));
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
pub struct Table {
    files: Arc<Files>,
    parts: Vec<Part>,
    /// The index of the first row of each part (row group or record batch), followed by the number
    /// of all rows.
    starts: Vec<usize>,
    fields: RecordFields,
    /// For each file, the position of each column in its decoded parts.
    leaves: Vec<Vec<Leaf>>,
    kept: PartCache<Chunk, Vec<Column>>,
    /// The total size of all parts, as recorded in the files.
    size: u64,
    /// The largest ratio of a part's decoded size to its recorded size, in 1/256; 0 if no part was
    /// decoded yet.
    growth: AtomicU64,
    /// The value that replaces a missing value, for each column where that is not an error.
    missing: Vec<Option<Box<[u8]>>>,
    is_parquet: bool,
    /// The number of this table, which is unique in this process.
    number: u64,
}

/// A part of a table: rows that are decoded together, such as a row group or a record batch.
struct Part {
    /// The index of the file that contains the part.
    file: usize,
    /// The index of the row group or record batch in the file.
    group: usize,
    rows: usize,
    /// The approximate size of the decoded part in bytes, according to the file.
    size: u64,
    /// The number of steps in which the chosen columns are decoded: one for each column, or one for
    /// all columns together.
    steps: usize,
    decode: Box<dyn Decode>,
}

/// The location of rows in a file, and how they are decoded.
trait Decode: Send + Sync {
    /// Calls `each` with the ranges that must be read.
    fn spans(&self, files: &Files, each: &mut dyn FnMut(Span));

    /// Returns the bytes of the mapped file, in which decoded columns may be, or `None` if the file
    /// is not mapped.
    fn mapped<'f>(&self, files: &'f Files) -> Option<&'f [u8]>;

    /// Reads and decodes the columns of a step. `spent` counts the bytes of memory that all steps
    /// take.
    fn read(&self, files: &Arc<Files>, step: usize, limit: u64, spent: &AtomicU64) -> Result<RecordBatch, Error>;
}

/// Options for reading tables. In [`columns`](Options::columns), the name of a struct stands for
/// all its members.
///
/// [`memory_limit`](Options::memory_limit) limits the memory of decoded rows that each process
/// keeps. In addition, each thread needs memory for the rows that it is copying into a batch (up to
/// a quarter of the limit, or one part of the file) and for those that it is decoding. Rows that
/// are decoded together may take twice the limit, or 64 MiB if that is more. The dictionaries of
/// Arrow are kept separately, and may take as much as the limit. For a batch of rows from many
/// parts of a table that is larger than the limit, each of these parts is decoded once.
pub type TableOptions = Options<Table>;

impl TableOptions {
    /// Opens files, folders that Hugging Face's `save_to_disk` wrote, and [patterns](crate::paths);
    /// their rows follow one another. All files must be Parquet, or all must be Arrow. Columns are
    /// identified by their names, so their order may differ between files.
    ///
    /// # Errors
    ///
    /// If a file can't be read, is invalid, or lacks a column of the first file, or if a column is
    /// not supported.
    pub fn open(&self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Table>, Error> {
        let set = &self.set;
        let files = Arc::new(set.files(data_files(paths)?)?);
        let numbers: Vec<usize> = (0..files.len()).collect();
        let spent = AtomicU64::new(0);
        let mut opened = par_map(&files, &numbers, |&file| Opened::open(&files, file, set, &spent))?;
        let first = &opened[0].columns;
        let leaves = choose(&files.path(0), set.columns.as_deref(), &first.leaves, |leaf| &leaf.name, &first.others)?;
        let names: HashSet<String> = first.names().map(str::to_owned).collect();
        let is_parquet = opened[0].is_parquet;
        set.check(if is_parquet { PARQUET } else { ARROW })?;
        let missing = set.missing(&files.path(0), &leaves)?;
        let (mut parts, mut all_leaves) = (Vec::new(), Vec::new());
        for (file, of) in opened.drain(..).enumerate() {
            if of.is_parquet != is_parquet {
                let problem = format!("not of the same format as {}", files.path(0).display());
                return Err(Error::in_file(files.path(file), problem, "open them apart"));
            }
            let known: HashMap<&str, &Leaf> = of.columns.leaves.iter().map(|leaf| (&*leaf.name, leaf)).collect();
            let find = |leaf: &Leaf| {
                let found = known.get(&*leaf.name).filter(|found| found.kind == leaf.kind);
                found.map(|&found| found.clone()).ok_or_else(|| {
                    let problem = format!("the column {} is not here as in {}", leaf.name, files.path(0).display());
                    let advice = "open files of the same columns, or choose others with `columns`";
                    Error::in_file(files.path(file), problem, advice)
                })
            };
            let found = leaves.iter().map(find).collect::<Result<Vec<_>, _>>()?;
            if let Some(name) = of.columns.names().find(|name| set.columns.is_none() && !names.contains(*name)) {
                let problem = format!("the column {name} is not in {}", files.path(0).display());
                let advice = "open files of the same columns, or choose those that all have with `columns`";
                return Err(Error::in_file(files.path(file), problem, advice));
            }
            all_leaves.push(decoded(&found, is_parquet));
            parts.extend((of.parts)(&files, &found)?);
        }
        let mut starts = vec![0_usize];
        for part in &parts {
            let rows = starts[starts.len() - 1].checked_add(part.rows);
            let wrong = || Error::in_file(files.path(part.file), "too many rows", "split the files");
            starts.push(rows.ok_or_else(wrong)?);
        }
        let size = parts.iter().map(|part| part.size).fold(0, u64::saturating_add);
        static TABLES: AtomicU64 = AtomicU64::new(0);
        let mut table = Table {
            kept: PartCache::new(parts.len(), set.memory_limit()),
            files,
            parts,
            starts,
            fields: RecordFields::default(),
            leaves: all_leaves,
            size,
            growth: AtomicU64::new(0),
            missing,
            is_parquet,
            number: TABLES.fetch_add(1, Ordering::Relaxed),
        };
        table.fields = table.infer_fields(&leaves);
        Ok(Records::new(table))
    }
}

impl Settings {
    /// Returns the bytes that replace a missing value of each column, or `None` for columns where
    /// that is an error.
    fn missing(&self, path: &Path, leaves: &[Leaf]) -> Result<Vec<Option<Box<[u8]>>>, Error> {
        let wrong = |problem, advice| Error::in_file(path, problem, advice);
        if let Some(name) = self.default_numbers.keys().find(|name| !leaves.iter().any(|leaf| leaf.name == **name)) {
            return Err(wrong(
                format!("no column {name} among those that are read, to set a default of"),
                "choose it with `columns`, or leave its `default_number` out",
            ));
        }
        let missing = |leaf: &Leaf| {
            let kind = &leaf.kind;
            let Some(&number) = self.default_numbers.get(&leaf.name) else {
                let zero = || kind.zero().map_err(|source| Error::io(path, "read", source));
                return Ok(self.missing_as_zero.then(zero).transpose()?.map(|zero| zero.bytes().into()));
            };
            let found = schema::number_of(kind, number);
            let problem = || format!("column {}: the default {number} is no {kind}", leaf.name);
            found.map(Some).ok_or_else(|| wrong(problem(), "set one that the column can hold, for a column of numbers"))
        };
        leaves.iter().map(missing).collect()
    }
}

/// A file that was opened.
struct Opened {
    is_parquet: bool,
    columns: Columns,
    /// Creates the parts of the file, with the chosen columns.
    parts: MakeParts,
}

type MakeParts = Box<dyn FnOnce(&Files, &[Leaf]) -> Result<Vec<Part>, Error> + Send>;

impl Opened {
    fn open(files: &Arc<Files>, file: usize, options: &Settings, spent: &AtomicU64) -> Result<Self, Error> {
        let mut start = Vec::new();
        let len = files.file_len(file).unwrap_or(0).min(4);
        files.read_into(Span { file, start: 0, len: Some(len) }, &mut start)?;
        if start.is_empty() {
            let advice = "write it again, or leave it out";
            return Err(Error::in_file(files.path(file), "an empty file", advice));
        }
        if start == b"PARE" {
            let problem = "a Parquet file with an encrypted footer, which is not read";
            return Err(Error::in_file(files.path(file), problem, "write it again without encryption"));
        }
        #[cfg(feature = "parquet")]
        if start == b"PAR1" {
            let mut opened = parquet::File::open(files, file, options.decimals_as_f64)?;
            let columns = std::mem::take(&mut opened.columns);
            let parts = Box::new(|files: &Files, leaves: &[Leaf]| opened.parts(files, leaves));
            return Ok(Self { is_parquet: true, columns, parts });
        }
        #[cfg(feature = "arrow")]
        if start != b"PAR1" {
            let mut opened = ipc::File::open(files, file, options, spent)?;
            let columns = std::mem::take(&mut opened.columns);
            let parts = Box::new(|_: &Files, leaves: &[Leaf]| Ok(opened.parts(leaves)));
            return Ok(Self { is_parquet: false, columns, parts });
        }
        let advice = "build slotline-sources with the features `arrow` and `parquet`";
        Err(Error::in_file(files.path(file), "a format that this program was built without", advice))
    }
}

/// Returns the columns with their positions in decoded data. In Parquet, each column is decoded by
/// itself; in Arrow, the chosen columns are decoded together.
fn decoded(leaves: &[Leaf], is_parquet: bool) -> Vec<Leaf> {
    let mut chosen: Vec<usize> = leaves.iter().map(|leaf| leaf.path[0]).collect();
    chosen.sort_unstable();
    chosen.dedup();
    let place = |column: usize| chosen.partition_point(|&other| other < column);
    let moved = |leaf: &Leaf| {
        let mut path = leaf.path.clone();
        if is_parquet {
            path.fill(0)
        } else {
            path[0] = place(path[0])
        }
        Leaf { path, ..leaf.clone() }
    };
    leaves.iter().map(moved).collect()
}

/// The smallest limit for the memory of a part of a table, in bytes.
const MIN: u64 = 64 << 20;

/// The reason why something can't be read, without the file's name.
#[derive(Debug)]
struct Problem {
    what: String,
    advice: &'static str,
}

impl Problem {
    fn from(what: impl Into<String>) -> Self {
        Self { what: what.into(), advice: DAMAGED }
    }

    fn too_large(bytes: u64) -> Self {
        let what = format!("pages that take {bytes} bytes or more, decoded");
        Self { what, advice: "raise `memory_limit`, or write smaller pages or row groups" }
    }

    fn of_column(self, name: &str) -> Self {
        Self { what: format!("column {name}: {}", self.what), ..self }
    }
}

impl From<&str> for Problem {
    fn from(what: &str) -> Self {
        Self::from(what.to_owned())
    }
}

/// Returns the files that the given paths stand for.
fn data_files(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in expand(paths)? {
        if path.is_dir() || (is_url(&path) && path.extension().is_none()) {
            files.extend(saved_files(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// Returns the files of a folder that Hugging Face's `save_to_disk` wrote.
fn saved_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let names = names_in(folder)?;
    let path = folder.join("state.json");
    let has = |name: &str| names.iter().any(|found| found == name);
    if !has("state.json") {
        if has("dataset_dict.json") {
            let splits = names.iter().filter(|name| !name.ends_with(".json")).map(|name| name.trim_end_matches('/'));
            let problem = format!("several splits: {}", splits.collect::<Vec<_>>().join(", "));
            return Err(Error::in_file(folder, problem, "open the folder of one"));
        }
        let advice = "pass a folder that `save_to_disk` wrote, or files";
        return Err(Error::in_file(folder, "no state.json in it", advice));
    }
    let wrong = |problem: &str| Error::in_file(&path, problem, "save the dataset again with `save_to_disk`");
    let state: serde_json::Value =
        serde_json::from_slice(&read_whole(&path)?).map_err(|error| wrong(&format!("not a state: {error}")))?;
    if state.get("_indices_files").is_some_and(|files| files.as_array().is_none_or(|files| !files.is_empty())) {
        return Err(wrong("the dataset has an indices mapping, which is not read"));
    }
    let files = state.get("_data_files").and_then(|files| files.as_array()).ok_or_else(|| wrong("no _data_files"))?;
    let name = |file: &serde_json::Value| {
        let name = file.get("filename").and_then(|name| name.as_str());
        // The state file must give a file name, not a path.
        let name = name.filter(|name| !name.contains('/') && !matches!(*name, "" | "." | ".."));
        Ok(below(folder, name.ok_or_else(|| wrong("a data file without a name in the folder"))?))
    };
    files.iter().map(name).collect()
}

impl Table {
    /// Opens files, folders that Hugging Face's `save_to_disk` wrote, and patterns, with the
    /// [default options](TableOptions).
    ///
    /// # Errors
    ///
    /// The errors of [`TableOptions::open`].
    pub fn open(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Self>, Error> {
        TableOptions::new().open(paths)
    }

    /// Whether the files are Parquet; otherwise they are Arrow.
    pub fn is_parquet(&self) -> bool {
        self.is_parquet
    }

    /// Chooses the fields, with the capacity that the first rows need.
    fn infer_fields(&self, leaves: &[Leaf]) -> RecordFields {
        let is_packed = |leaf: &Leaf| leaf.kind.room().is_some();
        // Rows that can't be read are reported as errors when they are requested.
        let first = (0..self.parts.len()).find(|&part| self.parts[part].rows > 0);
        let first = first.filter(|_| leaves.iter().any(is_packed));
        let first = first.and_then(|part| Some((self.chunk(part).ok()?, self.parts[part].rows.min(LOOKED_AT))));
        let fields = leaves.iter().enumerate().map(|(column, leaf)| {
            let kind = leaf.kind.with_room(|_| {
                let rows = first.iter().flat_map(|(chunk, rows)| (0..*rows).map(|row| chunk.value(column, row)));
                CapacityHint::estimate(rows.map(|bytes| (bytes.len() / leaf.kind.item_bytes()) as u64))
            });
            (leaf.name.clone(), kind)
        });
        RecordFields::new(fields)
    }

    fn chunk(&self, number: usize) -> Result<Arc<Chunk>, Error> {
        let part = &self.parts[number];
        let (file, steps) = (part.file, part.steps);
        let decode = |step: usize, spent: &AtomicU64| {
            let batch = part.decode.read(&self.files, step, self.kept.limit(), spent)?;
            let columns = if steps == 1 { 0..self.missing.len() } else { step..step + 1 };
            let columns = columns.map(|column| {
                let leaf = &self.leaves[file][column];
                let of = Column::of(&batch, leaf, self.missing[column].as_deref(), self.kept.limit());
                of.map_err(|problem| format!("column {}: {problem}", leaf.name))
            });
            let columns = columns.collect::<Result<Vec<_>, _>>();
            columns.map_err(|problem| Error::in_file(self.files.path(file), problem, DAMAGED))
        };
        let chunk_of = |columns: Vec<Vec<Column>>| {
            let mapped = part.decode.mapped(&self.files).unwrap_or_default();
            let chunk = Chunk::new((self.number, number), columns.into_iter().flatten().collect(), mapped);
            let bytes = chunk.bytes;
            let growth = (bytes.saturating_mul(256) / part.size.max(SMALL)).max(256);
            self.growth.fetch_max(growth, Ordering::Relaxed);
            (chunk, bytes)
        };
        decoding(|| self.kept.get(number, steps, decode, chunk_of))
    }

    /// Whether parts are too large to be in memory together: not all of them are in memory already,
    /// and they take more than a quarter of the limit.
    fn are_too_large(&self, parts: &[usize]) -> Result<bool, Error> {
        let size = |part: &&usize| self.parts[**part].size;
        if self.growth.load(Ordering::Relaxed) == 0
            && let Some(&largest) = parts.iter().max_by_key(size)
        {
            self.chunk(largest)?;
        }
        let growth = self.growth.load(Ordering::Relaxed);
        let decoded = |size: u64| size.saturating_mul(growth) / 256;
        let needed = parts.iter().map(|part| size(&part)).fold(0, u64::saturating_add);
        let limit = self.kept.limit();
        Ok(parts.len() > 1 && decoded(self.size) > limit && decoded(needed) > limit / 4)
    }

    #[cold]
    fn error(&self, index: usize, missing: Missing) -> Error {
        let (column, problem, advice) = match missing {
            Missing::Value(column) => (
                column,
                "has no value (null)",
                "fill it in, leave the column out with `columns`, or set `missing_as_zero`, or `default_number` for a number",
            ),
            Missing::Element(column) => {
                (column, "has an element without a value (null)", "fill it in, or leave the column out with `columns`")
            }
        };
        let problem = format!("row {index}: column {} {problem}", self.fields.as_slice()[column].name);
        let file = self.parts[place(&self.starts, index).0].file;
        Error::in_file(self.files.path(file), problem, advice)
    }
}

impl Format for Table {
    fn len(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn file_of(&self, index: usize) -> Option<usize> {
        Some(self.parts[place(&self.starts, index).0].file)
    }

    fn shard_lens(&self) -> Vec<usize> {
        let (mut lens, mut last) = (Vec::new(), None);
        for part in &self.parts {
            let of = Some((part.file, part.group));
            match lens.last_mut() {
                Some(len) if of == last => *len += part.rows,
                _ => lens.push(part.rows),
            }
            last = of;
        }
        lens
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        let (part, _) = place(&self.starts, index);
        if !self.kept.has(part) {
            self.parts[part].decode.spans(&self.files, each);
        }
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let (part, row) = place(&self.starts, index);
        let name = (self.number, part);
        let chunk = input.hold_if(|chunk: &Chunk| chunk.name == name, || self.chunk(part))?;
        match chunk.missing(row) {
            Some(missing) => Err(self.error(index, missing)),
            None => Ok(Record::of_row(&self.fields, chunk, row)),
        }
    }

    fn reads_many(&self) -> bool {
        true
    }

    fn write_many(&self, indices: &[usize], rows: &mut RowsMut<'_>) {
        let gather = Gather::new(&self.starts, indices);
        if let Ok(apart) = self.are_too_large(gather.parts()) {
            // Rows that are not written here are read one by one, which reports their errors.
            drop(gather.write(rows, apart, |part| self.chunk(part)));
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("files", &self.files)
            .field("parts", &self.parts.len())
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}
