//! Tars in [WebDataset](https://github.com/webdataset/webdataset)'s form, read by index. A sample
//! consists of the files that have the same key.
//!
//! Names are split, and files are grouped, as by webdataset 1.0.2. The file `dir/0001.seg.png` is
//! the field `seg.png` of the sample with the key `dir/0001`. Names of fields are converted to
//! lower case. Only consecutive files of one shard form a sample. Folders, links, hidden files,
//! `__…__` and names without a dot are skipped. Two files of one field are an error.
//!
//! A shard is scanned once, from header to header, and its [index](crate::IndexFiles) is saved for
//! the next time. Sparse and compressed tars are errors. A damaged header is an error, too, whereas
//! webdataset stops silently there.

mod header;
mod index;
mod name;
mod options;
mod saved;
mod stream;
mod value;

use std::fmt;
use std::path::PathBuf;

use slotline::dtype::DType;
use smallvec::SmallVec;

use crate::files::{Files, Span};
use crate::format::place;
use crate::{CapacityHint, Error, FieldKind, Format, Input, Record, RecordFields, Records};
use index::{Index, Member};
pub use options::{Decode, TarOptions};
pub use stream::{StreamCursor, TarStream};
use value::Problem;

/// The name of the field for the key of a sample, as webdataset calls it.
pub const KEY: &str = "__key__";

/// The samples of one or more tars.
///
/// The fields are all that occur in the tars, in the order of their first appearance, or those that
/// [`columns`](TarOptions::columns) lists. The kind of a field follows from its last extension
/// ([`Decode`]).
///
/// ```
/// use slotline::Loader;
/// use slotline_sources::tar::Tar;
///
/// # let folder = tempfile::tempdir()?;
/// # let mut bytes = Vec::new();
/// # for (name, data) in [("1.jpg", "miaow"), ("1.cls", "0"), ("2.jpg", "woof"), ("2.cls", "1")] {
/// #     let mut block = vec![0; 1024];
/// #     block[..name.len()].copy_from_slice(name.as_bytes());
/// #     block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
/// #     block[148..156].fill(b' ');
/// #     block[156] = b'0';
/// #     let sum: u32 = block[..512].iter().map(|&byte| u32::from(byte)).sum();
/// #     block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
/// #     block[512..512 + data.len()].copy_from_slice(data.as_bytes());
/// #     bytes.extend(block);
/// # }
/// # bytes.extend([0; 1024]);
/// # std::fs::write(folder.path().join("pets-000.tar"), bytes)?;
/// let pets = Tar::open([folder.path().join("pets-{000..000}.tar")])?;
/// let mut loader = Loader::builder(pets).batch_size(2).build()?;
/// let batch = loader.epoch()?.next().expect("two samples")?;
/// let columns = batch.tensors();
/// assert_eq!(columns.get(0).unwrap().bytes(), b"miaowwoof");
/// assert_eq!(columns.get(1).unwrap().typed::<i64>().unwrap().as_slice(), [0, 1]);
/// # Ok::<(), slotline::BoxError>(())
/// ```
pub struct Tar {
    files: Files,
    shards: Vec<Shard>,
    /// The index of the first sample of each shard, followed by the number of all samples.
    starts: Vec<usize>,
    fields: RecordFields,
    sources: Vec<Source>,
    skipped: usize,
}

/// A shard, and where its members for the dataset's fields are.
struct Shard {
    index: Index,
    /// For each field of the dataset, the indices of its names in the shard's list of names.
    suffixes: Vec<SmallVec<[u32; 1]>>,
}

/// The source of a field.
#[derive(Clone)]
enum Source {
    /// The key of the sample.
    Key,
    /// The member with this name, or with the first of several names, and how it is decoded.
    Member(String, Decode),
}

/// Returns the alternative names in the name of a field.
fn alternatives(name: &str) -> impl Iterator<Item = &str> + Clone {
    name.split(';')
}

impl Tar {
    /// Opens tars, with the default [options](TarOptions).
    ///
    /// # Errors
    ///
    /// The errors of [`TarOptions::open`].
    pub fn open(paths: impl IntoIterator<Item = impl AsRef<std::path::Path>>) -> Result<Records<Self>, Error> {
        TarOptions::new().open(paths)
    }

    /// Returns the number of samples that were left out because they lack a field. See
    /// [`TarOptions::skip_incomplete`].
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Returns the key of a sample, which is the name of its files up to the first dot of the last
    /// path component.
    ///
    /// # Panics
    ///
    /// If there is no sample `index`.
    pub fn key(&self, index: usize) -> &[u8] {
        let (shard, sample) = place(&self.starts, index);
        self.shards[shard].index.key(sample)
    }

    /// Returns the members of a sample that are read, in the order of the fields.
    fn members(&self, shard: usize, sample: usize) -> impl Iterator<Item = Member> + Clone {
        let shard = &self.shards[shard];
        let members = shard.index.members(sample);
        shard.suffixes.iter().filter_map(move |suffixes| {
            suffixes.iter().find_map(|&suffix| members.iter().find(|member| member.suffix == suffix).copied())
        })
    }

    /// Returns the range from the first member to the last one, unless it contains too many bytes
    /// that are not needed.
    fn whole(members: impl Iterator<Item = Member>) -> Option<(u64, u64)> {
        let (mut start, mut end, mut bytes) = (u64::MAX, 0, 0_u64);
        for member in members {
            start = start.min(member.start);
            end = end.max(member.start + member.len);
            bytes += member.len;
        }
        (start <= end && end - start <= bytes.saturating_mul(2)).then(|| (start, end - start))
    }
}

impl Format for Tar {
    fn len(&self) -> usize {
        *self.starts.last().unwrap_or(&0)
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn shard_lens(&self) -> Vec<usize> {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        let (file, sample) = place(&self.starts, index);
        let members = self.members(file, sample);
        match Self::whole(members.clone()) {
            Some((start, len)) => each(Span { file, start, len: Some(len) }),
            None => members.for_each(|member| each(Span { file, start: member.start, len: Some(member.len) })),
        }
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let (file, sample) = place(&self.starts, index);
        let members = self.members(file, sample);
        let span = |start, len| Span { file, start, len: Some(len) };
        let whole = Self::whole(members.clone());
        let bytes = match whole {
            Some((start, len)) => input.list([span(start, len)])?,
            None => input.list(members.clone().map(|member| span(member.start, member.len)))?,
        };
        let mut members = members.enumerate();
        // Every sample has all fields, as samples without one were left out when the tar was
        // opened.
        let next = |_: &str| {
            let (i, member) = members.next()?;
            let data = match whole {
                Some((start, _)) => &bytes[0][(member.start - start) as usize..][..member.len as usize],
                None => bytes[i],
            };
            Some((member.start, data))
        };
        let key = self.shards[file].index.key(sample);
        record(&self.fields, &self.sources, key, next, || self.files.path(file))
    }
}

/// Creates the record of a sample. `file` returns, for each field in order, the position and the
/// data of its file.
fn record<'a>(
    fields: &'a RecordFields,
    sources: &[Source],
    key: &'a [u8],
    mut file: impl FnMut(&str) -> Option<(u64, &'a [u8])>,
    path: impl Fn() -> PathBuf,
) -> Result<Record<'a>, Error> {
    let mut values = SmallVec::<[_; 4]>::new();
    for (field, source) in fields.as_slice().iter().zip(sources) {
        let wrong = |start, problem: Problem| problem.in_sample(&path(), key, &field.name, start);
        values.push(match source {
            Source::Key => value::text(key).map_err(|problem| wrong(None, problem))?,
            Source::Member(name, decode) => {
                let missing = || Problem("no such file".to_owned(), "open the dataset again");
                let (start, data) = file(name).ok_or_else(|| wrong(None, missing()))?;
                value::decode(*decode, &field.kind, data).map_err(|problem| wrong(Some(start), problem))?
            }
        });
    }
    Ok(Record::new(fields, values))
}

impl fmt::Debug for Tar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tar")
            .field("files", &self.files)
            .field("len", &self.len())
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

/// Returns the kind of a field, given how its files are decoded and the capacity that they need.
fn kind(decode: Decode, room: CapacityHint) -> FieldKind {
    match decode {
        Decode::Integer => FieldKind::Number(DType::I64),
        Decode::Text => FieldKind::Text(room),
        Decode::Bytes | Decode::Npy => FieldKind::Bytes(room),
    }
}

/// Returns the name of a field in lower case.
fn field_name(suffix: &[u8]) -> Result<String, Problem> {
    let name = std::str::from_utf8(suffix).map_err(|_| {
        let problem = format!("the name of a field is not UTF-8: `{}`", String::from_utf8_lossy(suffix));
        Problem(problem, "write the tar with UTF-8 names")
    })?;
    Ok(name.to_lowercase())
}

/// Whether this field name is reserved, so that no file may have it.
fn is_reserved(field: &str) -> bool {
    matches!(field, "__key__" | "__url__")
}

/// Creates the error for a sample that has two files of a field, or a file with a reserved name.
fn two_files(field: &str, key: &[u8]) -> Problem {
    let problem = format!("two files `{field}` in the sample {}, or a reserved name", String::from_utf8_lossy(key));
    Problem(problem, "write the tar again with one file for each field")
}
