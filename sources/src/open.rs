//! [`Options`]: the options of all formats.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use slotline::dtype::DType;

use crate::files::Files;
use crate::saved::IndexFiles;
use crate::window::OnProgress;
use crate::{DefaultNumber, Error, FieldKind, Format, Records};

/// Options for opening data of the format `F`. [`OpenOptions`] are for data of any format.
///
/// An option that changes which data is read is an error if the format does not support it. Options
/// about indexes, memory and connections have no effect on formats that use none. Options are
/// applied before fields are checked, so a field that is not supported can be left out, and before
/// more than the index of a file is read.
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

/// Options for opening data of any format.
pub type OpenOptions = Options<dyn Format>;

/// The values of all options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) index_files: IndexFiles,
    pub(crate) progress: Option<OnProgress>,
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) skip_incomplete: bool,
    pub(crate) missing_end: bool,
    pub(crate) missing_as_zero: bool,
    pub(crate) decimals_as_f64: bool,
    pub(crate) decode: BTreeMap<String, FieldKind>,
    pub(crate) file_columns: Vec<String>,
    pub(crate) without_files: bool,
    pub(crate) default_numbers: BTreeMap<String, DefaultNumber>,
    pub(crate) extensions: Option<Vec<String>>,
    pub(crate) allow_empty: bool,
    pub(crate) mask_folder: Option<PathBuf>,
    pub(crate) block_size: Option<usize>,
    pub(crate) dtype: Option<DType>,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) maps: bool,
    pub(crate) maps_arrow: bool,
    pub(crate) room: Option<usize>,
    #[cfg(feature = "remote")]
    pub(crate) requests: Option<crate::RequestOptions>,
    /// Whether missing values may also come from the names of folders.
    pub(crate) in_parts: bool,
    // The options that only one format has.
    #[cfg(feature = "tar")]
    pub(crate) tar_decode: BTreeMap<String, crate::tar::Decode>,
    pub(crate) key: bool,
    /// The paths of indexes that other programs wrote.
    pub(crate) given_indexes: Option<Vec<PathBuf>>,
    pub(crate) look_at: Option<usize>,
    pub(crate) without_check: bool,
    pub(crate) verify: bool,
    #[cfg(feature = "manifest")]
    pub(crate) manifest_format: Option<crate::manifest::ManifestFormat>,
    pub(crate) root: Option<PathBuf>,
}

// The names of formats in messages.
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
    /// Creates the default options. What they are depends on the format.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets where the indexes of tars and TFRecord files are saved.
    pub fn index_files(mut self, files: IndexFiles) -> Self {
        self.set.index_files = files;
        self
    }

    /// Sets a function to call while tars and TFRecord files are indexed. Its arguments are the
    /// number of bytes that were read or skipped so far, and the number of bytes of all files.
    /// Several threads call it.
    pub fn progress(mut self, on_progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.set.progress = Some(OnProgress::new(on_progress));
        self
    }

    /// Sets which fields the samples have, in this order; all by default. See [`Records::columns`].
    /// Fields that are left out may be of kinds that are not supported.
    ///
    /// In a tar, a name such as `jpg;png` is one field, which has the file of the first of these
    /// names that a sample has, and `__key__` is the key of the sample.
    pub fn columns(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.set.columns = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets whether samples of tars that lack a field are left out, instead of being an error;
    /// false by default.
    pub fn skip_incomplete(mut self, skip: bool) -> Self {
        self.set.skip_incomplete = skip;
        self
    }

    /// Sets whether a tar may end without the block of zeros that marks its end; false by default.
    /// Such a tar is otherwise an error, since it may be truncated.
    pub fn missing_end(mut self, allow: bool) -> Self {
        self.set.missing_end = allow;
        self
    }

    /// Sets whether missing values of Arrow, Parquet, TFRecord, CSV and JSONL are read as zeros, or
    /// as empty texts, bytes and lists. By default they are errors.
    pub fn missing_as_zero(mut self, zero: bool) -> Self {
        self.set.missing_as_zero = zero;
        self
    }

    /// Sets whether decimals of Arrow and Parquet are read, as the closest `f64`. By default they
    /// are errors.
    pub fn decimals_as_f64(mut self, as_f64: bool) -> Self {
        self.set.decimals_as_f64 = as_f64;
        self
    }

    /// Sets the column of a CSV or JSONL file that names the files, whose bytes are the field
    /// `data`. Each further call adds a column that names other files, such as the masks of
    /// pictures. Their bytes are a field with the name of the column.
    pub fn file_column(mut self, name: impl Into<String>) -> Self {
        self.set.file_columns.push(name.into());
        self
    }

    /// Sets whether no column of CSV or JSONL names files. If so, `file_name` and `image` are
    /// fields like all others.
    pub fn without_files(mut self, without: bool) -> Self {
        self.set.without_files = without;
        self
    }

    /// Sets the value that replaces missing values in a column of numbers or truth values (0 is
    /// false) of Arrow, Parquet, CSV or JSONL.
    pub fn default_number(mut self, column: impl Into<String>, value: impl Into<DefaultNumber>) -> Self {
        self.set.default_numbers.insert(column.into(), value.into());
        self
    }

    /// Sets the extensions of the files in folders of classes; by default the extensions of
    /// pictures.
    pub fn extensions(mut self, extensions: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.set.extensions = Some(extensions.into_iter().map(Into::into).collect());
        self
    }

    /// Sets whether the folder of a class may have no files; false by default.
    pub fn allow_empty(mut self, allow: bool) -> Self {
        self.set.allow_empty = allow;
        self
    }

    /// Sets a folder with a mask for each picture of a folder of classes, as the field `mask`: the
    /// bytes of the file with the same relative path, and the extension `.png`. The pictures may
    /// then also be in no folders of classes, and have no labels. Both folders are on a local disk.
    pub fn mask_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.set.mask_folder = Some(folder.into());
        self
    }

    /// Sets how many tokens a block has: 1,024 by default for token files. For chunks of tokens of
    /// LitData it must be set.
    pub fn block_size(mut self, tokens: usize) -> Self {
        self.set.block_size = Some(tokens);
        self
    }

    /// Sets the type of tokens in a file without a header, `u16` by default.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.set.dtype = Some(dtype);
        self
    }

    /// Maps local files into memory, except those that are opened for each read. Data that is not
    /// compressed is then copied only once, into the batch. It is an error if a file can't be
    /// mapped.
    ///
    /// # Safety
    ///
    /// As with [`Files::map`], the files must not be written to or shortened while the dataset
    /// lives.
    pub unsafe fn mapped(mut self) -> Self {
        self.set.maps = true;
        self
    }

    /// Sets how many bytes of unpacked or decoded data are kept in memory: batches of Arrow, pages
    /// of Parquet, shards of MDS and LitData, arrays of npz. 1 GiB by default.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.set.memory_limit = Some(bytes);
        self
    }
}

impl OpenOptions {
    /// Maps local Arrow files into memory, and no other files. Data that is not compressed is then
    /// copied only once, into the batch, and is not kept in memory. Without this option, whole
    /// batches of the file are read.
    ///
    /// # Safety
    ///
    /// As with [`Files::map`], the files must not be written to or shortened while the dataset
    /// lives.
    pub unsafe fn map_arrow(mut self) -> Self {
        self.set.maps_arrow = true;
        self
    }

    /// Gives batches `times` times as much room for bytes, texts and lists. See [`Records::room`].
    pub fn room(mut self, times: usize) -> Self {
        self.set.room = Some(times);
        self
    }

    /// Sets the maximum number of concurrent requests to a bucket or a server; 128 by default.
    /// Workers of a stream that are threads share this number. See
    /// [`RequestOptions`](crate::RequestOptions).
    #[cfg(feature = "remote")]
    pub fn max_connections(self, most: usize) -> Self {
        self.requests(|requests| requests.max_connections(most))
    }

    /// Sets how long a request to a bucket or a server may take with all its retries; 180 s by
    /// default.
    #[cfg(feature = "remote")]
    pub fn request_timeout(self, timeout: std::time::Duration) -> Self {
        self.requests(|requests| requests.timeout(timeout))
    }

    /// Sets whether redirects to other hosts or schemes are followed. See
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

    /// Sets the kind of a field of tars or TFRecord files, in place of the kind that follows from
    /// its name or from the first records. In tars it may be bytes, text or `i64`. The capacity in
    /// `kind` is ignored.
    pub fn decode(mut self, field: impl Into<String>, kind: FieldKind) -> Self {
        self.set.decode.insert(field.into(), kind);
        self
    }

    /// Opens data, as [`open`](crate::open) does.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](crate::open). Also fails if there is no field with one of the names,
    /// or if the format does not support an option.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Records<dyn Format>, Error> {
        let mut records = self.set.limited(|| self.set.open_all(path.as_ref()))?;
        if let Some(names) = &self.set.columns {
            // Most formats have already chosen the fields at this point.
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
    /// Checks that the format supports all options that are set.
    pub(crate) fn check(&self, format: &str) -> Result<(), Error> {
        let options: [(&str, bool, &[&str]); 13] = [
            ("skip_incomplete", self.skip_incomplete, &[TARS]),
            ("missing_end", self.missing_end, &[TARS]),
            ("missing_as_zero", self.missing_as_zero && !self.in_parts, &[ARROW, PARQUET, TFRECORD, TABLES]),
            ("decimals_as_f64", self.decimals_as_f64, &[ARROW, PARQUET]),
            ("decode", !self.decode.is_empty(), &[TARS, TFRECORD]),
            ("file_column", !self.file_columns.is_empty(), &[TABLES]),
            ("without_files", self.without_files, &[TABLES]),
            ("default_number", !self.default_numbers.is_empty(), &[ARROW, PARQUET, TABLES]),
            ("extensions", self.extensions.is_some(), &[CLASSES]),
            ("allow_empty", self.allow_empty, &[CLASSES]),
            ("mask_folder", self.mask_folder.is_some(), &[CLASSES]),
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

    /// Returns how many bytes of unpacked or decoded data are kept in memory.
    pub(crate) fn memory_limit(&self) -> u64 {
        self.memory_limit.unwrap_or(1 << 30)
    }

    /// Opens files, and maps them if that is set.
    pub(crate) fn files(&self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Result<Files, Error> {
        opened(paths, self.maps)
    }

    /// Converts these settings to the options of a format.
    pub(crate) fn of<F: ?Sized>(&self) -> Options<F> {
        Options { set: self.clone(), format: PhantomData }
    }

    /// Returns these settings for Arrow files, which `map_arrow` maps, too.
    pub(crate) fn of_arrow(&self) -> Self {
        Self { maps: self.maps || self.maps_arrow, ..self.clone() }
    }

    /// Calls `open`, whose requests to servers then use these options.
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

/// Opens files, and maps them if `maps` is set, which only unsafe functions do.
pub(crate) fn opened(paths: impl IntoIterator<Item = impl Into<PathBuf>>, maps: bool) -> Result<Files, Error> {
    let files = Files::open(paths)?;
    // SAFETY: the callers of those functions guarantee that the files do not change.
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

/// Parses options from text. Each line has one option, `NAME` or `NAME=VALUE`, where the name is
/// that of the method. Elements of lists are separated by commas. The values of `decode` and
/// `default_number` are `FIELD=VALUE`.
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
                "file_column" => list().fold(options, |options, name| options.file_column(name)),
                "mask_folder" => options.mask_folder(value),
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
