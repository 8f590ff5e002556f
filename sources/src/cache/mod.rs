//! A cache of whole objects on a local disk, so that later passes, and samples that are stored
//! together, need no requests.
//!
//! Objects are fetched in the background, in the order in which they are needed. The objects whose
//! next use is furthest away are evicted ([`plan`]). Samples of objects that are not in the cache
//! are read by range requests, as without a cache. So the cache changes no results, and a disk that
//! is full or slow, or a folder that is removed, only costs requests.
//!
//! The name of a file is made from the object's name, address, length and tag (ETag), so another
//! version of an object is another file. A file is written under a name that ends in `.part`, is
//! locked by its writer meanwhile, and is renamed when it is complete. If the writer is killed, the
//! system releases the lock, and the next process writes the file again from its beginning. Other
//! processes that need the file wait for the lock. Each read opens the file, so any process may
//! remove it at any time.

mod plan;
mod planner;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::Error;
use crate::files::room;
use crate::saved::{hash, in_hex};
pub(crate) use plan::Place;
pub(crate) use planner::Planner;

/// The extension of the name of a file that is being written.
const PART: &str = "part";

/// The maximum time that a worker process waits for a file that another process writes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two checks whether the file was written.
const LOOK: Duration = Duration::from_millis(5);

/// A folder for objects of buckets and servers, on a local disk, with a limit on their size. See
/// [`Records::cache`](crate::Records::cache).
///
/// Datasets and processes of one machine may share a folder. Each object is stored once, and the
/// limit is for all of them together. The limit may be exceeded for a moment if several of them
/// fetch at the same time, or if one reads a file that another one has removed. If the objects of
/// all datasets do not fit into the folder, they remove each other's files, and the cache helps
/// little.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
}

impl Cache {
    /// Makes a cache of at most `bytes` bytes in a folder, which is created if it does not exist.
    /// Existing files are used, counted and removed only if their names and lengths are those of a
    /// cache's files. Their contents are trusted, so no other users should be able to write to the
    /// folder.
    ///
    /// # Errors
    ///
    /// If the folder can't be created.
    pub fn new(folder: impl Into<PathBuf>, bytes: u64) -> Result<Self, Error> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(|source| Error::io(&folder, "create", source))?;
        Ok(Self { folder, limit: bytes })
    }
}

/// The objects of one dataset, in a cache.
pub(crate) struct Cached {
    cache: Cache,
    /// The names of the files. `None` for an object that is too large for the cache, or has no tag
    /// by which its versions could be distinguished.
    names: Vec<Option<OsString>>,
    by_name: HashMap<OsString, usize>,
    lens: Vec<u64>,
    /// The process that fetches objects. Workers that were forked from it only read.
    process: u32,
    places: Mutex<Vec<Place>>,
    changed: Condvar,
}

impl Cached {
    /// Creates the state for objects, given by their URLs, lengths and tags.
    pub(crate) fn new<'a>(cache: Cache, objects: impl Iterator<Item = (String, u64, Option<&'a str>)>) -> Self {
        let (mut names, mut lens) = (Vec::new(), Vec::new());
        for (url, len, tag) in objects {
            // An object that is larger than the limit is never cached.
            names.push(tag.filter(|_| len <= cache.limit).map(|tag| name(&url, len, tag)));
            lens.push(len);
        }
        let by_name = names.iter().enumerate().filter_map(|(object, name)| Some((name.clone()?, object))).collect();
        let places = Mutex::new(vec![Place::Refused; names.len()]);
        Self { cache, names, by_name, lens, process: std::process::id(), places, changed: Condvar::new() }
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, object: usize, place: Place) {
        self.places()[object] = place;
        self.changed.notify_all();
    }

    fn path(&self, object: usize) -> Option<PathBuf> {
        Some(self.cache.folder.join(self.names[object].as_ref()?))
    }

    /// Whether an object is in the cache or is being fetched.
    pub(crate) fn has(&self, object: usize) -> bool {
        matches!(self.places()[object], Place::Held | Place::Coming)
    }

    /// Reads `bytes` bytes of an object into the start of `memory`, if the object is in the cache
    /// or is being fetched. Returns whether it could be read.
    pub(crate) fn read(&self, object: usize, start: u64, bytes: usize, memory: &mut Vec<u8>) -> bool {
        let Some(path) = self.path(object) else { return false };
        let len = self.lens[object];
        let is_whole = |file: &File| file.metadata().is_ok_and(|found| found.is_file() && found.len() == len);
        // `room` is called only after the file was found to have all its bytes, since a server may
        // announce any length.
        let mut read = || {
            let whole = open(&path).ok().filter(is_whole);
            whole.is_some_and(|file| room(memory, bytes).is_ok_and(|into| file.read_exact_at(into, start).is_ok()))
        };
        if read() {
            return true;
        }
        if std::process::id() != self.process {
            return is_written(&part(&path)) && read();
        }
        let mut places = self.places();
        while places[object] == Place::Coming {
            places = self.changed.wait(places).unwrap_or_else(PoisonError::into_inner);
        }
        if read() {
            return true;
        }
        if places[object] == Place::Held {
            // The file was removed or truncated by another program.
            let _ = fs::remove_file(&path);
            places[object] = Place::Absent;
        }
        false
    }

    fn len(&self, object: usize) -> u64 {
        self.lens[object]
    }

    /// Fetches an object and writes its file. `each` makes the requests, and passes the bytes that
    /// arrive, in order, to the function that it is given.
    pub(crate) fn fetch(
        &self,
        object: usize,
        each: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
    ) {
        /// A guard that updates the state of an object when its thread ends, in whatever way, so
        /// that no thread waits for it any more.
        struct Ended<'a>(&'a Cached, usize, Place);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.set(self.1, self.2);
            }
        }
        let mut ended = Ended(self, object, Place::Refused);
        let fetched = self.path(object).ok_or(io::ErrorKind::Unsupported.into());
        if fetched.and_then(|path| write(&path, self.lens[object], each)).is_ok() {
            ended.2 = Place::Held;
        }
    }

    /// Evicts an object.
    fn evict(&self, object: usize) {
        if let Some(path) = self.path(object) {
            let _ = fs::remove_file(path);
        }
        self.set(object, Place::Absent);
    }

    /// Allows objects whose fetch has failed to be fetched again, in a new pass.
    fn begin(&self) {
        for (place, name) in self.places().iter_mut().zip(&self.names) {
            if *place == Place::Refused && name.is_some() {
                *place = Place::Absent;
            }
        }
    }

    /// Lists the folder, and returns how many bytes are free, or a negative number if the limit is
    /// exceeded. Removes incomplete files that no process is writing. Also removes files of other
    /// datasets, the oldest first, until there is room for the largest object.
    fn scan(&self) -> i64 {
        let mut others: Vec<(SystemTime, PathBuf, u64)> = Vec::new();
        let mut held = vec![false; self.names.len()];
        let mut places = self.places();
        let coming = places.iter().zip(&self.lens).filter(|(place, _)| **place == Place::Coming);
        let mut used: u64 = coming.map(|(_, len)| len).sum();
        for entry in self.cache.folder.read_dir().into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(found) = entry.metadata() else { continue };
            if !found.is_file() {
                continue;
            }
            let whole = path.extension().filter(|found| *found == PART).and_then(|_| path.file_stem());
            if !is_of_a_cache(whole.unwrap_or(&name), whole.is_none().then_some(found.len())) {
                continue;
            }
            let is_coming = |name| self.by_name.get(name).is_some_and(|&object| places[object] == Place::Coming);
            match (self.by_name.get(&name), whole) {
                (Some(&object), _) => held[object] = true,
                // The object is being fetched, so its full length is counted already.
                (None, Some(whole)) if is_coming(whole) => continue,
                (None, Some(_)) if open(&path).is_ok_and(|file| file.try_lock().is_ok()) => {
                    let _ = fs::remove_file(&path);
                    continue;
                }
                (None, Some(_)) => {}
                (None, None) => others.push((found.modified().unwrap_or(SystemTime::UNIX_EPOCH), path, found.len())),
            }
            used += found.len();
        }
        for (place, held) in places.iter_mut().zip(held) {
            if matches!(place, Place::Absent | Place::Held) {
                *place = if held { Place::Held } else { Place::Absent };
            }
        }
        drop(places);
        others.sort_unstable();
        let wanted = self.lens.iter().copied().filter(|&len| len <= self.cache.limit).max().unwrap_or(0);
        for (_, path, len) in others {
            if used + wanted > self.cache.limit && fs::remove_file(&path).is_ok() {
                used -= len;
            }
        }
        i64::try_from(i128::from(self.cache.limit) - i128::from(used)).unwrap_or(i64::MAX)
    }
}

/// Returns the name of the file for this version of an object.
fn name(url: &str, len: u64, tag: &str) -> OsString {
    let plain = |text: &str, most: usize| -> String {
        let keep = |char: char| if char.is_ascii_alphanumeric() || ".-_".contains(char) { char } else { '_' };
        text.chars().rev().take(most).map(keep).collect::<Vec<_>>().into_iter().rev().collect()
    };
    let path = url.split('?').next().unwrap_or_default();
    let base = plain(path.rsplit('/').next().unwrap_or_default(), 100);
    let hash = in_hex(&hash([url.as_bytes(), tag.as_bytes()]));
    format!("{base}-{len}-{}-{hash}", plain(tag.trim_matches('"'), 64)).into()
}

/// Whether a name is one that [`name`] makes and, if `len` is given, contains that length.
fn is_of_a_cache(name: &OsStr, len: Option<u64>) -> bool {
    let mut parts = name.to_str().unwrap_or_default().rsplitn(2, '-');
    let (hash, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // Tags may contain dashes.
    let has_len = rest.split('-').any(|part| part.parse::<u64>().is_ok_and(|part| len.is_none_or(|len| len == part)));
    matches!(hash.len(), 16 | 32) && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) && has_len
}

/// Opens a file in the folder. Symbolic links are not followed, as they could lead anywhere.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(PART);
    name.into()
}

/// Waits until no process writes a file any more. Returns whether one was writing it.
fn is_written(part: &Path) -> bool {
    open(part).is_ok_and(|file| locked(&file).is_ok())
}

/// Waits for the lock of a file, but not forever: a stopped process may never release its lock.
fn locked(file: &File) -> io::Result<()> {
    let begun = Instant::now();
    while file.try_lock().is_err() {
        if begun.elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// A locked file, which is unlocked when it is dropped. Closing the file would not be enough, since
/// a process that was forked meanwhile has it open, too.
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Writes a file, unless another process is writing it or has written it.
fn write(
    path: &Path,
    len: u64,
    each: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
) -> io::Result<()> {
    let part = part(path);
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).custom_flags(libc::O_NOFOLLOW);
    let file = loop {
        let file = Locked(options.open(&part)?);
        locked(&file.0)?;
        if path.metadata().is_ok_and(|found| found.len() == len) {
            return Ok(());
        }
        // The process that had the lock before may have renamed or removed the file.
        let (ours, named) = (file.0.metadata()?, part.metadata());
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())) {
            break file;
        }
    };
    let file = &file.0;
    let mut written = 0;
    let mut add = |bytes: &[u8]| {
        file.write_all_at(bytes, written)?;
        written += bytes.len() as u64;
        Ok(())
    };
    let complete = file.set_len(0).and_then(|()| each(&mut add)).and_then(|()| {
        if written != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // The file is written to disk before it is renamed: after a crash of the system, a complete
        // name must not belong to an incomplete file.
        file.sync_data()?;
        fs::rename(&part, path)
    });
    if complete.is_err() {
        let _ = fs::remove_file(&part);
    }
    complete
}

impl std::fmt::Debug for Cached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cached").field("cache", &self.cache).field("objects", &self.names.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_caches_are_counted_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &OsStr| folder.path().join(name);
        let (old, other) = (name("s3://b/old.tar", 10, "\"1-2\""), name("s3://b/other.tar", 7, "t"));
        for (name, len) in [(&*old, 10), (&*other, 8), (OsStr::new("thesis.tex"), 100), (OsStr::new("film.part"), 100)]
        {
            fs::write(at(name), vec![0; len]).unwrap();
        }
        fs::write(at(&part(Path::new(&old)).into_os_string()), [0; 5]).unwrap();
        std::os::unix::fs::symlink(at(OsStr::new("thesis.tex")), at(&name("s3://b/link.tar", 100, "t"))).unwrap();
        let cache = Cache::new(folder.path(), 60).unwrap();
        let cached = Cached::new(cache, [("s3://b/new.tar".to_owned(), 55, Some("t"))].into_iter());
        assert_eq!(cached.scan(), 60);
        let mut left: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort_unstable();
        let mut expected = vec![other, name("s3://b/link.tar", 100, "t"), "thesis.tex".into(), "film.part".into()];
        expected.sort_unstable();
        assert_eq!(left, expected);
    }

    #[test]
    fn links_are_neither_read_nor_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        fs::write(&target, "precious").unwrap();
        let cached =
            Cached::new(Cache::new(folder.path(), 100).unwrap(), [("u/o".to_owned(), 8, Some("t"))].into_iter());
        let path = cached.path(0).unwrap();
        for link in [path.clone(), part(&path)] {
            std::os::unix::fs::symlink(&target, link).unwrap();
        }
        assert!(!cached.read(0, 0, 8, &mut Vec::new()));
        fs::remove_file(&path).unwrap();
        cached.set(0, Place::Coming);
        cached.fetch(0, |add| add(b"12345678"));
        assert_eq!(fs::read(&target).unwrap(), b"precious");
    }

    #[test]
    fn a_file_of_another_length_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let cached =
            Cached::new(Cache::new(folder.path(), 100).unwrap(), [("u/o".to_owned(), 8, Some("t"))].into_iter());
        for (contents, is_read) in [("12345678", true), ("123456789", false), ("1234567", false)] {
            fs::write(cached.path(0).unwrap(), contents).unwrap();
            assert_eq!(cached.read(0, 0, 4, &mut Vec::new()), is_read, "{contents}");
        }
    }

    #[test]
    fn an_object_that_does_not_fit_is_never_fetched() {
        let folder = tempfile::tempdir().unwrap();
        let objects =
            [("u/o".to_owned(), 101, Some("t")), ("u/p".to_owned(), 100, Some("t")), ("u/q".to_owned(), 1, None)];
        let cached = Cached::new(Cache::new(folder.path(), 100).unwrap(), objects.into_iter());
        cached.begin();
        assert_eq!(*cached.places(), [Place::Refused, Place::Absent, Place::Refused]);
    }

    #[test]
    fn a_forked_process_does_not_keep_the_lock_of_a_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut child = 0;
        write(&path, 4, |add| {
            // SAFETY: the child only sleeps, until it is killed.
            child = unsafe { libc::fork() };
            if child == 0 {
                loop {
                    thread::sleep(PATIENCE);
                }
            }
            add(b"1234")?;
            // The file that another process would wait for.
            fs::hard_link(part(&path), folder.path().join("waited.part"))
        })
        .unwrap();
        let begun = Instant::now();
        assert!(is_written(&folder.path().join("waited.part")));
        assert!(begun.elapsed() < PATIENCE / 4);
        // SAFETY: `child` is a child of this process.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
}
