//! Compressed shards: unpacked as a whole when first needed, and kept in memory up to a limit.

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;

/// The unpacked shards of a dataset. Those that were not used for longest are dropped first.
pub(crate) struct Unpacked {
    limit: u64,
    /// Held while a shard is unpacked, so that several threads do not unpack the same one.
    unpacking: Vec<Mutex<()>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The shards, and when each was last used.
    shards: HashMap<usize, (Arc<Vec<u8>>, u64)>,
    bytes: u64,
    clock: u64,
}

impl Unpacked {
    /// Keeps up to `limit` bytes of `shards` shards, and at least the last one.
    pub(crate) fn new(shards: usize, limit: u64) -> Self {
        Self { limit, unpacking: (0..shards).map(|_| Mutex::default()).collect(), kept: Mutex::default() }
    }

    /// Returns the limit, which is also the size that a shard may have.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns a shard, which `unpack` makes if it is not in memory.
    pub(crate) fn get(
        &self,
        shard: usize,
        unpack: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<Arc<Vec<u8>>, Error> {
        if let Some(found) = lock(&self.kept).find(shard) {
            return Ok(found);
        }
        let _alone = lock(&self.unpacking[shard]);
        if let Some(found) = lock(&self.kept).find(shard) {
            return Ok(found);
        }
        let unpacked = Arc::new(unpack()?);
        lock(&self.kept).insert(shard, unpacked.clone(), self.limit);
        Ok(unpacked)
    }
}

impl Kept {
    fn find(&mut self, shard: usize) -> Option<Arc<Vec<u8>>> {
        self.clock += 1;
        let (found, used) = self.shards.get_mut(&shard)?;
        *used = self.clock;
        Some(found.clone())
    }

    fn insert(&mut self, shard: usize, unpacked: Arc<Vec<u8>>, limit: u64) {
        self.bytes += unpacked.len() as u64;
        while self.bytes > limit {
            let Some(oldest) = self.shards.iter().min_by_key(|(_, (_, used))| *used).map(|(&shard, _)| shard) else {
                break;
            };
            let dropped = self.shards.remove(&oldest).map_or(0, |(bytes, _)| bytes.len());
            self.bytes -= dropped as u64;
        }
        self.shards.insert(shard, (unpacked, self.clock));
    }
}

/// Locks; what another thread left when it panicked is valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Unpacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = self.unpacking.len();
        f.debug_struct("Unpacked").field("shards", &shards).field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// How shards are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// Returns the compression with this name, which a level may follow: `zstd:3`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.split(':').next() {
            Some("gz") => Some(Self::Gzip),
            Some("zstd") => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Unpacks bytes that become at most `most`. Memory grows with what is unpacked.
    pub(crate) fn unpack(self, name: &Path, bytes: &[u8], most: u64) -> Result<Vec<u8>, Error> {
        let failed = |source| Error::io(name, "unpack", source);
        let mut unpacked = Vec::new();
        let read = match self {
            Self::Gzip => {
                flate2::read::MultiGzDecoder::new(bytes).take(most.saturating_add(1)).read_to_end(&mut unpacked)
            }
            Self::Zstd => zstd::Decoder::with_buffer(bytes)
                .and_then(|decoder| decoder.take(most.saturating_add(1)).read_to_end(&mut unpacked)),
        };
        read.map_err(failed)?;
        if unpacked.len() as u64 > most {
            let problem = format!("unpacks to more than {most} bytes");
            return Err(Error::format(
                name.display(),
                None,
                problem,
                "write the shards again, or raise `memory_limit`",
            ));
        }
        Ok(unpacked)
    }
}

/// Returns the path of a file in `folder` that an index names.
pub(crate) fn inside(index: &Path, folder: &Path, name: &str) -> Result<PathBuf, Error> {
    let relative = Path::new(name);
    if name.is_empty() || relative.components().any(|component| !matches!(component, Component::Normal(_))) {
        let problem = format!("the file name {name:?} leads out of the folder");
        return Err(Error::format(index.display(), None, problem, "write the index again"));
    }
    Ok(folder.join(relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_that_was_not_used_for_longest_goes_first() {
        let unpacked = Unpacked::new(4, 25);
        let get = |shard: usize| {
            let mut made = false;
            let bytes = unpacked.get(shard, || {
                made = true;
                Ok(vec![shard as u8; 10])
            });
            assert_eq!(*bytes.unwrap(), [shard as u8; 10]);
            made
        };
        assert_eq!([0, 1, 0, 2, 0, 1, 3, 0].map(get), [true, true, false, true, false, true, true, true]);
    }

    #[test]
    fn a_shard_beyond_the_limit_is_an_error() {
        let packed = zstd::encode_all(&[0; 1000][..], 0).unwrap();
        assert_eq!(Compression::Zstd.unpack(Path::new("a"), &packed, 1000).unwrap(), [0; 1000]);
        let error = Compression::Zstd.unpack(Path::new("a"), &packed, 999).unwrap_err().to_string();
        assert!(error.contains("more than 999 bytes"), "{error}");
        assert!(Compression::Gzip.unpack(Path::new("a"), &packed, 1000).is_err());
    }

    #[test]
    fn names_that_lead_out_of_the_folder_are_errors() {
        for name in ["", "..", "/etc/passwd", "a/../../b", "./../a"] {
            assert!(inside(Path::new("i"), Path::new("f"), name).is_err(), "{name}");
        }
        assert_eq!(inside(Path::new("i"), Path::new("f"), "a/b.mds").unwrap(), Path::new("f/a/b.mds"));
    }
}
