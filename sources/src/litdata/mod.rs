//! LitData: chunks of items, as its `optimize` writes them.

mod index;
mod serializer;

use std::path::Path;

use slotline::dtype::DType;

use self::index::Index;
use self::serializer::encoding;
use crate::columns::needed;
use crate::open::{LITDATA, Settings};
use crate::record::check_count;
use crate::shards::{ADVICE, Column, Compression, Cut, Encoding, Listed, Sharded, inside};
use crate::{Error, Options, Records};

/// The items of chunks that LitData's `optimize` wrote (litdata 0.2), in their order.
///
/// An item has a field for each leaf. Its name is the key of the dictionary, or the position in the
/// list or tuple; names of nested leaves are joined by dots, and an item that is a leaf itself is
/// `data`.
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
/// All arrays of a `numpy` or `tensor` leaf must have the type of the first item's array. Other
/// serializers, such as `pickle`, `pil` and `json` (a binary form of LitData's own), are not
/// supported; leave such leaves out with [`columns`](Options::columns). Chunks may be compressed as
/// a whole (`compression_level="chunk"`). They are then unpacked into memory, up to the
/// [`memory_limit`](Options::memory_limit).
pub type LitData = Sharded<OfLitData>;

/// The writer of the shards in [`LitData`]; only a type parameter.
#[derive(Debug)]
pub enum OfLitData {}

/// Options for reading LitData.
///
/// [`columns`](Options::columns) are the names of leaves. [`block_size`](Options::block_size) cuts
/// each chunk of tokens into blocks of this many tokens, as `TokensLoader(block_size)` does; tokens
/// at the end of a chunk that do not fill a block are left out.
///
/// [`memory_limit`](Options::memory_limit) limits the memory of unpacked chunks, and is also the
/// maximum size of a chunk. The least recently used chunks are dropped first. Chunks that threads
/// are unpacking or reading take additional memory.
pub type LitDataOptions = Options<LitData>;

impl LitDataOptions {
    /// Opens the folder that contains an `index.json`.
    ///
    /// # Errors
    ///
    /// If a file can't be read, the index or a chunk is invalid, or a leaf can't be read.
    pub fn open(&self, folder: impl AsRef<Path>) -> Result<Records<LitData>, Error> {
        let (set, folder) = (&self.set, folder.as_ref());
        set.check(LITDATA)?;
        let path = &folder.join("index.json");
        let index = index::read(path)?;
        let wrong = |problem: String, advice| Error::in_file(path, problem, advice);
        let blocks = set.tokens(path, &index)?.zip(set.block_size);
        let columns = match blocks {
            Some((dtype, block)) => {
                let (name, encoding) = ("tokens".to_owned(), Encoding::Tensor(dtype, vec![block]));
                vec![Column { name, encoding, size: block.checked_mul(dtype.size()), chosen: true }]
            }
            None => set.leaves(path, &index)?,
        };
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
            let (samples, cut) = match blocks {
                Some((dtype, block)) => {
                    let dim = chunk.dim.ok_or_else(|| wrong(format!("chunk {i} has no dim"), ADVICE))?;
                    let len = (block as u64).checked_mul(dtype.size() as u64).ok_or_else(overflow)?;
                    (dim / block as u64, Cut::Blocks { start: table, len })
                }
                None => (chunk.chunk_size, Cut::Table),
            };
            let most = chunk.chunk_bytes.checked_add(table).ok_or_else(overflow)?;
            let path = inside(path, folder, &chunk.filename)?;
            listed.push(Listed { path, compression, samples, least: chunk.chunk_bytes, most, cut });
        }
        let files = set.files(listed.iter().map(|chunk| &chunk.path))?;
        Sharded::new(files, path, listed, columns, set.memory_limit())
    }
}

impl Settings {
    /// Returns the type of the tokens, if the chunks are read as blocks of tokens.
    fn tokens(&self, path: &Path, index: &Index) -> Result<Option<DType>, Error> {
        let written = index.config.item_loader.as_deref() == Some("TokensLoader");
        match (self.block_size, &index.config.data_format[..]) {
            (None, _) if written => {
                let problem = format!("{} has chunks of tokens", path.display());
                Err(Error::usage(problem, "set `block_size`"))
            }
            (None, _) => Ok(None),
            (Some(0), _) => Err(Error::usage("blocks of 0 tokens", "set `block_size` to at least 1")),
            (Some(_), [format]) if let Encoding::Vector(dtype) = encoding(format) => Ok(Some(dtype)),
            (Some(_), formats) => {
                let problem = format!("{} has items of {}, not tokens", path.display(), formats.join(", "));
                Err(Error::usage(problem, "don't set `block_size`"))
            }
        }
    }

    /// Returns the leaves, and marks those that are read.
    fn leaves(&self, path: &Path, index: &Index) -> Result<Vec<Column>, Error> {
        check_count(path.display(), index.config.data_format.len())?;
        let names = index::names(path, &index.config)?;
        let needed = needed(path, self.columns.as_deref(), &names.iter().map(String::as_str).collect::<Vec<_>>())?;
        let mut leaves = Vec::new();
        for ((name, format), chosen) in names.into_iter().zip(&index.config.data_format).zip(needed) {
            let encoding = encoding(format);
            if chosen && matches!(encoding, Encoding::Refused) {
                let problem = format!("the leaf {name:?} has the format {format:?}, which is not read");
                return Err(Error::in_file(path, problem, "leave it out with `columns`"));
            }
            leaves.push(Column { name, encoding, size: None, chosen });
        }
        Ok(leaves)
    }
}

impl LitData {
    /// Opens the folder that contains an `index.json`, with the default options.
    ///
    /// # Errors
    ///
    /// If a file can't be read, the index or a chunk is invalid, or a leaf can't be read.
    pub fn open(folder: impl AsRef<Path>) -> Result<Records<Self>, Error> {
        LitDataOptions::new().open(folder)
    }
}
