//! Folders with files of several kinds, with notes beside the data, and of classes with odd names.

#![cfg(all(feature = "folder", feature = "manifest", feature = "mds", feature = "tar", feature = "tfrecord"))]

use std::fs;
use std::path::Path;

use slotline::Dataset;
use slotline::dataset::Context;
use slotline_sources::OpenOptions;

use crate::support;

/// Makes a folder with these files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

fn data(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

fn error(folder: &Path) -> String {
    slotline_sources::open(folder).unwrap_err().to_string()
}

#[test]
fn files_of_two_kinds_are_an_error_that_names_both() {
    let (parquet, tfrecord) = (data("parquet/snappy.parquet"), data("tfrecord/0.tfrecord"));
    let tar = support::tar(&[("0.txt", b"a")]);
    let rows = b"{\"a\": 1}\n";
    for files in [
        [("x.tfrecord", &tfrecord[..]), ("x.tfrecord.gz", b"\x1f\x8b\x08\0")],
        [("a.parquet", &parquet), ("b.jsonl", rows)],
        [("a.tar", &tar), ("b.tar.gz", b"\x1f\x8b\x08\0")],
        [("a.tar", &tar), ("b.npz", b"")],
        [("a.tar.zst", b""), ("b.jsonl", rows)],
        [("a.tar.zst", b""), ("metadata.csv", b"file_name,x\n1.png,1\n")],
        [("a.tar", &tar), ("part-00000", &tfrecord)],
        [("metadata.csv", b"file_name,x\n1.png,1\n"), ("metadata.jsonl", b"{\"file_name\": \"2.png\"}\n")],
        [("metadata.csv", b"file_name,x\n1.png,1\n"), ("a.tar", &tar)],
        [("metadata.csv", b"file_name,x\n1.png,1\n"), ("metadata.parquet", &parquet)],
        [("index.json", &data("mds/raw/index.json")), ("a.parquet", &parquet)],
        [("year=1/a.parquet", &parquet), ("year=2/b.tar", &tar)],
    ] {
        let folder = folder(&files);
        let error = error(folder.path());
        assert!(error.contains(": both ") && error.contains("`folder/*.tar`"), "{error}");
        let name = |path: &str| format!("({})", path.rsplit('/').next().unwrap());
        assert!(files.iter().all(|(path, _)| error.contains(&name(path))), "{files:?}: {error}");
        match OpenOptions::new().open_stream(folder.path()) {
            Ok(stream) => assert!(stream.is_none() && files[0].0.contains('=')),
            Err(other) => assert_eq!(other.to_string(), error),
        }
    }
    let packed = folder(&[("x.tfrecord.gz", b"\x1f\x8b\x08\0")]);
    assert!(error(packed.path()).contains("x.tfrecord.gz: it is packed"));
}

#[test]
fn metadata_in_parquet_are_refused_by_name() {
    let parquet = data("parquet/snappy.parquet");
    for files in [
        &[("metadata.parquet", &parquet[..]), ("1.png", b"")][..],
        &[("metadata.parquet", &parquet), ("cat/1.png", b"")],
        &[("train/metadata.parquet", &parquet), ("train/1.png", b"")],
    ] {
        let error = error(folder(files).path());
        assert!(error.contains("metadata.parquet: metadata in Parquet") && error.contains("metadata.jsonl"), "{error}");
    }
    let splits = folder(&[("train/metadata.parquet", &parquet), ("test/metadata.parquet", &parquet)]);
    assert!(error(splits.path()).contains("datasets: test, train"));
}

#[test]
fn what_the_metadata_name_and_tables_beside_them_are_no_strays() {
    let rows = b"{\"file_name\": \"a.tar\", \"x\": 1}\n{\"file_name\": \"b.tar\", \"x\": 2}\n";
    let folder = folder(&[("metadata.jsonl", rows), ("a.tar", b"A"), ("b.tar", b"B"), ("notes.csv", b"a\n")]);
    let records = slotline_sources::open(folder.path()).unwrap();
    let mut cx = Context::default();
    for (index, (data, x)) in [(&b"A"[..], 1), (b"B", 2)].into_iter().enumerate() {
        let record = records.get(index, &mut cx).unwrap();
        assert_eq!((record.bytes("data"), record.number::<i64>("x")), (Some(data), Some(x)));
    }
}

#[test]
fn texts_beside_shards_without_extension_are_no_data() {
    let shard = data("tfrecord/0.tfrecord");
    let one = folder(&[("train-00000-of-00001", &shard)]);
    let one = slotline_sources::open(one.path()).unwrap().len();
    let notes = [(".gitattributes", &b"*"[..]), ("LICENSE", b"Do what you like"), ("README.md", "# Füße".as_bytes())];
    let shards = [("train-00000-of-00002", &shard[..]), ("train-00001-of-00002", &shard)];
    let flat = folder(&[&notes[..], &shards, &[("train-00002-of-00002", b""), ("index.json", b"{}")]].concat());
    assert_eq!(slotline_sources::open(flat.path()).unwrap().len(), 2 * one);
    let parts = [("x=1/part-0", &shard[..]), ("x=1/README.md", b"notes"), ("x=2/part-0", &shard)];
    let hive = folder(&[&notes[..], &parts].concat());
    let records = slotline_sources::open(hive.path()).unwrap();
    assert_eq!(records.len(), 2 * one);
    assert_eq!(records.get(one, &mut Context::default()).unwrap().number::<i64>("x"), Some(2));
    // A shard whose start is damaged is no text.
    fs::write(flat.path().join("train-00001-of-00002"), [0xff; 100]).unwrap();
    assert!(error(flat.path()).contains("train-00001-of-00002"));
    assert!(error(folder(&notes).path()).contains("not a dataset"));
}

#[test]
fn folders_of_classes_are_those_of_torchvision() {
    // The classes that torchvision's `find_classes` returns.
    for classes in [&["_a", "_b"][..], &["_a", "b"], &["a=1", "b=2"], &["a=1", "a=2"], &["=", "a=1"]] {
        let files: Vec<_> = classes.iter().map(|class| (format!("{class}/sub/1.png"), class.as_bytes())).collect();
        let files: Vec<_> = files.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        let folder = folder(&files);
        let records = slotline_sources::open(folder.path()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(records.len(), classes.len());
        let mut cx = Context::default();
        for (label, class) in classes.iter().enumerate() {
            let record = records.get(label, &mut cx).unwrap();
            let found = (record.bytes("data"), record.number::<i64>("label"));
            assert_eq!(found, (Some(class.as_bytes()), Some(label as i64)));
        }
    }
    let notes = [("index.json", &b"{\"a\": 1}"[..]), ("cat/index.json", b"[]"), ("cat/state.json", b"{}")];
    let files = [&notes[..], &[("cat/1.png", b"m"), ("dog/1.png", b"w"), ("labels.csv", b"a\n")]].concat();
    assert_eq!(slotline_sources::open(folder(&files).path()).unwrap().len(), 2);
    // One of a dataset is not read as a class.
    let index = data("mds/raw/index.json");
    let error = error(folder(&[("cat/index.json", &index[..]), ("dog/1.png", b"w")]).path());
    assert!(error.contains("datasets: cat"), "{error}");
}
