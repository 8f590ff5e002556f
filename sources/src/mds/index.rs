//! The file `index.json` of MDS, version 2.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Error;
use crate::files::read_whole;
use crate::shards::{ADVICE, Compression, inside};

#[derive(Deserialize)]
struct Index {
    version: u64,
    shards: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    format: String,
    version: u64,
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u64>>,
    compression: Option<String>,
    samples: u64,
    raw_data: FileInfo,
    zip_data: Option<FileInfo>,
}

#[derive(Deserialize)]
pub(super) struct FileInfo {
    basename: String,
    pub(super) bytes: u64,
    #[serde(default)]
    pub(super) hashes: BTreeMap<String, String>,
}

/// A shard: the file that exists (raw or compressed), and the index's information about it.
pub(super) struct Shard {
    pub(super) path: PathBuf,
    pub(super) compression: Option<Compression>,
    pub(super) samples: u64,
    /// The size of the shard before compression, in bytes.
    pub(super) bytes: u64,
    /// The information about the file that exists (raw or compressed).
    pub(super) file: FileInfo,
}

/// The shards, and the names, encodings and sizes of their columns.
pub(super) struct Shards {
    pub(super) columns: Vec<(String, String, Option<u64>)>,
    pub(super) shards: Vec<Shard>,
}

/// Reads the index of a folder.
pub(super) fn read(folder: &Path) -> Result<Shards, Error> {
    let path = &folder.join("index.json");
    let bytes = read_whole(path)?;
    let wrong = |problem: String| Error::in_file(path, problem, ADVICE);
    let index: Index =
        serde_json::from_slice(&bytes).map_err(|error| wrong(format!("not an index of MDS: {error}")))?;
    if index.version != 2 {
        return Err(wrong(format!("expected version 2, found {}", index.version)));
    }
    let mut columns = None;
    let mut shards = Vec::new();
    for (i, listed) in index.shards.into_iter().enumerate() {
        if listed.format != "mds" || listed.version != 2 {
            let problem = format!("shard {i} has the format {:?}, version {}", listed.format, listed.version);
            return Err(Error::in_file(path, problem, "write it with MDSWriter; only mds, 2 is read"));
        }
        let Listed { column_names: names, column_encodings: encodings, column_sizes: sizes, .. } = listed;
        if names.len() != encodings.len() || names.len() != sizes.len() {
            return Err(wrong(format!("shard {i} has different numbers of column names, encodings and sizes")));
        }
        let found: Vec<_> = names
            .into_iter()
            .zip(encodings)
            .zip(sizes)
            .map(|((name, encoding), size)| (name, encoding, size))
            .collect();
        if *columns.get_or_insert_with(|| found.clone()) != found {
            let problem = format!("shard {i} has other columns than the first shard");
            return Err(Error::in_file(path, problem, "open shards of the same columns"));
        }
        let raw = inside(path, folder, &listed.raw_data.basename)?;
        let bytes = listed.raw_data.bytes;
        let shard = match (listed.compression, listed.zip_data) {
            (Some(name), Some(zip)) if !raw.exists() => {
                let compression = Compression::named(&name).ok_or_else(|| {
                    let problem = format!("shard {i} has the compression {name:?}, and only zstd and gz are read");
                    Error::in_file(path, problem, "unpack the shards beside the compressed ones")
                })?;
                let path = inside(path, folder, &zip.basename)?;
                Shard { path, compression: Some(compression), samples: listed.samples, bytes, file: zip }
            }
            _ => Shard { path: raw, compression: None, samples: listed.samples, bytes, file: listed.raw_data },
        };
        shards.push(shard);
    }
    let columns = columns.ok_or_else(|| wrong("no shards".into()))?;
    Ok(Shards { columns, shards })
}

/// Checks a file against the hashes in the index.
pub(super) fn verify(shard: &Shard, bytes: &[u8]) -> Result<(), Error> {
    use sha2::Digest;
    for (name, expected) in &shard.file.hashes {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let found = match name.as_str() {
            "sha1" => hex(&sha1::Sha1::digest(bytes)),
            "sha224" => hex(&sha2::Sha224::digest(bytes)),
            "sha256" => hex(&sha2::Sha256::digest(bytes)),
            "sha384" => hex(&sha2::Sha384::digest(bytes)),
            "sha512" => hex(&sha2::Sha512::digest(bytes)),
            "xxh64" => format!("{:016x}", twox_hash::XxHash64::oneshot(0, bytes)),
            "xxh3_64" => format!("{:016x}", twox_hash::XxHash3_64::oneshot(bytes)),
            "xxh128" | "xxh3_128" => format!("{:032x}", twox_hash::XxHash3_128::oneshot(bytes)),
            _ => {
                let problem = format!("{}: hashes of the kind {name:?}", shard.path.display());
                return Err(Error::usage(problem, "use sha1, sha2 or xxhash, or don't set `verify`"));
            }
        };
        if found != *expected {
            let problem = format!("the {name} is {found}, and the index says {expected}");
            return Err(Error::in_file(&shard.path, problem, "copy the file again"));
        }
    }
    Ok(())
}
