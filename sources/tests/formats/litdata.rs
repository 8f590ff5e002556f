//! Chunks of LitData, compared with the results of LitData (`data/litdata.py`), and damaged files.
#![cfg(feature = "litdata")]

use crate::support;

use std::path::{Path, PathBuf};

use crate::support::{changed, fails, same_bytes};
use proptest::prelude::*;
use serde_json::Value;
use slotline::Dataset;
use slotline::dataset::Context;
use slotline_sources::litdata::{LitData, LitDataOptions};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/litdata").join(name)
}

fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(data("expected.json")).unwrap()).unwrap()
}

#[test]
fn items_are_those_of_litdata() {
    let expected = expected();
    for name in ["raw", "zstd", "tuple", "leaf"] {
        same_bytes(&LitData::open(data(name)).unwrap(), &expected[name]);
        // SAFETY: nobody writes to the files.
        same_bytes(&unsafe { LitDataOptions::new().mapped() }.open(data(name)).unwrap(), &expected[name]);
    }
    // There is memory for only one decompressed chunk, so chunks are decompressed again and again.
    same_bytes(&LitDataOptions::new().memory_limit(300).open(data("zstd")).unwrap(), &expected["zstd"]);
}

#[test]
fn blocks_of_tokens_are_those_of_litdata() {
    for name in ["tokens", "tokens_zstd"] {
        for (size, want) in expected()[name].as_object().unwrap() {
            let options = LitDataOptions::new().block_size(size.parse().unwrap());
            same_bytes(&options.open(data(name)).unwrap(), want);
            // SAFETY: nobody writes to the files.
            same_bytes(&unsafe { options.mapped() }.open(data(name)).unwrap(), want);
        }
    }
    let message = |options: LitDataOptions, name| options.open(data(name)).unwrap_err().to_string();
    assert!(message(LitDataOptions::new(), "tokens").contains("set `block_size`"));
    assert!(message(LitDataOptions::new().block_size(0), "tokens").contains("at least 1"));
    assert!(message(LitDataOptions::new().block_size(4), "raw").contains("not tokens"));
    assert!(message(LitDataOptions::new().block_size(usize::MAX), "tokens").contains("items"));
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    fails(LitData::open(data("pickle")), &["\"p\" has the format \"pickle\"", "leave it out"]);
    let items = LitDataOptions::new().columns(["a"]).open(data("pickle")).unwrap();
    assert_eq!(items.get(7, &mut Context::default()).unwrap().number::<i64>("a"), Some(7));
    fails(LitDataOptions::new().columns(["x"]).open(data("pickle")), &["no column x, but a, p"]);
    fails(LitData::open(data("batch")), &["compressed by \"batch\"", "compression_level=\"chunk\""]);
    fails(LitDataOptions::new().memory_limit(100).open(data("zstd")), &["raise `memory_limit`"]);
}

#[test]
fn passes_resume() {
    support::resumes(|| LitData::open(data("raw")).unwrap());
    support::resumes(|| LitDataOptions::new().memory_limit(300).open(data("zstd")).unwrap());
    support::resumes(|| LitDataOptions::new().block_size(4).open(data("tokens")).unwrap());
}

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn read_all(folder: &Path, options: &LitDataOptions) -> Outcome {
    support::read_all(&options.open(folder)?)
}

/// Copies a dataset, and returns a function that replaces the contents of one file and reads the
/// whole dataset.
fn with_file(name: &str, file: &str, options: LitDataOptions) -> (Vec<u8>, impl Fn(&[u8]) -> Outcome) {
    let folder = tempfile::tempdir().unwrap();
    for entry in data(name).read_dir().unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let (whole, path) = (std::fs::read(data(name).join(file)).unwrap(), folder.path().join(file));
    (whole, move |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        read_all(folder.path(), &options)
    })
}

#[test]
fn damaged_files_are_errors_or_read_without_a_panic() {
    for (name, file, options) in [
        ("raw", "chunk-0-0.bin", LitDataOptions::new()),
        ("zstd", "chunk-0-0.zstd.bin", LitDataOptions::new()),
        ("tokens", "chunk-0-0.bin", LitDataOptions::new().block_size(4)),
        ("raw", "index.json", LitDataOptions::new()),
        ("tokens", "index.json", LitDataOptions::new().block_size(4)),
    ] {
        let (whole, read) = with_file(name, file, options);
        read(&whole).unwrap();
        (0..whole.len()).for_each(|len| assert!(read(&whole[..len]).is_err(), "{name} {file} {len}"));
        changed(&whole, 0..whole.len(), |_, byte| [b'9', byte ^ 1, 0xff], |bytes| _ = read(bytes));
    }
}

#[test]
fn indexes_that_lie_are_errors() {
    let (whole, read) = with_file("raw", "index.json", LitDataOptions::new());
    let message = |from: &str, to: &str| {
        let text = String::from_utf8(whole.clone()).unwrap();
        assert!(text.contains(from), "{from} {text}");
        read(text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string()
    };
    assert!(message("chunk-0-0.bin", "../chunk-0-0.bin").contains("leads out of the folder"));
    assert!(message("\"chunk_size\": 4", "\"chunk_size\": 5").contains("samples"));
    assert!(message("\"chunk_size\": 4", "\"chunk_size\": 18446744073709551615").contains("items"));
    assert!(message("\"chunk_bytes\": ", "\"chunk_bytes\": 9").contains("the index says"));
    assert!(message("\"encryption\": null", "\"encryption\": {}").contains("encrypted"));
    assert!(message("\"PyTreeLoader\"", "\"ParquetLoader\"").contains("ParquetLoader"));
    assert!(message("\"bool\", ", "").contains("leaves"));
    assert!(message("\"bool\", ", &"\"bool\", ".repeat(5000)).contains("the maximum is 4096"));
}

proptest! {
    #[test]
    fn random_items_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let folder = tempfile::tempdir().unwrap();
        let mut index: Value = serde_json::from_slice(&std::fs::read(data("raw/index.json")).unwrap()).unwrap();
        let whole = [&[1, 0, 0, 0, 12, 0, 0, 0][..], &(12 + bytes.len() as u32).to_le_bytes(), &bytes].concat();
        index["chunks"].as_array_mut().unwrap().truncate(1);
        index["chunks"][0]["chunk_size"] = 1.into();
        index["chunks"][0]["chunk_bytes"] = whole.len().into();
        std::fs::write(folder.path().join("chunk-0-0.bin"), whole).unwrap();
        std::fs::write(folder.path().join("index.json"), index.to_string()).unwrap();
        prop_assert!(read_all(folder.path(), &LitDataOptions::new()).is_err());
    }
}
