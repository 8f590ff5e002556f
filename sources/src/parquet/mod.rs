//! Parquet files, by row.
//!
//! | column | field |
//! |---|---|
//! | integers of 8 to 64 bits, floats of 16 to 64 bits, truth values | the same |
//! | dates, times, timestamps | their integers: `i32` or `i64`; of 96 bits: nanoseconds since 1970, `i64` |
//! | strings, JSON, enumerations; other binaries | text; bytes |
//! | binaries of a fixed length | `u8` tensors |
//! | decimals of up to 128 bits, with [`decimals_as_f64`](ParquetOptions::decimals_as_f64) | `f64` |
//! | lists of numbers | lists |
//! | structs, such as Hugging Face's `Image` and `Audio` | a field for each member: `image.bytes`, `image.path` |
//!
//! Parquet has no lists of a fixed length: they are lists here. Other lists, maps and columns of nulls only are not read:
//! a dataset opens if others are chosen by [`columns`](ParquetOptions::columns). Missing values are errors, unless
//! [`missing_as_zero`](ParquetOptions::missing_as_zero) is set.
//!
//! If the file has a page index, a row is read from one page of each column; without, from all pages that the column has
//! in the row group. Pages are decoded as a whole, and kept in memory up to
//! [`memory_limit`](ParquetOptions::memory_limit). So an order that jumps over a file that is larger than that decodes
//! pages again and again: write files with a page index and small pages for it (Hugging Face Datasets does since version
//! 4), or shuffle within some row groups at a time. Compression by Snappy, zstd, gzip and LZ4 is read.

mod decode;
mod header;
mod schema;
mod thrift;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use slotline::dtype::DType;
use smallvec::SmallVec;

use self::decode::{Chunk, Found, Page, Parts};
use self::schema::{Columns, Holds, Leaf};
use crate::columns::choose;
use crate::files::{Files, Span};
use crate::format::place;
use crate::kept::Kept;
use crate::parallel::each;
use crate::paths::expand;
use crate::{Error, FieldKind, Format, Input, Record, RecordFields, Records, Room, Value};

const DAMAGED: &str = "the file is damaged: copy it or write it again";

/// The maximum depth of nested columns.
const DEEPEST: usize = 64;

/// How many rows are looked at to choose the room for those of any length.
const LOOKED_AT: usize = 256;

/// The rows of Parquet files.
///
/// ```no_run
/// use slotline::Loader;
/// use slotline_sources::parquet::ParquetOptions;
///
/// let options = ParquetOptions::new().columns(["image.bytes", "label"]);
/// let photos = options.open(["data/train-*.parquet"])?;
/// let mut loader = Loader::builder(photos).batch_size(32).shuffle(true).num_workers(2).build()?;
/// for batch in loader.epoch()? {
///     let batch = batch?;
///     println!("{:?}", batch.tensors().offsets(0));
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
pub struct Parquet {
    files: Files,
    groups: Vec<Group>,
    /// The number of the first row of each row group, and the number of all rows.
    starts: Vec<usize>,
    leaves: Vec<Leaf>,
    fields: RecordFields,
    kept: Kept<Page>,
    missing_as_zero: bool,
}

/// A row group.
struct Group {
    file: usize,
    metadata: Arc<ParquetMetaData>,
    /// Its number in the file.
    number: usize,
    rows: usize,
    /// For each column that is read, the number of its first page among all, and the first row of each page.
    pages: Vec<(usize, Vec<usize>)>,
}

/// How Parquet files are read.
#[derive(Clone, Debug)]
pub struct ParquetOptions {
    columns: Option<Vec<String>>,
    missing_as_zero: bool,
    decimals_as_f64: bool,
    memory_limit: u64,
}

impl Default for ParquetOptions {
    fn default() -> Self {
        Self { columns: None, missing_as_zero: false, decimals_as_f64: false, memory_limit: 1 << 30 }
    }
}

impl ParquetOptions {
    /// Makes the default options: all columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the columns to read, in this order. A struct's name stands for all its members.
    pub fn columns(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.columns = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Whether missing values (nulls) are zeros, and empty texts, bytes and lists. By default they are errors.
    pub fn missing_as_zero(mut self, zero: bool) -> Self {
        self.missing_as_zero = zero;
        self
    }

    /// Whether decimals are read, each as the `f64` closest to it. By default they are errors, since digits are lost.
    pub fn decimals_as_f64(mut self, as_f64: bool) -> Self {
        self.decimals_as_f64 = as_f64;
        self
    }

    /// Sets how many bytes of decoded pages are kept in the memory of each process, 1 GiB by default. A page may not be larger. Pages that
    /// threads are decoding or reading come in addition.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Opens files, one after another. [Patterns](crate::paths) are expanded.
    ///
    /// # Errors
    ///
    /// If a file can't be read, is not valid, or has other columns than the first; or if a column can't be read.
    pub fn open(&self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Parquet>, Error> {
        let files = Files::open(expand(paths)?)?;
        let numbers: Vec<usize> = (0..files.len()).collect();
        let metadata = each(&files, &numbers, |&file| metadata(&files, file))?;
        let columns = |file: usize, metadata: &ParquetMetaData| {
            let found = Columns::new(metadata.file_metadata().schema_descr(), self.decimals_as_f64);
            found.ok_or_else(|| {
                Error::format(files.path(file).display(), None, "names of columns that are too long", DAMAGED)
            })
        };
        let Columns { leaves, others, .. } = columns(0, &metadata[0])?;
        let leaves = choose(&files.path(0), self.columns.as_deref(), &leaves, |leaf| &leaf.name, &others)?;
        let (mut groups, mut starts, mut pages) = (Vec::new(), vec![0_usize], 0);
        for (file, metadata) in metadata.into_iter().enumerate() {
            let found = columns(file, &metadata)?;
            if let Some(leaf) = leaves.iter().find(|leaf| !found.leaves.contains(leaf)) {
                let first = files.path(0);
                let problem = format!("the column {} is not here as in {}", leaf.name, first.display());
                let advice = "open files of the same columns, or choose others with `columns`";
                return Err(Error::format(files.path(file).display(), None, problem, advice));
            }
            for number in 0..metadata.num_row_groups() {
                let wrong = |problem: &str| {
                    let problem = format!("row group {number}: {problem}");
                    Error::format(files.path(file).display(), None, problem, DAMAGED)
                };
                let group = group(&metadata, number, file, &leaves, &mut pages).map_err(wrong)?;
                let rows = starts[starts.len() - 1].checked_add(group.rows);
                starts.push(rows.ok_or_else(|| wrong("too many rows"))?);
                groups.push(group);
            }
        }
        let (kept, fields) = (Kept::new(pages, self.memory_limit), RecordFields::default());
        let missing_as_zero = self.missing_as_zero;
        let mut parquet = Parquet { files, groups, starts, leaves, fields, kept, missing_as_zero };
        parquet.fields = parquet.look();
        Ok(Records::new(parquet))
    }
}

/// Why a page can't be read.
#[derive(Debug)]
struct Problem {
    what: String,
    advice: &'static str,
}

impl<S: ToString> From<S> for Problem {
    fn from(what: S) -> Self {
        Self { what: what.to_string(), advice: DAMAGED }
    }
}

/// Reads the metadata at the end of a file, and the page index.
fn metadata(files: &Files, file: usize) -> Result<Arc<ParquetMetaData>, Error> {
    let path = files.path(file);
    let reader = ParquetMetaDataReader::new()
        .with_column_index_policy(PageIndexPolicy::Skip)
        .with_offset_index_policy(PageIndexPolicy::Optional);
    let whole = Whole { files, file };
    // As when pages are decoded.
    let read = catch_unwind(AssertUnwindSafe(|| reader.parse_and_finish(&whole)));
    let wrong = |problem: String| Error::format(path.display(), None, problem, DAMAGED);
    let metadata = read.map_err(|_| wrong("metadata that can't be read".to_owned()))?;
    metadata.map(Arc::new).map_err(|error| wrong(format!("not a valid Parquet file: {error}")))
}

/// A file, for the reader of its metadata.
struct Whole<'a> {
    files: &'a Files,
    file: usize,
}

impl Length for Whole<'_> {
    fn len(&self) -> u64 {
        self.files.file_len(self.file).unwrap_or(0)
    }
}

impl ChunkReader for Whole<'_> {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let rest = Length::len(self).saturating_sub(start);
        Ok(self.get_bytes(start, rest as usize)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut bytes = Vec::new();
        let span = Span { file: self.file, start, len: Some(length as u64) };
        self.files.read_into(span, &mut bytes).map_err(|error| ParquetError::External(Box::new(error)))?;
        // What is before the length of the metadata, at the end, is the metadata. Its parser has no limit of its own.
        let is_metadata = start.checked_add(length as u64 + 8) == Some(Length::len(self));
        if is_metadata && thrift::schema_depth(&bytes).is_none_or(|depth| depth > DEEPEST) {
            return Err(ParquetError::General(format!("a damaged schema, or one that is more than {DEEPEST} deep")));
        }
        Ok(bytes.into())
    }
}

/// Describes a row group, whose pages have the numbers from `pages` on.
fn group(
    metadata: &Arc<ParquetMetaData>,
    number: usize,
    file: usize,
    leaves: &[Leaf],
    pages: &mut usize,
) -> Result<Group, &'static str> {
    let found = &metadata.row_groups()[number];
    let rows = usize::try_from(found.num_rows()).map_err(|_| "a negative number of rows")?;
    let index = metadata.page_index_for_row_group(number);
    let mut all = Vec::new();
    for leaf in leaves {
        if leaf.column >= found.num_columns() {
            return Err("fewer columns than the schema");
        }
        let locations = index.offset_index(leaf.column).map(|index| index.page_locations());
        let firsts = match locations {
            Some(locations) if !locations.is_empty() => {
                let firsts = locations.iter().map(|page| usize::try_from(page.first_row_index).ok());
                let firsts: Option<Vec<usize>> = firsts.collect();
                let ordered = |firsts: &Vec<usize>| {
                    firsts[0] == 0 && firsts.is_sorted() && firsts.last().is_some_and(|&last| last <= rows)
                };
                let mut firsts = firsts.filter(ordered).ok_or("a page index whose rows are not in order")?;
                // A page without rows belongs to the one after it.
                firsts.dedup();
                firsts
            }
            _ => vec![0],
        };
        *pages += firsts.len();
        all.push((*pages - firsts.len(), firsts));
    }
    Ok(Group { file, metadata: metadata.clone(), number, rows, pages: all })
}

impl Parquet {
    /// Opens files with the [default options](ParquetOptions).
    ///
    /// # Errors
    ///
    /// As [`ParquetOptions::open`].
    pub fn open(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Self>, Error> {
        ParquetOptions::new().open(paths)
    }

    /// Chooses the fields, with room for the first rows.
    fn look(&self) -> RecordFields {
        let rows = self.starts[self.starts.len() - 1];
        let mut lengths = vec![Vec::new(); self.leaves.len()];
        let is_packed = |leaf: &Leaf| leaf.element.is_some() || matches!(leaf.holds, Holds::Bytes | Holds::Text);
        if self.leaves.iter().any(is_packed) {
            let mut memory = crate::format::Memory::default();
            for index in 0..rows.min(LOOKED_AT) {
                // A row that can't be read is an error when it is asked for.
                let Ok(values) = self.values(index, Input::new(&self.files, &mut memory)) else { continue };
                for (lengths, value) in lengths.iter_mut().zip(values) {
                    lengths.push(value.bytes().len() as u64);
                }
            }
        }
        let fields = self.leaves.iter().zip(lengths).map(|(leaf, lengths)| {
            let room = |size: u64| Room::estimate(lengths.iter().map(|bytes| bytes / size));
            let kind = match leaf.holds {
                Holds::Number(dtype) if leaf.element.is_some() => FieldKind::List(dtype, room(dtype.size() as u64)),
                Holds::Number(dtype) => FieldKind::Number(dtype),
                Holds::Fixed(len) => FieldKind::Tensor(DType::U8, vec![len]),
                Holds::Bytes => FieldKind::Bytes(room(1)),
                Holds::Text => FieldKind::Text(room(1)),
            };
            (leaf.name.clone(), kind)
        });
        RecordFields::new(fields)
    }

    /// Returns the row group of a row, and the row's number in it.
    fn place(&self, index: usize) -> (&Group, usize) {
        let (group, row) = place(&self.starts, index);
        (&self.groups[group], row)
    }

    /// Calls `each` with where a page is, and what must be read to decode it: that, and the dictionary of the column.
    fn parts(&self, group: &Group, leaf: usize, page: usize, each: &mut dyn FnMut(Span)) {
        let column = &group.metadata.row_groups()[group.number].columns()[self.leaves[leaf].column];
        let file_len = self.files.file_len(group.file).unwrap_or(0);
        let (first, last) = match (column.dictionary_page_offset(), column.data_page_offset()) {
            (Some(dictionary), data) if dictionary > 0 => (dictionary.min(data), data),
            (_, data) => (data, data),
        };
        let span = |start: i64, end: Option<i64>| {
            let (start, end) = (u64::try_from(start).ok()?, u64::try_from(end?).ok()?);
            (start < end && end <= file_len).then(|| Span { file: group.file, start, len: Some(end - start) })
        };
        let index = group.metadata.page_index_for_row_group(group.number);
        let Some(index) =
            index.offset_index(self.leaves[leaf].column).filter(|index| !index.page_locations().is_empty())
        else {
            let end = first.checked_add(column.compressed_size());
            span(first, end).into_iter().for_each(each);
            return;
        };
        span(first, Some(last)).into_iter().for_each(&mut *each);
        let row = group.pages[leaf].1[page] as i64;
        let pages = index.page_locations();
        let begins = pages.partition_point(|page| page.first_row_index < row);
        for location in pages[begins..].iter().take_while(|page| page.first_row_index == row) {
            let end = location.offset.checked_add(location.compressed_page_size.into());
            span(location.offset, end).into_iter().for_each(&mut *each);
        }
    }

    /// Reads and decodes a page.
    fn load(&self, group: &Group, leaf: usize, page: usize) -> Result<(Page, u64), Error> {
        let mut parts = Parts { len: self.files.file_len(group.file).unwrap_or(0), parts: Vec::new() };
        let mut failed = None;
        self.parts(group, leaf, page, &mut |span| {
            let mut bytes = Vec::new();
            match self.files.read_into(span, &mut bytes) {
                Ok(()) => parts.parts.push((span.start, bytes.into())),
                Err(error) => failed = Some(error),
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let (_, firsts) = &group.pages[leaf];
        let row_group = &group.metadata.row_groups()[group.number];
        let (leaf, index) = (&self.leaves[leaf], group.metadata.page_index_for_row_group(group.number));
        let chunk = Chunk {
            leaf,
            metadata: &row_group.columns()[leaf.column],
            total: group.rows,
            rows: firsts[page]..firsts.get(page + 1).copied().unwrap_or(group.rows),
            pages: index
                .offset_index(leaf.column)
                .map(|index| index.page_locations().clone())
                .filter(|all| !all.is_empty()),
            limit: self.kept.limit(),
        };
        let page = chunk.decode(parts).map_err(|Problem { what, advice }| {
            let problem = format!("row group {}, column {}: {what}", group.number, leaf.name);
            Error::format(self.files.path(group.file).display(), None, problem, advice)
        })?;
        let size = page.size();
        Ok((page, size))
    }

    /// Reads the values of a row.
    fn values<'a>(&'a self, index: usize, input: Input<'a>) -> Result<SmallVec<[Value<'a>; 4]>, Error> {
        let (group, row) = self.place(index);
        let mut pages = Vec::with_capacity(self.leaves.len());
        for leaf in 0..self.leaves.len() {
            let (first, firsts) = &group.pages[leaf];
            let page = firsts.partition_point(|&first| first <= row) - 1;
            pages.push((self.kept.get(first + page, || self.load(group, leaf, page))?, row - firsts[page]));
        }
        let pages = input.hold(Arc::new(pages));
        let mut values = SmallVec::new();
        for ((page, row), leaf) in pages.iter().zip(&self.leaves) {
            let wrong = |problem: &str, advice| {
                let problem = format!("row {index}: column {}{problem}", leaf.name);
                Error::format(self.files.path(group.file).display(), None, problem, advice)
            };
            const MISSING: &str = "fill it in, leave the column out with `columns`, or set `missing_as_zero`";
            let bytes = match page.row(*row, leaf.holds.size()) {
                Found::Bytes(bytes) => bytes,
                Found::Missing(zeros) if self.missing_as_zero => zeros,
                Found::Missing(_) => return Err(wrong(" has no value (null)", MISSING)),
                Found::Hole => return Err(wrong(" has an element without a value (null)", "fill it in")),
            };
            if leaf.holds == Holds::Text && std::str::from_utf8(bytes).is_err() {
                return Err(wrong(": a text that is not UTF-8", DAMAGED));
            }
            values.push(Value::from(bytes));
        }
        Ok(values)
    }
}

impl Format for Parquet {
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
        Some(self.place(index).0.file)
    }

    fn shard_lens(&self) -> Vec<usize> {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        let (group, row) = self.place(index);
        for (leaf, (first, firsts)) in group.pages.iter().enumerate() {
            let page = firsts.partition_point(|&first| first <= row) - 1;
            if !self.kept.has(first + page) {
                self.parts(group, leaf, page, each);
            }
        }
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        Ok(Record::new(&self.fields, self.values(index, input)?))
    }
}

impl fmt::Debug for Parquet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parquet")
            .field("files", &self.files)
            .field("row_groups", &self.groups.len())
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}
