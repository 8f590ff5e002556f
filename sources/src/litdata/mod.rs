//! Chunks of LitData.

mod index;
mod serializer;

use std::path::Path;

use slotline::dtype::DType;

use self::index::Index;
use self::serializer::{Array, Serializer, check};
use crate::columns::needed;
use crate::files::{Files, Span};
use crate::open::{LITDATA, Settings};
use crate::record::{CapacityHint, check_count};
use crate::shards::{ADVICE, Compression, Cut, Listed, Store, inside};
use crate::{Error, FieldKind, Format, Input, Options, Record, RecordFields, Records, Value};

/// How many items are looked at to choose the room for fields of any length.
const LOOKED_AT: usize = 256;

/// The items of chunks that LitData's `optimize` wrote (litdata 0.2), in their order.
///
/// An item has a field for each leaf. Its name is the key of the dictionary, or the position in the list or tuple; names
/// of nested leaves are joined by dots, and an item that is a leaf itself is `data`.
///
/// | serializer | field |
/// |---|---|
/// | `bytes`, `jpeg`, `image`, `file` | bytes |
/// | `str` | text |
/// | `bool`, `int`, `float` | a number: `bool`, `i64`, `f64` |
/// | `no_header_numpy`, `no_header_tensor` | a list |
/// | `numpy`, `tensor` | a list of the elements, and a list `<name>.shape: i64` |
/// | tokens, with a [block size](Options::block_size) | a tensor `tokens: [block_size]` |
///
/// Arrays of `numpy` and `tensor` have the type of the first item's. Others, such as `pickle`, `pil` and `json` (a binary
/// form of LitData's own), are not read; leave them out with [`columns`](Options::columns). Chunks may be compressed
/// as a whole (`compression_level="chunk"`), and are unpacked as those of MDS are: see
/// [`memory_limit`](Options::memory_limit).
#[derive(Debug)]
pub struct LitData {
    store: Store,
    leaves: Vec<Leaf>,
    /// The type of the tokens, if the chunks are cut into blocks.
    tokens: Option<DType>,
    fields: RecordFields,
}

#[derive(Debug)]
struct Leaf {
    name: String,
    serializer: Serializer,
    chosen: bool,
}

/// How LitData is read. [`columns`](Options::columns) are the names of leaves. [`block_size`](Options::block_size) cuts each chunk
/// of tokens into blocks of this many, as `TokensLoader(block_size)` does: tokens at the end of a chunk that do not fill a
/// block are left out. [`memory_limit`](Options::memory_limit) is for unpacked chunks, of which none may be larger; those that
/// were not used for longest are dropped first. Chunks that threads are unpacking or reading come in addition.
pub type LitDataOptions = Options<LitData>;

impl LitDataOptions {
    /// Opens the folder of an `index.json`.
    ///
    /// # Errors
    ///
    /// If a file can't be read, the index or a chunk is invalid, or a leaf can't be read.
    pub fn open(&self, folder: impl AsRef<Path>) -> Result<Records<LitData>, Error> {
        self.set.open_litdata(folder.as_ref())
    }
}

impl Settings {
    pub(crate) fn open_litdata(&self, folder: &Path) -> Result<Records<LitData>, Error> {
        self.check(LITDATA)?;
        let path = &folder.join("index.json");
        let index = index::read(path)?;
        let wrong = |problem: String, advice| Error::format(path.display(), None, problem, advice);
        let tokens = self.tokens(path, &index)?;
        let leaves = if tokens.is_some() { Vec::new() } else { self.leaves(path, &index)? };
        let compression = match &index.config.compression {
            None => None,
            Some(name) => {
                Some(Compression::named(name).filter(|&found| found == Compression::Zstd).ok_or_else(|| {
                    wrong(format!("the compression {name:?}, and only zstd is read"), "write the dataset again")
                })?)
            }
        };
        let mut listed = Vec::new();
        for (i, chunk) in index.chunks.into_iter().enumerate() {
            let overflow = || wrong(format!("chunk {i} has {} items", chunk.chunk_size), ADVICE);
            let table = chunk.chunk_size.checked_mul(4).and_then(|table| table.checked_add(8)).ok_or_else(overflow)?;
            let (samples, cut) = match (tokens, self.block_size) {
                (Some(dtype), Some(block)) => {
                    let dim = chunk.dim.ok_or_else(|| wrong(format!("chunk {i} has no dim"), ADVICE))?;
                    let len = (block as u64).checked_mul(dtype.size() as u64).ok_or_else(overflow)?;
                    (dim / block as u64, Cut::Blocks { start: table, len })
                }
                _ => (chunk.chunk_size, Cut::Table),
            };
            let most = chunk.chunk_bytes.checked_add(table).ok_or_else(overflow)?;
            let path = inside(path, folder, &chunk.filename)?;
            listed.push(Listed { path, compression, samples, least: chunk.chunk_bytes, most, cut });
        }
        let files = self.files(listed.iter().map(|chunk| &chunk.path))?;
        let store = Store::new(files, path, listed.into_iter(), self.memory_limit())?;
        let mut litdata = LitData { store, leaves, tokens, fields: RecordFields::default() };
        litdata.fields = match (tokens, self.block_size) {
            (Some(dtype), Some(block)) => RecordFields::new([("tokens", FieldKind::Tensor(dtype, vec![block]))]),
            _ => litdata.infer_fields()?,
        };
        Ok(Records::new(litdata))
    }

    /// Returns the type of the tokens, if they are read in blocks.
    fn tokens(&self, path: &Path, index: &Index) -> Result<Option<DType>, Error> {
        let written = index.config.item_loader.as_deref() == Some("TokensLoader");
        match (self.block_size, &index.config.data_format[..]) {
            (None, _) if written => {
                let problem = format!("{} has chunks of tokens", path.display());
                Err(Error::usage(problem, "set `block_size`"))
            }
            (None, _) => Ok(None),
            (Some(0), _) => Err(Error::usage("blocks of 0 tokens", "set `block_size` to at least 1")),
            (Some(_), [format]) if let Serializer::Vector(dtype) = Serializer::named(format) => Ok(Some(dtype)),
            (Some(_), formats) => {
                let problem = format!("{} has items of {}, not tokens", path.display(), formats.join(", "));
                Err(Error::usage(problem, "don't set `block_size`"))
            }
        }
    }

    /// Checks the leaves, and marks those to read.
    fn leaves(&self, path: &Path, index: &Index) -> Result<Vec<Leaf>, Error> {
        check_count(path.display(), index.config.data_format.len())?;
        let names = index::names(path, &index.config)?;
        let needed = needed(path, self.columns.as_deref(), &names.iter().map(String::as_str).collect::<Vec<_>>())?;
        let mut leaves = Vec::new();
        for ((name, format), chosen) in names.into_iter().zip(&index.config.data_format).zip(needed) {
            let serializer = Serializer::named(format);
            if chosen && serializer == Serializer::Refused {
                let problem = format!("the leaf {name:?} has the format {format:?}, which is not read");
                return Err(Error::format(path.display(), None, problem, "leave it out with `columns`"));
            }
            leaves.push(Leaf { name, serializer, chosen });
        }
        Ok(leaves)
    }
}

impl LitData {
    /// Opens the folder of an `index.json` with the default options.
    ///
    /// # Errors
    ///
    /// If a file can't be read, the index or a chunk is invalid, or a leaf can't be read.
    pub fn open(folder: impl AsRef<Path>) -> Result<Records<Self>, Error> {
        LitDataOptions::new().open(folder)
    }

    /// Looks at items of the first chunk to choose the fields.
    fn infer_fields(&self) -> Result<RecordFields, Error> {
        let mut found = vec![Vec::new(); self.leaves.len()];
        self.store.visit_first(LOOKED_AT, |index, item| {
            self.split(index, item, |leaf, bytes| {
                let (len, dims, dtype) = match self.leaves[leaf].serializer {
                    Serializer::Vector(dtype) => (bytes.len() / dtype.size(), 0, dtype),
                    Serializer::Array { torch } => {
                        let array = Array::parse(bytes, torch)?;
                        (array.elements.len() / array.dtype.size(), array.shape.len(), array.dtype)
                    }
                    _ => (bytes.len(), 0, DType::U8),
                };
                found[leaf].push((len as u64, dims as u64, dtype));
                Ok(())
            })
        })?;
        let mut fields: Vec<(String, FieldKind)> = Vec::new();
        for (leaf, found) in self.leaves.iter().zip(found).filter(|(leaf, _)| leaf.chosen) {
            let room = CapacityHint::estimate(found.iter().map(|found| found.0));
            let kind = match leaf.serializer {
                Serializer::Bytes => FieldKind::Bytes(room),
                Serializer::Text => FieldKind::Text(room),
                Serializer::Bool => FieldKind::Number(DType::Bool),
                Serializer::Int => FieldKind::Number(DType::I64),
                Serializer::Float => FieldKind::Number(DType::F64),
                Serializer::Vector(dtype) => FieldKind::List(dtype, room),
                Serializer::Array { .. } => {
                    let dtype = found.first().map_or(DType::U8, |found| found.2);
                    fields.push((leaf.name.clone(), FieldKind::List(dtype, room)));
                    let room = CapacityHint::estimate(found.iter().map(|found| found.1));
                    fields.push((format!("{}.shape", leaf.name), FieldKind::List(DType::I64, room)));
                    continue;
                }
                Serializer::Refused => unreachable!("refused leaves are not chosen"),
            };
            fields.push((leaf.name.clone(), kind));
        }
        let mut names: Vec<_> = fields.iter().map(|field| &field.0).collect();
        names.sort_unstable();
        if let Some(same) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::usage(
                format!("two fields have the name {:?}", same[0]),
                "leave them out with `columns`",
            ));
        }
        Ok(RecordFields::new(fields))
    }

    /// Calls `each` with the number and the bytes of every chosen leaf: an item has the sizes of all as u32, then the
    /// bytes.
    fn split<'a>(
        &self,
        index: usize,
        item: &'a [u8],
        mut each: impl FnMut(usize, &'a [u8]) -> Result<(), String>,
    ) -> Result<(), Error> {
        let wrong = |leaf: Option<&Leaf>, problem: &str| {
            let (path, i) = self.store.place(index);
            let of = leaf.map(|leaf| format!(", leaf {:?}", leaf.name)).unwrap_or_default();
            Error::format(path.display(), None, format!("item {i}{of}: {problem}"), ADVICE)
        };
        let sizes = item.split_at_checked(4 * self.leaves.len());
        let (sizes, mut rest) = sizes.ok_or_else(|| wrong(None, "it ends in the sizes of its leaves"))?;
        for (i, (leaf, size)) in self.leaves.iter().zip(sizes.as_chunks().0).enumerate() {
            let split = rest.split_at_checked(u32::from_le_bytes(*size) as usize);
            let bytes;
            (bytes, rest) = split.ok_or_else(|| wrong(Some(leaf), "the item ends before it"))?;
            if leaf.chosen {
                each(i, bytes).map_err(|problem| wrong(Some(leaf), &problem))?;
            }
        }
        if !rest.is_empty() {
            return Err(wrong(None, &format!("{} bytes follow its leaves", rest.len())));
        }
        Ok(())
    }
}

/// Decodes a leaf, and passes its values to `add`.
fn decode<'a>(
    serializer: Serializer,
    bytes: &'a [u8],
    dtype: DType,
    add: &mut impl FnMut(Value<'a>),
) -> Result<(), String> {
    match serializer {
        Serializer::Text => {
            std::str::from_utf8(bytes).map_err(|error| format!("a text that is not UTF-8: {error}"))?;
            add(bytes.into());
        }
        Serializer::Bool => match bytes {
            [byte] => add(Value::number(*byte != 0)),
            _ => return Err(format!("a truth value of {} bytes", bytes.len())),
        },
        Serializer::Int | Serializer::Float if bytes.len() != 8 => {
            return Err(format!("a number of {} bytes instead of 8", bytes.len()));
        }
        Serializer::Vector(dtype) => {
            check(dtype, bytes)?;
            add(bytes.into());
        }
        Serializer::Array { torch } => {
            let array = Array::parse(bytes, torch)?;
            if array.dtype != dtype {
                return Err(format!("an array of {}, and the first item's is of {dtype}", array.dtype));
            }
            check(dtype, array.elements)?;
            add(array.elements.into());
            let shape: Vec<_> = array.shape.iter().flat_map(|dim| dim.to_ne_bytes()).collect();
            add(Value::Bytes(shape.into()));
        }
        _ => add(bytes.into()),
    }
    Ok(())
}

impl Format for LitData {
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
        let item = self.store.sample(index, input)?;
        let mut values = smallvec::SmallVec::<[Value<'a>; 4]>::new();
        if let Some(dtype) = self.tokens {
            check(dtype, item)
                .map_err(|problem| Error::format(self.store.place(index).0.display(), None, problem, ADVICE))?;
            values.push(item.into());
        } else {
            self.split(index, item, |leaf, bytes| {
                let dtype = self.fields.as_slice()[values.len()].kind.dtype();
                decode(self.leaves[leaf].serializer, bytes, dtype, &mut |value| values.push(value))
            })?;
        }
        Ok(Record::new(&self.fields, values))
    }
}
