//! Manifests: CSV or JSONL files with a row for each sample, one column of which may name a file.
//!
//! A sample has the bytes of its file, `data`, if there is one, and the other columns, in order.
//! The kind of a column depends on all rows of the manifest, which stays in memory:
//!
//! | kind | CSV | JSONL |
//! |---|---|---|
//! | `i64` | every cell is an integer that fits | every value is an integer that fits |
//! | `f64` | every cell is a number, such as `1.5`, `2e3`, `nan` or `inf` | every value is a number, or Python's `NaN` or `Infinity` |
//! | `bool` | every cell is `true` or `false`, also written `True` or `TRUE` etc. | every value is a truth value |
//! | list of `i64` or `f64` | | every value is a list of such numbers |
//! | text | otherwise | every value is a text; or every value is a list or an object, whose JSON is the text |
//!
//! Integers are exact, and floats are the nearest `f64`. If an integer does not fit, the column is
//! text in CSV, and so is a column of lists; otherwise it is an error that names line and key. A
//! number with blanks around it makes its column text. In JSONL, values of different kinds in one
//! column are an error.
//!
//! A missing value is an error that names line and column, unless
//! [`missing_as_zero`](Options::missing_as_zero) or a [default](Options::default_number) is set. In
//! JSONL, a missing value is `null` or a missing key. In CSV, it is an empty cell, except in a
//! column of texts.
//!
//! A row that cannot be parsed is an error of its sample, which names the line. The file is not
//! opened only if more than half of the rows are so damaged, or more than half of the first ones and
//! more than 1,000, or if a quote of CSV is not closed.
//!
//! The files `metadata.csv` and `metadata.jsonl` of Hugging Face's `imagefolder` and `audiofolder`
//! (datasets 5.2) are manifests. Their column `file_name` names the file, relative to the
//! manifest's folder.

mod json;
mod table;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use slotline::dtype::DType;
use smallvec::SmallVec;

use crate::files::{Files, Span, below, read_whole};
use crate::open::{Settings, TABLES};
use crate::{CapacityHint, Error, FieldKind, Format, Input, Options, Record, RecordFields, Records, Value};
use table::{Cell, Column, Missing, Rows, Values};

/// The name of the field with the bytes of the file.
pub const DATA: &str = "data";

/// The columns that may name the files. The first one that exists is used, unless
/// [`file_column`](Options::file_column) names another one.
pub const FILE_COLUMNS: [&str; 2] = ["file_name", "image"];

/// The name of the field with the folder of the row's manifest, if several folders have a manifest
/// each.
pub const SPLIT: &str = "split";

/// The rows of a CSV or JSONL file, with the contents of the files that they name, if they name
/// any.
///
/// ```
/// use slotline::Loader;
/// use slotline_sources::manifest::Manifest;
///
/// # let folder = tempfile::tempdir()?;
/// # std::fs::write(folder.path().join("1.jpg"), "miaow")?;
/// # std::fs::write(folder.path().join("2.jpg"), "woof")?;
/// # let path = folder.path().join("metadata.csv");
/// std::fs::write(&path, "file_name,label\n1.jpg,0\n2.jpg,1\n")?;
/// let pets = Manifest::open(&path)?;
/// let mut loader = Loader::builder(pets).batch_size(2).build()?;
/// let batch = loader.epoch()?.next().expect("two files")?;
/// let columns = batch.tensors();
/// assert_eq!(columns.get(0).unwrap().bytes(), b"miaowwoof");
/// assert_eq!(columns.get(1).unwrap().typed::<i64>().unwrap().as_slice(), [0, 1]);
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Debug)]
pub struct Manifest {
    /// The file of each row, for one column after another; or only the manifest if its rows name no
    /// files.
    files: Files,
    /// The indices of the fields with the bytes of files, one for each column that names them.
    named: Vec<usize>,
    len: usize,
    columns: Vec<Values>,
    fields: RecordFields,
    /// The errors of the damaged rows.
    damaged: BTreeMap<usize, Error>,
}

/// The formats of manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestFormat {
    /// Rows of cells that are separated by a delimiter, with quotes as in RFC 4180. The first row
    /// has the names of the columns.
    Csv {
        /// The byte that separates cells.
        delimiter: u8,
    },
    /// One JSON object in each line.
    Jsonl,
}

/// Options for reading a manifest.
///
/// [`file_column`](Options::file_column) is the column that names the files, and may be called again
/// for columns that name other files. By default it is the first of [`FILE_COLUMNS`] that exists; if
/// none exists, a sample has only the columns. A manifest with the name `metadata` must have such a
/// column.
///
/// [`columns`](Options::columns) may include [`data`](DATA), the bytes of the files; if it does
/// not, files are not read. By default the fields are `data`, if there are files, the bytes of
/// other files, and the other columns.
///
/// [`missing_as_zero`](Options::missing_as_zero) applies to columns without a
/// [`default_number`](Options::default_number). The default of a column of integers must be an
/// integer.
pub type ManifestOptions = Options<Manifest>;

impl ManifestOptions {
    /// Sets the format. By default it follows from the extension: `.csv`, `.tsv` (with tabs),
    /// `.jsonl` or `.ndjson`.
    pub fn format(mut self, format: ManifestFormat) -> Self {
        self.set.manifest_format = Some(format);
        self
    }

    /// Sets the folder that file names are relative to. By default it is the manifest's folder.
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.set.root = Some(root.into());
        self
    }

    /// Reads a manifest. The files that it names are not opened before their samples are read.
    ///
    /// # Errors
    ///
    /// If the manifest can't be read or most of its rows are not valid, if it has no rows or lacks a
    /// column; if a value is missing; or if a file's name is absolute or has `..` in it.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Records<Manifest>, Error> {
        let (set, path) = (&self.set, path.as_ref());
        set.check(TABLES)?;
        let root = set.root.as_deref().or(path.parent()).unwrap_or(Path::new(""));
        set.finish_manifest(path, set.cells(path)?, root, &[path.to_owned()])
    }
}

impl Settings {
    /// Reads the manifests in these folders of `root` as one, with the additional column [`SPLIT`].
    pub(crate) fn open_splits(&self, root: &Path, splits: &[&str], name: &str) -> Result<Records<Manifest>, Error> {
        let paths: Vec<PathBuf> = splits.iter().map(|split| below(root, &format!("{split}/{name}"))).collect();
        let mut tables = Vec::new();
        for (split, path) in splits.iter().zip(&paths) {
            let mut rows = self.cells(path)?;
            let columns = &mut rows.columns;
            let naming = self.naming(path, columns);
            let has_split = columns.iter().any(|column| column.name == SPLIT);
            for column in columns.iter_mut().filter(|column| naming.iter().any(|(name, _)| *name == column.name)) {
                column.prefix(&format!("{split}/"));
            }
            if let Some(lines) = columns.first().map(|column| column.lines.clone()).filter(|_| !has_split) {
                let cells = vec![Cell::Text((*split).into()); lines.len()];
                columns.push(Column { name: SPLIT.to_owned(), cells, lines });
            }
            tables.push(rows);
        }
        // This path is used in messages; a `metadata` file must name files in this case, too.
        let path = below(root, &format!("{{{}}}/{name}", splits.join(",")));
        self.finish_manifest(&path, table::joined(tables), root, &paths)
    }

    /// Parses a manifest.
    fn cells(&self, path: &Path) -> Result<Rows, Error> {
        let format = match self.manifest_format {
            Some(format) => format,
            None => match path.extension().map(|extension| extension.to_string_lossy().to_lowercase()).as_deref() {
                Some("csv") => ManifestFormat::Csv { delimiter: b',' },
                Some("tsv") => ManifestFormat::Csv { delimiter: b'\t' },
                Some("jsonl" | "ndjson") => ManifestFormat::Jsonl,
                _ => {
                    let problem = "expected a name that ends in .csv, .tsv, .jsonl or .ndjson";
                    return Err(Error::in_file(path, problem, "rename it, or set `format`"));
                }
            },
        };
        let bytes = read_whole(path)?;
        match format {
            ManifestFormat::Csv { delimiter } => table::csv(path, &bytes, delimiter),
            ManifestFormat::Jsonl => json::jsonl(path, &bytes),
        }
    }

    /// Returns the names of the columns that name files, and of their fields, if the files are to be
    /// read.
    fn naming(&self, path: &Path, columns: &[Column]) -> Vec<(&str, &str)> {
        let own = FILE_COLUMNS.into_iter().find(|name| columns.iter().any(|column| column.name == *name));
        // Without names of files, Hugging Face's metadata would describe a folder whose files are
        // ignored by mistake.
        let required = path.file_stem().is_some_and(|stem| stem == "metadata").then_some(FILE_COLUMNS[0]);
        let mut given = self.file_columns.iter().map(String::as_str);
        let data = given.next().or(own).or(required).map(|name| (name, DATA));
        let all = data.into_iter().chain(given.map(|name| (name, name)));
        let wanted = |field| self.columns.as_ref().is_none_or(|names| names.iter().any(|name| name == field));
        all.filter(|(_, field)| wanted(*field) && !self.without_files).collect()
    }

    /// Creates the dataset from the rows, which were read from `manifests`.
    fn finish_manifest(
        &self,
        path: &Path,
        Rows { mut columns, damaged }: Rows,
        root: &Path,
        manifests: &[PathBuf],
    ) -> Result<Records<Manifest>, Error> {
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let lacking = |name: &str| {
            let problem = format!("no column {name}; there are {}", names.join(", "));
            Error::in_file(path, problem, "check its spelling, or set `file_column` and `columns`")
        };
        let named = self.file_columns.iter().chain(self.default_numbers.keys());
        if let Some(name) = named.into_iter().find(|name| !names.contains(name)) {
            return Err(lacking(name));
        }
        let len = columns.first().map_or(0, |column| column.cells.len());
        let naming = self.naming(path, &columns);
        let is_data = |(_, field): &(&str, &str)| *field == DATA;
        if naming.iter().any(is_data) && names.iter().any(|name| name == DATA) {
            let problem = "a column has the name `data`, as have the bytes of the files";
            let advice = "rename it, list other columns in `columns`, or set `without_files`";
            return Err(Error::in_file(path, problem, advice));
        }
        if let Some((i, (name, _))) =
            naming.iter().enumerate().find(|(i, (name, _))| naming[..*i].iter().any(|of| of.0 == *name))
        {
            let problem = format!("`file_column` has {name} twice, as columns 0 and {i}");
            return Err(Error::usage(problem, "name each column once"));
        }
        let column =
            |(name, _): &(&str, &str)| columns.iter().find(|column| column.name == *name).ok_or_else(|| lacking(name));
        let files = match naming[..] {
            [] => Files::open(manifests)?,
            _ => relative(path, root, &naming.iter().map(column).collect::<Result<Vec<_>, _>>()?)?,
        };
        let named: Vec<usize> = match &self.columns {
            Some(chosen) => {
                let place = |(_, field): &(&str, &str)| chosen.iter().position(|name| name == field);
                let places: Vec<usize> = naming.iter().filter_map(place).collect();
                let chosen = chosen.iter().enumerate().filter(|(i, _)| !places.contains(i));
                let mut take = |name: &String| {
                    let place = columns.iter().position(|column| column.name == *name);
                    place.map(|place| columns.remove(place)).ok_or_else(|| lacking(name))
                };
                columns = chosen.map(|(_, name)| take(name)).collect::<Result<_, _>>()?;
                places
            }
            None => {
                columns.retain(|column| naming.iter().all(|(name, _)| *name != column.name));
                (0..naming.len()).collect()
            }
        };
        if named.is_empty() && columns.is_empty() {
            return Err(Error::in_file(path, "no columns", "choose some with `columns`"));
        }
        let mut fields = Vec::new();
        let mut values = Vec::new();
        for column in columns {
            let missing =
                Missing { number: self.default_numbers.get(&column.name).copied(), as_zero: self.missing_as_zero };
            let name = column.name.clone();
            let column = column.decide(path, missing)?;
            fields.push((name, column.kind()));
            values.push(column);
        }
        let mut of_files: Vec<_> = named.iter().zip(&naming).collect();
        of_files.sort_unstable();
        for (place, (_, field)) in of_files {
            fields.insert(*place, ((*field).to_owned(), FieldKind::Bytes(files.room())));
        }
        Ok(Records::new(Manifest { files, named, len, columns: values, fields: RecordFields::new(fields), damaged }))
    }
}

impl Manifest {
    /// Reads a manifest, with the [default options](ManifestOptions).
    ///
    /// # Errors
    ///
    /// The errors of [`ManifestOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Records<Self>, Error> {
        ManifestOptions::new().open(path)
    }

    /// Returns the spans of a sample's files; a damaged row has none.
    fn file_spans(&self, index: usize) -> impl Iterator<Item = Span> {
        let (len, files) = (self.len, if self.damaged.contains_key(&index) { 0 } else { self.named.len() });
        (0..files).map(move |column| Span { file: column * len + index, start: 0, len: None })
    }
}

/// Returns the files that these columns name, one column after another.
fn relative(path: &Path, root: &Path, columns: &[&Column]) -> Result<Files, Error> {
    let mut paths = Vec::new();
    let rows = columns.iter().flat_map(|column| (0..column.cells.len()).map(move |row| (column, row)));
    // The files are numbered by row. In the place of a damaged row's file, which is not read, is
    // that of another row.
    let whole = |column: &&Column| column.cells.iter().position(|cell| *cell != Cell::Damaged);
    let whole = columns.first().and_then(whole).unwrap_or_default();
    for (column, row) in rows {
        let row = if column.cells[row] == Cell::Damaged { whole } else { row };
        let name = column.text(path, row)?;
        let climbs = |component| !matches!(component, Component::Normal(_) | Component::CurDir);
        if name.is_empty() || name.contains('\0') || Path::new(name).components().any(climbs) {
            let problem =
                format!("line {}: expected a path in the folder, found `{}`", column.lines[row], name.escape_debug());
            return Err(Error::in_file(
                path,
                problem,
                "write a path relative to the folder of this file, without `..`, or set `without_files`",
            ));
        }
        paths.push(name);
    }
    #[cfg(feature = "remote")]
    if crate::files::is_url(root) {
        let root = root.to_string_lossy();
        return Files::open(paths.iter().map(|name| crate::remote::below(&root, name)));
    }
    Ok(Files::open_per_read(root, paths))
}

impl Format for Manifest {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        self.file_spans(index).for_each(each);
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        if let Some(error) = self.damaged.get(&index) {
            return Err(error.again().expect("damage is an error of the file's contents"));
        }
        let mut values: SmallVec<[_; 4]> = self.columns.iter().map(|column| column.value(index)).collect();
        let mut read: SmallVec<[_; 4]> = self.named.iter().copied().zip(input.list(self.file_spans(index))?).collect();
        read.sort_unstable_by_key(|(field, _)| *field);
        for (field, bytes) in read {
            values.insert(field, Value::from(bytes));
        }
        Ok(Record::new(&self.fields, values))
    }
}

impl Values {
    /// Returns the kind of a field with these values.
    fn kind(&self) -> FieldKind {
        match self {
            Self::Integers(_) => FieldKind::Number(DType::I64),
            Self::Floats(_) => FieldKind::Number(DType::F64),
            Self::Bools(_) => FieldKind::Number(DType::Bool),
            Self::Lists(dtype, _, ends) => {
                let starts = std::iter::once(&0).chain(ends);
                let items = starts.zip(ends).map(|(start, end)| ((end - start) / dtype.size()) as u64);
                FieldKind::List(*dtype, CapacityHint::of(items))
            }
            Self::Texts(texts) => FieldKind::Text(CapacityHint::of(texts.iter().map(|text| text.len() as u64))),
        }
    }

    fn value(&self, row: usize) -> Value<'_> {
        match self {
            Self::Integers(numbers) => Value::number(numbers[row]),
            Self::Floats(numbers) => Value::number(numbers[row]),
            Self::Bools(truths) => Value::number(truths[row]),
            Self::Lists(_, bytes, ends) => {
                let start = row.checked_sub(1).map_or(0, |before| ends[before]);
                Value::from(&bytes[start..ends[row]])
            }
            Self::Texts(texts) => Value::from(texts[row].as_bytes()),
        }
    }
}
