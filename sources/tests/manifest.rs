//! Manifests are read as Hugging Face's datasets reads them.
#![cfg(feature = "manifest")]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use slotline::Dataset;
use slotline::dataset::Context;
use slotline::dtype::DType;
use slotline_sources::manifest::{Manifest, ManifestFormat, ManifestOptions};
use slotline_sources::{Error, FieldKind, Format, Record, Records};

mod support;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifest").join(name)
}

/// Returns all fields of a sample, the bytes of its file as length and hash.
fn json_of(record: &Record<'_>) -> Json {
    let fields = record.fields().as_slice().iter().map(|field| {
        let name = field.name.as_str();
        let value = match field.kind {
            FieldKind::Bytes(_) => {
                let bytes = record.bytes(name).unwrap();
                let hash: String = Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                json!([bytes.len(), hash])
            }
            FieldKind::Text(_) => json!(record.text(name)),
            FieldKind::Number(DType::I64) => json!(record.number::<i64>(name)),
            FieldKind::Number(DType::F64) => json!(record.number::<f64>(name)),
            FieldKind::Number(DType::Bool) => json!(record.number::<bool>(name)),
            _ => panic!("{field}"),
        };
        (field.name.clone(), value)
    });
    fields.collect()
}

#[test]
fn metadata_is_read_as_datasets_does() {
    let expected: Json = serde_json::from_slice(&fs::read(data("expected.json")).unwrap()).unwrap();
    for name in ["csv", "jsonl"] {
        let manifest = Manifest::open(data(name).join(format!("metadata.{name}"))).unwrap();
        let mut cx = Context::default();
        let found: Json = (0..manifest.len()).map(|index| json_of(&manifest.get(index, &mut cx).unwrap())).collect();
        assert_eq!(found, expected[name]);
    }
}

#[test]
fn a_pass_over_a_manifest_resumes() {
    support::resumes(|| {
        let text = "path\tn\n".to_owned() + &(0..9).map(|n| format!("a.png\t{n}\n")).collect::<String>();
        open_with(&text, "tsv", &ManifestOptions::new().file_column("path").root(data("csv"))).unwrap()
    });
}

fn open_with(text: impl AsRef<[u8]>, extension: &str, options: &ManifestOptions) -> Result<Records<Manifest>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list").with_extension(extension);
    fs::write(&path, text).unwrap();
    options.open(&path)
}

fn kinds(text: &str, extension: &str, options: &ManifestOptions) -> Vec<String> {
    let manifest = open_with(text, extension, options).unwrap();
    manifest.format().fields().as_slice()[1..].iter().map(ToString::to_string).collect()
}

#[test]
fn kinds_are_decided_over_the_whole_file() {
    let csv = "\u{feff}a,file_name,b,c,d,e,f\r\n1,x,1,True,1,99999999999999999999,\r\n-2,y,.5,false,z,1,\r\n\r\n007,z,1e3,TRUE,,1,\r\n";
    let found = kinds(csv, "csv", &ManifestOptions::new());
    assert_eq!(found, ["a: i64", "b: f64", "c: bool", "d: text", "e: text", "f: text"]);
    let jsonl = "{\"file_name\": \"x\", \"b\": 1, \"a\": [1, {\"k\": null}]}\n\n{\"b\": 2.5, \"file_name\": \"y\", \"c\": \"t\"}";
    let options = ManifestOptions::new();
    assert_eq!(kinds(jsonl, "jsonl", &options), ["b: f64", "a: text", "c: text"]);
    assert_eq!(kinds(jsonl, "jsonl", &options.columns(["c", "b"])), ["c: text", "b: f64"]);
}

#[test]
fn missing_numbers_are_errors_or_the_default() {
    let csv = "image,n,w,g\na.png,1,,true\na.png,,2.5,\n";
    let open = |options: &ManifestOptions| open_with(csv, "csv", &options.clone().root(data("csv")));
    let error = open(&ManifestOptions::new()).unwrap_err().to_string();
    assert!(error.contains("line 3, column n: no value"), "{error}");
    let options = ManifestOptions::new().default_number("n", -1.0).default_number("w", 0.5).default_number("g", 1.0);
    let manifest = open(&options).unwrap();
    let mut cx = Context::default();
    let found: Vec<Json> = (0..2).map(|index| json_of(&manifest.get(index, &mut cx).unwrap())).collect();
    let without_data = |mut row: Json| row.as_object_mut().unwrap().remove("data").map(|_| row).unwrap();
    let found: Vec<Json> = found.into_iter().map(without_data).collect();
    assert_eq!(found, [json!({"n": 1, "w": 0.5, "g": true}), json!({"n": -1, "w": 2.5, "g": true})]);
    open(&options.clone().default_number("n", 0.5)).expect_err("not an integer");
    open(&options.default_number("x", 0.0)).expect_err("no such column");
}

#[test]
fn bad_manifests_are_errors_that_name_the_place() {
    let cases = [
        ("csv", "", "no rows"),
        ("csv", "file_name,n\n", "no rows"),
        ("csv", "file,n\na,1\n", "no column file_name; there are file, n"),
        ("csv", "file_name,n\na,1\nb\n", "line: 3"),
        ("csv", "file_name,n\na,1\n\"b,2\nc,3\n", "byte 16: a quote that is not closed"),
        ("csv", "file_name,n,n\na,1,2\n", "two columns have the name `n`"),
        ("csv", "file_name,data\na,1\n", "the name `data`"),
        ("csv", "file_name\n../a\n", "line 2: expected a path in the folder"),
        ("csv", "file_name\na/../../b\n", "line 2"),
        ("csv", "file_name\n/etc/passwd\n", "line 2"),
        ("csv", "file_name,n\na,1\n,2\n", "line 3, column file_name"),
        ("jsonl", "", "no rows"),
        ("jsonl", "{\"file_name\": \"a\"}\n{\"file_name\": \"b\"", "byte 19: line 2: not valid"),
        ("jsonl", "[1]", "a JSON object"),
        ("jsonl", "{\"file_name\": \"a\", \"n\": 1, \"n\": 2}", "the key n is there twice"),
        ("jsonl", "{\"file_name\": 1}", "line 1, column file_name"),
        (
            "jsonl",
            "{\"file_name\": \"a\", \"n\": 1}\n{\"file_name\": \"a\", \"n\": \"1\"}",
            "line 1, column n: values of different",
        ),
        (
            "jsonl",
            "{\"file_name\": \"a\", \"n\": \"1\"}\n{\"file_name\": \"a\", \"n\": []}",
            "line 2, column n: texts and",
        ),
        ("jsonl", "{\"file_name\": \"a\", \"n\": 18446744073709551615}", "no i64"),
        ("jsonl", "{\"file_name\": \"a\", \"n\": 9007199254740993}\n{\"file_name\": \"a\", \"n\": 0.5}", "column n"),
        ("txt", "file_name\na\n", "expected a name that ends"),
    ];
    for (extension, text, message) in cases {
        let error = open_with(text, extension, &ManifestOptions::new()).expect_err(text).to_string();
        assert!(error.contains(message) && error.contains("list."), "{error}");
    }
    let nested = format!("{{\"file_name\": \"a\", \"n\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    open_with(nested, "jsonl", &ManifestOptions::new()).expect_err("too deep");
    let keys: String = (0..2000).map(|n| format!("{{\"file_name\": \"a\", \"{n}\": 1}}\n")).collect();
    let error = open_with(keys, "jsonl", &ManifestOptions::new()).unwrap_err().to_string();
    assert!(error.contains("different keys"), "{error}");
    let gone = open_with("file_name\nb.png\n", "csv", &ManifestOptions::new()).unwrap();
    let error = gone.get(0, &mut Context::default()).unwrap_err().to_string();
    assert!(error.contains("b.png"), "{error}");
}

#[test]
fn truncated_and_damaged_manifests_do_not_panic() {
    for (name, form) in [("csv", ManifestFormat::Csv { delimiter: b',' }), ("jsonl", ManifestFormat::Jsonl)] {
        let good = fs::read(data(name).join(format!("metadata.{name}"))).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let open = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let manifest = ManifestOptions::new().format(form).root(data(name)).open(&path).ok()?;
            let mut cx = Context::default();
            Some((0..manifest.len()).filter(|&index| manifest.get(index, &mut cx).is_ok()).count())
        };
        assert_eq!(open(&good), Some(4));
        for len in 0..good.len() {
            open(&good[..len]);
        }
        let mut bytes = good.clone();
        for at in 0..bytes.len() {
            for flip in [1, 0x20, 0x80, 0xff] {
                bytes[at] ^= flip;
                open(&bytes);
                bytes[at] ^= flip;
            }
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\",\n{}:[]ae1.".to_vec())], 0..200)) {
        for extension in ["csv", "jsonl"] {
            let _ = open_with([b"file_name,b\n", &bytes[..]].concat(), extension, &ManifestOptions::new());
            let _ = open_with(&bytes, extension, &ManifestOptions::new());
        }
    }
}
