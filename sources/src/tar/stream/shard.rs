//! Reads one tar sequentially, sample by sample.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::GzDecoder;
use slotline::dataset::{decoding, fetching};

use super::super::header::{BLOCK, ForwardSource, Member, Members};
use super::super::name::split;
use super::super::value::Problem;
use super::super::{field_name, is_reserved, two_files};
use crate::Error;
use crate::files::reserve;
use crate::kind::without_query;
use crate::record::MAX_FIELDS;

/// The number of bytes that are read at once.
const READ: usize = 256 << 10;

pub(in super::super) type Reader = Box<dyn Read + Send>;

/// The source of the tars.
pub(in super::super) enum Shards {
    Files {
        paths: Vec<PathBuf>,
        /// The request limit that all workers share, if the tars are URLs.
        #[cfg(feature = "remote")]
        limit: Option<crate::remote::Shared>,
    },
    /// A tar that can be read once, with its name.
    Once(PathBuf, Mutex<Option<Reader>>),
}

impl Shards {
    pub(in super::super) fn files(paths: Vec<PathBuf>) -> Result<Self, Error> {
        Ok(Self::Files {
            #[cfg(feature = "remote")]
            limit: match paths.iter().any(|path| crate::files::is_url(path)) {
                true => Some(crate::remote::Shared::new()?),
                false => None,
            },
            paths,
        })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Files { paths, .. } => paths.len(),
            Self::Once(..) => 1,
        }
    }

    pub(super) fn path(&self, shard: usize) -> &Path {
        match self {
            Self::Files { paths, .. } => &paths[shard],
            Self::Once(name, _) => name,
        }
    }

    /// Returns a digest of the tars' names in order, relative to the folder that contains all of
    /// them, so that the tars may be moved together. The query of a URL is not part of the name.
    pub(super) fn digest(&self) -> u64 {
        let paths = || (0..self.len()).map(|shard| without_query(self.path(shard)));
        let mut folder = paths().next().and_then(Path::parent).unwrap_or(Path::new(""));
        for path in paths() {
            while !path.starts_with(folder) {
                folder = folder.parent().unwrap_or(Path::new(""));
            }
        }
        let names = paths().map(|path| path.strip_prefix(folder).unwrap_or(path).as_os_str().as_bytes());
        slotline::sampler::digest(names.flat_map(|name| name.iter().map(|&byte| byte.into()).chain([u64::MAX])))
    }

    /// Opens a tar.
    pub(super) fn open(&self, shard: usize) -> Result<Reader, Error> {
        match self {
            #[cfg(feature = "remote")]
            Self::Files { paths, limit: Some(limit) } if crate::files::is_url(&paths[shard]) => {
                Ok(Box::new(limit.within(|| crate::files::Sequence::open(&paths[shard]))?))
            }
            Self::Files { paths, .. } => {
                let file = File::open(&paths[shard]);
                Ok(Box::new(OnDisk(file.map_err(|error| Error::io(&paths[shard], "open", error))?)))
            }
            Self::Once(name, reader) => {
                let reader = reader.lock().unwrap_or_else(PoisonError::into_inner).take();
                reader.ok_or_else(|| {
                    let problem = format!("{} was read before, and can't be read again", name.display());
                    Error::usage(problem, "open it again for each pass, or read files")
                })
            }
        }
    }

    /// Makes a reader whose beginning was read start again from its beginning.
    pub(super) fn rewind(&self, kept: TeeReader) {
        if let Self::Once(_, reader) = self {
            let from_the_start = io::Cursor::new(kept.bytes).chain(kept.reader);
            *reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(from_the_start));
        }
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|shard| self.path(shard))).finish()
    }
}

/// A file of this machine.
struct OnDisk(File);

impl Read for OnDisk {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        fetching(|| self.0.read(into))
    }
}

/// A reader that keeps the bytes that were read from it.
pub(super) struct TeeReader {
    pub(super) reader: Reader,
    pub(super) bytes: Vec<u8>,
}

impl Read for TeeReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.reader.read(into)?;
        self.bytes.extend_from_slice(&into[..len]);
        Ok(len)
    }
}

/// The bytes of a tar, which are unpacked if they are compressed by one of these programs.
enum Bytes<R: Read> {
    Plain(Buffered<R>),
    Gzip(Gzip<Buffered<R>>),
    Bzip2(Box<MultiBzDecoder<Buffered<R>>>),
    Zstd(Box<zstd::Decoder<'static, Buffered<R>>>),
}

/// Consecutive members of gzip. Unlike flate2's own reader, it accepts zeros after them, with which
/// tapes are padded.
struct Gzip<R>(Option<Box<GzDecoder<R>>>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let len = member.read(into)?;
            if len > 0 || into.is_empty() {
                return Ok(len);
            }
            let rest = member.get_mut();
            loop {
                let bytes = rest.fill_buf()?;
                let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
                if bytes.is_empty() {
                    return Ok(0);
                }
                if zeros == 0 {
                    break;
                }
                rest.consume(zeros);
            }
            self.0 = self.0.take().map(|member| Box::new(GzDecoder::new(member.into_inner())));
        }
        Ok(0)
    }
}

/// A reader whose first bytes were read in order to recognise the compression.
type Buffered<R> = BufReader<io::Chain<io::Cursor<Vec<u8>>, R>>;

impl<R: Read> Read for Bytes<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(into),
            Self::Gzip(reader) => decoding(|| reader.read(into)),
            Self::Bzip2(reader) => decoding(|| reader.read(into)),
            Self::Zstd(reader) => decoding(|| reader.read(into)),
        }
    }
}

/// A buffer over the bytes of a tar, from some position on.
struct Forward<R: Read> {
    path: PathBuf,
    reader: Bytes<R>,
    /// The position of `memory` in the tar.
    start: u64,
    /// The bytes that were read and not consumed yet.
    memory: Vec<u8>,
}

impl<R: Read> Forward<R> {
    /// Reads up to `len` bytes from `at` on into memory, which grows with the bytes that were
    /// actually read.
    fn hold(&mut self, at: u64, len: u64) -> Result<(), Error> {
        let failed = |error| failed(&self.path, error);
        let held = self.start + self.memory.len() as u64;
        if at < held {
            self.memory.drain(..(at - self.start) as usize);
        } else {
            self.memory.clear();
            io::copy(&mut self.reader.by_ref().take(at - held), &mut io::sink()).map_err(failed)?;
        }
        self.start = at;
        if let Some(missing) = len.checked_sub(self.memory.len() as u64) {
            self.reader.by_ref().take(missing).read_to_end(&mut self.memory).map_err(failed)?;
        }
        Ok(())
    }

    /// Reads compressed data to its end, where its checksum is.
    fn finish(&mut self) -> Result<(), Error> {
        if matches!(self.reader, Bytes::Plain(_)) {
            return Ok(());
        }
        io::copy(&mut self.reader, &mut io::sink()).map(drop).map_err(|error| failed(&self.path, error))
    }
}

/// Creates the error for bytes that can't be read.
fn failed(path: &Path, error: io::Error) -> Error {
    let what = match error.kind() {
        // This is not an I/O error: the compressed data ends too early.
        io::ErrorKind::UnexpectedEof => "not complete",
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => "damaged",
        _ => return Error::io(path, "read", error),
    };
    let problem = format!("the packed data are {what}: {error}");
    Error::in_file(path, problem, "the tar is truncated or damaged: copy it or write it again")
}

impl<R: Read> ForwardSource for Forward<R> {
    fn most(&self) -> u64 {
        // A number larger than any file, with which sums do not overflow.
        1 << 62
    }

    fn left(&mut self, at: u64) -> Result<u64, Error> {
        self.hold(at, BLOCK)?;
        Ok(BLOCK.min(self.memory.len() as u64))
    }

    fn bytes(&mut self, at: u64, len: u64) -> Result<&[u8], Error> {
        self.hold(at, len)?;
        let found = self.memory.len();
        self.memory.get(..usize::try_from(len).unwrap_or(usize::MAX)).ok_or_else(|| {
            let problem = format!("{len} bytes were expected, and the tar ends after {found} of them");
            Error::format(self.path.display(), at, problem, "the tar is truncated: copy it or write it again")
        })
    }
}

/// The files of one sample.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) key: Vec<u8>,
    pub(super) shard: usize,
    /// For each file the name of its field, its position, and its data.
    pub(super) files: Vec<(String, u64, Vec<u8>)>,
    /// The names of the fields that were not wanted and so not read.
    pub(super) others: Vec<String>,
}

impl Sample {
    pub(super) fn file(&self, field: &str) -> Option<&(String, u64, Vec<u8>)> {
        self.files.iter().find(|(name, ..)| name == field)
    }

    /// Returns the file of a field. If the field has several alternative names, it is the first
    /// that the sample has.
    pub(super) fn first_file(&self, field: &str) -> Option<&(String, u64, Vec<u8>)> {
        super::super::alternatives(field).find_map(|name| self.file(name))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|(.., data)| data.len() as u64).sum()
    }
}

/// A tar that is being read.
pub(super) struct ShardReader<R: Read> {
    path: PathBuf,
    shard: usize,
    members: Members<Forward<R>>,
    /// The sample whose files are being read.
    begun: Option<Sample>,
    ended: bool,
    limit: u64,
}

impl<R: Read> ShardReader<R> {
    /// Begins to read a tar. A sample may have at most `limit` bytes.
    pub(super) fn new(path: &Path, shard: usize, mut reader: R, missing_end: bool, limit: u64) -> Result<Self, Error> {
        let mut start = Vec::new();
        let failed = |error| Error::io(path, "read", error);
        reader.by_ref().take(4).read_to_end(&mut start).map_err(failed)?;
        let magic = <[u8; 4]>::try_from(&*start).unwrap_or_default();
        let reader = BufReader::with_capacity(READ, io::Cursor::new(start).chain(reader));
        let reader = match magic {
            [0x1f, 0x8b, ..] => Bytes::Gzip(Gzip(Some(Box::new(GzDecoder::new(reader))))),
            [b'B', b'Z', b'h', b'1'..=b'9'] => Bytes::Bzip2(Box::new(MultiBzDecoder::new(reader))),
            [0x28, 0xb5, 0x2f, 0xfd] => Bytes::Zstd(Box::new(zstd::Decoder::with_buffer(reader).map_err(failed)?)),
            _ => Bytes::Plain(reader),
        };
        let forward = Forward { path: path.to_owned(), reader, start: 0, memory: Vec::new() };
        let members = Members::new(path, forward, missing_end);
        Ok(Self { path: path.to_owned(), shard, members, begun: None, ended: false, limit })
    }

    /// Reads the next sample, with those files whose fields `wanted` accepts. Returns `None` at the
    /// end.
    pub(super) fn next(&mut self, wanted: impl Fn(&str) -> bool) -> Result<Option<Sample>, Error> {
        while !self.ended {
            let Some(member) = self.members.next()? else {
                self.ended = true;
                break;
            };
            let Some((key, field)) = split(&member.name) else { continue };
            let is_next = self.begun.as_ref().is_none_or(|begun| begun.key != key);
            let done = is_next
                .then(|| self.begun.replace(Sample { key: key.to_vec(), shard: self.shard, ..Sample::default() }));
            self.add(field, &member, &wanted)?;
            if let Some(done) = done.flatten() {
                return Ok(Some(done));
            }
        }
        match self.begun.take() {
            Some(last) => Ok(Some(last)),
            None => self.members.window.finish().map(|()| None),
        }
    }

    /// Adds a file to the sample that was begun, by the same rules as an index.
    fn add(&mut self, field: &[u8], member: &Member, wanted: impl Fn(&str) -> bool) -> Result<(), Error> {
        let error = |Problem(problem, advice)| Error::format(self.path.display(), member.start, problem, advice);
        let field = field_name(field).map_err(error)?;
        let Some(begun) = &mut self.begun else { return Ok(()) };
        if is_reserved(&field) || begun.file(&field).is_some() || begun.others.contains(&field) {
            return Err(error(two_files(&field, &begun.key)));
        }
        if begun.files.len() + begun.others.len() >= MAX_FIELDS {
            let problem = format!("more than {MAX_FIELDS} files in one sample");
            let advice = "write the tar again: files belong together if their names differ after a dot";
            return Err(error(Problem(problem, advice)));
        }
        if !wanted(&field) {
            begun.others.push(field);
            return Ok(());
        }
        let bytes = begun.bytes().saturating_add(member.len);
        if bytes > self.limit {
            let key = String::from_utf8_lossy(&begun.key);
            let problem = format!("the sample {key} has {bytes} bytes or more, and the limit is {}", self.limit);
            return Err(error(Problem(problem, "raise `memory_limit`")));
        }
        let (data, mut own) = (self.members.data(member)?, Vec::new());
        reserve(&mut own, data.len()).map_err(|source| Error::io(&self.path, "read", source))?;
        own.extend_from_slice(data);
        begun.files.push((field, member.start, own));
        Ok(())
    }
}
