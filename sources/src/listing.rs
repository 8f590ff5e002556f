//! The files that a path stands for, and the contents of a folder.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::files::{Files, Span, below, is_url, names_in, read_whole};
use crate::hive::folders;
use crate::kind::{Kind, both, is_text, is_web, one_kind};
use crate::saved::is_index;

/// The index of MDS or LitData; its contents show which of the two.
pub(crate) const INDEX: &str = "index.json";

/// The names of files that describe the contents of a folder. The last three are the metadata of
/// Hugging Face's folders of pictures.
const INDEX_FILES: [(&str, Kind); 6] = [
    (INDEX, Kind::Mds),
    ("state.json", Kind::Saved),
    ("dataset_dict.json", Kind::Saved),
    ("metadata.csv", Kind::Metadata),
    ("metadata.jsonl", Kind::Metadata),
    ("metadata.parquet", Kind::Metadata),
];

/// The result of looking up a path.
pub(crate) enum Found {
    Folder(Listing),
    Files(Vec<PathBuf>),
}

/// The names in a folder.
pub(crate) struct Listing {
    pub(crate) path: PathBuf,
    /// The names of the folders, except those that begin with a dot or `_`.
    pub(crate) folders: Vec<String>,
    /// All other names that do not begin with a dot.
    others: Vec<String>,
}

/// Lists the files that match a pattern, or the contents of a folder.
pub(crate) fn find(path: &Path) -> Result<Found, Error> {
    let paths = if path.exists() { vec![path.to_owned()] } else { crate::paths::expand([path])? };
    if let [one] = &paths[..] {
        if one.is_dir() {
            return Ok(Found::Folder(Listing::of(one)?));
        }
        if one.extension().is_none()
            && let Some(listing) = below_url(one)
        {
            return Ok(Found::Folder(listing));
        }
    }
    Ok(Found::Files(paths))
}

/// Lists the objects below a URL, or returns `None` if there are none. (A bucket has no folders,
/// only names with slashes.)
pub(crate) fn below_url(path: &Path) -> Option<Listing> {
    let listing = (is_url(path) && !is_web(path)).then(|| Listing::of(path).ok())??;
    (!listing.folders.is_empty() || !listing.others.is_empty()).then_some(listing)
}

impl Listing {
    pub(crate) fn of(path: &Path) -> Result<Self, Error> {
        let mut names = names_in(path)?;
        let folders: Vec<String> = folders(path, &names).into_iter().map(str::to_owned).collect();
        let known: HashSet<&str> = folders.iter().map(String::as_str).collect();
        names.retain(|name| !name.starts_with('.') && !is_index(name) && !known.contains(name.trim_end_matches('/')));
        Ok(Self { path: path.to_owned(), folders, others: names })
    }

    /// Whether there are folders whose names begin with `_`. If there are other folders, too, the
    /// ones with `_` are assumed to hold no data.
    pub(crate) fn has_hidden(&self) -> bool {
        let is_folder = |name: &str| name.ends_with('/') || self.path.join(name).is_dir();
        self.others.iter().any(|name| name.starts_with('_') && is_folder(name))
    }

    /// Returns the kind of the data files, and the files that are data or describe the folder's
    /// contents.
    pub(crate) fn data(&self) -> Result<(Option<Kind>, Vec<PathBuf>), Error> {
        let mut files: Vec<PathBuf> = self.others.iter().map(|name| below(&self.path, name)).collect();
        // Next to folders of classes, or to a file that describes the folder, only shards count as
        // data: tables such as CSV files, and arrays, may be the user's notes.
        let is_shard = |path: &PathBuf| Kind::of(path).is_some_and(Kind::is_shard);
        let mut marks = Vec::new();
        for (name, kind) in INDEX_FILES.into_iter().filter(|(name, _)| self.others.iter().any(|other| other == name)) {
            let kind = if name == INDEX { index(&self.path)? } else { Some(kind) };
            marks.extend(kind.map(|kind| (kind, below(&self.path, name))));
        }
        let Some((kind, mark)) = marks.first().cloned() else {
            if !self.folders.is_empty() {
                files.retain(is_shard);
            }
            return Ok(data_of(&self.path, &files)?.map_or((None, files), |(kind, files)| (Some(kind), files)));
        };
        let same = |other: Kind| other == kind && kind != Kind::Metadata || (kind, other) == (Kind::Saved, Kind::Arrow);
        files.retain(|file| is_shard(file) && *file != mark);
        let strays = files.iter().filter_map(|file| Some((Kind::of(file)?, file.clone())));
        let mut strays = marks.drain(1..).chain(strays).filter(|(other, _)| !same(*other)).peekable();
        if strays.peek().is_some() {
            let text = read_whole(&mark)?;
            let text = String::from_utf8_lossy(&text);
            let is_named = |file: &Path| file.file_name().is_some_and(|name| text.contains(&*name.to_string_lossy()));
            if let Some((other, file)) = strays.find(|(_, file)| !is_named(file)) {
                return Err(both(&self.path, (kind, &mark), (other, &file)));
            }
        }
        Ok((Some(kind), vec![mark]))
    }
}

/// Returns which format the `index.json` in a folder belongs to.
pub(crate) fn index(folder: &Path) -> Result<Option<Kind>, Error> {
    let text = read_whole(&below(folder, INDEX))?;
    let text = String::from_utf8_lossy(&text);
    let kinds = [("\"shards\"", Kind::Mds), ("\"chunks\"", Kind::LitData)];
    Ok(kinds.into_iter().find(|(key, _)| text.contains(key)).map(|(_, kind)| kind))
}

/// Returns the kind of the data files in `folder`, and which of the files are data. If a file has
/// no extension, its kind is determined from its contents; the same is done for all files if no
/// extension is known. Text files found in this way, such as a README, are not data.
pub(crate) fn data_of(folder: &Path, files: &[PathBuf]) -> Result<Option<(Kind, Vec<PathBuf>)>, Error> {
    let is_named = files.iter().any(|file| Kind::of(file).is_some());
    let mut found: Vec<(Option<Kind>, &Path)> = Vec::new();
    for file in files {
        let mut kind = Kind::of(file);
        if kind.is_none() {
            // Files such as `_SUCCESS` are not data.
            let is_note = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"_"));
            if is_note || is_named && file.extension().is_some() {
                continue;
            }
            let start = start(&Files::open([file])?)?;
            kind = Kind::of_start(&start);
            match kind {
                None if is_named || is_text(&start) => continue,
                None if !start.is_empty() && found.iter().all(|(kind, _)| kind.is_none()) => return Ok(None),
                _ => {}
            }
        }
        found.push((kind, file));
    }
    let kind = one_kind(folder, found.iter().copied())?;
    Ok(kind.map(|kind| (kind, found.into_iter().map(|(_, file)| file.to_owned()).collect())))
}

/// Returns the first bytes of the first file.
pub(crate) fn start(files: &Files) -> Result<Vec<u8>, Error> {
    let len = files.file_len(0).unwrap_or(0).min(1 << 10);
    let mut memory = Vec::new();
    Ok(files.read(Span { file: 0, start: 0, len: Some(len) }, &mut memory)?.to_vec())
}

/// Returns the kind of several files: the kind that their names show, or else that of the first
/// file's contents.
pub(crate) fn kind_of(path: &Path, files: &[PathBuf]) -> Result<Option<Kind>, Error> {
    match one_kind(path, files.iter().map(|file| (Kind::of(file), file.as_path())))? {
        None => Ok(Kind::of_start(&start(&Files::open([&files[0]])?)?)),
        kind => Ok(kind),
    }
}
