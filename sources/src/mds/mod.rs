//! Shards of MosaicML Streaming (MDS).

mod encoding;
mod index;

use std::path::Path;

use slotline::dtype::DType;

use self::encoding::{AnyArray, Encoding, digits};
use crate::columns::needed;
use crate::files::{Files, Span};
use crate::open::{MDS, Settings};
use crate::record::{CapacityHint, check_count};
use crate::shards::{ADVICE, Cut, Listed, Store};
use crate::{Error, FieldKind, Format, Input, Options, Record, RecordFields, Records, Value};

/// How many samples are read to estimate the capacity of columns with values of any length.
const LOOKED_AT: usize = 256;

/// The samples of shards that `MDSWriter` of mosaicml-streaming 0.13 wrote, in their order; a field for each column.
///
/// | encoding | field |
/// |---|---|
/// | `bytes`, `jpeg`, `png` | bytes |
/// | `str`, `json`, `str_decimal` | text |
/// | `int`, `uint8` … `float64` | a number |
/// | `str_int`, `str_float` | a number, `i64` or `f64` |
/// | `ndarray:dtype:shape` | a tensor |
/// | `ndarray:dtype`, `ndarray` | a list of the elements, and a list `<name>.shape: i64` |
///
/// All arrays of an `ndarray` column must have the type of the first one. `pkl`, `pil`, `jpegarray` and lists are not read;
/// leave such columns out with [`columns`](Options::columns).
///
/// A compressed shard (zstd or gz), without the raw one beside it, is unpacked into memory as a whole when the first
/// sample of it is read. Shards stay in memory up to the [limit](Options::memory_limit); the least recently used are
/// dropped first. Shuffling over more data than that unpacks shards again and again: decompress such data once, on disk.
#[derive(Debug)]
pub struct Mds {
    store: Store,
    columns: Vec<Column>,
    fields: RecordFields,
}

#[derive(Debug)]
struct Column {
    name: String,
    encoding: Encoding,
    /// Whether it is read.
    chosen: bool,
}

/// How MDS is read. [`memory_limit`](Options::memory_limit) limits the unpacked shards that are kept; a larger shard is an
/// error. Shards that threads are unpacking or reading do not count.
pub type MdsOptions = Options<Mds>;

impl MdsOptions {
    /// Whether all files are read and compared with the hashes in the index when the dataset is opened; off by default.
    pub fn verify(mut self, verify: bool) -> Self {
        self.set.verify = verify;
        self
    }

    /// Opens the folder of an `index.json`.
    ///
    /// # Errors
    ///
    /// If a file can't be read, the index or a shard is invalid, a hash differs, or a column can't be read.
    pub fn open(&self, folder: impl AsRef<Path>) -> Result<Records<Mds>, Error> {
        self.set.open_mds(folder.as_ref())
    }
}

impl Settings {
    pub(crate) fn open_mds(&self, folder: &Path) -> Result<Records<Mds>, Error> {
        self.check(MDS)?;
        let index = index::read(folder)?;
        let path = folder.join("index.json");
        check_count(path.display(), index.columns.len())?;
        let columns = self.chosen_columns(&path, &index.columns)?;
        let files = self.files(index.shards.iter().map(|shard| &shard.path))?;
        let mut memory = Vec::new();
        for (file, shard) in index.shards.iter().enumerate() {
            let found = files.file_len(file).unwrap_or(0);
            if found != shard.file.bytes {
                let problem = format!("{found} bytes, and the index says {}", shard.file.bytes);
                return Err(Error::format(shard.path.display(), None, problem, ADVICE));
            }
            if self.verify {
                index::verify(shard, files.read(Span { file, start: 0, len: None }, &mut memory)?)?;
            }
        }
        let listed = index.shards.into_iter().map(|shard| Listed {
            path: shard.path,
            compression: shard.compression,
            samples: shard.samples,
            least: shard.bytes,
            most: shard.bytes,
            cut: Cut::Table,
        });
        let store = Store::new(files, &path, listed, self.memory_limit())?;
        let mut mds = Mds { store, columns, fields: RecordFields::default() };
        mds.fields = mds.infer_fields()?;
        Ok(Records::new(mds))
    }

    /// Checks the columns, and marks those to read.
    fn chosen_columns(&self, path: &Path, listed: &[(String, String, Option<u64>)]) -> Result<Vec<Column>, Error> {
        let names: Vec<_> = listed.iter().map(|column| column.0.as_str()).collect();
        let needed = needed(path, self.columns.as_deref(), &names)?;
        let mut columns = Vec::new();
        for ((name, encoding, size), chosen) in listed.iter().zip(needed) {
            let found = Encoding::named(encoding).ok_or_else(|| {
                let problem = format!("column {name:?} has the unknown encoding {encoding:?}");
                Error::format(path.display(), None, problem, ADVICE)
            })?;
            if chosen && found == Encoding::Refused {
                let problem = format!("column {name:?} has the encoding {encoding:?}, which only Python can read");
                return Err(Error::format(path.display(), None, problem, "leave it out with `columns`"));
            }
            if found.size().map(|size| size as u64) != *size {
                let size = size.map_or("any number of".to_owned(), |size| size.to_string());
                let problem = format!("column {name:?} of {encoding:?} has values of {size} bytes");
                return Err(Error::format(path.display(), None, problem, ADVICE));
            }
            columns.push(Column { name: name.clone(), encoding: found, chosen });
        }
        Ok(columns)
    }
}

impl Mds {
    /// Opens the folder of an `index.json` with the default options.
    ///
    /// # Errors
    ///
    /// If a file can't be read, the index or a shard is invalid, or a column can't be read.
    pub fn open(folder: impl AsRef<Path>) -> Result<Records<Self>, Error> {
        MdsOptions::new().open(folder)
    }

    /// Looks at samples of the first shard to choose the fields.
    fn infer_fields(&mut self) -> Result<RecordFields, Error> {
        let mut lengths = vec![(Vec::new(), Vec::new()); self.columns.len()];
        if self.columns.iter().any(|column| column.chosen && column.encoding.size().is_none()) {
            self.store.visit_first(LOOKED_AT, |index, sample| {
                let mut found = Vec::new();
                self.split(index, sample, |column, bytes| found.push((column, bytes)))?;
                for (column, bytes) in found {
                    if let Encoding::AnyArray(dtype) = self.columns[column].encoding {
                        let array =
                            AnyArray::parse(bytes, dtype).map_err(|problem| self.wrong(index, column, &problem))?;
                        lengths[column].0.push((array.elements.len() / array.dtype.size()) as u64);
                        lengths[column].1.push((array.shape.len() as u64, array.dtype));
                    } else {
                        lengths[column].0.push(bytes.len() as u64);
                    }
                }
                Ok(())
            })?;
        }
        let mut fields = Vec::new();
        for (column, (lengths, arrays)) in self.columns.iter().zip(lengths).filter(|(column, _)| column.chosen) {
            let room = CapacityHint::estimate(lengths);
            let kind = match &column.encoding {
                Encoding::Bytes => FieldKind::Bytes(room),
                Encoding::Text => FieldKind::Text(room),
                Encoding::Number(dtype) => FieldKind::Number(*dtype),
                Encoding::StrInt => FieldKind::Number(DType::I64),
                Encoding::StrFloat => FieldKind::Number(DType::F64),
                Encoding::Array(dtype, shape) => FieldKind::Tensor(*dtype, shape.clone()),
                Encoding::AnyArray(dtype) => {
                    let dtype = dtype.or(arrays.first().map(|array| array.1)).unwrap_or(DType::U8);
                    fields.push((column.name.clone(), FieldKind::List(dtype, room)));
                    let room = CapacityHint::estimate(arrays.iter().map(|array| array.0));
                    fields.push((format!("{}.shape", column.name), FieldKind::List(DType::I64, room)));
                    continue;
                }
                Encoding::Refused => unreachable!("refused columns are not chosen"),
            };
            fields.push((column.name.clone(), kind));
        }
        if let Some((name, _)) = fields
            .iter()
            .enumerate()
            .find_map(|(i, field)| fields[..i].iter().any(|other| other.0 == field.0).then_some(field))
        {
            return Err(Error::usage(format!("two fields have the name {name:?}"), "leave one out with `columns`"));
        }
        Ok(RecordFields::new(fields))
    }

    /// Calls `each` with the number and the bytes of every chosen column of a sample.
    fn split<'a>(&self, index: usize, sample: &'a [u8], mut each: impl FnMut(usize, &'a [u8])) -> Result<(), Error> {
        let variable = self.columns.iter().filter(|column| column.encoding.size().is_none()).count();
        let cut = |column| self.wrong(index, column, "the sample ends before it");
        let (sizes, mut rest) = sample.split_at_checked(4 * variable).ok_or_else(|| cut(0))?;
        let mut sizes = sizes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes) as usize);
        for (i, column) in self.columns.iter().enumerate() {
            let size = column.encoding.size().or_else(|| sizes.next()).ok_or_else(|| cut(i))?;
            let bytes;
            (bytes, rest) = rest.split_at_checked(size).ok_or_else(|| cut(i))?;
            if column.chosen {
                each(i, bytes);
            }
        }
        if !rest.is_empty() {
            return Err(self.wrong(index, self.columns.len() - 1, &format!("{} bytes follow it", rest.len())));
        }
        Ok(())
    }

    fn wrong(&self, index: usize, column: usize, problem: &str) -> Error {
        let (path, i) = self.store.place(index);
        let name = &self.columns[column].name;
        Error::format(path.display(), None, format!("sample {i}, column {name:?}: {problem}"), ADVICE)
    }

    /// Decodes a column of a sample, and passes its values to `add`: the elements and the shape of an array of any shape,
    /// and otherwise one value.
    fn decode<'a>(
        &self,
        column: &Column,
        bytes: &'a [u8],
        dtype: DType,
        add: &mut impl FnMut(Value<'a>),
    ) -> Result<(), String> {
        match column.encoding {
            Encoding::Text => {
                std::str::from_utf8(bytes).map_err(|error| format!("a text that is not UTF-8: {error}"))?;
                add(bytes.into());
            }
            Encoding::StrInt => add(digits(bytes, true)?),
            Encoding::StrFloat => add(digits(bytes, false)?),
            Encoding::AnyArray(declared) => {
                let array = AnyArray::parse(bytes, declared)?;
                if array.dtype != dtype {
                    return Err(format!("an array of {}, and the first sample's is of {dtype}", array.dtype));
                }
                add(array.elements.into());
                let shape = array.shape.iter().flat_map(|dim| dim.to_ne_bytes()).collect::<Vec<_>>();
                add(Value::Bytes(shape.into()));
            }
            _ => add(bytes.into()),
        }
        Ok(())
    }
}

impl Format for Mds {
    fn len(&self) -> usize {
        self.store.len()
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn files(&self) -> &Files {
        self.store.files()
    }

    fn file_of(&self, index: usize) -> Option<usize> {
        Some(self.store.file_of(index))
    }

    fn shard_lens(&self) -> Vec<usize> {
        self.store.shard_lens()
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        self.store.spans(index, each);
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let sample = self.store.sample(index, input)?;
        let mut values = smallvec::SmallVec::<[Value<'a>; 4]>::new();
        let mut failed = None;
        self.split(index, sample, |column, bytes| {
            let dtype = self.fields.as_slice()[values.len()].kind.dtype();
            let decoded = self.decode(&self.columns[column], bytes, dtype, &mut |value| values.push(value));
            if let Err(problem) = decoded {
                failed.get_or_insert((column, problem));
                values.push(Value::from(&[][..]));
            }
        })?;
        match failed {
            Some((column, problem)) => Err(self.wrong(index, column, &problem)),
            None => Ok(Record::new(&self.fields, values)),
        }
    }
}
