//! What a path is, found out from what foreign programs wrote.

#![cfg(all(
    feature = "folder",
    feature = "litdata",
    feature = "manifest",
    feature = "mds",
    feature = "npz",
    feature = "safetensors",
    feature = "tar",
    feature = "tfrecord",
    feature = "tokens"
))]

use std::path::{Path, PathBuf};

use slotline::Dataset;
use slotline::dataset::Context;

/// Returns a path in the test data. Files are copied whose indexes are saved beside them.
fn data(path: &str, copies: &Path) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let Some((folder @ ("tar" | "tfrecord"), name)) = path.split_once('/') else { return data.join(path) };
    for entry in data.join(folder).read_dir().unwrap().flatten() {
        std::fs::copy(entry.path(), copies.join(entry.file_name())).unwrap();
    }
    copies.join(name)
}

#[test]
fn each_format_is_found_out() {
    let copies = tempfile::tempdir().unwrap();
    for (path, fields) in [
        ("tar/shard-000000.tar", "cls"),
        ("tar/shard-{000000..000001}.tar", "cls"),
        ("tfrecord/0.tfrecord", ""),
        ("mds/raw", ""),
        ("mds/zstd", ""),
        ("litdata/raw", ""),
        ("manifest/csv", ""),
        ("arrow/saved", "text: text, label: i64, ids: i32 list"),
        ("arrow/zstd.feather", "i8: i8, u16: u16"),
        ("parquet/snappy.parquet", "i8: i8, u16: u16"),
        ("tokens/corpus0.idx", "tokens: u16 list"),
        ("tokens/corpus0.bin", "tokens: u16 list"),
        ("tokens/int32_modes.bin", "mode: i8"),
        ("arrays/all.safetensors", ""),
        ("arrays/stored.npz", ""),
    ] {
        let records =
            slotline_sources::open(data(path, copies.path())).unwrap_or_else(|error| panic!("{path}: {error}"));
        let found: Vec<_> = records.format().fields().as_slice().iter().map(ToString::to_string).collect();
        assert!(found.join(", ").contains(fields), "{path}: {found:?}");
        let mut cx = Context::default();
        assert!(!records.is_empty());
        for index in 0..records.len() {
            records.get(index, &mut cx).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }
}

#[test]
fn what_is_nothing_of_these_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "something").unwrap();
    let packed = folder.path().join("photos-0.tar.gz");
    std::fs::write(&packed, [0x1f, 0x8b, 8, 0]).unwrap();
    std::fs::write(folder.path().join("photos-1.tar.gz"), [0x1f, 0x8b, 8, 0]).unwrap();
    let odd = folder.path().join("odd");
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("index.json"), "{}").unwrap();
    for (path, words) in [
        (text, "not a format that this build reads"),
        (odd, "not a dataset"),
        (packed, "packed by gzip"),
        (folder.path().join("*.gz"), "`TarOptions::stream`"),
        (folder.path().join("none"), "check the path"),
        (folder.path().join("*.tar"), "no file"),
    ] {
        let error = slotline_sources::open(&path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
