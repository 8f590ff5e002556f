//! Checks that data of every format in a bucket is read like data in a folder. `proof/buckets`
//! starts servers for this test, and sets the URL of the bucket.

#![cfg(feature = "s3")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use slotline::Dataset;
use slotline::dataset::Context;
use slotline_sources::files::{Files, Span};
use slotline_sources::tar::TarOptions;
use slotline_sources::{Format, IndexFiles, Record, Records};

mod support;

use support::fails;

/// The paths that are opened, relative to the folder of the data.
const PATHS: [&str; 19] = [
    "arrow/saved",
    "arrow/stream.arrow",
    "arrow/lz4.feather",
    "parquet/{index,lz4}.parquet",
    "parquet/saved.parquet",
    "folder/tree",
    "manifest/csv",
    "manifest/jsonl/metadata.jsonl",
    "tar/shard-000000.tar",
    "tar/shard-{000000..000001}.tar",
    "tar/shard-*.tar",
    "tfrecord/?.tfrecord",
    "mds/raw",
    "mds/zstd",
    "litdata/raw",
    "tokens/corpus0.idx",
    "tokens/corpus0.bin",
    "arrays/all.safetensors",
    "arrays/stored.npz",
];

/// Two copies of the data: one in a folder, and one in the bucket.
struct Copies {
    folder: tempfile::TempDir,
    url: String,
    runtime: tokio::runtime::Runtime,
    store: Arc<dyn ObjectStore>,
}

impl Copies {
    fn new(name: &str) -> Self {
        let bucket = std::env::var("SLOTLINE_BUCKET").expect("SLOTLINE_BUCKET is the URL of an empty bucket");
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = std::env::vars().filter(|(name, _)| name.starts_with("AWS_"));
        let options = options.map(|(name, value)| (name.to_lowercase(), value));
        let (store, _) = object_store::parse_url_opts(&bucket.parse().unwrap(), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (folder, url) = (tempfile::tempdir().unwrap(), format!("{bucket}/{name}"));
        let copies = Self { folder, url, runtime, store: Arc::from(store) };
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        for entry in walkdir::WalkDir::new(&data).into_iter().map(Result::unwrap).filter(|entry| entry.path().is_file())
        {
            let relative = entry.path().strip_prefix(&data).unwrap();
            copies.add(relative.to_str().unwrap(), std::fs::read(entry.path()).unwrap());
        }
        for (i, file) in
            ["a b/1.jpg", "a b/2.PNG", "a b/x/0.jpg", "c/50% #1?.jpg", "c/ü.jpg", "c/no.txt"].iter().enumerate()
        {
            copies.add(&format!("folder/tree/{file}"), vec![i as u8; 100 * i]);
        }
        copies
    }

    /// Adds a file to both copies.
    fn add(&self, path: &str, bytes: Vec<u8>) {
        let copy = self.folder.path().join(path);
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::write(copy, &bytes).unwrap();
        self.put(&format!("{}/{path}", self.url.rsplit('/').next().unwrap()), bytes);
    }

    fn put(&self, path: &str, bytes: Vec<u8>) {
        self.runtime
            .block_on(self.store.put(&object_store::path::Path::parse(path).unwrap(), PutPayload::from(bytes)))
            .unwrap();
    }
}

/// Opens data by path or URL, ignoring saved indexes.
fn open(path: impl Into<PathBuf>) -> Records<dyn Format> {
    let path = path.into();
    slotline_sources::open(&path).unwrap_or_else(|error| panic!("{}: {error:?}", path.display()))
}

/// Returns the bytes of all fields of all samples.
fn contents(records: &Records<dyn Format>) -> Vec<Vec<Vec<u8>>> {
    let fields = records.format().fields().as_slice().len();
    let bytes = |record: Record<'_>| (0..fields).map(|field| record.value(field).unwrap().to_vec()).collect();
    let mut cx = Context::default();
    (0..records.len()).map(|index| bytes(records.get(index, &mut cx).unwrap())).collect()
}

#[test]
#[ignore = "needs a bucket: proof/buckets"]
fn each_format_is_read_as_from_a_folder() {
    let copies = Copies::new("formats");
    for path in PATHS {
        let (local, remote) = (open(copies.folder.path().join(path)), open(format!("{}/{path}", copies.url)));
        assert_eq!(local.format().fields(), remote.format().fields(), "{path}");
        assert!(local.len() > 0 && contents(&local) == contents(&remote), "{path}");
    }
}

#[test]
#[ignore = "needs a bucket: proof/buckets"]
fn passes_resume() {
    let copies = Copies::new("passes");
    for path in ["tar/shard-*.tar", "folder/tree", "mds/zstd", "arrow/saved", "parquet/index.parquet"] {
        support::resumes(|| open(format!("{}/{path}", copies.url)));
    }
}

#[test]
#[ignore = "needs a bucket: proof/buckets"]
fn saved_indexes_belong_to_one_version_of_an_object() {
    let copies = Copies::new("indexes");
    let indexes = tempfile::tempdir().unwrap();
    let open = || {
        let options = TarOptions::new().key(true).index_files(IndexFiles::In(indexes.path().to_owned()));
        options.open([format!("{}/tar/shard-000000.tar", copies.url)]).unwrap()
    };
    let first = open();
    let saved = || indexes.path().read_dir().unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    let before: Vec<_> = saved().collect();
    assert_eq!((before.len(), open().format().key(0) == first.format().key(0)), (1, true));
    // Replaces a shard of the bucket by another shard, whose first sample has another key.
    let other = std::fs::read(copies.folder.path().join("tar/shard-000001.tar")).unwrap();
    copies.put("indexes/tar/shard-000000.tar", other);
    assert_ne!(open().format().key(0), first.format().key(0));
    assert_ne!(saved().collect::<Vec<_>>(), before);
    // A dataset that was opened before must not return bytes of the new shard.
    let mut cx = Context::default();
    fails(first.get(0, &mut cx), &["was replaced since it was opened"]);
}

#[test]
#[ignore = "needs a bucket: proof/buckets"]
fn what_is_not_there_is_an_error_that_names_it() {
    let copies = Copies::new("missing");
    fails(Files::open([format!("{}/none.bin", copies.url)]), &["/missing/none.bin", "check the bucket and the path"]);
    fails(slotline_sources::open(format!("{}/tar/none-*.tar", copies.url)), &["no file matches", "none-*.tar"]);
    fails(slotline_sources::open(format!("{}/none", copies.url)), &["/missing/none"]);
    let files = Files::open([format!("{}/arrays/stored.npz", copies.url)]).unwrap();
    let beyond = Span { file: 0, start: 0, len: Some(1 << 40) };
    fails(files.read(beyond, &mut Vec::new()), &["stored.npz"]);
}
