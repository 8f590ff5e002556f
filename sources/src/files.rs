//! [`Files`]: the files of a dataset, which are numbered and read by byte ranges.
//!
//! With [`Files::open`], a file is opened when it is first read, and stays open.
//! [`Files::open_per_read`] opens a file for each read, and is for many files that are read once
//! each. By default bytes are read into memory of the reading thread. [`Files::map`] maps the files
//! instead, so that nothing is copied.
//!
//! A file that is replaced or changed between the opening of the dataset and the first read is an
//! error. A file that stays open continues to be read even if another file takes its name. If an
//! open file is overwritten in place, samples may mix old and new bytes; to replace a file, write a
//! new one and rename it.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use memmap2::{Advice, Mmap, MmapOptions};
#[cfg(feature = "remote")]
use slotline::dataset::downloading;
use slotline::dataset::fetching;

use crate::Error;
use crate::ahead::Readiness;
use crate::error::sanitized;
use crate::record::CapacityHint;
#[cfg(feature = "remote")]
use crate::remote::Listed;
#[cfg(feature = "remote")]
use crate::remote::Remote;

/// The number of files that are examined to estimate the capacity for fields that hold whole files.
const LOOKED_AT: usize = 1024;

/// The size of a page of memory, or a divisor of it.
const PAGE: usize = 4096;

/// The files of a dataset.
pub struct Files {
    list: List,
    /// The reason why an index could not be saved (of the first such file), and the number of such
    /// files.
    unsaved: Mutex<Option<(String, usize)>>,
}

enum List {
    /// Files that are opened once and stay open.
    Open(Vec<Open>),
    /// Files below a folder that are opened for each read: their relative paths, one after another,
    /// and where each path ends.
    PerRead { root: PathBuf, paths: Vec<u8>, ends: Vec<u64> },
    /// Objects in buckets or on servers.
    #[cfg(feature = "remote")]
    Remote(Remote),
}

struct Open {
    path: PathBuf,
    len: u64,
    /// The time of the last modification: seconds and nanoseconds.
    modified: (i64, i64),
    handle: OnceLock<File>,
    map: Option<Mmap>,
}

/// The state of a file's contents: the length, and a version that changes whenever the contents do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) len: u64,
    pub(crate) version: Vec<u8>,
}

/// A range of bytes of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The index of the file.
    pub file: usize,
    /// The position of the first byte in the file.
    pub start: u64,
    /// The number of bytes; `None` for all bytes to the end of the file.
    pub len: Option<u64>,
}

impl From<List> for Files {
    fn from(list: List) -> Self {
        Self { list, unsaved: Mutex::default() }
    }
}

impl Files {
    /// Creates files that stay open, and looks up their lengths. Paths that are URLs, such as
    /// `s3://bucket/path`, are objects in buckets or on servers. The schemes are `s3`, `gs`, `az`,
    /// `abfs`, `http` and `https`; each kind has its own cargo feature.
    ///
    /// Credentials and options of buckets are read from the environment variables of the crate
    /// `object_store`: `AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`, `GOOGLE_SERVICE_ACCOUNT`, …
    ///
    /// # Errors
    ///
    /// If a file can't be found, or if some of the paths are URLs and others are not.
    pub fn open(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Result<Self, Error> {
        let paths: Vec<PathBuf> = paths.into_iter().map(Into::into).collect();
        if paths.iter().any(|path| is_url(path)) {
            return Self::open_remote(paths);
        }
        let open = |path: PathBuf| {
            let found = path.metadata().and_then(|found| plain(&found).map(|()| found));
            let found = found.map_err(|source| Error::io(&path, "open", source))?;
            Ok(Open { len: found.len(), path, modified: modified(&found), handle: OnceLock::new(), map: None })
        };
        Ok(List::Open(paths.into_iter().map(open).collect::<Result<_, _>>()?).into())
    }

    #[cfg(feature = "remote")]
    fn open_remote(paths: Vec<PathBuf>) -> Result<Self, Error> {
        if let Some(local) = paths.iter().find(|path| !is_url(path)) {
            let problem = format!("{} is a file, and others are URLs", local.display());
            return Err(Error::usage(problem, "make a dataset of each, and concatenate them"));
        }
        let urls = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        Ok(List::Remote(Remote::open(urls)?).into())
    }

    #[cfg(not(feature = "remote"))]
    fn open_remote(paths: Vec<PathBuf>) -> Result<Self, Error> {
        let problem = format!("{} needs a cargo feature of slotline-sources", paths[0].display());
        Err(Error::usage(problem, "build with `s3`, `gcs`, `azure` or `http`"))
    }

    /// Creates files below `root` that are opened for each read, from their relative paths.
    pub fn open_per_read(root: impl Into<PathBuf>, relative: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let (mut paths, mut ends) = (Vec::new(), Vec::new());
        for path in relative {
            paths.extend_from_slice(path.as_ref().as_os_str().as_bytes());
            ends.push(paths.len() as u64);
        }
        List::PerRead { root: root.into(), paths, ends }.into()
    }

    /// Creates files from the objects that were listed below the URL of a folder.
    #[cfg(feature = "remote")]
    pub(crate) fn listed(folder: &str, listed: Vec<Listed>) -> Result<Self, Error> {
        Ok(List::Remote(Remote::listed(folder, listed)?).into())
    }

    /// Maps the files into memory, so that reading copies nothing. Has no effect on files that are
    /// opened for each read.
    ///
    /// # Errors
    ///
    /// If a file can't be mapped.
    ///
    /// # Safety
    ///
    /// Nobody may write to the files or shorten them while the dataset exists. A file may be replaced
    /// by another one, by renaming.
    pub unsafe fn map(mut self) -> Result<Self, Error> {
        if let List::Open(list) = &mut self.list {
            for open in list.iter_mut().filter(|open| open.len > 0) {
                let handle = open.unchanged()?;
                // SAFETY: the caller guarantees that the file does not change.
                let map = unsafe { MmapOptions::new().map(&handle) };
                let map = map.map_err(|source| Error::io(&open.path, "map", source))?;
                if (map.len() as u64) < open.len {
                    return Err(Error::io(&open.path, "map", io::ErrorKind::UnexpectedEof.into()));
                }
                open.map = Some(map);
            }
        }
        Ok(self)
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        match &self.list {
            List::Open(list) => list.len(),
            List::PerRead { ends, .. } => ends.len(),
            #[cfg(feature = "remote")]
            List::Remote(remote) => remote.len(),
        }
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the path of a file.
    ///
    /// # Panics
    ///
    /// If there is no file `file`.
    pub fn path(&self, file: usize) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        match &self.list {
            List::Open(list) => list[file].path.clone(),
            List::PerRead { root, paths, ends } => {
                let start = file.checked_sub(1).map_or(0, |before| ends[before]);
                root.join(std::ffi::OsStr::from_bytes(&paths[start as usize..ends[file] as usize]))
            }
            #[cfg(feature = "remote")]
            List::Remote(remote) => remote.url(file).into(),
        }
    }

    /// Returns the path of the first file, for messages; an empty one if there are no files.
    pub(crate) fn first_path(&self) -> PathBuf {
        if self.is_empty() { PathBuf::new() } else { self.path(0) }
    }

    /// Returns the length of a file, in bytes; `None` if it is opened for each read.
    pub fn file_len(&self, file: usize) -> Option<u64> {
        match &self.list {
            List::Open(list) => list.get(file).map(|open| open.len),
            List::PerRead { .. } => None,
            #[cfg(feature = "remote")]
            List::Remote(remote) => remote.object_len(file),
        }
    }

    /// Chooses the capacity for fields that hold whole files, from the lengths of all files, or of
    /// some if there are many. A file whose length can't be determined counts as empty.
    pub(crate) fn room(&self) -> CapacityHint {
        let lengths = (0..self.len()).step_by(self.len().div_ceil(LOOKED_AT).max(1));
        let length = |file| self.file_len(file).or_else(|| Some(self.path(file).metadata().ok()?.len()));
        let lengths = lengths.map(|file| length(file).unwrap_or(0));
        if self.len() <= LOOKED_AT { CapacityHint::of(lengths) } else { CapacityHint::estimate(lengths) }
    }

    /// Returns the bytes of a span, if the file is mapped and has them.
    pub fn mapped(&self, span: Span) -> Option<&[u8]> {
        let List::Open(list) = &self.list else { return None };
        let map = list.get(span.file)?.map.as_ref()?;
        map.get(range(span, map.len() as u64)?)
    }

    /// Returns the objects, if the files are in buckets or on servers.
    #[cfg(feature = "remote")]
    pub(crate) fn remote(&self) -> Option<&Remote> {
        match &self.list {
            List::Remote(remote) => Some(remote),
            List::Open(_) | List::PerRead { .. } => None,
        }
    }

    /// Returns the state that a file had when it was opened. Returns `None` if the file has no
    /// version, or has changed since.
    pub(crate) fn state(&self, file: usize) -> Option<State> {
        match &self.list {
            List::Open(list) => {
                let open = list.get(file)?;
                let found = open.handle().ok()?.metadata().ok()?;
                let (seconds, nanos) = modified(&found);
                let version = [seconds.to_le_bytes(), nanos.to_le_bytes()].concat();
                (found.len() == open.len && modified(&found) == open.modified)
                    .then_some(State { len: open.len, version })
            }
            List::PerRead { .. } => None,
            #[cfg(feature = "remote")]
            List::Remote(remote) => {
                // The URL is hashed, so that no other URL can be mistaken for this one.
                let key = crate::saved::hash([remote.whole_url(file).as_bytes()]);
                let version = [&key, remote.version(file)?.as_bytes()].concat();
                Some(State { len: remote.object_len(file)?, version })
            }
        }
    }

    /// Records that the index of a file could not be saved, and why.
    pub(crate) fn index_is_not_saved(&self, file: usize, why: &str) {
        let mut unsaved = self.unsaved.lock().unwrap_or_else(PoisonError::into_inner);
        let first = || (format!("{}: {why}", self.path(file).display()), 0);
        unsaved.get_or_insert_with(first).1 += 1;
    }

    /// Returns warnings for the user of the files.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let unsaved = self.unsaved.lock().unwrap_or_else(PoisonError::into_inner);
        let unsaved = unsaved.iter().map(|(first, count)| {
            let several = if *count > 1 { format!(" (and of {} more files)", count - 1) } else { String::new() };
            format!("no index was saved of {first}{several}; the next time, all of it is walked over again")
        });
        #[cfg(feature = "remote")]
        let of_remote = self.remote().and_then(Remote::warning);
        #[cfg(not(feature = "remote"))]
        let of_remote: Option<String> = None;
        unsaved.chain(of_remote).map(|warning| sanitized(&warning)).collect()
    }

    /// Whether the files are in buckets or on servers.
    pub fn is_remote(&self) -> bool {
        !matches!(self.list, List::Open(_) | List::PerRead { .. })
    }

    /// Reads the bytes of a span into `memory`, which grows if necessary.
    ///
    /// # Errors
    ///
    /// If the file can't be read, or ends before the bytes do.
    pub(crate) fn read_into(&self, span: Span, memory: &mut Vec<u8>) -> Result<(), Error> {
        if let Some(bytes) = self.mapped(span) {
            let into = room(memory, bytes.len()).map_err(|source| Error::io(&self.path(span.file), "read", source))?;
            into.copy_from_slice(bytes);
            return Ok(());
        }
        self.read(span, memory).map(|_| ())
    }

    /// Returns the bytes of a span: those that are mapped, or else bytes that are read into
    /// `memory`, which grows if necessary.
    ///
    /// # Errors
    ///
    /// If the file can't be read, or ends before the bytes do.
    pub fn read<'a>(&'a self, span: Span, memory: &'a mut Vec<u8>) -> Result<&'a [u8], Error> {
        if let Some(bytes) = self.mapped(span) {
            return Ok(bytes);
        }
        match &self.list {
            List::Open(list) => {
                let open = &list[span.file];
                read_exact(&open.path, open.len, || open.handle(), span, memory)
            }
            List::PerRead { .. } => {
                let path = self.path(span.file);
                let opened = fetching(|| open_plain(&path)).map_err(|source| Error::io(&path, "open", source));
                let (file, found) = opened?;
                read_exact(&path, found.len(), || Ok(Handle::Once(file)), span, memory)
            }
            #[cfg(feature = "remote")]
            List::Remote(remote) => {
                let too_short = || {
                    let problem = format!("it has {} bytes", remote.object_len(span.file).unwrap_or(0));
                    Error::format(remote.url(span.file), span.start, problem, "its index is not its own; make it again")
                };
                let range = remote.object_len(span.file).and_then(|len| range(span, len)).ok_or_else(too_short)?;
                downloading(|| remote.read(span.file, span.start, range.len(), memory))
            }
        }
    }

    /// Asks the system to fetch the bytes of a span, without waiting for them. Errors are reported
    /// when the bytes are read.
    pub(crate) fn will_need(&self, span: Span) -> Readiness {
        let asked = match &self.list {
            List::Open(list) => list.get(span.file).and_then(|open| {
                let range = range(span, open.len)?;
                match &open.map {
                    Some(map) => {
                        let resident = is_resident(map, &range);
                        let asked = resident || map.advise_range(Advice::WillNeed, range.start, range.len()).is_ok();
                        asked.then_some(Readiness { bytes: range.len() as u64, resident })
                    }
                    None => advise(&*open.handle().ok()?, range),
                }
            }),
            List::PerRead { .. } => open_plain(&self.path(span.file))
                .ok()
                .and_then(|(file, found)| advise(&file, range(span, found.len())?)),
            #[cfg(feature = "remote")]
            List::Remote(remote) => remote.object_len(span.file).and_then(|len| {
                let range = range(span, len)?;
                remote.will_need(span.file, span.start, range.len() as u64);
                Some(Readiness { bytes: range.len() as u64, resident: false })
            }),
        };
        asked.unwrap_or_default()
    }

    /// Sends the requests for the bytes that were asked for. They are sent together, so that
    /// neighbours are fetched by one request.
    pub(crate) fn send(&self) {
        #[cfg(feature = "remote")]
        if let List::Remote(remote) = &self.list {
            remote.send();
        }
    }

    /// Returns how many threads should ask for bytes at the same time. More than one is needed
    /// since opening a file may wait for the disk.
    pub(crate) fn requests(&self) -> usize {
        if matches!(self.list, List::PerRead { .. }) { 16 } else { 1 }
    }

    /// Begins a pass in which about `budget` bytes are asked for ahead. Bytes that were asked for
    /// earlier and not read are dropped.
    pub(crate) fn begin_pass(&self, budget: u64) {
        #[cfg(feature = "remote")]
        if let List::Remote(remote) = &self.list {
            remote.begin(budget);
        }
    }
}

impl Open {
    /// Returns the open file. It stays open afterwards, unless too many files are open.
    fn handle(&self) -> Result<Handle<'_>, Error> {
        if let Some(handle) = self.handle.get() {
            return Ok(Handle::Stays(handle));
        }
        let handle = self.unchanged()?;
        if !may_stay() {
            return Ok(Handle::Once(handle));
        }
        let mut handle = Some(handle);
        let stays = self.handle.get_or_init(|| handle.take().expect("it is called once"));
        if handle.is_some() {
            // Another thread has opened the file meanwhile.
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(Handle::Stays(stays))
    }

    /// Opens the file, and checks that it has not changed since the dataset was made.
    fn unchanged(&self) -> Result<File, Error> {
        let (file, found) = open_plain(&self.path).map_err(|source| Error::io(&self.path, "open", source))?;
        if (found.len(), modified(&found)) != (self.len, self.modified) {
            let problem = "the file was replaced or changed since the dataset was made";
            return Err(Error::in_file(&self.path, problem, "make the dataset again"));
        }
        Ok(file)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.handle.get().is_some() {
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A file that is open.
enum Handle<'a> {
    Stays(&'a File),
    /// A file that is closed when this is dropped.
    Once(File),
}

impl Deref for Handle<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Self::Stays(file) => file,
            Self::Once(file) => file,
        }
    }
}

/// The number of files that stay open.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// Returns whether one more file may stay open, which is so if half of this process's file
/// descriptors are then still free. If so, counts the file in [`OPEN`].
fn may_stay() -> bool {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    let limit = *LIMIT.get_or_init(|| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the system writes the limit into memory that has room for it.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        limit.rlim_cur / 2
    });
    let stays = OPEN.fetch_add(1, Ordering::Relaxed) < limit;
    if !stays {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
    stays
}

/// Reads a range of bytes of a file, whose length is given, into memory.
fn read_exact<'a, 'f>(
    path: &Path,
    len: u64,
    open: impl FnOnce() -> Result<Handle<'f>, Error>,
    span: Span,
    memory: &'a mut Vec<u8>,
) -> Result<&'a [u8], Error> {
    let failed = |source| Error::io(path, "read", source);
    let range = range(span, len).ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))?;
    let file = open()?;
    let into = room(memory, range.len()).map_err(failed)?;
    fetching(|| file.read_exact_at(into, span.start)).map_err(failed)?;
    Ok(into)
}

/// Opens a file. Does not wait for other programs, as opening a pipe would.
fn open_plain(path: &Path) -> io::Result<(File, Metadata)> {
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = match opened {
        // Another program has a lease on the file. Opening it again waits until the system has told
        // that program to release the lease.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => File::open(path)?,
        opened => opened?,
    };
    let found = file.metadata()?;
    plain(&found)?;
    Ok((file, found))
}

/// Returns an error unless this is a regular file.
fn plain(found: &Metadata) -> io::Result<()> {
    match found.is_file() {
        true => Ok(()),
        false if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file, but a pipe, a socket or a device")),
    }
}

/// Returns when a file was modified last.
fn modified(found: &Metadata) -> (i64, i64) {
    (found.mtime(), found.mtime_nsec())
}

/// Reads a whole file or object.
pub(crate) fn read_whole(path: &Path) -> Result<Vec<u8>, Error> {
    let (files, mut memory) = (Files::open([path])?, Vec::new());
    files.read_into(Span { file: 0, start: 0, len: None }, &mut memory)?;
    Ok(memory)
}

/// An object that is read sequentially.
#[cfg(feature = "remote")]
pub(crate) struct Sequence {
    files: Files,
    /// The bytes in memory, from position `start` of the object on.
    memory: Vec<u8>,
    start: u64,
    at: u64,
}

#[cfg(feature = "remote")]
impl Sequence {
    /// The number of bytes of a request.
    const PART: u64 = 4 << 20;
    /// The number of requests that are made ahead.
    const PARTS: u64 = 4;

    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let files = Files::open([path])?;
        files.begin_pass(Self::PART * Self::PARTS);
        let sequence = Self { files, memory: Vec::new(), start: 0, at: 0 };
        (0..Self::PARTS).for_each(|part| sequence.ask(part * Self::PART));
        Ok(sequence)
    }

    /// Returns the span that is requested as a whole and begins at `start`.
    fn part(&self, start: u64) -> Span {
        let len = self.files.file_len(0).unwrap_or(0).saturating_sub(start).min(Self::PART);
        Span { file: 0, start, len: Some(len) }
    }

    fn ask(&self, start: u64) {
        self.files.will_need(self.part(start));
        self.files.send();
    }
}

#[cfg(feature = "remote")]
impl io::Read for Sequence {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.start + self.memory.len() as u64 {
            let span = self.part(self.at);
            self.memory.truncate(span.len.unwrap_or(0) as usize);
            self.files.read_into(span, &mut self.memory).map_err(io::Error::other)?;
            self.start = self.at;
            self.ask(self.at + Self::PART * Self::PARTS);
        }
        let rest = &self.memory[(self.at - self.start) as usize..];
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        self.at += len as u64;
        Ok(len)
    }
}

/// Returns the names of the files and folders that are directly in a folder, sorted.
pub(crate) fn names_in(folder: &Path) -> Result<Vec<String>, Error> {
    #[cfg(feature = "remote")]
    if is_url(folder) {
        return crate::remote::names_in(&folder.to_string_lossy());
    }
    let failed = |source| Error::io(folder, "list", source);
    let name = |entry: std::io::Result<std::fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    let mut names = folder.read_dir().map_err(failed)?.map(name).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    names.sort_unstable();
    Ok(names)
}

/// Returns the path of a name in a folder. The name may have several components.
pub(crate) fn below(folder: &Path, name: &str) -> PathBuf {
    #[cfg(feature = "remote")]
    if is_url(folder) {
        return crate::remote::below(&folder.to_string_lossy(), name).into();
    }
    folder.join(name)
}

/// Whether a path is a URL.
pub(crate) fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.contains("://"))
}

/// Returns the range of a span in a file of this length, or `None` if it exceeds the file.
fn range(span: Span, len: u64) -> Option<Range<usize>> {
    let end = match span.len {
        Some(bytes) => span.start.checked_add(bytes)?,
        None => len,
    };
    if span.start > end || end > len {
        return None;
    }
    Some(usize::try_from(span.start).ok()?..usize::try_from(end).ok()?)
}

/// Returns the first `len` bytes of `memory`, which grows if it is shorter.
pub(crate) fn room(memory: &mut Vec<u8>, len: usize) -> io::Result<&mut [u8]> {
    if memory.len() < len {
        reserve(memory, len - memory.len())?;
        memory.resize(len, 0);
    }
    Ok(&mut memory[..len])
}

/// Reserves memory for `more` bytes.
pub(crate) fn reserve(memory: &mut Vec<u8>, more: usize) -> io::Result<()> {
    memory.try_reserve(more).map_err(|_| {
        let bytes = memory.len().saturating_add(more);
        io::Error::new(io::ErrorKind::OutOfMemory, format!("cannot allocate {bytes} bytes"))
    })
}

/// Asks the system for a range of a file, unless the last byte of the range is in memory.
fn advise(file: &File, range: Range<usize>) -> Option<Readiness> {
    let bytes = range.len() as u64;
    let (Ok(start), Ok(len), Some(last)) = (range.start.try_into(), range.len().try_into(), range.end.checked_sub(1))
    else {
        return None;
    };
    let mut byte = 0_u8;
    let vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: the descriptor is open, and there is room for one byte.
    let resident = unsafe { libc::preadv2(file.as_raw_fd(), &vector, 1, last as libc::off_t, libc::RWF_NOWAIT) } == 1;
    if !resident {
        // SAFETY: the descriptor is open. The call changes only which bytes the system has in
        // memory.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), start, len, libc::POSIX_FADV_WILLNEED) };
    }
    Some(Readiness { bytes, resident })
}

/// Whether the last byte of a range of a memory map is in memory.
fn is_resident(map: &Mmap, range: &Range<usize>) -> bool {
    let Some(last) = range.end.checked_sub(1) else { return true };
    let page = map.as_ptr().wrapping_add(last - last % PAGE);
    let mut found = 0_u8;
    // SAFETY: the page is part of the map, which starts at a page, and `found` has room for the
    // result.
    unsafe { libc::mincore(page.cast_mut().cast(), 1, &mut found) == 0 && found & 1 == 1 }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = (!self.is_empty()).then(|| self.path(0));
        let mut text = f.debug_struct("Files");
        text.field("len", &self.len()).field("first", &first);
        #[cfg(feature = "remote")]
        text.field("remote", &self.remote());
        text.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(file: usize, start: u64, len: impl Into<Option<u64>>) -> Span {
        Span { file, start, len: len.into() }
    }

    /// Returns the same two files opened in three ways: to stay open, mapped, and opened for each
    /// read.
    fn three(folder: &Path) -> [Files; 3] {
        std::fs::write(folder.join("a"), b"0123456789").unwrap();
        std::fs::write(folder.join("b"), b"").unwrap();
        let open = || Files::open([folder.join("a"), folder.join("b")]).unwrap();
        // SAFETY: nobody changes the files.
        [open(), unsafe { open().map() }.unwrap(), Files::open_per_read(folder, ["a", "b"])]
    }

    #[test]
    fn ranges_are_read_in_every_way() {
        let folder = tempfile::tempdir().unwrap();
        for files in three(folder.path()) {
            let mut memory = vec![7; 3];
            for (at, want) in [
                (span(0, 0, 10), &b"0123456789"[..]),
                (span(0, 3, 2), b"34"),
                (span(0, 8, None), b"89"),
                (span(0, 10, 0), b""),
                (span(1, 0, None), b""),
            ] {
                assert_eq!(files.read(at, &mut memory).unwrap(), want, "{files:?} {at:?}");
                files.will_need(at);
            }
            for at in [span(0, 3, 8), span(0, 11, None), span(1, 0, 1), span(0, 5, u64::MAX), span(0, u64::MAX, 2)] {
                let error = files.read(at, &mut memory).unwrap_err().to_string();
                assert!(error.contains("cannot read") && error.contains("shorter"), "{error}");
                files.will_need(at);
            }
        }
    }

    #[test]
    fn files_that_cannot_be_read_are_errors_that_name_them() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Files::open([folder.path().join("none")]).unwrap_err().to_string();
        assert!(missing.contains("none") && missing.contains("check the path: "), "{missing}");
        let dir = Files::open([folder.path()]).unwrap_err().to_string();
        assert!(dir.contains("pass the path of a file in it"), "{dir}");
        let files = Files::open_per_read(folder.path(), [".", "none"]);
        let dir = files.read(span(0, 0, None), &mut Vec::new()).unwrap_err().to_string();
        assert!(dir.contains("pass the path of a file in it"), "{dir}");
        assert!(files.read(span(1, 0, None), &mut Vec::new()).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let [open, _, each] = three(folder.path());
        open.read(span(0, 2, 6), &mut Vec::new()).unwrap();
        std::fs::write(folder.path().join("a"), b"0123").unwrap();
        for files in [open, each] {
            let error = files.read(span(0, 2, 6), &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains("shorter"), "{error}");
        }
    }

    #[test]
    fn a_file_that_was_replaced_before_it_is_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let [unread, _, _] = three(folder.path());
        let [read, _, _] = three(folder.path());
        let mut memory = Vec::new();
        read.read(span(0, 0, 10), &mut memory).unwrap();
        std::fs::write(folder.path().join("new"), b"abcdefghij").unwrap();
        std::fs::rename(folder.path().join("new"), folder.path().join("a")).unwrap();
        assert_eq!(read.read(span(0, 0, 10), &mut memory).unwrap(), b"0123456789", "the old one is open");
        let error = unread.read(span(0, 0, 10), &mut memory).unwrap_err().to_string();
        assert!(error.contains("/a: the file was replaced"), "{error}");
        // SAFETY: nobody changes the file.
        let error = unsafe { unread.map() }.unwrap_err().to_string();
        assert!(error.contains("/a: the file was replaced"), "{error}");
    }

    #[test]
    fn nobody_waits_for_the_other_end_of_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let path = std::ffi::CString::new(folder.path().join("pipe").to_str().unwrap()).unwrap();
        // SAFETY: the path is a C string.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        let files = Files::open_per_read(folder.path(), ["pipe"]);
        files.will_need(span(0, 0, None));
        let error = files.read(span(0, 0, None), &mut Vec::new()).unwrap_err();
        assert!(format!("{error:?}").contains("not a file"), "{error:?}");
        assert!(format!("{:?}", Files::open([folder.path().join("pipe")])).contains("not a file"));
    }

    #[test]
    fn more_bytes_than_there_is_memory_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        File::create(folder.path().join("hole")).unwrap().set_len(1 << 43).unwrap();
        for files in [Files::open([folder.path().join("hole")]).unwrap(), Files::open_per_read(folder.path(), ["hole"])]
        {
            let error = files.read(span(0, 0, None), &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains("hole; it needs more memory") && error.contains(" 8796093022208 bytes"), "{error}");
        }
    }
}
