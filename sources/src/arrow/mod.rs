//! Arrow files and streams, as Hugging Face Datasets and Arrow's libraries write them, by row.
//!
//! | column | field |
//! |---|---|
//! | integers of 8 to 64 bits, floats of 16 to 64 bits, truth values | the same |
//! | dates, times, timestamps, durations | their integers: `i32` or `i64` |
//! | strings, binaries, of any length, also as views | text, bytes |
//! | binaries of a fixed length | `u8` tensors |
//! | lists of numbers, also as views; lists of a fixed length | lists; tensors |
//! | values in a dictionary (categories) of any of these | the values |
//! | decimals of up to 128 bits, with [`decimals_as_f64`](ArrowOptions::decimals_as_f64) | `f64` |
//! | structs, such as Hugging Face's `Image` and `Audio` | a field for each member: `image.bytes`, `image.path` |
//!
//! Other lists, maps, unions and columns of nulls only are not read: a dataset opens if others are chosen by
//! [`columns`](ArrowOptions::columns). Missing values are errors, too, unless
//! [`missing_as_zero`](ArrowOptions::missing_as_zero) is set.
//!
//! A file holds batches of rows. Batches are read and kept whole, if all of them fit into
//! [`memory_limit`](ArrowOptions::memory_limit), and if they are compressed or in a bucket. Otherwise each value is read
//! from the file, which is slow for rows of many small values: [map](ArrowOptions::map) such files. Dictionaries are read
//! when files are opened.

mod dictionary;
mod row;
mod schema;
mod walk;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use slotline::dtype::DType;

use self::dictionary::Dictionaries;
use self::row::Body;
use self::schema::{Holds, Layout, Leaf};
use self::walk::Batch;
use crate::columns::choose;
use crate::files::{Files, Span, below, is_url, names_in, read_whole};
use crate::format::place;
use crate::kept::Kept;
use crate::parallel::each;
use crate::paths::expand;
use crate::{Error, FieldKind, Format, Input, Record, RecordFields, Records, Room};

/// How many rows are looked at to choose the room for those of any length.
const LOOKED_AT: usize = 256;

/// The mean length of rows, in bytes, below which a whole batch is fetched ahead.
const SMALL: u64 = 4096;

/// The rows of Arrow files.
///
/// ```no_run
/// use slotline::Loader;
/// use slotline_sources::arrow::Arrow;
///
/// // What `dataset.save_to_disk("rotten-tomatoes")` of Hugging Face wrote.
/// let reviews = Arrow::open(["rotten-tomatoes"])?;
/// let mut loader = Loader::builder(reviews).batch_size(32).shuffle(true).num_workers(2).build()?;
/// for batch in loader.epoch()? {
///     let batch = batch?;
///     println!("{:?}", batch.tensors().offsets(0));
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
pub struct Arrow {
    files: Files,
    batches: Vec<(usize, Batch)>,
    /// The number of the first row of each batch, and the number of all rows.
    starts: Vec<usize>,
    leaves: Vec<Leaf>,
    fields: RecordFields,
    /// Of each file, if any column is in one.
    dictionaries: Vec<Dictionaries>,
    kept: Kept<Body>,
    /// Whether batches are kept although they are not compressed.
    keep: bool,
    missing_as_zero: bool,
}

/// How Arrow files are read.
#[derive(Clone, Debug)]
pub struct ArrowOptions {
    columns: Option<Vec<String>>,
    missing_as_zero: bool,
    decimals_as_f64: bool,
    memory_limit: u64,
}

impl Default for ArrowOptions {
    fn default() -> Self {
        Self { columns: None, missing_as_zero: false, decimals_as_f64: false, memory_limit: 1 << 30 }
    }
}

impl ArrowOptions {
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

    /// Sets how many bytes of batches are kept in the memory of each process, 1 GiB by default. A compressed batch may not be larger, and
    /// neither may all dictionaries together, which are kept besides. Batches that threads are reading come in addition.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Opens files, folders that Hugging Face's `save_to_disk` wrote, and [patterns](crate::paths), one after another.
    ///
    /// # Errors
    ///
    /// If a file can't be read, is not valid, or has other columns than the first; or if a column can't be read.
    pub fn open(&self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Arrow>, Error> {
        self.of(Files::open(data_files(paths)?)?)
    }

    /// Opens files as [`open`](Self::open) does, and maps them: nothing is copied before the batch.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), or if a file can't be mapped.
    ///
    /// # Safety
    ///
    /// As for [`Files::map`]: the files must not be written to or shortened while the dataset lives.
    pub unsafe fn map(&self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Arrow>, Error> {
        // SAFETY: the caller guarantees that the files do not change.
        self.of(unsafe { Files::open(data_files(paths)?)?.map() }?)
    }

    fn of(&self, files: Files) -> Result<Records<Arrow>, Error> {
        let numbers: Vec<usize> = (0..files.len()).collect();
        let streams = each(&files, &numbers, |&file| walk::walk(&files, file, self.decimals_as_f64))?;
        let leaves = choose(
            &files.path(0),
            self.columns.as_deref(),
            &streams[0].columns.leaves,
            |leaf| &leaf.name,
            &streams[0].columns.others,
        )?;
        let mut used = vec![false; streams[0].columns.dictionaries.len()];
        for leaf in &leaves {
            if let Layout::Dictionary(number, _) = leaf.layout {
                used[number] = true;
            }
        }
        let spent = AtomicU64::new(0);
        let dictionaries = match used.contains(&true) {
            true => each(&files, &numbers, |&file| {
                dictionary::read(&files, file, &streams[file], &used, (&spent, self.memory_limit))
            })?,
            false => Vec::new(),
        };
        let (mut batches, mut starts, mut bytes) = (Vec::new(), vec![0_usize], 0_u64);
        for (file, stream) in streams.into_iter().enumerate() {
            let same = |leaf: &&Leaf| !stream.columns.leaves.contains(leaf);
            if let Some(leaf) = leaves.iter().find(same) {
                let first = files.path(0);
                let problem = format!("the column {} is not here as in {}", leaf.name, first.display());
                let advice = "open files of the same columns, or choose others with `columns`";
                return Err(Error::format(files.path(file).display(), None, problem, advice));
            }
            for batch in stream.batches {
                let rows = starts[starts.len() - 1].checked_add(batch.rows as usize);
                let rows = rows.ok_or_else(|| {
                    Error::format(files.path(file).display(), batch.start, "too many rows", "split the files")
                })?;
                starts.push(rows);
                bytes += batch.len;
                batches.push((file, batch));
            }
        }
        let is_mapped = batches.first().is_some_and(|(file, batch)| {
            files.mapped(Span { file: *file, start: batch.start, len: Some(batch.len) }).is_some()
        });
        let keep = !is_mapped && (files.is_remote() || bytes <= self.memory_limit);
        let (kept, fields) = (Kept::new(batches.len(), self.memory_limit), RecordFields::default());
        let missing_as_zero = self.missing_as_zero;
        let mut arrow = Arrow { files, batches, starts, leaves, fields, dictionaries, kept, keep, missing_as_zero };
        arrow.fields = arrow.look();
        Ok(Records::new(arrow))
    }
}

/// Returns the files that paths stand for.
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
            return Err(Error::format(folder.display(), None, problem, "open the folder of one"));
        }
        let advice = "pass a folder that `save_to_disk` wrote, or files";
        return Err(Error::format(folder.display(), None, "no state.json in it", advice));
    }
    let wrong =
        |problem: &str| Error::format(path.display(), None, problem, "save the dataset again with `save_to_disk`");
    let state: serde_json::Value =
        serde_json::from_slice(&read_whole(&path)?).map_err(|error| wrong(&format!("not a state: {error}")))?;
    if state.get("_indices_files").is_some_and(|files| files.as_array().is_none_or(|files| !files.is_empty())) {
        return Err(wrong("the dataset has an indices mapping, which is not read"));
    }
    let files = state.get("_data_files").and_then(|files| files.as_array()).ok_or_else(|| wrong("no _data_files"))?;
    let name = |file: &serde_json::Value| {
        let name = file.get("filename").and_then(|name| name.as_str());
        // One file name, and no path.
        let name = name.filter(|name| !name.contains('/') && !matches!(*name, "" | "." | ".."));
        Ok(below(folder, name.ok_or_else(|| wrong("a data file without a name in the folder"))?))
    };
    files.iter().map(name).collect()
}

impl Arrow {
    /// Opens files, folders that `save_to_disk` wrote, and patterns, with the [default options](ArrowOptions).
    ///
    /// # Errors
    ///
    /// As [`ArrowOptions::open`].
    pub fn open(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Self>, Error> {
        ArrowOptions::new().open(paths)
    }

    /// Chooses the fields, with room for the first rows and for the mean of all.
    fn look(&self) -> RecordFields {
        let rows = self.starts[self.starts.len() - 1];
        let mut lengths = vec![Vec::new(); self.leaves.len()];
        let mut memory = crate::format::Memory::default();
        if self.leaves.iter().any(|leaf| matches!(leaf.holds, Holds::List(_) | Holds::Bytes | Holds::Text)) {
            for index in 0..rows.min(LOOKED_AT) {
                // A row that can't be read is an error when it is asked for.
                let Ok(values) = self.values(index, Input::new(&self.files, &mut memory)) else { continue };
                for (lengths, value) in lengths.iter_mut().zip(values) {
                    lengths.push(value.bytes().len() as u64);
                }
            }
        }
        let fields = self.leaves.iter().zip(lengths).map(|(leaf, mut lengths)| {
            // What compressed batches have is not known.
            let is_known = |batch: &Batch| batch.codec.is_none() && !matches!(leaf.layout, Layout::Dictionary(..));
            let plain = self.batches.iter().filter(|(_, batch)| is_known(batch) && batch.rows > 0);
            lengths.extend(plain.map(|(_, batch)| batch.extent(leaf).1 / batch.rows));
            let room = |size: u64| Room::estimate(lengths.iter().map(|bytes| bytes / size));
            let kind = match &leaf.holds {
                Holds::Bits => FieldKind::Number(DType::Bool),
                Holds::Number(dtype) => FieldKind::Number(*dtype),
                Holds::Decimal(..) => FieldKind::Number(DType::F64),
                Holds::Tensor(dtype, shape) => FieldKind::Tensor(*dtype, shape.clone()),
                Holds::List(dtype) => FieldKind::List(*dtype, room(dtype.size() as u64)),
                Holds::Bytes => FieldKind::Bytes(room(1)),
                Holds::Text => FieldKind::Text(room(1)),
            };
            (leaf.name.clone(), kind)
        });
        RecordFields::new(fields)
    }

    /// Returns the number of the batch of a row, and the row's number in it.
    fn place(&self, index: usize) -> (usize, u64) {
        let (batch, row) = place(&self.starts, index);
        (batch, row as u64)
    }

    fn body(&self, batch: usize) -> Span {
        let (file, batch) = &self.batches[batch];
        Span { file: *file, start: batch.start, len: Some(batch.len) }
    }
}

impl Format for Arrow {
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
        Some(self.batches[self.place(index).0].0)
    }

    fn shard_lens(&self) -> Vec<usize> {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        let (number, row) = self.place(index);
        let (file, batch) = &self.batches[number];
        if self.keep || batch.codec.is_some() {
            if !self.kept.has(number) {
                each(self.body(number));
            }
            return;
        }
        // The values of small rows lie in as many places as there are columns, and other rows are around them.
        if batch.len / batch.rows < SMALL {
            each(self.body(number));
            return;
        }
        // Where the values of a row are is written in the file. Rows of similar sizes are about here.
        for leaf in &self.leaves {
            let (start, len) = batch.extent(leaf);
            let at = |row: u64| (u128::from(len) * u128::from(row) / u128::from(batch.rows)) as u64;
            each(Span { file: *file, start: batch.start + start + at(row), len: Some(at(row + 1) - at(row)) });
        }
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        Ok(Record::new(&self.fields, self.values(index, input)?))
    }
}

impl fmt::Debug for Arrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrow")
            .field("files", &self.files)
            .field("batches", &self.batches.len())
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}
