//! Shards of MosaicML Streaming (MDS).

mod encoding;
mod index;

use std::path::Path;

use crate::columns::needed;
use crate::files::Span;
use crate::open::{MDS, Settings};
use crate::record::check_count;
use crate::shards::{ADVICE, Column, Cut, Encoding, Listed, Sharded};
use crate::{Error, Options, Records};

/// The samples of shards that `MDSWriter` of mosaicml-streaming 0.13 wrote, in the order in which
/// they were written. A sample has a field for each column.
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
/// All arrays of an `ndarray` column must have the type of the first one. `pkl`, `pil`, `jpegarray`
/// and lists are not supported; leave such columns out with [`columns`](Options::columns).
///
/// A compressed shard (zstd or gz) that has no uncompressed file beside it is unpacked into memory
/// as a whole when one of its samples is read. Shards stay in memory up to the
/// [limit](Options::memory_limit); the least recently used shards are dropped first. Shuffling over
/// more data than that unpacks shards again and again: decompress such data once, on disk.
pub type Mds = Sharded<OfMds>;

/// The writer of the shards in [`Mds`]; only a type parameter.
#[derive(Debug)]
pub enum OfMds {}

/// Options for reading MDS. [`memory_limit`](Options::memory_limit) limits the memory of unpacked
/// shards; a single larger shard is an error. Shards that threads are unpacking or reading take
/// additional memory.
pub type MdsOptions = Options<Mds>;

impl MdsOptions {
    /// Sets whether all files are read and compared with the hashes in the index when the dataset
    /// is opened; false by default.
    pub fn verify(mut self, verify: bool) -> Self {
        self.set.verify = verify;
        self
    }

    /// Opens the folder that contains an `index.json`.
    ///
    /// # Errors
    ///
    /// If a file can't be read, the index or a shard is invalid, a hash differs, or a column can't
    /// be read.
    pub fn open(&self, folder: impl AsRef<Path>) -> Result<Records<Mds>, Error> {
        let (set, folder) = (&self.set, folder.as_ref());
        set.check(MDS)?;
        let index = index::read(folder)?;
        let path = folder.join("index.json");
        check_count(path.display(), index.columns.len())?;
        let columns = set.chosen_columns(&path, &index.columns)?;
        let files = set.files(index.shards.iter().map(|shard| &shard.path))?;
        let mut memory = Vec::new();
        for (file, shard) in index.shards.iter().enumerate() {
            let found = files.file_len(file).unwrap_or(0);
            if found != shard.file.bytes {
                let problem = format!("{found} bytes, and the index says {}", shard.file.bytes);
                return Err(Error::in_file(&shard.path, problem, ADVICE));
            }
            if set.verify {
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
        Sharded::new(files, &path, listed, columns, set.memory_limit())
    }
}

impl Settings {
    /// Returns the columns, and marks those that are read.
    fn chosen_columns(&self, path: &Path, listed: &[(String, String, Option<u64>)]) -> Result<Vec<Column>, Error> {
        let names: Vec<_> = listed.iter().map(|column| column.0.as_str()).collect();
        let needed = needed(path, self.columns.as_deref(), &names)?;
        let mut columns = Vec::new();
        for ((name, encoding, size), chosen) in listed.iter().zip(needed) {
            let (found, own_size) = encoding::encoding(encoding).ok_or_else(|| {
                let problem = format!("column {name:?} has the unknown encoding {encoding:?}");
                Error::in_file(path, problem, ADVICE)
            })?;
            if chosen && matches!(found, Encoding::Refused) {
                let problem = format!("column {name:?} has the encoding {encoding:?}, which only Python can read");
                return Err(Error::in_file(path, problem, "leave it out with `columns`"));
            }
            if own_size.map(|size| size as u64) != *size {
                let size = size.map_or("any number of".to_owned(), |size| size.to_string());
                let problem = format!("column {name:?} of {encoding:?} has values of {size} bytes");
                return Err(Error::in_file(path, problem, ADVICE));
            }
            columns.push(Column { name: name.clone(), encoding: found, size: own_size, chosen });
        }
        Ok(columns)
    }
}

impl Mds {
    /// Opens the folder that contains an `index.json`, with the default options.
    ///
    /// # Errors
    ///
    /// If a file can't be read, the index or a shard is invalid, or a column can't be read.
    pub fn open(folder: impl AsRef<Path>) -> Result<Records<Self>, Error> {
        MdsOptions::new().open(folder)
    }
}
