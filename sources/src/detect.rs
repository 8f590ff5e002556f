//! Finding out what a path is.

use std::path::{Path, PathBuf};

use crate::files::{Files, Span, below, is_url, names_in, read_whole};
use crate::saved::IndexFiles;
use crate::window::Tell;
use crate::{Error, Format, Records};

/// Opens data of any format that was built in, by its contents and its names, with the [default options](OpenOptions).
///
/// | path | format |
/// |---|---|
/// | a folder with an `index.json` of shards, or of chunks | [`mds`](crate::mds), [`litdata`](crate::litdata) |
/// | a folder with a `state.json` or `dataset_dict.json`, as `save_to_disk` writes them | [`arrow`](crate::arrow) |
/// | a folder with a `metadata.csv` or `metadata.jsonl`; a `.csv` or `.jsonl` file | [`manifest`](crate::manifest) |
/// | `.tar`: a folder with such files in it, one, or several, as a pattern (`shard-{000..099}.tar`) | [`tar`](crate::tar) |
/// | `.arrow`, `.feather`, the same | [`arrow`](crate::arrow) |
/// | `.parquet`, the same | [`parquet`](crate::parquet) |
/// | `.tfrecord`, `.tfrecords`, the same | [`tfrecord`](crate::tfrecord) |
/// | another folder, with folders in it | [`folder`](crate::folder) |
/// | llm.c's tokens, by their magic number | [`tokens`](crate::tokens), in blocks of 1,024 |
/// | Megatron's `.idx`, or the `.bin` beside it | [`tokens`](crate::tokens), a sequence for each sample |
/// | `.safetensors`, `.npz` | [`safetensors`](crate::safetensors), [`npz`](crate::npz): rows of all arrays |
/// | another `.bin` | [`tokens`](crate::tokens) of nanoGPT, `u16`, in blocks of 1,024 |
///
/// A path may also be the URL of an object or of a folder in a bucket, or a pattern of URLs, if the feature for it was
/// built in (see [`Files::open`]). Web servers can't be asked what is in a folder.
///
/// # Errors
///
/// If the path can't be read, its format is not known or was not built in, or the format's own errors.
pub fn open(path: impl AsRef<Path>) -> Result<Records<dyn Format>, Error> {
    OpenOptions::new().open(path)
}

/// How data of any format is opened. The formats have options of their own, besides.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    index_files: IndexFiles,
    progress: Option<Tell>,
    columns: Option<Vec<String>>,
    #[cfg(feature = "remote")]
    max_connections: Option<usize>,
}

impl OpenOptions {
    /// Makes the default options, which are each format's own.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets where the indexes of tars and TFRecord files are saved.
    pub fn index_files(mut self, files: IndexFiles) -> Self {
        self.index_files = files;
        self
    }

    /// Sets what is called while tars and TFRecord files are walked over, with the bytes that were passed over so far and
    /// those of all files. It is called by several threads.
    pub fn progress(mut self, tell: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Tell::new(tell));
        self
    }

    /// Sets which fields the samples have, in this order; all by default. See [`Records::columns`]. Of Arrow and Parquet,
    /// other columns are not read.
    pub fn columns(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.columns = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets how many requests to a bucket or a server are made at a time, at most; 128 by default. See
    /// [`with_max_connections`](crate::with_max_connections).
    #[cfg(feature = "remote")]
    pub fn max_connections(mut self, most: usize) -> Self {
        self.max_connections = Some(most);
        self
    }

    /// Opens data, as [`open`] does.
    ///
    /// # Errors
    ///
    /// As for [`open`], or if there is no field with one of the names.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Records<dyn Format>, Error> {
        let open = || self.open_all(path.as_ref());
        #[cfg(feature = "remote")]
        let open = || match self.max_connections {
            Some(most) => crate::with_max_connections(most, open),
            None => open(),
        };
        let records = open()?;
        let Some(names) = &self.columns else { return Ok(records) };
        // As those of tables mostly are by now.
        let are_chosen = records.format().fields().as_slice().iter().map(|field| &field.name).eq(names);
        if are_chosen { Ok(records) } else { records.columns(names) }
    }

    /// Opens tars that are packed (`.tar.gz`, `.tgz`, `.tar.bz2`, `.tbz2`, `.tar.zst`, `.tzst`), whose samples can't be read
    /// by index, as a stream: one, several as a pattern, or a folder with nothing else to open in it. `None` if the path is
    /// something else.
    ///
    /// ```no_run
    /// use slotline_sources::OpenOptions;
    ///
    /// let photos = OpenOptions::new().open_stream("photos-{000..099}.tar.zst")?.expect("packed tars").shuffle(10_000);
    /// # Ok::<(), slotline_sources::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`TarOptions::stream`](crate::tar::TarOptions::stream), or if only some of several files are packed tars.
    #[cfg(feature = "tar")]
    pub fn open_stream(&self, path: impl AsRef<Path>) -> Result<Option<crate::tar::TarStream>, Error> {
        let path = path.as_ref();
        let is_plain = |extension: &str| extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
        // No list is needed to know that these are no packed tars.
        let extension = without_query(path).extension().and_then(|found| found.to_str());
        if !path.is_dir() && extension.is_some_and(is_plain) && !is_packed(path) {
            return Ok(None);
        }
        let paths = if path.is_dir() {
            let names = names_in(path)?;
            let visible: Vec<_> =
                names.iter().filter(|name| !name.starts_with('.')).map(|name| path.join(name)).collect();
            let is_other = |path: &PathBuf| path.is_dir() || KINDS.iter().any(|kind| kind.is(path));
            if visible.iter().any(is_other) {
                return Ok(None);
            }
            visible.into_iter().filter(|path| is_packed(path)).collect()
        } else {
            crate::paths::expand([path])?
        };
        match paths.iter().filter(|path| is_packed(path)).count() {
            0 => return Ok(None),
            count if count < paths.len() => {
                let problem = format!("{count} of {} files are packed tars", paths.len());
                return Err(Error::format(path.display(), None, problem, "pass a pattern for one kind of files"));
            }
            _ => {}
        }
        let mut options = crate::tar::TarOptions::new();
        if let Some(names) = &self.columns {
            options = options.fields(names);
        }
        options.stream(paths).map(Some)
    }

    /// Opens data with all its fields, but only the chosen columns of tables.
    fn open_all(&self, path: &Path) -> Result<Records<dyn Format>, Error> {
        if path.is_dir() {
            return self.open_folder(path);
        }
        if !path.exists() {
            let paths = crate::paths::expand([path])?;
            match &paths[..] {
                // It does not exist, which the next step says, or is a URL.
                [one] if one.as_path() == path => {}
                [one] => return self.open_all(one),
                several if several.iter().all(|path| is_packed(path)) => return Err(packed(path)),
                several => {
                    let kinds = KINDS.iter().find(|kind| several.iter().all(|path| kind.is(path)));
                    return match kinds {
                        Some(kind) => self.open_several(*kind, several),
                        None => {
                            let problem = format!("{} files", several.len());
                            let advice = "pass one, or a pattern for tars, or for Arrow, Parquet or TFRecord files";
                            Err(Error::format(path.display(), None, problem, advice))
                        }
                    };
                }
            }
        }
        if is_url(path) && path.extension().is_none() && is_folder(path) {
            return self.open_folder(path);
        }
        let files = match Files::open([path]) {
            Err(error) if is_url(path) => return if is_folder(path) { self.open_folder(path) } else { Err(error) },
            files => files?,
        };
        let len = files.file_len(0).unwrap_or(0).min(1 << 10);
        let mut memory = Vec::new();
        let start = files.read(Span { file: 0, start: 0, len: Some(len) }, &mut memory)?;
        self.open_file(path, start)
    }

    fn open_folder(&self, path: &Path) -> Result<Records<dyn Format>, Error> {
        let names = names_in(path)?;
        let has = |name: &str| names.iter().any(|found| found == name);
        #[cfg(any(feature = "mds", feature = "litdata"))]
        if has("index.json") {
            let index = read_whole(&path.join("index.json"))?;
            let index = String::from_utf8_lossy(&index);
            #[cfg(feature = "mds")]
            if index.contains("\"shards\"") {
                return Ok(crate::mds::Mds::open(path)?.erased());
            }
            #[cfg(feature = "litdata")]
            if index.contains("\"chunks\"") {
                return Ok(crate::litdata::LitData::open(path)?.erased());
            }
        }
        #[cfg(feature = "arrow")]
        if has("state.json") || has("dataset_dict.json") {
            return self.open_several(Several::Arrow, &[path.to_owned()]);
        }
        #[cfg(feature = "manifest")]
        for name in ["metadata.csv", "metadata.jsonl"] {
            if has(name) {
                return Ok(crate::manifest::Manifest::open(path.join(name))?.erased());
            }
        }
        let visible = names.iter().filter(|name| !name.starts_with('.')).map(|name| below(path, name));
        let visible: Vec<PathBuf> = visible.collect();
        let kinds: Vec<Several> = KINDS.into_iter().filter(|kind| visible.iter().any(|path| kind.is(path))).collect();
        match kinds[..] {
            [] => {}
            [kind] => {
                let files: Vec<PathBuf> = visible.iter().filter(|path| kind.is(path)).cloned().collect();
                return self.open_several(kind, &files);
            }
            [one, other, ..] => {
                let problem = format!("a folder with {} and {}", one.name(), other.name());
                let advice = "pass a pattern for those that you mean, such as `folder/*.tar`";
                return Err(Error::format(path.display(), None, problem, advice));
            }
        }
        if !is_url(path) && !names.iter().any(|name| path.join(name).is_dir()) {
            if visible.iter().any(|path| is_packed(path)) {
                return Err(packed(path));
            }
            let problem = "not a dataset: no index.json of MDS or LitData, state.json, metadata.csv or metadata.jsonl in it, and no \
                           tars, Arrow, Parquet or TFRecord files, or folders for classes";
            let advice = "pass a file in it, or a pattern; or the folder that has a folder for each class";
            return Err(Error::format(path.display(), None, problem, advice));
        }
        #[cfg(feature = "folder")]
        return Ok(crate::folder::Folder::open(path)?.erased());
        #[cfg(not(feature = "folder"))]
        Err(unknown(path))
    }

    /// Opens a file that starts with these bytes.
    fn open_file(&self, path: &Path, start: &[u8]) -> Result<Records<dyn Format>, Error> {
        let starts = |kind: &&Several| match kind {
            Several::Tar => start.get(257..262) == Some(b"ustar"),
            Several::Arrow => start.starts_with(b"ARROW1\0\0"),
            Several::Parquet => start.starts_with(b"PAR1"),
            Several::TfRecord => false,
        };
        let by_name = KINDS.iter().find(|kind| kind.is(path));
        if let Some(kind) = by_name.or_else(|| KINDS.iter().find(starts)) {
            return self.open_several(*kind, &[path.to_owned()]);
        }
        #[cfg(feature = "manifest")]
        if has_extension(path, "csv") || has_extension(path, "jsonl") {
            return Ok(crate::manifest::Manifest::open(path)?.erased());
        }
        #[cfg(feature = "safetensors")]
        if has_extension(path, "safetensors") {
            return Ok(crate::safetensors::SafetensorsOptions::new().open(path)?.erased());
        }
        #[cfg(feature = "npz")]
        if has_extension(path, "npz") {
            return Ok(crate::npz::NpzOptions::new().open(path)?.erased());
        }
        #[cfg(feature = "tokens")]
        {
            use crate::tokens::{BlockOptions, Sequences};
            const BLOCK: usize = 1024;
            if start.starts_with(b"MMIDIDX\0") {
                return Ok(Sequences::open(path.with_extension(""))?.erased());
            }
            let magic = start.first_chunk().map(|bytes| i32::from_le_bytes(*bytes));
            if let Some(20_240_520 | 20_240_801) = magic {
                return Ok(BlockOptions::new(BLOCK).open_llmc([path])?.erased());
            }
            if has_extension(path, "bin") {
                if Files::open([path.with_extension("idx")]).is_ok() {
                    return Ok(Sequences::open(path.with_extension(""))?.erased());
                }
                return Ok(BlockOptions::new(BLOCK).open_raw([path])?.erased());
            }
        }
        if is_packed(path) || start.starts_with(&[0x1f, 0x8b]) {
            return Err(packed(path));
        }
        Err(unknown(path))
    }

    /// Opens files that make one dataset, or a folder that `save_to_disk` wrote.
    fn open_several(&self, kind: Several, paths: &[PathBuf]) -> Result<Records<dyn Format>, Error> {
        match kind {
            #[cfg(feature = "tar")]
            Several::Tar => {
                let mut options = crate::tar::TarOptions::new().index_files(self.index_files.clone());
                options.progress = self.progress.clone();
                Ok(options.open(paths)?.erased())
            }
            #[cfg(feature = "arrow")]
            Several::Arrow => {
                let mut options = crate::arrow::ArrowOptions::new();
                if let Some(names) = &self.columns {
                    options = options.columns(names);
                }
                Ok(options.open(paths)?.erased())
            }
            #[cfg(feature = "parquet")]
            Several::Parquet => {
                let mut options = crate::parquet::ParquetOptions::new();
                if let Some(names) = &self.columns {
                    options = options.columns(names);
                }
                Ok(options.open(paths)?.erased())
            }
            #[cfg(feature = "tfrecord")]
            Several::TfRecord => {
                let mut options = crate::tfrecord::TfRecordOptions::new().index_files(self.index_files.clone());
                options.progress = self.progress.clone();
                Ok(options.open(paths)?.erased())
            }
            #[cfg(not(all(feature = "tar", feature = "arrow", feature = "parquet", feature = "tfrecord")))]
            _ => Err(unknown(&paths[0])),
        }
    }
}

/// What several files may be that make one dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Several {
    Tar,
    Arrow,
    Parquet,
    TfRecord,
}

const KINDS: [Several; 4] = [Several::Tar, Several::Arrow, Several::Parquet, Several::TfRecord];

impl Several {
    /// Whether a file has a name of this kind.
    fn is(self, path: &Path) -> bool {
        let extensions: &[&str] = match self {
            Self::Tar => &["tar"],
            Self::Arrow => &["arrow", "feather"],
            Self::Parquet => &["parquet"],
            Self::TfRecord => &["tfrecord", "tfrecords"],
        };
        extensions.iter().any(|extension| has_extension(path, extension))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tar => "tars",
            Self::Arrow => "Arrow files",
            Self::Parquet => "Parquet files",
            Self::TfRecord => "TFRecord files",
        }
    }
}

/// Whether there is something below a URL: a bucket has no folders, only names with slashes, and a web server can't be
/// asked.
fn is_folder(path: &Path) -> bool {
    !path.starts_with("http:") && !path.starts_with("https:") && names_in(path).is_ok_and(|names| !names.is_empty())
}

/// Whether a name ends in this, in upper or lower case.
fn has_extension(path: &Path, extension: &str) -> bool {
    without_query(path).extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

/// Returns a URL of a web server without its query, which is no part of the name.
fn without_query(path: &Path) -> &Path {
    let is_web = path.starts_with("http:") || path.starts_with("https:");
    let name = path.to_str().filter(|_| is_web).and_then(|url| url.split('?').next());
    name.map_or(path, Path::new)
}

/// Whether this is the name of a packed tar.
fn is_packed(path: &Path) -> bool {
    let is = |extensions: [&str; 3]| extensions.iter().any(|extension| has_extension(path, extension));
    let is_tar = || without_query(path).file_stem().is_some_and(|stem| has_extension(Path::new(stem), "tar"));
    is(["tgz", "tbz2", "tzst"]) || is(["gz", "bz2", "zst"]) && is_tar()
}

/// The error for files that are packed.
fn packed(path: &Path) -> Error {
    let problem = "it is packed, so that its samples can't be read by index";
    Error::format(path.display(), None, problem, "unpack it; only tars are read packed, as streams")
}

fn unknown(path: &Path) -> Error {
    let problem = "not a format that this build reads";
    Error::format(path.display(), None, problem, "see the documentation of slotline-sources for its formats")
}
