//! The compression of shards, and the paths of their files.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use crate::Error;

/// The compression of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// Returns the compression with this name. The name may end with a level, as in `zstd:3`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.split(':').next() {
            Some("gz") => Some(Self::Gzip),
            Some("zstd") => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Unpacks bytes; the result may have at most `most` bytes. Memory is allocated as the data is
    /// unpacked.
    pub(crate) fn unpack(self, name: &Path, bytes: &[u8], most: u64) -> Result<Vec<u8>, Error> {
        let failed = |source| Error::io(name, "unpack", source);
        let reader: Box<dyn Read> = match self {
            Self::Gzip => Box::new(flate2::read::MultiGzDecoder::new(bytes)),
            Self::Zstd => Box::new(zstd::Decoder::with_buffer(bytes).map_err(failed)?),
        };
        let mut unpacked = Vec::new();
        reader.take(most.saturating_add(1)).read_to_end(&mut unpacked).map_err(failed)?;
        if unpacked.len() as u64 > most {
            let problem = format!("unpacks to more than {most} bytes");
            return Err(Error::in_file(name, problem, "write the shards again, or raise `memory_limit`"));
        }
        Ok(unpacked)
    }
}

/// Returns the path of a file in `folder` that an index names. The name must not lead out of the
/// folder.
pub(crate) fn inside(index: &Path, folder: &Path, name: &str) -> Result<PathBuf, Error> {
    let relative = Path::new(name);
    if name.is_empty() || relative.components().any(|component| !matches!(component, Component::Normal(_))) {
        let problem = format!("the file name {name:?} leads out of the folder");
        return Err(Error::in_file(index, problem, "write the index again"));
    }
    Ok(crate::files::below(folder, name))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[cfg(feature = "remote")]
    #[test]
    fn names_in_urls_stand_for_themselves() {
        for (name, path) in
            [("%2e%2e/b", "%252e%252e/b"), ("..\\b", "..%5Cb"), (".\t./b", ".%09./b"), ("a b?#", "a%20b%3F%23")]
        {
            let inside = inside(Path::new("i"), Path::new("http://host/f"), name).unwrap();
            assert_eq!(inside, Path::new("http://host/f").join(path));
            let parsed = url::Url::parse(inside.to_str().unwrap()).unwrap();
            assert!(parsed.path().starts_with("/f/"), "{parsed}");
        }
    }
}
