//! The kinds of files, recognised by their names and first bytes.

use std::path::{Path, PathBuf};

use crate::Error;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tar,
    Arrow,
    Parquet,
    TfRecord,
    /// A compressed tar, which is read as a stream.
    PackedTar,
    /// A CSV or JSONL file.
    Rows,
    /// An npz or safetensors file.
    Arrays,
    Tokens,
    /// A compressed file of another kind, which is not supported.
    Packed,
    /// This and the following kinds are files that describe a folder: an index of MDS or LitData,
    /// the state file that `save_to_disk` of Hugging Face's `datasets` writes, or the metadata of
    /// its image and audio folders.
    Mds,
    LitData,
    Saved,
    Metadata,
}

impl Kind {
    /// Returns the kind that the name of a file shows.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let path = unsharded(without_query(path));
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match &*extension {
            "tar" => Self::Tar,
            "arrow" | "feather" => Self::Arrow,
            "parquet" => Self::Parquet,
            "tfrecord" | "tfrecords" => Self::TfRecord,
            "tgz" | "tbz2" | "tzst" => Self::PackedTar,
            "csv" | "tsv" | "jsonl" | "ndjson" => Self::Rows,
            "npz" | "safetensors" => Self::Arrays,
            "bin" => Self::Tokens,
            "gz" | "bz2" | "zst" | "xz" | "lz4" | "zip" => match Self::of(Path::new(path.file_stem()?))? {
                Self::Tar if matches!(&*extension, "gz" | "bz2" | "zst") => Self::PackedTar,
                _ => Self::Packed,
            },
            _ => return None,
        })
    }

    /// Returns the kind that the first bytes of a file show.
    pub(crate) fn of_start(start: &[u8]) -> Option<Self> {
        #[cfg(feature = "tfrecord")]
        let is_tfrecord = crate::tfrecord::is_start(start);
        #[cfg(not(feature = "tfrecord"))]
        let is_tfrecord = false;
        match start {
            _ if start.get(257..262) == Some(b"ustar") => Some(Self::Tar),
            _ if start.starts_with(b"ARROW1\0\0") => Some(Self::Arrow),
            _ if start.starts_with(b"PAR1") || start.starts_with(b"PARE") => Some(Self::Parquet),
            _ => is_tfrecord.then_some(Self::TfRecord),
        }
    }

    /// Whether several files of this kind make one dataset.
    pub(crate) fn is_shard(self) -> bool {
        matches!(self, Self::Tar | Self::Arrow | Self::Parquet | Self::TfRecord | Self::PackedTar)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tar => "tars",
            Self::Arrow => "Arrow files",
            Self::Parquet => "Parquet files",
            Self::TfRecord => "TFRecord files",
            Self::PackedTar => "packed tars",
            Self::Rows => "CSV or JSONL",
            Self::Arrays => "arrays",
            Self::Tokens => "tokens",
            Self::Packed => "packed files",
            Self::Mds => "an index of MDS",
            Self::LitData => "an index of LitData",
            Self::Saved => "a dataset of `save_to_disk`",
            Self::Metadata => "metadata",
        }
    }
}

/// Returns the common kind of files, ignoring files whose kind is unknown. Returns `None` if none
/// is known, and an error if there are two kinds.
pub(crate) fn one_kind<'a>(
    path: &Path,
    files: impl IntoIterator<Item = (Option<Kind>, &'a Path)>,
) -> Result<Option<Kind>, Error> {
    let mut known = files.into_iter().filter_map(|(kind, file)| Some((kind?, file)));
    let Some(first) = known.next() else { return Ok(None) };
    match known.find(|(kind, _)| *kind != first.0) {
        Some(other) => Err(both(path, first, other)),
        None => Ok(Some(first.0)),
    }
}

/// Creates the error for a folder or a list of files with two kinds of data.
pub(crate) fn both(path: &Path, one: (Kind, &Path), other: (Kind, &Path)) -> Error {
    let named = |(kind, file): (Kind, &Path)| {
        format!("{} ({})", kind.name(), without_query(file).file_name().unwrap_or_default().display())
    };
    let problem = format!("both {} and {}", named(one), named(other));
    let advice = "pass those to read, as a file or a pattern such as `folder/*.tar`, or move the others away";
    Error::in_file(path, problem, advice)
}

/// Whether the first bytes of a file are plain text, as in a README. No format with a magic number
/// begins like that.
pub(crate) fn is_text(start: &[u8]) -> bool {
    let is_utf8 = match std::str::from_utf8(start) {
        Ok(_) => true,
        // A character that is cut at the end of the bytes is allowed.
        Err(error) => error.error_len().is_none(),
    };
    !start.is_empty() && is_utf8 && !start.contains(&0)
}

/// Returns a path without the number of a shard after its extension, as in
/// `train.tfrecord-00000-of-00001`.
fn unsharded(path: &Path) -> PathBuf {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let shard = name.rsplit_once("-of-").filter(|(_, count)| is_number(count));
    let shard = shard.and_then(|(rest, _)| rest.rsplit_once('-')).filter(|(_, number)| is_number(number));
    shard.map_or(path.to_owned(), |(name, _)| path.with_file_name(name))
}

/// Whether this is the URL of a web server, which cannot list its folders.
pub(crate) fn is_web(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with("http://") || path.starts_with("https://"))
}

/// Returns the URL of a web server without its query, which is not part of the file's name.
pub(crate) fn without_query(path: &Path) -> &Path {
    let name = path.to_str().filter(|_| is_web(path)).and_then(|url| url.split('?').next());
    name.map_or(path, Path::new)
}
