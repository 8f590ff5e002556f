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
use slotline_sources::OpenOptions;

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
fn folders_of_files_of_one_kind_are_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in [("arrow/zstd.feather", "feather"), ("tfrecord/0.tfrecord", "tfrecord")] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(from);
        let both = folder.path().join(to);
        std::fs::create_dir(&both).unwrap();
        for name in ["a", "b"] {
            std::fs::copy(&from, both.join(name).with_extension(to)).unwrap();
        }
        let one = slotline_sources::open(both.join("a").with_extension(to)).unwrap();
        assert_eq!(slotline_sources::open(&both).unwrap().len(), 2 * one.len(), "{to}");
        assert_eq!(slotline_sources::open(both.join(format!("*.{to}"))).unwrap().len(), 2 * one.len(), "{to}");
    }
}

#[test]
fn columns_are_chosen_in_any_format() {
    let copies = tempfile::tempdir().unwrap();
    for (path, columns) in [
        ("tar/shard-000000.tar", ["cls", "txt"]),
        ("arrow/saved", ["label", "text"]),
        ("parquet/snappy.parquet", ["u16", "i8"]),
        ("mds/raw", ["str", "any"]),
    ] {
        let path = data(path, copies.path());
        let all = slotline_sources::open(&path).unwrap();
        let by_options = OpenOptions::new().columns(columns).open(&path).unwrap();
        let by_records = all.clone().columns(columns).unwrap();
        let (mut cx, mut other) = (Context::default(), Context::default());
        for index in 0..all.len() {
            let whole = all.get(index, &mut cx).unwrap();
            for chosen in [&by_options, &by_records] {
                let some = chosen.get(index, &mut other).unwrap();
                let names: Vec<_> = some.fields().as_slice().iter().map(|field| &field.name).collect();
                assert_eq!(names, columns, "{path:?}");
                for column in columns {
                    assert_eq!(some.bytes(column).unwrap(), whole.bytes(column).unwrap(), "{path:?}");
                }
            }
        }
        let error = all.clone().columns(["nothing"]).unwrap_err().to_string();
        assert!(error.contains("no column nothing, but"), "{error}");
        let error = all.columns([columns[0]; 2]).unwrap_err().to_string();
        assert!(error.contains(&format!("two columns {}", columns[0])), "{error}");
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
    let both = folder.path().join("both");
    std::fs::create_dir(&both).unwrap();
    for name in ["a.tar", "a.parquet"] {
        std::fs::write(both.join(name), "").unwrap();
    }
    for (path, words) in [
        (both, "a folder with tars and Parquet files"),
        (text, "not a format that this build reads"),
        (odd, "not a dataset"),
        (packed, "it is packed"),
        (folder.path().join("*.gz"), "only tars are read packed, as streams"),
        (folder.path().join("none"), "check the path"),
        (folder.path().join("*.tar"), "no file"),
    ] {
        let error = slotline_sources::open(&path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
