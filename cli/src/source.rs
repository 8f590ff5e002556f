//! The dataset that a command reads: arrays by name, or files and folders whose format is detected.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::Args;
use slotline::array::AnyArray;
use slotline::dataset::TensorDataset;
use slotline::sanitized;
use slotline::source::{ParseSourceError, Source};
#[cfg(feature = "image")]
use slotline_sources::pictures::Pictures;
use slotline_sources::tar::TarStream;
use slotline_sources::{FieldKind, Format, RecordField, RecordFields, Records};

use crate::opening::{FileOptions, warn};
#[cfg(feature = "image")]
use crate::pictures::ImageOptions;
use crate::screen::walking;

/// The `--help` text of SOURCE.
pub(crate) const SOURCE_HELP: &str = "\
A file or folder, whose format is found out: a folder with a folder of files for each class, tars of WebDataset (also as a \
pattern: 'shard-{000..099}.tar'; packed ones, such as .tar.gz and .tar.zst, are read as streams), a CSV or JSONL file with a column of file names, TFRecord, tokens of nanoGPT, llm.c or \
Megatron (.bin, .idx), MDS, LitData, Arrow, Parquet, .safetensors, .npz, a NumPy file, or an IDX file. With the cargo feature \
`remote`, also a URL: s3://bucket/path. \
Or digits (1797 images and labels that are bundled with the program), idx:FILE[,FILE...] (the format of MNIST, such as \
idx:IMAGES,LABELS), or npy:FILE[,FILE...] (NumPy files), of which a sample is one row of each file. NumPy files are \
memory-mapped, and must not change while the program runs";

/// The SOURCE argument, and the flags about which of its fields to read and how.
#[derive(Args, Debug)]
pub(crate) struct Input {
    #[arg(help = SOURCE_HELP)]
    pub(crate) source: Named,

    #[command(flatten)]
    files: FileOptions,

    #[command(flatten)]
    server: ServerOptions,

    #[cfg(feature = "image")]
    #[command(flatten)]
    pub(crate) image: ImageOptions,
}

/// The command-line flags about requests to servers.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ServerOptions {
    /// The most concurrent requests to a bucket or server [default: 16, up to 128 while more are
    /// faster]
    #[cfg(feature = "remote")]
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,

    /// The most seconds that a request may take, including all retries [default: 180]
    #[cfg(feature = "remote")]
    #[arg(long, value_name = "SECONDS")]
    request_timeout: Option<u64>,

    /// Follow redirects to other hosts and schemes, which may lead to a host that only this machine
    /// can reach
    #[cfg(feature = "remote")]
    #[arg(long)]
    follow_redirects: bool,
}

impl ServerOptions {
    /// Calls `open` with these limits on requests.
    #[cfg(feature = "remote")]
    pub(crate) fn limited<T>(self, open: impl FnOnce() -> T) -> T {
        let mut requests = slotline_sources::RequestOptions::new().follow_redirects(self.follow_redirects);
        if let Some(most) = self.max_connections {
            requests = requests.max_connections(most);
        }
        if let Some(seconds) = self.request_timeout {
            requests = requests.timeout(std::time::Duration::from_secs(seconds));
        }
        requests.within(open)
    }

    #[cfg(not(feature = "remote"))]
    pub(crate) fn limited<T>(self, open: impl FnOnce() -> T) -> T {
        open()
    }
}

/// The SOURCE of a command line.
#[derive(Clone, Debug)]
pub(crate) enum Named {
    /// Arrays, given as `digits`, `idx:FILE` or `npy:FILE`.
    Arrays(Source),
    /// A file or a folder.
    Path(PathBuf),
}

/// An opened dataset.
pub(crate) enum Opened {
    Arrays(TensorDataset<Vec<AnyArray>>),
    Records(Records<dyn Format>),
    /// Compressed tars.
    Stream(TarStream),
    /// Records in which one field is a decoded picture.
    #[cfg(feature = "image")]
    Pictures(Box<Pictures>),
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_path = || Path::new(text).exists() || text.contains(['{', '*', '?']) || text.contains("://");
        match text.parse() {
            Ok(source) => Ok(Self::Arrays(source)),
            Err(ParseSourceError::Kind) if is_path() => Ok(Self::Path(text.into())),
            Err(ParseSourceError::Kind) => {
                Err("no such file or folder, and neither digits, idx:FILE nor npy:FILE; check the path".to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrays(source) => source.fmt(f),
            Self::Path(path) => sanitized(&path.display().to_string()).fmt(f),
        }
    }
}

impl Input {
    /// Opens the files.
    ///
    /// # Safety
    ///
    /// NumPy files must not change while the dataset exists.
    pub(crate) unsafe fn open(&self) -> Result<Opened> {
        // SAFETY: the caller guarantees that the files do not change.
        let opened = self.server.limited(|| unsafe { self.source.open(&self.files) })?;
        #[cfg(feature = "image")]
        match &opened {
            Opened::Records(records) => {
                if let Some(pictures) = self.image.open(records)? {
                    return Ok(Opened::Pictures(Box::new(pictures)));
                }
            }
            Opened::Stream(_) if self.image.image.is_some() => {
                bail!("pictures of packed tars are not decoded; unpack {}, or drop --image", self.source)
            }
            _ if self.image.image.is_some() => bail!("{} has arrays, not pictures; drop --image", self.source),
            _ => {}
        }
        Ok(opened)
    }
}

impl Named {
    /// Opens the files.
    ///
    /// # Safety
    ///
    /// NumPy files must not change while the dataset exists.
    pub(crate) unsafe fn open(&self, options: &FileOptions) -> Result<Opened> {
        let arrays = match self {
            Self::Arrays(source) => source.clone(),
            Self::Path(path) => match array(path) {
                Some(source) => source,
                None => {
                    let (tell, bar) = walking();
                    let options = options.options().progress(tell);
                    if let Some(tars) = options.open_stream(path)? {
                        return Ok(Opened::Stream(tars));
                    }
                    let records = options.open(path);
                    bar.finish_and_clear();
                    let records = records?;
                    warn(&records);
                    return Ok(Opened::Records(records));
                }
            },
        };
        if options.columns.is_some() {
            bail!("the fields of {self} have no names; drop --columns");
        }
        // SAFETY: the caller guarantees that the files do not change.
        Ok(Opened::Arrays(unsafe { arrays.map()? }))
    }

    /// Returns the paths of the files to read, if they are known by path.
    pub(crate) fn files(&self) -> &[PathBuf] {
        match self {
            Self::Arrays(Source::Idx(files) | Source::Npy(files)) => files,
            Self::Path(path) => std::slice::from_ref(path),
            Self::Arrays(_) => &[],
        }
    }
}

/// Returns the source for a file that contains an array; `None` for any other file.
fn array(path: &Path) -> Option<Source> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(6).read_to_end(&mut start).ok()?;
    match start[..] {
        [0x93, b'N', b'U', b'M', b'P', b'Y'] => Some(Source::Npy(vec![path.to_owned()])),
        [0, 0, 8..=14, 1..=8, ..] => Some(Source::Idx(vec![path.to_owned()])),
        _ => None,
    }
}

/// A description of a field, for printing.
pub(crate) struct Field {
    pub(crate) name: String,
    /// The dtype and the shape.
    pub(crate) kind: String,
    pub(crate) holds: Holds,
}

/// How to interpret the bytes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Elements,
    Text,
    Bytes,
}

/// A dataset that can describe its fields.
pub(crate) trait Described {
    /// Returns the fields, in order.
    fn named(&self) -> Vec<Field>;

    /// Describes all fields in one line.
    fn describe(&self) -> String {
        let field = |field: &Field| format!("{}: {}", field.name, field.kind);
        self.named().iter().map(field).collect::<Vec<_>>().join(", ")
    }
}

impl Described for TensorDataset<Vec<AnyArray>> {
    fn named(&self) -> Vec<Field> {
        let kind = |array: &AnyArray| format!("{} {:?}", array.dtype(), array.shape().get(1..).unwrap_or_default());
        let field = |(i, array)| Field { name: format!("{i}"), kind: kind(array), holds: Holds::Elements };
        self.rows().iter().enumerate().map(field).collect()
    }

    fn describe(&self) -> String {
        self.named().into_iter().map(|field| field.kind).collect::<Vec<_>>().join(", ")
    }
}

impl Described for Records<dyn Format> {
    fn named(&self) -> Vec<Field> {
        fields(self.format().fields())
    }
}

impl Described for TarStream {
    fn named(&self) -> Vec<Field> {
        fields(self.fields())
    }
}

#[cfg(feature = "image")]
impl Described for Pictures {
    fn named(&self) -> Vec<Field> {
        fields(self.record_fields())
    }
}

fn fields(fields: &RecordFields) -> Vec<Field> {
    let field = |field: &RecordField| Field {
        name: field.name.clone(),
        kind: field.kind.to_string(),
        holds: match field.kind {
            FieldKind::Bytes(_) => Holds::Bytes,
            FieldKind::Text(_) => Holds::Text,
            _ => Holds::Elements,
        },
    };
    fields.as_slice().iter().map(field).collect()
}

/// Returns the warnings about the files, and the share of time that was spent reading them.
pub(crate) fn notes(records: &Records<dyn Format>) -> Vec<String> {
    records.warnings().into_iter().map(|warning| format!("warning: {warning}")).chain(bound(records)).collect()
}

/// Returns a sentence about the share of time in the dataset that was spent reading files, if it is
/// known.
fn bound(records: &Records<dyn Format>) -> Option<String> {
    let share = 100.0 * records.reading_share()?;
    let from = if records.format().files().is_remote() { "the network" } else { "the disk, or its cache" };
    Some(format!("{share:.0} % of the time in the dataset was reading from {from}; the rest was decoding"))
}
