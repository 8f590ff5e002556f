//! Saved indexes, so that each file has to be scanned only once.
//!
//! A saved index has these parts, with little-endian numbers: 8 bytes that identify the format; the
//! length of the indexed file as u64; the length of the file's version as u32, and the version; the
//! format's own data; and the CRC-32C of all these parts as u32. The version of a file is the
//! seconds and nanoseconds of its last modification; that of an object is the SHA-256 of its URL,
//! followed by its tag (ETag).
//!
//! An index that is damaged or belongs to another version of the file is ignored. An index is written
//! under a temporary name and then renamed, so that no reader sees a part of it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use crate::Error;
use crate::files::{Files, State, is_url};
use crate::open::Settings;
use crate::parallel::par_map;
use crate::paths::expand;
use crate::window::Progress;

/// The suffix that is added to the name of a file to get the name of its index.
const EXTENSION: &str = ".slotline-idx";

/// The place where indexes of files are saved.
///
/// A saved index is used if the file still has the length and the modification time that it had
/// when it was indexed, or if the object still has the same tag (ETag). Damaged indexes are
/// rebuilt. If an index can't be written, [`Records::warnings`](crate::Records::warnings) says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexFiles {
    /// Next to each file, in `<name>.slotline-idx`. Indexes of objects are saved in the user's
    /// cache folder: `slotline/indexes` in `$XDG_CACHE_HOME` or `~/.cache`.
    #[default]
    Beside,
    /// In this folder, which must exist, under names that differ for files in different folders.
    In(PathBuf),
    /// Nowhere. Files are scanned each time.
    None,
}

/// The maximum number of characters of a file's name that are used in the name of its index in
/// another folder.
const MAX_CHARACTERS: usize = 40;

/// The functions with which a format reads and writes its indexes.
pub(crate) struct Codec<T> {
    pub(crate) magic: &'static [u8; 8],
    pub(crate) encode: fn(&T, &mut Vec<u8>),
    /// Decodes the index of a file of this length. Returns `None` if the bytes are not an index.
    pub(crate) decode: fn(&[u8], u64) -> Option<T>,
}

impl IndexFiles {
    /// Returns the path at which the index of a file is saved, or `None` if it is not saved.
    pub fn of(&self, path: &Path) -> Option<PathBuf> {
        match self {
            Self::Beside if is_url(path) => named_in(&user_cache()?, path),
            Self::Beside => Some(path.with_file_name(with_extension(path.file_name()?.to_owned()))),
            Self::In(folder) => named_in(folder, path),
            Self::None => None,
        }
    }

    /// Returns the index of a file. It is the saved one if that belongs to the file. Otherwise
    /// `build` makes an index, which is then saved.
    pub(crate) fn load_or<T>(
        &self,
        files: &Files,
        file: usize,
        codec: &Codec<T>,
        progress: &Progress,
        build: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if *self == Self::None {
            return build();
        }
        let (saved, state) = match (self.of(&files.path(file)), files.state(file)) {
            (Some(saved), Some(state)) => (saved, state),
            (saved, _) => {
                files.index_is_not_saved(
                    file,
                    match saved {
                        None => "there is no folder for it: set `index_files`, or the variable HOME",
                        Some(_) if files.is_remote() => "the server sends no ETag, so a change could not be detected",
                        Some(_) => "the file was changed",
                    },
                );
                return build();
            }
        };
        let found = read(&saved, state.len).and_then(|bytes| {
            let index = unwrap(&bytes, codec.magic, &state)?;
            (codec.decode)(index, state.len)
        });
        if let Some(index) = found {
            progress.add(state.len);
            return Ok(index);
        }
        let index = build()?;
        if files.state(file).as_ref() != Some(&state) {
            files.index_is_not_saved(file, "the file was changed");
        } else if let Err(error) = write(&saved, &wrap(codec.magic, &state, |bytes| (codec.encode)(&index, bytes))) {
            let why = format!("{error}; make {} writable, or set `index_files`", folder_of(&saved).display());
            files.index_is_not_saved(file, &why);
        }
        Ok(index)
    }
}

impl Settings {
    /// Returns the index of each file. If paths of indexes that other programs wrote are set,
    /// `given` reads them. Otherwise it is the saved index, or the result of `build`.
    pub(crate) fn indexes<T: Send>(
        &self,
        files: &Files,
        codec: &Codec<T>,
        build: impl Fn(usize, &Progress) -> Result<T, Error> + Sync,
        given: impl Fn(&Path, usize) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let progress = Progress::new(self.progress.clone(), files);
        let numbers: Vec<usize> = (0..files.len()).collect();
        let Some(indexes) = &self.given_indexes else {
            // An index of a tar without its end marker must not be used by readers that require the
            // marker.
            let index_files = if self.missing_end { &IndexFiles::None } else { &self.index_files };
            return par_map(files, &numbers, |&file| {
                index_files.load_or(files, file, codec, &progress, || build(file, &progress))
            });
        };
        let indexes = expand(indexes)?;
        if indexes.len() != files.len() {
            let problem = format!("{} indexes for {} files", indexes.len(), files.len());
            return Err(Error::usage(problem, "pass one index for each file, in the same order"));
        }
        par_map(files, &numbers, |&file| given(&indexes[file], file))
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the user's folder for indexes of objects, which is created if necessary.
fn user_cache() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    let indexes = cache.join("slotline/indexes");
    fs::create_dir_all(&indexes).ok()?;
    Some(indexes)
}

/// Returns the path of an index in a folder for the indexes of many files, which may have the same
/// name. Only the beginning of a long name is used, since a hash and an extension follow it.
fn named_in(folder: &Path, path: &Path) -> Option<PathBuf> {
    let whole = if is_url(path) { path.to_owned() } else { path.canonicalize().ok()? };
    let name = path.file_name()?.to_string_lossy();
    let name: String = name.chars().take(MAX_CHARACTERS).collect();
    let name = format!("{name}-{}", in_hex(&hash([whole.as_os_str().as_bytes()])));
    Some(folder.join(with_extension(name.into())))
}

/// Returns a collision-resistant hash of strings.
pub(crate) fn hash<const N: usize>(texts: [&[u8]; N]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.finalize().into()
}

/// Returns the first half of a hash as hexadecimal digits, for use in file names.
pub(crate) fn in_hex(hash: &[u8; 32]) -> String {
    hash[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether this is the name of an index, or of an index that is being written.
pub(crate) fn is_index(name: &str) -> bool {
    name.contains(EXTENSION)
}

fn with_extension(mut name: OsString) -> OsString {
    name.push(EXTENSION);
    name
}

/// Reads an index. Returns `None` if the path is not a file or the file is too long, since an index
/// is never much longer than the indexed file.
fn read(path: &Path, len: u64) -> Option<Vec<u8>> {
    let found = fs::metadata(path).ok()?;
    (found.is_file() && found.len() <= len.saturating_add(1 << 10)).then(|| fs::read(path).ok())?
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{count}", std::process::id()));
    let aside = PathBuf::from(name);
    let written = File::create_new(&aside).and_then(|mut file| file.write_all(bytes));
    let written = written.and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

fn wrap(magic: &[u8; 8], state: &State, index: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend_from_slice(&state.len.to_le_bytes());
    bytes.extend_from_slice(&(state.version.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&state.version);
    index(&mut bytes);
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Returns the format's own data, if the index belongs to this state of the file.
fn unwrap<'a>(bytes: &'a [u8], magic: &[u8; 8], state: &State) -> Option<&'a [u8]> {
    let (rest, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(rest) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let mut rest = rest.strip_prefix(magic)?;
    let len = u64::from_le_bytes(take(&mut rest)?);
    let version = u32::from_le_bytes(take(&mut rest)?) as usize;
    let (version, index) = rest.split_at_checked(version)?;
    (len == state.len && version == state.version).then_some(index)
}

/// Removes bytes from the front, and returns them.
pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_believed_only_as_it_was_written_and_for_the_same_state() {
        let state = State { len: 10240, version: b"tag".to_vec() };
        let bytes = wrap(b"ABCDEFGH", &state, |bytes| bytes.extend_from_slice(b"index"));
        let read = |bytes: &[u8], state: &State| unwrap(bytes, b"ABCDEFGH", state).map(<[u8]>::to_vec);
        assert_eq!(read(&bytes, &state), Some(b"index".to_vec()));
        assert_eq!(read(&bytes, &State { len: 10241, ..state.clone() }), None);
        assert_eq!(read(&bytes, &State { version: b"tog".to_vec(), ..state.clone() }), None);
        assert_eq!(unwrap(&bytes, b"HGFEDCBA", &state), None);
        for at in 0..bytes.len() {
            assert_eq!(read(&bytes[..at], &state), None);
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert_eq!(read(&flipped, &state), None);
        }
    }
}
