//! TFRecord files of `tf.Example`s and `tf.SequenceExample`s, read by index.
//!
//! Each feature is a field; fields are sorted by name. The kind of a field is determined from the
//! first records of all files:
//!
//! | feature | field |
//! |---|---|
//! | `int64_list` or `float_list` with one value in every record | an `i64` or `f32` |
//! | `int64_list` or `float_list` with several values, the same number in every record | a tensor |
//! | `int64_list` or `float_list` with any number of values | a list |
//! | `bytes_list` with one value | bytes |
//! | a feature list whose steps all have the same number of numbers | a list: the numbers of all steps |
//! | a feature list whose steps all have one value with the same number of bytes | bytes: those of all steps |
//!
//! [`TfRecordOptions::decode`] sets another kind. A record that does not have this kind, or whose
//! data are damaged, is an error that names it. A `bytes_list` with several values, other feature
//! lists, compressed files, and fields of the protocol buffer that these messages do not have are
//! not supported, and are errors.

mod example;
mod walk;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use slotline::dtype::DType;
use smallvec::SmallVec;

use crate::columns::is_in;
use crate::files::{Files, Span};
use crate::format::place;
use crate::open::{Settings, TFRECORD};
use crate::paths::expand;
use crate::record::MAX_FIELDS;
use crate::window::Progress;
use crate::{CapacityHint, Error, FieldKind, Format, Input, Options, Record, RecordFields, Records, Value};
use example::{Feature, Found};

/// The records of one or more TFRecord files.
///
/// ```
/// use slotline::Loader;
/// use slotline_sources::tfrecord::TfRecord;
///
/// # let folder = tempfile::tempdir()?;
/// # let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
/// # let mut bytes = Vec::new();
/// # for label in [7, 9] {
/// #     let data = [&b"\x0a\x10\x0a\x0e\x0a\x05label\x12\x05\x1a\x03\x0a\x01"[..], &[label]].concat();
/// #     let len = (data.len() as u64).to_le_bytes();
/// #     bytes.extend([&len[..], &masked(&len), &data, &masked(&data)].concat());
/// # }
/// # std::fs::write(folder.path().join("train-0.tfrecord"), bytes)?;
/// let records = TfRecord::open([folder.path().join("train-*.tfrecord")])?;
/// let mut loader = Loader::builder(records).batch_size(2).build()?;
/// let batch = loader.epoch()?.next().expect("two records")?;
/// assert_eq!(batch.tensors().get(0).unwrap().typed::<i64>().unwrap().as_slice(), [7, 9]);
/// # Ok::<(), slotline::BoxError>(())
/// ```
pub struct TfRecord {
    files: Files,
    /// For each file, the positions of the ends of its records.
    ends: Vec<Vec<u64>>,
    /// The index of the first record of each file, followed by the number of all records.
    starts: Vec<usize>,
    fields: RecordFields,
    steps: Vec<Step>,
    /// Whether the fields are all fields of the first records, so that later records must not have
    /// any other field.
    all: bool,
    missing_as_zero: bool,
    check: bool,
}

/// The required value of [`Found::step`] for a field. `None` if the first records have no values of
/// the field, so that any is accepted.
type Step = Option<Option<usize>>;

/// The properties of the values that the first records have for a name.
struct Seen {
    dtype: Option<DType>,
    step: Option<usize>,
    lengths: Vec<u64>,
}

/// Options for TFRecord files. By default the fields are all features of the first 1000 records,
/// sorted by name, and all checksums are checked.
pub type TfRecordOptions = Options<TfRecord>;

impl TfRecordOptions {
    /// Sets the kind of a feature: [`Bytes`](FieldKind::Bytes) or [`Text`](FieldKind::Text), or a
    /// number, a tensor or a list of `i64` or `f32`. At least one record of the first file must
    /// have the feature.
    pub fn decode(mut self, name: impl Into<String>, kind: FieldKind) -> Self {
        self.set.decode.insert(name.into(), kind);
        self
    }

    /// Sets how many records, from the first on, are examined to determine the kinds of features.
    /// The default is 1000.
    pub fn look_at(mut self, records: usize) -> Self {
        self.set.look_at = Some(records.max(1));
        self
    }

    /// Sets whether the checksum of the data is checked whenever a record is read; true by default.
    /// The checksum of the length is always checked.
    pub fn check_data(mut self, check: bool) -> Self {
        self.set.without_check = !check;
        self
    }

    /// Sets the paths of indexes that `tfrecord2idx` wrote, one for each file. The files are then
    /// not scanned. [Patterns](crate::paths) are expanded.
    pub fn indexes(mut self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        self.set.given_indexes = Some(paths.into_iter().map(|path| path.as_ref().to_owned()).collect());
        self
    }

    /// Opens files. [Patterns](crate::paths) are expanded. The number of files that are indexed in
    /// parallel is the number of cores.
    ///
    /// # Errors
    ///
    /// If a file can't be read, has no records, or has a record whose length is damaged; if most of
    /// the first records are not valid, or one lacks a field or has a field that is not supported.
    pub fn open(&self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<TfRecord>, Error> {
        let set = &self.set;
        set.check(TFRECORD)?;
        let paths = expand(paths)?;
        let files = set.files(&paths)?;
        let build = |file, progress: &Progress| walk::walk(&files, file, progress);
        let given = |given: &Path, file| walk::index(given, files.file_len(file).unwrap_or(0));
        let ends = set.indexes(&files, &walk::CODEC, build, given)?;
        let mut starts = vec![0];
        for ends in &ends {
            starts.push(starts[starts.len() - 1] + ends.len());
        }
        let fields = RecordFields::default();
        let mut records = TfRecord {
            files,
            ends,
            starts,
            fields,
            steps: Vec::new(),
            all: set.columns.is_none(),
            missing_as_zero: set.missing_as_zero,
            check: !set.without_check,
        };
        if records.len() == 0 {
            let problem = "no records";
            return Err(Error::in_file(&paths[0], problem, "check that it was written completely"));
        }
        (records.fields, records.steps) = set.decide(&records)?;
        Ok(Records::new(records))
    }
}

impl Settings {
    /// Determines the kinds of the fields.
    fn decide(&self, records: &TfRecord) -> Result<(RecordFields, Vec<Step>), Error> {
        let count = records.len().min(self.look_at.unwrap_or(1000));
        let mut seen = BTreeMap::<String, Seen>::new();
        // The features that `decode` names must be in the first file.
        let mut declared = BTreeMap::<String, Step>::new();
        let in_first = records.starts.iter().copied().find(|&start| start > 0).unwrap_or(0);
        let (mut memory, mut damaged) = (Vec::new(), Vec::new());
        for index in 0..count.max(in_first) {
            if index >= count && declared.len() == self.decode.len() {
                break;
            }
            let bytes = records.files.read(records.span(index), &mut memory)?;
            let mut features = BTreeMap::new();
            if let Err(error) =
                records.parse(index, bytes, |name, found| found.replace(features.entry(name).or_insert(None)))
            {
                // Reading the record will be this error again.
                damaged.extend((index < count).then_some(error));
                continue;
            }
            for (name, Found { feature, step }) in features.into_iter().filter_map(|(name, found)| Some((name, found?)))
            {
                if self.decode.contains_key(name) {
                    let known = declared.entry(name.to_owned()).or_default();
                    *known = known.or(feature.dtype().map(|_| step));
                    continue;
                }
                let wanted = self.columns.as_ref().is_none_or(|names| names.iter().any(|chosen| is_in(name, chosen)));
                if !wanted || index >= count {
                    continue;
                }
                let unread = match &feature {
                    Feature::Bytes(values) if step.is_none() && values.len() != 1 => {
                        Some(format!("{} values of bytes", values.len()))
                    }
                    Feature::Unread(what) => Some((*what).to_owned()),
                    _ => None,
                };
                if let Some(what) = unread {
                    let problem = format!("the feature {name} has {what}, which are not supported");
                    return Err(records.error(index, 0, &problem, "list the other features in `columns`"));
                }
                let (dtype, len) = (feature.dtype(), feature.items());
                let known = seen.entry(name.to_owned()).or_insert(Seen { dtype, step, lengths: Vec::new() });
                let both = known.dtype.is_some() && dtype.is_some();
                if known.step.is_some() != step.is_some() || both && (known.dtype, known.step) != (dtype, step) {
                    let [found, others] = [(dtype, step), (known.dtype, known.step)].map(described);
                    let problem = format!("the feature {name} holds {found}, in others {others}");
                    return Err(records.error(index, 0, &problem, "list the other features in `columns`"));
                }
                if known.dtype.is_none() {
                    (known.dtype, known.step) = (dtype, step);
                }
                if feature != Feature::Empty || step.is_some() || !self.missing_as_zero {
                    known.lengths.push(len as u64);
                }
            }
        }
        let count = match damaged.len() {
            bad if bad > count / 2 => return Err(damaged.swap_remove(0)),
            bad => count - bad,
        };
        if let Some(name) = self.decode.keys().find(|name| !declared.contains_key(*name)) {
            let problem = format!("no record of this file has the feature {name}, which `decode` names");
            return Err(Error::in_file(records.files.path(0), problem, "check its spelling"));
        }
        let names: Vec<String> = match &self.columns {
            // A name that no feature has stands for all features whose names begin with it and a
            // dot.
            Some(names) => names
                .iter()
                .flat_map(|chosen| match seen.keys().any(|name| name != chosen && is_in(name, chosen)) {
                    true if !seen.contains_key(chosen) => {
                        seen.keys().filter(|name| is_in(name, chosen)).cloned().collect()
                    }
                    _ => vec![chosen.clone()],
                })
                .collect(),
            None => {
                let mut names: Vec<String> = seen.keys().chain(self.decode.keys()).cloned().collect();
                names.sort_unstable();
                names
            }
        };
        if names.len() > MAX_FIELDS {
            let problem = format!("{} different features; the maximum is {MAX_FIELDS}", names.len());
            let path = records.files.path(0);
            return Err(Error::in_file(path, problem, "list those to read in `columns`"));
        }
        if let Some(name) = names.iter().enumerate().find_map(|(i, name)| names[..i].contains(name).then_some(name)) {
            return Err(Error::usage(format!("the feature {name} is listed twice"), "list it once"));
        }
        if let Some(name) = self.decode.keys().find(|name| !names.contains(name)) {
            return Err(Error::usage(format!("the declared feature {name} is not among `columns`"), "list it there"));
        }
        let (mut fields, mut steps) = (Vec::new(), Vec::new());
        for name in names {
            let (kind, step) = match (self.decode.get(&name), seen.get(&name)) {
                (Some(kind), _) => (supported(&name, kind)?, declared.get(&name).copied().flatten()),
                (None, Some(Seen { dtype: Some(dtype), step, lengths }))
                    if lengths.len() == count || self.missing_as_zero && !lengths.is_empty() =>
                {
                    let room = || {
                        let lengths = lengths.iter().copied();
                        if count + damaged.len() == records.len() {
                            CapacityHint::of(lengths)
                        } else {
                            CapacityHint::estimate(lengths)
                        }
                    };
                    let is_one_length = step.is_none() && lengths.iter().all(|&len| len == lengths[0]);
                    let kind = match (dtype, lengths[0], is_one_length) {
                        (DType::U8, ..) => FieldKind::Bytes(room()),
                        (_, 1, true) => FieldKind::Number(*dtype),
                        (_, len @ 2.., true) => FieldKind::Tensor(*dtype, vec![len as usize]),
                        _ => FieldKind::List(*dtype, room()),
                    };
                    (kind, Some(*step))
                }
                (None, found) => {
                    let problem = format!(
                        "the feature {name} has values in {} of the first {count} records",
                        found.filter(|seen| seen.dtype.is_some()).map_or(0, |seen| seen.lengths.len())
                    );
                    let path = records.files.path(0);
                    let advice =
                        "list features in `columns` that all records have, set `missing_as_zero`, or `decode` it";
                    return Err(Error::in_file(path, problem, advice));
                }
            };
            fields.push((name, kind));
            steps.push(step);
        }
        Ok((RecordFields::new(fields), steps))
    }
}

/// Describes the values of a name, for an error message.
fn described((dtype, step): (Option<DType>, Option<usize>)) -> String {
    let dtype = dtype.map_or("no value".to_owned(), |dtype| dtype.to_string());
    step.map_or(dtype.clone(), |len| format!("steps of {len} {dtype}"))
}

/// Whether these are the first bytes of a TFRecord file.
pub(crate) fn is_start(start: &[u8]) -> bool {
    start.first_chunk().is_some_and(|header| walk::data_len(header).is_some())
}

/// Returns a declared kind, or an error if it is not supported.
fn supported(name: &str, kind: &FieldKind) -> Result<FieldKind, Error> {
    let fits = match kind {
        FieldKind::Bytes(_) | FieldKind::Text(_) => true,
        FieldKind::Tensor(dtype, shape) => {
            let items = shape.iter().try_fold(1_usize, |items, &len| items.checked_mul(len));
            matches!(dtype, DType::F32 | DType::I64) && items.is_some_and(|items| items.checked_mul(8).is_some())
        }
        other => matches!(other.dtype(), DType::F32 | DType::I64),
    };
    if fits {
        return Ok(kind.clone());
    }
    let problem = format!("the feature {name} is declared as {kind}");
    Err(Error::usage(problem, "declare bytes, a text, or a number, a tensor or a list of i64 or f32"))
}

impl TfRecord {
    /// Opens files, with the [default options](TfRecordOptions).
    ///
    /// # Errors
    ///
    /// The errors of [`TfRecordOptions::open`].
    pub fn open(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Self>, Error> {
        TfRecordOptions::new().open(paths)
    }

    /// Returns the span of a record, with its header and checksums.
    fn span(&self, index: usize) -> Span {
        let (file, record) = place(&self.starts, index);
        let start = record.checked_sub(1).map_or(0, |before| self.ends[file][before]);
        Span { file, start, len: Some(self.ends[file][record] - start) }
    }

    /// Checks the bytes of a record, and calls `each` with its features.
    fn parse<'a>(&self, index: usize, record: &'a [u8], each: impl FnMut(&'a str, Found<'a>)) -> Result<(), Error> {
        let data = walk::data(record, self.check).map_err(|problem| self.error(index, 0, problem, walk::DAMAGED))?;
        example::parse(data, each).map_err(|problem| {
            let text = format!("expected a tf.Example or tf.SequenceExample, found {}", problem.0);
            self.error(index, walk::HEADER + problem.1 as u64, &text, "write it as a tf.Example")
        })
    }

    fn error(&self, index: usize, at: u64, problem: &str, advice: &'static str) -> Error {
        let span = self.span(index);
        let record = index - self.starts[span.file];
        let path = self.files.path(span.file);
        Error::format(path.display(), span.start + at, format!("record {record}: {problem}"), advice)
    }
}

impl Format for TfRecord {
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
        each(self.span(index));
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let [bytes] = input.spans([self.span(index)])?;
        let mut features: SmallVec<[Option<Found<'a>>; 4]> = SmallVec::new();
        features.resize(self.fields.as_slice().len(), None);
        let mut other = None;
        self.parse(index, bytes, |name, found| match self.fields.position(name) {
            Some(field) => found.replace(&mut features[field]),
            None => other = Some(name),
        })?;
        if let Some(name) = other.filter(|_| self.all) {
            let problem = format!("the feature {name}, which the first records do not have");
            return Err(self.error(index, 0, &problem, "list the features to read in `columns`, or `decode` it"));
        }
        let mut values: SmallVec<[Value<'a>; 4]> = SmallVec::new();
        for ((field, found), step) in self.fields.as_slice().iter().zip(features).zip(&self.steps) {
            let is_missing = found.as_ref().is_none_or(|found| found.feature == Feature::Empty && found.step.is_none());
            if is_missing && self.missing_as_zero {
                let failed = |source| Error::io(&self.files.path(self.span(index).file), "read", source);
                values.push(field.kind.zero().map_err(failed)?);
                continue;
            }
            let value = found.ok_or_else(|| "no such feature".to_owned());
            let value = value.and_then(|found| value_of(&field.kind, *step, found)).map_err(|problem| {
                let problem = format!("expected {field}, found {problem}");
                let advice = match is_missing {
                    true => "`decode` it as it is, list others in `columns`, or set `missing_as_zero`",
                    false => "`decode` it as it is, or list others in `columns`",
                };
                self.error(index, 0, &problem, advice)
            })?;
            values.push(value);
        }
        Ok(Record::new(&self.fields, values))
    }
}

/// Returns the value of a field, or a description of what was found instead.
fn value_of<'a>(kind: &FieldKind, expected: Step, found: Found<'a>) -> Result<Value<'a>, String> {
    let (dtype, step) = (kind.dtype(), found.step);
    if found.feature.dtype().is_some() && expected.is_some_and(|expected| expected != step) {
        return Err(described((found.feature.dtype(), step)));
    }
    let bytes: Cow<'a, [u8]> = match found.feature {
        Feature::Unread(what) => return Err(what.to_owned()),
        Feature::Bytes(values) if step.is_some() && matches!(kind, FieldKind::Bytes(_)) => values.concat().into(),
        Feature::Bytes(values) if dtype == DType::U8 => {
            let [value] = values[..] else { return Err(format!("{} values of bytes", values.len())) };
            if matches!(kind, FieldKind::Text(_)) && std::str::from_utf8(value).is_err() {
                return Err("bytes that are not UTF-8".to_owned());
            }
            return Ok(Value::from(value));
        }
        Feature::Floats(runs) if dtype == DType::F32 => match runs[..] {
            [run] if cfg!(target_endian = "little") => Cow::Borrowed(run),
            _ => {
                let numbers = runs.iter().flat_map(|run| run.as_chunks::<4>().0);
                numbers.flat_map(|number| f32::from_le_bytes(*number).to_ne_bytes()).collect()
            }
        },
        Feature::Integers(runs) if dtype == DType::I64 => {
            let mut bytes = Vec::new();
            Feature::integers(&runs, |number| bytes.extend_from_slice(&number.to_ne_bytes()));
            Cow::Owned(bytes)
        }
        Feature::Empty if dtype != DType::U8 || step.is_some() => Cow::Borrowed(&[]),
        Feature::Empty => return Err("no value".to_owned()),
        Feature::Bytes(_) => return Err("bytes".to_owned()),
        Feature::Floats(_) => return Err("floats".to_owned()),
        Feature::Integers(_) => return Err("integers".to_owned()),
    };
    let found = bytes.len() / dtype.size();
    let expected = match kind {
        FieldKind::Number(_) => Some(1),
        FieldKind::Tensor(_, shape) => Some(shape.iter().product()),
        _ => None,
    };
    match expected {
        Some(expected) if expected != found => Err(format!("{found} values")),
        _ => Ok(Value::Bytes(bytes)),
    }
}

impl fmt::Debug for TfRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TfRecord")
            .field("files", &self.files)
            .field("len", &self.len())
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}
