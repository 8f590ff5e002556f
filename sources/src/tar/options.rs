//! Options for tars.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use slotline::dtype::DType;
use smallvec::SmallVec;

use super::index::Index;
use super::stream::{Shards, TarStream};
use super::{KEY, Shard, Source, Tar, alternatives, kind, saved, value};
use crate::columns::choose;
use crate::files::{Files, Span};
use crate::open::{Settings, TARS};
use crate::paths::expand;
use crate::record::{MAX_FIELDS, TRIED};
use crate::window::Progress;
use crate::{CapacityHint, Error, FieldKind, Options, RecordFields, Records};

/// The way in which the bytes of a file are decoded. By default it follows from the last extension,
/// as in webdataset's `decode()`:
///
/// | Extension | |
/// |---|---|
/// | `cls` `cls2` `index` `inx` `id` | [`Integer`](Decode::Integer) |
/// | `txt` `text` `transcript` `json` `jsn` | [`Text`](Decode::Text) |
/// | `npy` | [`Npy`](Decode::Npy) |
/// | `pth` `pkl` `pickle` `pyd` | an error: pickles run code when they are read |
/// | others | [`Bytes`](Decode::Bytes) |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decode {
    /// Not decoded: the bytes as they are.
    Bytes,
    /// UTF-8 text. JSON is text, too, and is not parsed.
    Text,
    /// An `i64`, written as decimal digits, possibly with blanks around them.
    Integer,
    /// A tensor in NumPy's `.npy` format. All samples must have the dtype and the shape of the
    /// first one.
    Npy,
}

impl Decode {
    /// Returns how files with this extension are decoded; `None` for pickles.
    fn of(name: &str) -> Option<Self> {
        Some(match name.rsplit('.').next().unwrap_or(name) {
            "cls" | "cls2" | "index" | "inx" | "id" => Self::Integer,
            "txt" | "text" | "transcript" | "json" | "jsn" => Self::Text,
            "npy" => Self::Npy,
            "pth" | "pkl" | "pickle" | "pyd" => return None,
            _ => Self::Bytes,
        })
    }
}

/// Options for tars. By default the fields are all that occur, in the order of their first
/// appearance, decoded by their extensions. A field with several names, such as `jpg;png`, has the
/// file of the first of these names that a sample has. [`columns`](Options::columns) may include
/// the [key](KEY). With [`missing_end`](Options::missing_end) no indexes are saved.
pub type TarOptions = Options<Tar>;

impl TarOptions {
    /// Sets how the files of a field are decoded, in place of what follows from the extension.
    pub fn decode(mut self, field: impl Into<String>, decode: Decode) -> Self {
        self.set.tar_decode.insert(field.into(), decode);
        self
    }

    /// Sets whether the key of each sample is its first field, [`__key__`](KEY), as text.
    pub fn key(mut self, key: bool) -> Self {
        self.set.key = key;
        self
    }

    /// Sets the paths of indexes that DALI's `wds2idx.py` wrote (`v1.2`), one for each shard. The
    /// shards are then not scanned. [Patterns](crate::paths) are expanded.
    pub fn dali_indexes(mut self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        self.set.given_indexes = Some(paths.into_iter().map(|path| path.as_ref().to_owned()).collect());
        self
    }

    /// Opens tars. [Patterns](crate::paths) are expanded: `train-{000..012}.tar`, `train-*.tar`,
    /// `a.tar::b.tar`. The number of shards that are indexed in parallel is the number of cores.
    ///
    /// # Errors
    ///
    /// If a shard can't be read or is not a tar; if a sample lacks a field, or has two files of one
    /// field; if a field holds pickles; if an index of DALI does not fit its shard; or if there are
    /// no fields.
    pub fn open(&self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Tar>, Error> {
        let set = &self.set;
        set.check(TARS)?;
        let paths = expand(paths)?;
        let files = set.files(&paths)?;
        let build = |shard, progress: &Progress| Index::build(&files, shard, progress, set.missing_end);
        let given = |given: &Path, shard| saved::dali(given, &files, shard);
        let mut indexes = set.indexes(&files, &saved::CODEC, build, given)?;
        for (file, index) in indexes.iter().enumerate() {
            // The shard became shorter after `files` had determined its length.
            let len = files.file_len(file).unwrap_or(0);
            if index.members.iter().any(|member| member.start.saturating_add(member.len) > len) {
                return Err(Error::io(&paths[file], "read", std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
        let mut names = union(&indexes);
        if let Some(chosen) = &set.columns {
            names.push(KEY.to_owned());
            names.extend(chosen.iter().filter(|name| alternatives(name).count() > 1).cloned());
            names = choose(&paths[0], Some(chosen), &names, |name| name, &[])?;
        }
        let sources = set.tar_sources(&names, &paths[0])?;
        let suffixes = |index: &Index| {
            let places = |source: &Source| match source {
                Source::Key => SmallVec::new(),
                Source::Member(name, _) => alternatives(name)
                    .filter_map(|name| index.suffixes.iter().position(|suffix| suffix == name))
                    .map(|place| place as u32)
                    .collect(),
            };
            sources.iter().map(places).collect::<Vec<SmallVec<[u32; 1]>>>()
        };
        let (mut starts, mut skipped, mut shards) = (vec![0], 0, Vec::new());
        for (path, mut index) in paths.iter().zip(indexes.drain(..)) {
            let suffixes = suffixes(&index);
            let before = index.samples.len();
            let lacking = |index: &Index, sample| {
                let has = |suffix: u32| index.members(sample).iter().any(|member| member.suffix == suffix);
                sources.iter().zip(&suffixes).find_map(|(source, suffixes)| match source {
                    Source::Member(name, _) if !suffixes.iter().copied().any(has) => Some(name.clone()),
                    _ => None,
                })
            };
            if set.skip_incomplete {
                index.retain(|index, sample| lacking(index, sample).is_none());
            } else if let Some((sample, name)) =
                (0..before).find_map(|sample| lacking(&index, sample).map(|name| (sample, name)))
            {
                let key = String::from_utf8_lossy(index.key(sample));
                let offset = index.members(sample).first().map(|member| member.start);
                let problem = format!("the sample {key} has no file `{name}`");
                let advice =
                    "list `columns` that all samples have, join alternatives as `jpg;png`, or set `skip_incomplete`";
                return Err(Error::format(path.display(), offset, problem, advice));
            }
            skipped += before - index.samples.len();
            starts.push(starts[starts.len() - 1] + index.samples.len());
            shards.push(Shard { index, suffixes });
        }
        let fields = fields(&sources, &shards, &files)?;
        Ok(Records::new(Tar { files, shards, starts, fields, sources, skipped }))
    }

    /// Opens tars that are read sequentially; see [`TarStream`]. They may be compressed by gzip,
    /// bzip2 or zstd. [Patterns](crate::paths) are expanded. The first samples are read to
    /// determine the fields: those that [`columns`](Self::columns) lists, or all that occur.
    /// Options about indexes have no effect.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open), as far as the first samples show them.
    pub fn stream(&self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<TarStream, Error> {
        TarStream::open(&self.set, paths)
    }

    /// Opens one tar that is read from `reader`, such as the standard input. It can be read in one
    /// pass only. The name is used in error messages.
    ///
    /// # Errors
    ///
    /// The errors of [`stream`](Self::stream).
    pub fn stream_reader(
        &self,
        name: impl Into<PathBuf>,
        reader: impl std::io::Read + Send + 'static,
    ) -> Result<TarStream, Error> {
        TarStream::new(&self.set, Shards::Once(name.into(), Mutex::new(Some(Box::new(reader)))))
    }
}

impl Settings {
    /// Returns how fields are decoded that are not decoded by their extension.
    fn decoded_as(&self) -> Result<BTreeMap<String, Decode>, Error> {
        let mut decode = self.tar_decode.clone();
        for (name, kind) in &self.decode {
            let of_kind = match kind {
                FieldKind::Bytes(_) => Decode::Bytes,
                FieldKind::Text(_) => Decode::Text,
                FieldKind::Number(DType::I64) => Decode::Integer,
                _ => {
                    let problem = format!("`decode` of {name} as {kind}");
                    return Err(Error::usage(problem, "use bytes, text or i64 in tars"));
                }
            };
            decode.insert(name.clone(), of_kind);
        }
        Ok(decode)
    }

    /// Returns the source of each field.
    pub(super) fn tar_sources(&self, names: &[String], path: &Path) -> Result<Vec<Source>, Error> {
        if names.len() > MAX_FIELDS {
            let problem = format!("{} different fields; the maximum is {MAX_FIELDS}", names.len());
            return Err(Error::in_file(path, problem, "list those to read in `columns`"));
        }
        let decode = self.decoded_as()?;
        let mut sources = Vec::new();
        if self.key && !names.iter().any(|name| name == KEY) {
            sources.push(Source::Key);
        }
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                return Err(Error::usage(format!("the field {name} is listed twice"), "list it once"));
            }
            if name == KEY {
                sources.push(Source::Key);
                continue;
            }
            let mut decoded = alternatives(name).map(Decode::of);
            let kind = match (decode.get(name), decoded.clone().next().flatten()) {
                (Some(decode), _) => *decode,
                (None, Some(decode)) if decoded.all(|other| other == Some(decode)) => decode,
                (None, found) => {
                    let problem = match found {
                        Some(_) => format!("the alternatives of {name} hold different kinds of values"),
                        None => format!("the field {name} holds pickles, which run code when they are read"),
                    };
                    let advice = "list the other fields in `columns`, or `decode` it as bytes";
                    return Err(Error::in_file(path, problem, advice));
                }
            };
            sources.push(Source::Member(name.clone(), kind));
        }
        if let Some(name) = decode.keys().find(|name| !names.contains(name)) {
            return Err(Error::usage(format!("`decode` names {name}, which is no field"), "check its spelling"));
        }
        if sources.is_empty() {
            let advice = "check that it is a tar with names like `KEY.FIELD`";
            return Err(Error::in_file(path, "no samples", advice));
        }
        Ok(sources)
    }
}

/// Returns the names of the fields of all shards, in the order of their first appearance.
fn union(indexes: &[Index]) -> Vec<String> {
    let mut names = Vec::<String>::new();
    let mut known = std::collections::HashSet::new();
    for suffix in indexes.iter().flat_map(|index| &index.suffixes) {
        if known.insert(suffix.as_str()) {
            names.push(suffix.clone());
        }
    }
    names
}

/// Returns the kinds of the fields.
fn fields(sources: &[Source], shards: &[Shard], files: &Files) -> Result<RecordFields, Error> {
    let mut fields = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        let (name, kind) = match source {
            Source::Key => {
                let keys = shards.iter().flat_map(|shard| {
                    (0..shard.index.samples.len()).map(|sample| shard.index.key(sample).len() as u64)
                });
                (KEY, FieldKind::Text(CapacityHint::of(keys)))
            }
            Source::Member(name, decode) => {
                let members = || {
                    shards.iter().enumerate().flat_map(move |(file, shard)| {
                        let of_field = move |member: &&super::Member| shard.suffixes[i].contains(&member.suffix);
                        shard.index.members.iter().filter(of_field).map(move |member| (file, *member))
                    })
                };
                let npy = |(file, member): (usize, super::Member)| {
                    let mut memory = Vec::new();
                    let span = Span { file, start: member.start, len: Some(member.len) };
                    value::npy_kind(files.read(span, &mut memory)?).map_err(|problem| {
                        let text = format!("the field {name}: {}", problem.0);
                        Error::format(files.path(file).display(), member.start, text, problem.1)
                    })
                };
                let kind = match (decode, members().next()) {
                    // A damaged array is an error when its sample is read.
                    (Decode::Npy, Some(first)) => npy(first)
                        .or_else(|error| members().take(TRIED).find_map(|member| npy(member).ok()).ok_or(error))?,
                    _ => kind(*decode, CapacityHint::of(members().map(|(_, member)| member.len))),
                };
                (name.as_str(), kind)
            }
        };
        fields.push((name, kind));
    }
    Ok(RecordFields::new(fields))
}
