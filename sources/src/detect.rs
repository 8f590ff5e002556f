//! Detects the format of a path, and opens it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::files::{Files, below, is_url, read_whole};
use crate::hive::{is_part, keys, parts, with_values};
use crate::kind::{Kind, is_web, one_kind, without_query};
use crate::listing::{Found, INDEX, Listing, below_url, data_of, find, index, kind_of, start};
#[cfg(feature = "manifest")]
use crate::manifest::Manifest;
use crate::open::Settings;
use crate::{Error, Format, OpenOptions, Records};

/// Opens data of any format whose cargo feature is enabled. The format is detected from names and
/// contents, and the [default options](OpenOptions) are used.
///
/// | path | format |
/// |---|---|
/// | a folder with an `index.json` of shards, or of chunks | [`mds`](crate::mds), [`litdata`](crate::litdata) |
/// | a folder with a `state.json` or `dataset_dict.json`, as `save_to_disk` of Hugging Face's `datasets` writes them | [`table`](crate::table) |
/// | a folder with a `metadata.csv` or `metadata.jsonl`, or with folders that each have one | [`manifest`](crate::manifest) |
/// | a `.csv`, `.tsv`, `.jsonl` or `.ndjson` file | [`manifest`](crate::manifest) |
/// | `.tar` files: one, several as a pattern (`shard-{000..099}.tar`), or a folder with such files | [`tar`](crate::tar) |
/// | `.arrow` or `.feather` files: one, several as a pattern, or a folder with such files | [`table`](crate::table) |
/// | `.parquet` files, in the same ways | [`table`](crate::table) |
/// | `.tfrecord` or `.tfrecords` files, in the same ways; also `train.tfrecord-00000-of-00001` | [`tfrecord`](crate::tfrecord) |
/// | a folder with folders that are named after values, such as `year=2024`, and hold files of one of these kinds | that of the files, with an additional field for each key |
/// | any other folder with folders in it | [`folder`](crate::folder) |
/// | token files of llm.c, by their magic number | [`tokens`](crate::tokens), in blocks of 1,024 |
/// | Megatron's `.idx`, or the `.bin` beside it | [`tokens`](crate::tokens), one sequence per sample |
/// | `.safetensors`, `.npz` | [`safetensors`](crate::safetensors), [`npz`](crate::npz): rows of all arrays |
/// | any other `.bin` | [`tokens`](crate::tokens) of nanoGPT, `u16`, in blocks of 1,024 |
///
/// Tars, Arrow, Parquet and TFRecord files are also recognised by their contents. A folder with
/// more than one kind of data is an error that names a file of each kind; plain text next to the
/// data, such as a README, is ignored.
///
/// A path may also be the URL of an object or of a folder in a bucket, or a pattern of URLs, if the
/// cargo feature for it is enabled (see [`Files::open`]). Web servers cannot list their
/// folders.
///
/// # Errors
///
/// If the path can't be read, or its format is unknown or its cargo feature is not enabled. Also
/// the errors of the format itself.
pub fn open(path: impl AsRef<Path>) -> Result<Records<dyn Format>, Error> {
    OpenOptions::new().open(path)
}

impl OpenOptions {
    /// Opens compressed tars (`.tar.gz`, `.tgz`, `.tar.bz2`, `.tbz2`, `.tar.zst`, `.tzst`) as a
    /// stream, since their samples can't be read by index. The path is that of one such tar, a
    /// pattern for several, or a folder that has only such tars to open. For any other path the
    /// result is `None`.
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
    /// The errors of [`TarOptions::stream`](crate::tar::TarOptions::stream). Also fails if only
    /// some of several files are compressed tars.
    #[cfg(feature = "tar")]
    pub fn open_stream(&self, path: impl AsRef<Path>) -> Result<Option<crate::tar::TarStream>, Error> {
        self.set.limited(|| self.set.stream_of(path.as_ref()))
    }
}

impl Settings {
    #[cfg(feature = "tar")]
    fn stream_of(&self, path: &Path) -> Result<Option<crate::tar::TarStream>, Error> {
        let is_plain = |extension: &str| extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
        // The extension alone shows that these are not compressed tars, so no folder need be
        // listed.
        let extension = without_query(path).extension().and_then(|found| found.to_str());
        if !path.is_dir() && extension.is_some_and(is_plain) && Kind::of(path) != Some(Kind::PackedTar) {
            return Ok(None);
        }
        let paths = match find(path)? {
            Found::Folder(listing) => match listing.data()? {
                (Some(Kind::PackedTar), files) if listing.folders.is_empty() => files,
                _ => return Ok(None),
            },
            Found::Files(paths) => {
                let kind = one_kind(path, paths.iter().map(|file| (Kind::of(file), file.as_path())))?;
                let other = paths.iter().find(|file| Kind::of(file) != Some(Kind::PackedTar));
                match (kind, other) {
                    (Some(Kind::PackedTar), None) => paths,
                    (Some(Kind::PackedTar), Some(other)) => {
                        let problem = format!("both packed tars and {}", other.display());
                        return Err(Error::in_file(path, problem, "pass a pattern for the tars alone"));
                    }
                    _ => return Ok(None),
                }
            }
        };
        Ok(Some(crate::tar::TarStream::open(self, paths)?))
    }

    /// Opens data with all its fields; of tables, only the chosen columns are opened.
    pub(crate) fn open_all(&self, path: &Path) -> Result<Records<dyn Format>, Error> {
        let paths = match find(path)? {
            Found::Folder(listing) => return self.open_folder(&listing),
            Found::Files(paths) => paths,
        };
        if let [one] = &paths[..] {
            let url = without_query(one);
            if is_web(url) && url.as_os_str().as_encoded_bytes().ends_with(b"/") {
                let problem = "a folder of a web server, which can't be asked what is in it";
                let advice = "name the files, as in `https://host/folder/{000..003}.tar`";
                return Err(Error::in_file(url, problem, advice));
            }
            return match Files::open([one]) {
                Ok(files) => self.open_file(one, &start(&files)?),
                Err(error) => below_url(one).map_or(Err(error), |listing| self.open_folder(&listing)),
            };
        }
        match kind_of(path, &paths)? {
            Some(kind) if kind.is_shard() => self.open_several(kind, &paths),
            _ => {
                let problem = format!("{} files", paths.len());
                let advice = "pass one, or a pattern for tars, or for Arrow, Parquet or TFRecord files";
                Err(Error::in_file(path, problem, advice))
            }
        }
    }

    fn open_folder(&self, listing: &Listing) -> Result<Records<dyn Format>, Error> {
        let Listing { path, folders, .. } = listing;
        let (kind, files) = listing.data()?;
        match kind {
            #[cfg(feature = "mds")]
            Some(Kind::Mds) => return Ok(self.of::<crate::mds::Mds>().open(path)?.erased()),
            #[cfg(feature = "litdata")]
            Some(Kind::LitData) => return Ok(self.of::<crate::litdata::LitData>().open(path)?.erased()),
            Some(Kind::Saved) => return self.open_several(Kind::Arrow, std::slice::from_ref(path)),
            Some(Kind::Metadata) => return self.open_metadata(&files[0]),
            Some(kind) if kind.is_shard() => {
                let [file, ..] = &files[..] else { return Err(unknown(path)) };
                if folders.is_empty() {
                    return self.open_several(kind, &files);
                }
                let name = file.file_name().unwrap_or_default().display();
                let problem = format!("a folder with {name} and folders ({})", listed(folders));
                let advice =
                    "pass a pattern for the files, such as `folder/*.tar`; or move them out of the folder of classes";
                return Err(Error::in_file(path, problem, advice));
            }
            Some(Kind::Packed) => return Err(packed(&files[0])),
            _ => {}
        }
        #[cfg(feature = "folder")]
        if self.mask_folder.is_some() {
            return Ok(self.of::<crate::folder::Folder>().open(path)?.erased());
        }
        if !folders.is_empty()
            && folders.iter().all(|name| is_part(name))
            && let Some(records) = self.open_parts(path)?
        {
            return Ok(records);
        }
        if folders.is_empty() && !listing.has_hidden() {
            let problem = "not a dataset: no index.json of MDS or LitData, state.json, metadata.csv or metadata.jsonl in it, and no \
                           tars, Arrow, Parquet or TFRecord files, or folders for classes";
            let advice = "pass a file in it, or a pattern; or the folder that has a folder for each class";
            return Err(Error::in_file(path, problem, advice));
        }
        self.open_folders(path, folders)
    }

    /// Opens a file that starts with these bytes.
    fn open_file(&self, path: &Path, start: &[u8]) -> Result<Records<dyn Format>, Error> {
        let kind =
            Kind::of(path).filter(|kind| kind.is_shard() || *kind == Kind::Rows).or_else(|| Kind::of_start(start));
        match kind {
            #[cfg(feature = "manifest")]
            Some(Kind::Rows) => return Ok(self.of::<Manifest>().open(path)?.erased()),
            Some(kind) if kind.is_shard() => return self.open_several(kind, &[path.to_owned()]),
            _ => {}
        }
        #[cfg(feature = "safetensors")]
        if has_extension(path, "safetensors") {
            return Ok(self.of::<crate::safetensors::Safetensors>().open(path)?.erased());
        }
        #[cfg(feature = "npz")]
        if has_extension(path, "npz") {
            return Ok(self.of::<crate::npz::Npz>().open(path)?.erased());
        }
        #[cfg(feature = "tokens")]
        {
            if start.starts_with(b"MMIDIDX\0") {
                return Ok(self.sequences()?.open(path.with_extension(""))?.erased());
            }
            let magic = start.first_chunk().map(|bytes| i32::from_le_bytes(*bytes));
            if self.dtype.is_none() && matches!(magic, Some(20_240_520 | 20_240_801)) {
                return Ok(self.blocks()?.open_llmc([path])?.erased());
            }
            if has_extension(path, "bin") {
                if Files::open([path.with_extension("idx")]).is_ok() {
                    return Ok(self.sequences()?.open(path.with_extension(""))?.erased());
                }
                return Ok(self.blocks()?.open_raw([path])?.erased());
            }
        }
        if start.starts_with(&[0x1f, 0x8b]) {
            return Err(packed(path));
        }
        Err(unknown(path))
    }

    /// Opens files in folders that are named after values, such as `year=2024`. Returns `None` if
    /// the folders are classes that happen to have such names.
    fn open_parts(&self, path: &Path) -> Result<Option<Records<dyn Format>>, Error> {
        let mut parts = parts(path)?;
        let paths: Vec<PathBuf> = parts.iter().map(|part| part.path.clone()).collect();
        let Some((kind, paths)) = data_of(path, &paths)? else { return Ok(None) };
        if !kind.is_shard() {
            if self.extensions.is_some() {
                return Ok(None);
            }
            let problem = "files of a kind that is not read in folders that are named after values";
            return Err(Error::in_file(&paths[0], problem, "pass one of them"));
        }
        let known: HashSet<&PathBuf> = paths.iter().collect();
        parts.retain(|part| known.contains(&part.path));
        let keys = keys(&parts)?;
        let mut of_files = Self { in_parts: true, ..self.clone() };
        let names = self.columns.iter().flatten().filter(|name| !keys.contains(&name.as_str())).cloned();
        of_files.columns = Some(names.collect()).filter(|names: &Vec<String>| !names.is_empty());
        let records = of_files.open_several(kind, &paths)?;
        Ok(Some(with_values(records.shared(), &parts, self.missing_as_zero)?.erased()))
    }

    /// Opens the dataset that is in one of these folders or, if there is none, treats the folders
    /// as classes.
    fn open_folders(&self, path: &Path, folders: &[String]) -> Result<Records<dyn Format>, Error> {
        #[cfg(all(feature = "folder", feature = "remote"))]
        let objects = if is_url(path) { Some(self.list_url(&path.to_string_lossy())?) } else { None };
        let has = |folder: &str, name: &str| {
            #[cfg(all(feature = "folder", feature = "remote"))]
            if let Some(objects) = &objects {
                let name = format!("{folder}/{name}");
                return objects.binary_search_by(|object| object.name.as_str().cmp(&name)).is_ok();
            }
            path.join(folder).join(name).is_file()
        };
        let mut datasets = Vec::new();
        for folder in folders {
            if is_dataset(&below(path, folder), |name| has(folder, name))? {
                datasets.push(folder);
            }
        }
        match datasets[..] {
            [] => {}
            [only] if folders.len() == 1 => return self.open_folder(&Listing::of(&below(path, only))?),
            #[cfg(feature = "manifest")]
            _ if let Some(name) = METADATA.into_iter().find(|name| folders.iter().all(|folder| has(folder, name))) => {
                let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
                return Ok(self.open_splits(path, &folders, name)?.erased());
            }
            _ => {
                let problem = format!("a folder of datasets: {}", listed(&datasets));
                return Err(Error::in_file(path, problem, "open the folder of one, or concatenate them"));
            }
        }
        #[cfg(all(feature = "folder", feature = "remote"))]
        if let Some(objects) = objects {
            return Ok(self.of_url(&path.to_string_lossy(), objects)?.erased());
        }
        #[cfg(feature = "folder")]
        return Ok(self.of::<crate::folder::Folder>().open(path)?.erased());
        #[cfg(not(feature = "folder"))]
        Err(unknown(path))
    }

    /// Opens the metadata file of a folder.
    fn open_metadata(&self, path: &Path) -> Result<Records<dyn Format>, Error> {
        if Kind::of(path) == Some(Kind::Parquet) {
            let problem = "metadata in Parquet are not read with the files that they name";
            let advice = "write them as metadata.jsonl in its place; or pass this file, for its rows alone";
            return Err(Error::in_file(path, problem, advice));
        }
        #[cfg(feature = "manifest")]
        return Ok(self.of::<Manifest>().open(path)?.erased());
        #[cfg(not(feature = "manifest"))]
        Err(unknown(path))
    }

    /// Opens several files as one dataset, or a folder that `save_to_disk` of Hugging Face's
    /// `datasets` wrote.
    fn open_several(&self, kind: Kind, paths: &[PathBuf]) -> Result<Records<dyn Format>, Error> {
        match kind {
            #[cfg(feature = "tar")]
            Kind::Tar => Ok(self.of::<crate::tar::Tar>().open(paths)?.erased()),
            #[cfg(feature = "arrow")]
            Kind::Arrow => Ok(self.of_arrow().of::<crate::table::Table>().open(paths)?.erased()),
            #[cfg(feature = "parquet")]
            Kind::Parquet => Ok(self.of::<crate::table::Table>().open(paths)?.erased()),
            #[cfg(feature = "tfrecord")]
            Kind::TfRecord => Ok(self.of::<crate::tfrecord::TfRecord>().open(paths)?.erased()),
            Kind::PackedTar => Err(packed(&paths[0])),
            _ => Err(unknown(&paths[0])),
        }
    }
}

/// The names of metadata files that each of several folders may have.
const METADATA: [&str; 2] = ["metadata.csv", "metadata.jsonl"];

/// Whether a folder is a dataset by itself, given which file names it `has`. Otherwise it may be
/// the folder of a class, which may hold any files.
fn is_dataset(folder: &Path, has: impl Fn(&str) -> bool) -> Result<bool, Error> {
    if METADATA.into_iter().chain(["metadata.parquet", "_SUCCESS"]).any(&has) {
        return Ok(true);
    }
    if has(INDEX) && index(folder)?.is_some() {
        return Ok(true);
    }
    Ok(has("state.json")
        && String::from_utf8_lossy(&read_whole(&below(folder, "state.json"))?).contains("\"_data_files\""))
}

/// Returns the first names as a list for a message.
fn listed(names: &[impl AsRef<str>]) -> String {
    let more = if names.len() > 5 { ", …" } else { "" };
    names.iter().take(5).map(AsRef::as_ref).collect::<Vec<_>>().join(", ") + more
}

/// Whether a name has this extension, in upper or lower case.
fn has_extension(path: &Path, extension: &str) -> bool {
    without_query(path).extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

/// Creates the error for a compressed file.
fn packed(path: &Path) -> Error {
    let problem = "it is packed, so that its samples can't be read by index";
    Error::in_file(path, problem, "unpack it; only tars are read packed, as streams")
}

fn unknown(path: &Path) -> Error {
    let problem = "not a format that this build reads";
    Error::in_file(path, problem, "see the documentation of slotline-sources for its formats")
}
