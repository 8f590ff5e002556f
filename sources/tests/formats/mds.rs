//! Shards of MosaicML Streaming, compared with the results of mosaicml-streaming (`data/mds.py`),
//! and damaged files.
#![cfg(feature = "mds")]

use crate::support;

use std::path::{Path, PathBuf};

use crate::support::{changed, fails};
use proptest::prelude::*;
use serde_json::Value;
use slotline::Dataset;
use slotline::dataset::Context;
use slotline_sources::mds::{Mds, MdsOptions};
use slotline_sources::{Error, Records};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mds").join(name)
}

fn assert_as_expected(name: &str, mds: &Records<Mds>) {
    let expected: Value = serde_json::from_slice(&std::fs::read(data("expected.json")).unwrap()).unwrap();
    support::same_bytes(mds, &expected[name]);
}

#[test]
fn samples_are_those_of_mosaicml_streaming() {
    for name in ["raw", "zstd", "gz"] {
        assert_as_expected(name, &Mds::open(data(name)).unwrap());
        assert_as_expected(name, &MdsOptions::new().verify(true).open(data(name)).unwrap());
        // SAFETY: nobody writes to the files.
        assert_as_expected(name, &unsafe { MdsOptions::new().mapped() }.open(data(name)).unwrap());
    }
    // There is memory for only one decompressed shard, so shards are decompressed again and again.
    assert_as_expected("zstd", &MdsOptions::new().memory_limit(3000).open(data("zstd")).unwrap());
}

#[test]
fn fields_have_the_kinds_of_their_columns() {
    let fields = support::fields(&Mds::open(data("raw")).unwrap());
    let some = ["any: f32 list", "any.shape: i64 list", "bytes: bytes", "fixed: f32 [2, 3]", "int: i64", "json: text"];
    let others = ["s_float16: f16", "str: text", "str_float: f64", "str_int: i64", "vector: u16 [4]"];
    for field in some.into_iter().chain(others) {
        assert!(fields.iter().any(|found| found == field), "{field}: {fields:?}");
    }
}

#[test]
fn columns_are_chosen_and_pickles_are_refused() {
    fails(Mds::open(data("pkl")), &["\"b\" has the encoding \"pkl\"", "leave it out"]);
    let mds = MdsOptions::new().columns(["a"]).open(data("pkl")).unwrap();
    let mut cx = Context::default();
    assert_eq!(mds.get(1, &mut cx).unwrap().number::<i64>("a"), Some(1));
    fails(MdsOptions::new().columns(["c"]).open(data("pkl")), &["no column c, but a, b"]);
}

#[test]
fn passes_resume() {
    support::resumes(|| Mds::open(data("raw")).unwrap());
    support::resumes(|| MdsOptions::new().memory_limit(3000).open(data("zstd")).unwrap());
}

/// Copies a dataset into a folder, and changes one file.
fn copy(name: &str, to: &Path, file: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    for entry in data(name).read_dir().unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    std::fs::write(to.join(file), change(std::fs::read(data(name).join(file)).unwrap())).unwrap();
}

/// Opens a dataset and reads every sample. Returns the first error.
fn read_all(folder: &Path, options: &MdsOptions) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    support::read_all(&options.open(folder)?)
}

#[test]
fn damaged_files_are_errors_or_read_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    for (name, file) in [("gz", "shard.00000.mds.gz"), ("zstd", "shard.00000.mds.zstd"), ("raw", "shard.00000.mds")] {
        copy(name, folder.path(), file, |bytes| bytes);
        let (whole, path) = (std::fs::read(data(name).join(file)).unwrap(), folder.path().join(file));
        let read = |bytes: &[u8], options: &MdsOptions| {
            std::fs::write(&path, bytes).unwrap();
            read_all(folder.path(), options)
        };
        read(&whole, &MdsOptions::new().verify(true)).unwrap();
        for len in 0..whole.len() {
            assert!(read(&whole[..len], &MdsOptions::new()).is_err(), "{name} {len}");
        }
        changed(
            &whole,
            0..whole.len(),
            |at, byte| [byte ^ [1, 0x80, 0xff][at % 3]],
            |bytes| {
                let _ = read(bytes, &MdsOptions::new());
                fails(read(bytes, &MdsOptions::new().verify(true)), &[file, "the index says"]);
            },
        );
    }
}

#[test]
fn damage_at_the_start_is_an_error_of_its_samples() {
    let mut cx = Context::default();
    // The sizes of the columns of the first of three samples, and the whole of the first shard.
    let sizes: fn(&mut [u8]) = |bytes| {
        let start = u32::from_le_bytes(*bytes[4..].first_chunk().unwrap()) as usize;
        bytes[start..start + 8].fill(0xff);
    };
    let all: fn(&mut [u8]) = |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
    let cases = [("raw", "shard.00000.mds", sizes, &[0][..]), ("zstd", "shard.00000.mds.zstd", all, &[0, 1])];
    for (name, file, damage, bad) in cases {
        let folder = tempfile::tempdir().unwrap();
        copy(name, folder.path(), file, |mut bytes| {
            damage(&mut bytes);
            bytes
        });
        let mds = Mds::open(folder.path()).unwrap();
        assert_eq!(support::fields(&mds).len(), support::fields(&Mds::open(data(name)).unwrap()).len());
        let found: Vec<usize> = (0..mds.len()).filter(|&index| mds.get(index, &mut cx).is_err()).collect();
        assert_eq!(found, bad, "{name}");
        fails(mds.get(0, &mut cx), &[file]);
    }
}

#[test]
fn damaged_indexes_are_errors_or_read_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    copy("gz", folder.path(), "index.json", |bytes| bytes);
    let (whole, path) = (std::fs::read(data("gz").join("index.json")).unwrap(), folder.path().join("index.json"));
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        read_all(folder.path(), &MdsOptions::new())
    };
    (0..whole.len()).for_each(|len| assert!(read(&whole[..len]).is_err(), "{len}"));
    changed(&whole, 0..whole.len(), |_, byte| [b'9', b'"', byte ^ 1, 0xff], |bytes| _ = read(bytes));
}

fn with_index(name: &str, from: &str, to: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let folder = tempfile::tempdir().unwrap();
    copy(name, folder.path(), "index.json", |bytes| {
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains(from), "{text}");
        text.replace(from, to).into_bytes()
    });
    read_all(folder.path(), &MdsOptions::new())
}

#[test]
fn indexes_that_lie_are_errors() {
    let message = |name, from: &str, to: &str| with_index(name, from, to).unwrap_err().to_string();
    assert!(message("pkl", "\"version\": 2", "\"version\": 3").contains("version"));
    assert!(message("raw", "\"shard.00000.mds\"", "\"../shard.00000.mds\"").contains("leads out of the folder"));
    assert!(message("raw", "\"shard.00000.mds\"", "\"/etc/passwd\"").contains("leads out of the folder"));
    assert!(message("raw", "\"samples\": ", "\"samples\": 9").contains("samples"));
    assert!(message("raw", "\"samples\": ", "\"samples\": 999999999999").contains("samples"));
    assert!(message("zstd", "\"zstd:7\"", "\"br:7\"").contains("only zstd and gz"));
    assert!(
        message(
            "zstd",
            "\"raw_data\": {\"basename\": \"shard.00000.mds\", \"bytes\": ",
            "\"raw_data\": {\"basename\": \"shard.00000.mds\", \"bytes\": 9"
        )
        .contains("and the index says")
    );
    assert!(message("raw", "ndarray:uint16:4", "ndarray:uint16:5").contains("values of 8 bytes"));
    assert!(message("raw", "ndarray:uint16:4", "ndarray:complex:4").contains("unknown encoding"));
}

#[test]
fn more_columns_than_a_sample_may_have_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..5000).map(|i| i.to_string()).collect();
    copy("raw", folder.path(), "index.json", |bytes| {
        let mut index: Value = serde_json::from_slice(&bytes).unwrap();
        index["shards"].as_array_mut().unwrap().truncate(1);
        let shard = &mut index["shards"][0];
        shard["column_names"] = names.clone().into();
        shard["column_encodings"] = vec!["str"; names.len()].into();
        shard["column_sizes"] = vec![Value::Null; names.len()].into();
        index.to_string().into_bytes()
    });
    fails(Mds::open(folder.path()), &["index.json: 5000 fields; the maximum is 4096"]);
}

#[test]
fn shards_beyond_the_memory_limit_are_errors() {
    let error: Error = MdsOptions::new().memory_limit(100).open(data("zstd")).unwrap_err();
    assert!(error.to_string().contains("raise `memory_limit`"), "{error}");
}

proptest! {
    #[test]
    fn random_shards_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let folder = tempfile::tempdir().unwrap();
        let mut index: Value = serde_json::from_slice(&std::fs::read(data("raw/index.json")).unwrap()).unwrap();
        index["shards"].as_array_mut().unwrap().truncate(1);
        let shard = &mut index["shards"][0];
        shard["samples"] = 2.into();
        let whole = [&[2, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0, 0][..], &(16 + bytes.len() as u32).to_le_bytes(), &bytes].concat();
        shard["raw_data"]["bytes"] = whole.len().into();
        std::fs::write(folder.path().join("shard.00000.mds"), whole).unwrap();
        std::fs::write(folder.path().join("index.json"), index.to_string()).unwrap();
        prop_assert!(read_all(folder.path(), &MdsOptions::new()).is_err());
    }
}
