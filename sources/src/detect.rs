//! Finding out what a path is.

use std::path::{Path, PathBuf};

use crate::files::{Files, Span, below, is_url, names_in, read_whole};
use crate::hive::{Hive, folders, is_part, parts};
use crate::open::{ARROW, PARQUET};
use crate::saved::is_index;
use crate::{Error, Format, OpenOptions, Records};

/// Opens data of any format that was built in, by its contents and its names, with the [default options](OpenOptions).
///
/// | path | format |
/// |---|---|
/// | a folder with an `index.json` of shards, or of chunks | [`mds`](crate::mds), [`litdata`](crate::litdata) |
/// | a folder with a `state.json` or `dataset_dict.json`, as `save_to_disk` writes them | [`table`](crate::table) |
/// | a folder with a `metadata.csv` or `metadata.jsonl`, or with folders of which each has one | [`manifest`](crate::manifest) |
/// | a `.csv`, `.tsv`, `.jsonl` or `.ndjson` file | [`manifest`](crate::manifest) |
/// | `.tar`: a folder with such files in it, one, or several, as a pattern (`shard-{000..099}.tar`) | [`tar`](crate::tar) |
/// | `.arrow`, `.feather`, the same | [`table`](crate::table) |
/// | `.parquet`, the same | [`table`](crate::table) |
/// | `.tfrecord`, `.tfrecords`, the same; also `train.tfrecord-00000-of-00001` | [`tfrecord`](crate::tfrecord) |
/// | a folder with folders such as `year=2024`, which are named after values, of files of one of these kinds | theirs, with a field for each key |
/// | another folder, with folders in it | [`folder`](crate::folder) |
/// | llm.c's tokens, by their magic number | [`tokens`](crate::tokens), in blocks of 1,024 |
/// | Megatron's `.idx`, or the `.bin` beside it | [`tokens`](crate::tokens), a sequence for each sample |
/// | `.safetensors`, `.npz` | [`safetensors`](crate::safetensors), [`npz`](crate::npz): rows of all arrays |
/// | another `.bin` | [`tokens`](crate::tokens) of nanoGPT, `u16`, in blocks of 1,024 |
///
/// Tars, Arrow, Parquet and TFRecord are also known by their contents. A folder with more than one kind of data is an error
/// that names what is in it.
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

impl OpenOptions {
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
            let is_other = |path: &&PathBuf| path.is_dir() || KINDS.iter().any(|kind| kind.is(path));
            if let Some(other) = visible.iter().find(is_other) {
                // What is in folders says which files are strays.
                return match visible.iter().find(|path| is_packed(path)) {
                    Some(packed) if !other.is_dir() => {
                        let problem = format!("both {} and {}", packed.display(), other.display());
                        Err(Error::format(path.display(), None, problem, "pass a pattern for one kind of files"))
                    }
                    _ => Ok(None),
                };
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
        Ok(Some(self.tar()?.stream(paths)?))
    }

    /// Opens data with all its fields, but only the chosen columns of tables.
    pub(crate) fn open_all(&self, path: &Path) -> Result<Records<dyn Format>, Error> {
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
                    let by_name = KINDS.into_iter().find(|kind| several.iter().all(|path| kind.is(path)));
                    return match by_name.or(kind_of(&several[0])?) {
                        Some(kind) => self.open_several(kind, several),
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
        self.open_file(path, &start(&files)?)
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
                return Ok(self.mds().open(path)?.erased());
            }
            #[cfg(feature = "litdata")]
            if index.contains("\"chunks\"") {
                return Ok(self.litdata().open(path)?.erased());
            }
        }
        #[cfg(feature = "arrow")]
        if has("state.json") || has("dataset_dict.json") {
            return self.open_several(Several::Arrow, &[path.to_owned()]);
        }
        #[cfg(feature = "manifest")]
        for name in METADATA {
            if has(name) {
                return Ok(self.manifest().open(path.join(name))?.erased());
            }
        }
        let folders = folders(path, &names);
        if !folders.is_empty() && folders.iter().all(|name| is_part(name)) {
            return self.open_parts(path);
        }
        let is_file = |name: &&String| {
            !name.starts_with('.') && !is_index(name) && !folders.contains(&name.trim_end_matches('/'))
        };
        let visible = names.iter().filter(is_file).map(|name| below(path, name));
        let visible: Vec<PathBuf> = visible.collect();
        let is_stray = |path: &&PathBuf| is_packed(path) || KINDS.iter().any(|kind| kind.is(path));
        if !folders.is_empty()
            && let Some(file) = visible.iter().find(is_stray).and_then(|path| path.file_name())
        {
            let problem = format!("a folder with {} and folders ({})", file.display(), listed(&folders));
            let advice =
                "pass a pattern for the files, such as `folder/*.tar`; or move them out of the folder of classes";
            return Err(Error::format(path.display(), None, problem, advice));
        }
        let kinds: Vec<Several> = KINDS.into_iter().filter(|kind| visible.iter().any(|path| kind.is(path))).collect();
        match kinds[..] {
            [] if folders.is_empty() => {
                // Such as `part-r-00000`, beside `_SUCCESS`.
                let is_data =
                    |path: &PathBuf| path.file_name().is_none_or(|name| !name.as_encoded_bytes().starts_with(b"_"));
                let files: Vec<PathBuf> = visible.iter().filter(|path| is_data(path)).cloned().collect();
                if let Some(kind) = files.first().map(|first| kind_of(first)).transpose()?.flatten() {
                    return self.open_several(kind, &files);
                }
            }
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
        let datasets: Vec<&str> = folders.iter().copied().filter(|name| is_dataset(&below(path, name))).collect();
        match datasets[..] {
            [] => {}
            [only] if folders.len() == 1 => return self.open_folder(&below(path, only)),
            #[cfg(feature = "manifest")]
            _ if let Some(name) = metadata_of_all(path, &folders) => {
                return Ok(self.manifest().open_splits(path, &folders, name)?.erased());
            }
            _ => {
                let problem = format!("a folder of datasets: {}", listed(&datasets));
                return Err(Error::format(
                    path.display(),
                    None,
                    problem,
                    "open the folder of one, or concatenate them",
                ));
            }
        }
        if !is_url(path) && folders.is_empty() {
            if visible.iter().any(|path| is_packed(path)) {
                return Err(packed(path));
            }
            let problem = "not a dataset: no index.json of MDS or LitData, state.json, metadata.csv or metadata.jsonl in it, and no \
                           tars, Arrow, Parquet or TFRecord files, or folders for classes";
            let advice = "pass a file in it, or a pattern; or the folder that has a folder for each class";
            return Err(Error::format(path.display(), None, problem, advice));
        }
        #[cfg(feature = "folder")]
        return Ok(self.folder().open(path)?.erased());
        #[cfg(not(feature = "folder"))]
        Err(unknown(path))
    }

    /// Opens a file that starts with these bytes.
    fn open_file(&self, path: &Path, start: &[u8]) -> Result<Records<dyn Format>, Error> {
        let by_name = KINDS.into_iter().find(|kind| kind.is(path));
        if let Some(kind) = by_name.or_else(|| KINDS.into_iter().find(|kind| kind.starts(start))) {
            return self.open_several(kind, &[path.to_owned()]);
        }
        #[cfg(feature = "manifest")]
        if ["csv", "tsv", "jsonl", "ndjson"].iter().any(|extension| has_extension(path, extension)) {
            return Ok(self.manifest().open(path)?.erased());
        }
        #[cfg(feature = "safetensors")]
        if has_extension(path, "safetensors") {
            return Ok(self.safetensors().open(path)?.erased());
        }
        #[cfg(feature = "npz")]
        if has_extension(path, "npz") {
            return Ok(self.npz().open(path)?.erased());
        }
        #[cfg(feature = "tokens")]
        {
            use crate::tokens::Sequences;
            if start.starts_with(b"MMIDIDX\0") {
                return Ok(Sequences::open(path.with_extension(""))?.erased());
            }
            let magic = start.first_chunk().map(|bytes| i32::from_le_bytes(*bytes));
            if self.dtype.is_none() && matches!(magic, Some(20_240_520 | 20_240_801)) {
                return Ok(self.blocks().open_llmc([path])?.erased());
            }
            if has_extension(path, "bin") {
                if Files::open([path.with_extension("idx")]).is_ok() {
                    return Ok(Sequences::open(path.with_extension(""))?.erased());
                }
                return Ok(self.blocks().open_raw([path])?.erased());
            }
        }
        if is_packed(path) || start.starts_with(&[0x1f, 0x8b]) {
            return Err(packed(path));
        }
        Err(unknown(path))
    }

    /// Opens files in folders that are named after values.
    fn open_parts(&self, path: &Path) -> Result<Records<dyn Format>, Error> {
        let parts = parts(path)?;
        let paths: Vec<PathBuf> = parts.iter().map(|part| part.path.clone()).collect();
        let by_name = KINDS.into_iter().find(|kind| paths.iter().all(|path| kind.is(path)));
        let Some(kind) = by_name.or(kind_of(&paths[0])?) else {
            let problem = "files of different kinds, or of none that is read, in folders that are named after values";
            return Err(Error::format(path.display(), None, problem, "pass a pattern for those that you mean"));
        };
        let mut of_files = self.clone();
        let is_key = |name: &String| parts[0].values.iter().any(|(key, _)| key == name);
        let names = self.columns.iter().flatten().filter(|name| !is_key(name)).cloned();
        of_files.columns = Some(names.collect()).filter(|names: &Vec<String>| !names.is_empty());
        let records = of_files.open_several(kind, &paths)?;
        Ok(Hive::new(records.shared(), &parts, self.missing_as_zero)?.erased())
    }

    /// Opens files that make one dataset, or a folder that `save_to_disk` wrote.
    fn open_several(&self, kind: Several, paths: &[PathBuf]) -> Result<Records<dyn Format>, Error> {
        match kind {
            #[cfg(feature = "tar")]
            Several::Tar => Ok(self.tar()?.open(paths)?.erased()),
            #[cfg(feature = "arrow")]
            Several::Arrow if self.maps && !paths.iter().any(|path| is_url(path)) => {
                // SAFETY: the caller of `map_arrow` guarantees that the files do not change.
                Ok(unsafe { self.table(ARROW).map(paths) }?.erased())
            }
            #[cfg(feature = "arrow")]
            Several::Arrow => Ok(self.table(ARROW).open(paths)?.erased()),
            #[cfg(feature = "parquet")]
            Several::Parquet => Ok(self.table(PARQUET).open(paths)?.erased()),
            #[cfg(feature = "tfrecord")]
            Several::TfRecord => Ok(self.tfrecord().open(paths)?.erased()),
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

/// What Hugging Face's folders of pictures name the manifest of a folder.
const METADATA: [&str; 2] = ["metadata.csv", "metadata.jsonl"];

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
        let path = unsharded(path);
        extensions.iter().any(|extension| has_extension(&path, extension))
    }

    /// Whether a file that starts with these bytes is of this kind.
    fn starts(self, start: &[u8]) -> bool {
        match self {
            Self::Tar => start.get(257..262) == Some(b"ustar"),
            Self::Arrow => start.starts_with(b"ARROW1\0\0"),
            Self::Parquet => start.starts_with(b"PAR1"),
            #[cfg(feature = "tfrecord")]
            Self::TfRecord => crate::tfrecord::is_start(start),
            #[cfg(not(feature = "tfrecord"))]
            Self::TfRecord => false,
        }
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

/// Returns the first bytes of the first file.
fn start(files: &Files) -> Result<Vec<u8>, Error> {
    let len = files.file_len(0).unwrap_or(0).min(1 << 10);
    let mut memory = Vec::new();
    Ok(files.read(Span { file: 0, start: 0, len: Some(len) }, &mut memory)?.to_vec())
}

/// Returns what a file is by its contents.
fn kind_of(path: &Path) -> Result<Option<Several>, Error> {
    let start = start(&Files::open([path])?)?;
    Ok(KINDS.into_iter().find(|kind| kind.starts(&start)))
}

/// Returns a path without the number of a shard after its extension, as in `train.tfrecord-00000-of-00001`.
fn unsharded(path: &Path) -> PathBuf {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let shard = name.rsplit_once("-of-").filter(|(_, count)| is_number(count));
    let shard = shard.and_then(|(rest, _)| rest.rsplit_once('-')).filter(|(_, number)| is_number(number));
    shard.map_or(path.to_owned(), |(name, _)| path.with_file_name(name))
}

/// Whether a local folder is a dataset itself, and not that of a class.
fn is_dataset(folder: &Path) -> bool {
    let marks = METADATA.into_iter().chain(["_SUCCESS", "index.json", "state.json"]);
    !is_url(folder) && marks.into_iter().any(|name| folder.join(name).is_file())
}

/// Returns the name of the metadata that each of these folders has.
fn metadata_of_all(path: &Path, folders: &[&str]) -> Option<&'static str> {
    METADATA.into_iter().find(|name| folders.iter().all(|folder| path.join(folder).join(name).is_file()))
}

/// Lists some names, for a message.
fn listed(names: &[&str]) -> String {
    let more = if names.len() > 5 { ", …" } else { "" };
    names[..names.len().min(5)].join(", ") + more
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
