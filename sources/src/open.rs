//! The options of all formats, in one place.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use slotline::dtype::DType;

use crate::files::Files;
use crate::saved::IndexFiles;
use crate::window::Tell;
use crate::{DefaultNumber, Error, FieldKind, Format, Records};

/// How data of the format `F` is opened; [`OpenOptions`] are those of data of any format. An option that says what is read
/// is an error if the format does not have it; where indexes are saved, and what memory and connections are used, has no
/// effect on formats that need none. Options apply before a field is rejected, or more than the index of a file is read.
///
/// ```no_run
/// use slotline_sources::OpenOptions;
///
/// let digits = OpenOptions::new().columns(["x_train"]).open("mnist.npz")?;
/// let photos = OpenOptions::new().columns(["jpg;png", "cls"]).skip_incomplete(true).open("photos-{000..099}.tar")?;
/// # Ok::<(), slotline_sources::Error>(())
/// ```
pub struct Options<F: ?Sized> {
    pub(crate) set: Settings,
    format: PhantomData<fn() -> Box<F>>,
}

/// How data of any format is opened.
pub type OpenOptions = Options<dyn Format>;

/// What is set of the options of all formats.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) index_files: IndexFiles,
    pub(crate) progress: Option<Tell>,
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) skip_incomplete: bool,
    pub(crate) missing_end: bool,
    pub(crate) missing_as_zero: bool,
    pub(crate) decimals_as_f64: bool,
    pub(crate) decode: BTreeMap<String, FieldKind>,
    pub(crate) file_column: Option<String>,
    pub(crate) without_files: bool,
    pub(crate) default_numbers: BTreeMap<String, DefaultNumber>,
    pub(crate) extensions: Option<Vec<String>>,
    pub(crate) allow_empty: bool,
    pub(crate) block_size: Option<usize>,
    pub(crate) dtype: Option<DType>,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) maps: bool,
    pub(crate) maps_arrow: bool,
    pub(crate) room: Option<usize>,
    #[cfg(feature = "remote")]
    pub(crate) requests: Option<crate::RequestOptions>,
    /// Whether missing values may also be those of folders' names.
    pub(crate) in_parts: bool,
    // What only one format has.
    #[cfg(feature = "tar")]
    pub(crate) tar_decode: BTreeMap<String, crate::tar::Decode>,
    pub(crate) key: bool,
    /// Indexes that other programs wrote.
    pub(crate) given_indexes: Option<Vec<PathBuf>>,
    pub(crate) look_at: Option<usize>,
    pub(crate) without_check: bool,
    pub(crate) verify: bool,
    #[cfg(feature = "manifest")]
    pub(crate) manifest_format: Option<crate::manifest::ManifestFormat>,
    pub(crate) root: Option<PathBuf>,
}

// What formats are called in messages.
pub(crate) const TARS: &str = "tars";
pub(crate) const TFRECORD: &str = "TFRecord";
pub(crate) const ARROW: &str = "Arrow";
pub(crate) const PARQUET: &str = "Parquet";
pub(crate) const TABLES: &str = "CSV and JSONL";
pub(crate) const CLASSES: &str = "folders of classes";
pub(crate) const TOKENS: &str = "files of tokens";
pub(crate) const LITDATA: &str = "LitData";
pub(crate) const MDS: &str = "MDS";
pub(crate) const NPZ: &str = "npz";
pub(crate) const SAFETENSORS: &str = "safetensors";
const MEGATRON: &str = "sequences of Megatron";

impl<F: ?Sized> Options<F> {
    /// Makes the default options, which are each format's own.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets where the indexes of tars and TFRecord files are saved.
    pub fn index_files(mut self, files: IndexFiles) -> Self {
        self.set.index_files = files;
        self
    }

    /// Sets what is called while tars and TFRecord files are walked over, with the bytes that were read or skipped so
    /// far and those of all files. It is called by several threads.
    pub fn progress(mut self, tell: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.set.progress = Some(Tell::new(tell));
        self
    }

    /// Sets which fields the samples have, in this order; all by default. See [`Records::columns`]. Others may be of kinds
    /// that are not read. In a tar, `jpg;png` is one field: the file of the first of these names that a sample has, and
    /// `__key__` is the key of the sample.
    pub fn columns(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.set.columns = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Whether samples of tars that lack a field are left out, instead of being an error.
    pub fn skip_incomplete(mut self, skip: bool) -> Self {
        self.set.skip_incomplete = skip;
        self
    }

    /// Whether a tar may end without the block of zeros that ends it. By default this is an error, since it may be
    /// truncated.
    pub fn missing_end(mut self, allow: bool) -> Self {
        self.set.missing_end = allow;
        self
    }

    /// Whether missing values of Arrow, Parquet, TFRecord, CSV and JSONL are zeros, and empty texts, bytes and lists. By
    /// default they are errors.
    pub fn missing_as_zero(mut self, zero: bool) -> Self {
        self.set.missing_as_zero = zero;
        self
    }

    /// Whether decimals of Arrow and Parquet are read, each as the `f64` closest to it. By default they are errors.
    pub fn decimals_as_f64(mut self, as_f64: bool) -> Self {
        self.set.decimals_as_f64 = as_f64;
        self
    }

    /// Sets the column of CSV or JSONL that names the files.
    pub fn file_column(mut self, name: impl Into<String>) -> Self {
        self.set.file_column = Some(name.into());
        self
    }

    /// Whether no column of CSV or JSONL names files: `file_name` and `image` are fields as all others.
    pub fn without_files(mut self, without: bool) -> Self {
        self.set.without_files = without;
        self
    }

    /// Sets the value for missing values of a column of numbers or truth values (false is 0) of Arrow, Parquet, CSV or
    /// JSONL.
    pub fn default_number(mut self, column: impl Into<String>, value: impl Into<DefaultNumber>) -> Self {
        self.set.default_numbers.insert(column.into(), value.into());
        self
    }

    /// Sets how the names of the files in folders of classes end; by default as those of pictures.
    pub fn extensions(mut self, extensions: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.set.extensions = Some(extensions.into_iter().map(Into::into).collect());
        self
    }

    /// Whether the folder of a class may have no files.
    pub fn allow_empty(mut self, allow: bool) -> Self {
        self.set.allow_empty = allow;
        self
    }

    /// Sets how many tokens a block has: 1,024 by default for files of tokens; for chunks of tokens of LitData it must be
    /// set.
    pub fn block_size(mut self, tokens: usize) -> Self {
        self.set.block_size = Some(tokens);
        self
    }

    /// Sets the type of tokens in a file without a header, `u16` by default.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.set.dtype = Some(dtype);
        self
    }

    /// Maps the files of this machine, except those that are opened for each read. What is not compressed is then copied once,
    /// into the batch. It is an error if one can't be mapped.
    ///
    /// # Safety
    ///
    /// As for [`Files::map`]: the files must not be written to or shortened while the dataset lives.
    pub unsafe fn mapped(mut self) -> Self {
        self.set.maps = true;
        self
    }

    /// Sets how many bytes of what is unpacked or decoded are kept in memory: batches of Arrow, pages of Parquet, shards of
    /// MDS and LitData, arrays of npz. 1 GiB by default.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.set.memory_limit = Some(bytes);
        self
    }
}

impl OpenOptions {
    /// Maps Arrow files of this machine, and no others. What is not compressed is then not copied before the batch, and not
    /// kept in memory; otherwise whole batches of the file are read.
    ///
    /// # Safety
    ///
    /// As for [`Files::map`]: the files must not be written to or shortened while the dataset lives.
    pub unsafe fn map_arrow(mut self) -> Self {
        self.set.maps_arrow = true;
        self
    }

    /// Gives batches `times` the room for bytes, texts and lists. See [`Records::room`].
    pub fn room(mut self, times: usize) -> Self {
        self.set.room = Some(times);
        self
    }

    /// Sets how many requests to a bucket or a server are made at a time, at most; 128 by default. The
    /// workers of a stream that are threads share them. See [`RequestOptions`](crate::RequestOptions).
    #[cfg(feature = "remote")]
    pub fn max_connections(self, most: usize) -> Self {
        self.requests(|requests| requests.max_connections(most))
    }

    /// Sets how long a request to a bucket or a server may take with all its repetitions; 180 s by default.
    #[cfg(feature = "remote")]
    pub fn request_timeout(self, timeout: std::time::Duration) -> Self {
        self.requests(|requests| requests.timeout(timeout))
    }

    /// Whether redirects to other hosts or schemes are followed. See
    /// [`RequestOptions::follow_redirects`](crate::RequestOptions::follow_redirects).
    #[cfg(feature = "remote")]
    pub fn follow_redirects(self, follow: bool) -> Self {
        self.requests(|requests| requests.follow_redirects(follow))
    }

    #[cfg(feature = "remote")]
    fn requests(mut self, set: impl FnOnce(crate::RequestOptions) -> crate::RequestOptions) -> Self {
        self.set.requests = Some(set(self.set.requests.unwrap_or_default()));
        self
    }

    /// Sets what a field of tars or TFRecord files holds, instead of what follows from its name or from the first records.
    /// In tars it may be bytes, text or `i64`. Room need not be given.
    pub fn decode(mut self, field: impl Into<String>, kind: FieldKind) -> Self {
        self.set.decode.insert(field.into(), kind);
        self
    }

    /// Opens data, as [`open`](crate::open) does.
    ///
    /// # Errors
    ///
    /// As for [`open`](crate::open), if there is no field with one of the names, or the format does not have an option.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Records<dyn Format>, Error> {
        let mut records = self.set.limited(|| self.set.open_all(path.as_ref()))?;
        if let Some(names) = &self.set.columns {
            // As those of most formats are by now.
            let are_chosen = records.format().fields().as_slice().iter().map(|field| &field.name).eq(names);
            records = if are_chosen { records } else { records.columns(names)? };
        }
        Ok(match self.set.room {
            Some(times) => records.room(times),
            None => records,
        })
    }
}

impl Settings {
    /// Checks that the format has all options that are set.
    pub(crate) fn check(&self, format: &str) -> Result<(), Error> {
        let options: [(&str, bool, &[&str]); 12] = [
            ("skip_incomplete", self.skip_incomplete, &[TARS]),
            ("missing_end", self.missing_end, &[TARS]),
            ("missing_as_zero", self.missing_as_zero && !self.in_parts, &[ARROW, PARQUET, TFRECORD, TABLES]),
            ("decimals_as_f64", self.decimals_as_f64, &[ARROW, PARQUET]),
            ("decode", !self.decode.is_empty(), &[TARS, TFRECORD]),
            ("file_column", self.file_column.is_some(), &[TABLES]),
            ("without_files", self.without_files, &[TABLES]),
            ("default_number", !self.default_numbers.is_empty(), &[ARROW, PARQUET, TABLES]),
            ("extensions", self.extensions.is_some(), &[CLASSES]),
            ("allow_empty", self.allow_empty, &[CLASSES]),
            ("block_size", self.block_size.is_some(), &[TOKENS, LITDATA]),
            ("dtype", self.dtype.is_some(), &[TOKENS]),
        ];
        match options.iter().find(|(_, is_set, formats)| *is_set && !formats.contains(&format)) {
            Some((name, _, formats)) => {
                let problem = format!("`{name}` is an option of {}, and not of {format}", formats.join(", "));
                Err(Error::usage(problem, "leave it out"))
            }
            None => Ok(()),
        }
    }

    /// Returns how many bytes of what is unpacked or decoded are kept in memory.
    pub(crate) fn memory_limit(&self) -> u64 {
        self.memory_limit.unwrap_or(1 << 30)
    }

    /// Opens files, and maps them if that is set.
    pub(crate) fn files(&self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Result<Files, Error> {
        opened(paths, self.maps)
    }

    /// Returns these settings as the options of a format.
    pub(crate) fn of<F: ?Sized>(&self) -> Options<F> {
        Options { set: self.clone(), format: PhantomData }
    }

    /// Returns these settings for Arrow files.
    pub(crate) fn of_arrow(&self) -> Self {
        Self { maps: self.maps || self.maps_arrow, ..self.clone() }
    }

    /// Opens files, with requests as these options say.
    pub(crate) fn limited<T>(&self, open: impl FnOnce() -> T) -> T {
        #[cfg(feature = "remote")]
        if let Some(requests) = self.requests {
            return requests.within(open);
        }
        open()
    }

    #[cfg(feature = "tokens")]
    pub(crate) fn blocks(&self) -> Result<crate::tokens::BlockOptions, Error> {
        self.check(TOKENS)?;
        let mut options = crate::tokens::BlockOptions::new(self.block_size.unwrap_or(1024));
        options.maps = self.maps;
        Ok(if let Some(dtype) = self.dtype { options.dtype(dtype) } else { options })
    }

    #[cfg(feature = "tokens")]
    pub(crate) fn sequences(&self) -> Result<crate::tokens::SequenceOptions, Error> {
        self.check(MEGATRON)?;
        let mut options = crate::tokens::SequenceOptions::new();
        options.maps = self.maps;
        Ok(options)
    }
}

/// Opens files, and maps them if `maps` is set, which only unsafe functions set.
pub(crate) fn opened(paths: impl IntoIterator<Item = impl Into<PathBuf>>, maps: bool) -> Result<Files, Error> {
    let files = Files::open(paths)?;
    // SAFETY: the callers of these functions guarantee that the files do not change.
    if maps { unsafe { files.map() } } else { Ok(files) }
}

impl<F: ?Sized> Clone for Options<F> {
    fn clone(&self) -> Self {
        self.set.of()
    }
}

impl<F: ?Sized> Default for Options<F> {
    fn default() -> Self {
        Settings::default().of()
    }
}

impl<F: ?Sized> fmt::Debug for Options<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.set.fmt(f)
    }
}

/// Parses options as they are written: one in each line, `NAME` or `NAME=VALUE`, with the names of the methods. Lists have
/// commas, and `decode` and `default_number` values as `FIELD=VALUE`.
///
/// ```
/// use slotline_sources::OpenOptions;
///
/// let options: OpenOptions = "columns=jpg;png,cls\nskip_incomplete\ndecode=cls=text".parse()?;
/// # Ok::<(), slotline_sources::Error>(())
/// ```
impl FromStr for OpenOptions {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).try_fold(Self::new(), |options, line| {
            let wrong = || Error::usage(format!("the option {line}"), "check its name and its value");
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            let list = || value.split(',');
            let of_field = || value.rsplit_once('=').ok_or_else(wrong);
            let number = || value.parse::<usize>().map_err(|_| wrong());
            Ok(match name {
                "skip_incomplete" if value.is_empty() => options.skip_incomplete(true),
                "missing_end" if value.is_empty() => options.missing_end(true),
                "missing_as_zero" if value.is_empty() => options.missing_as_zero(true),
                "decimals_as_f64" if value.is_empty() => options.decimals_as_f64(true),
                "without_files" if value.is_empty() => options.without_files(true),
                "allow_empty" if value.is_empty() => options.allow_empty(true),
                #[cfg(feature = "remote")]
                "follow_redirects" if value.is_empty() => options.follow_redirects(true),
                _ if value.is_empty() => return Err(wrong()),
                "columns" => options.columns(list()),
                "extensions" => options.extensions(list()),
                "file_column" => options.file_column(value),
                "index_files" => options.index_files(IndexFiles::In(value.into())),
                "block_size" => options.block_size(number()?),
                "memory_limit" => options.memory_limit(number()? as u64),
                "room" => options.room(number()?),
                #[cfg(feature = "remote")]
                "max_connections" => options.max_connections(number()?),
                #[cfg(feature = "remote")]
                "request_timeout" => options.request_timeout(std::time::Duration::from_secs(number()? as u64)),
                "dtype" => options.dtype(value.parse().map_err(|_| wrong())?),
                "decode" => {
                    let (field, kind) = of_field()?;
                    options.decode(field, kind.parse()?)
                }
                "default_number" => {
                    let (field, number) = of_field()?;
                    options.default_number(field, number.parse::<DefaultNumber>()?)
                }
                _ => return Err(wrong()),
            })
        })
    }
}
