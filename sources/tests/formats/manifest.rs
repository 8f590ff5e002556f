//! Checks that manifests are read as by Hugging Face's datasets.
#![cfg(feature = "manifest")]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use slotline::Dataset;
use slotline::dataset::Context;
use slotline::dtype::DType;
use slotline_sources::manifest::{Manifest, ManifestFormat, ManifestOptions};
use slotline_sources::{DefaultNumber, Error, FieldKind, Format, Record, Records};

use crate::support;

use crate::support::fails;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifest").join(name)
}

/// Returns all fields of a sample. The bytes of its file are represented by length and hash.
fn json_of(record: &Record<'_>) -> Json {
    let fields = record.fields().as_slice().iter().map(|field| {
        let name = field.name.as_str();
        let value = match field.kind {
            FieldKind::Bytes(_) => support::hashed(record.bytes(name).unwrap()),
            FieldKind::Text(_) => json!(record.text(name)),
            FieldKind::Number(DType::I64) => json!(record.number::<i64>(name)),
            FieldKind::Number(DType::F64) => json!(record.number::<f64>(name)),
            FieldKind::Number(DType::Bool) => json!(record.number::<bool>(name)),
            FieldKind::List(DType::I64, _) => json!(record.elements::<i64>(name)),
            FieldKind::List(DType::F64, _) => json!(record.elements::<f64>(name)),
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
        assert_eq!(json!(rows_of(&manifest)), expected[name]);
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
    support::fields(&open_with(text, extension, options).unwrap())[1..].to_vec()
}

#[test]
fn kinds_are_decided_over_the_whole_file() {
    let csv = "\u{feff}a,file_name,b,c,d,e,f\r\n1,x,1,True,1,99999999999999999999,\r\n-2,y,.5,false,z,1,\r\n\r\n007,z,1e3,TRUE,,1,\r\n";
    let found = kinds(csv, "csv", &ManifestOptions::new());
    assert_eq!(found, ["a: i64", "b: f64", "c: bool", "d: text", "e: text", "f: text"]);
    let jsonl = "{\"file_name\": \"x\", \"b\": 1, \"a\": [1, {\"k\": null}]}\n\n{\"b\": 2.5, \"file_name\": \"y\", \"c\": \"t\"}";
    let options = ManifestOptions::new().missing_as_zero(true);
    assert_eq!(kinds(jsonl, "jsonl", &options), ["b: f64", "a: text", "c: text"]);
    assert_eq!(kinds(jsonl, "jsonl", &options.columns(["data", "c", "b"])), ["c: text", "b: f64"]);
}

/// Returns the fields of all rows.
fn rows(text: &str, extension: &str, options: &ManifestOptions) -> Vec<Json> {
    rows_of(&open_with(text, extension, options).unwrap())
}

fn rows_of(manifest: &Records<Manifest>) -> Vec<Json> {
    let mut cx = Context::default();
    (0..manifest.len()).map(|index| json_of(&manifest.get(index, &mut cx).unwrap())).collect()
}

#[test]
fn rows_without_files_are_their_columns() {
    let options = ManifestOptions::new();
    let jsonl = "{\"id\": 7, \"text\": \"a\\nb\"}\n{\"text\": \"\", \"id\": -1}\n";
    assert_eq!(rows(jsonl, "jsonl", &options), [json!({"id": 7, "text": "a\nb"}), json!({"id": -1, "text": ""})]);
    assert_eq!(
        rows(jsonl, "ndjson", &options.clone().columns(["text"])),
        [json!({"text": "a\nb"}), json!({"text": ""})]
    );
    let csv = "id,data\n1,\"x,\"\"y\"\n2,\n";
    assert_eq!(rows(csv, "csv", &options), [json!({"id": 1, "data": "x,\"y"}), json!({"id": 2, "data": ""})]);
    let image = "image,n\n/x/y.png,1\n";
    open_with(image, "csv", &options).expect_err("not a file of the folder");
    assert_eq!(rows(image, "csv", &options.without_files(true)), [json!({"image": "/x/y.png", "n": 1})]);
    support::resumes(|| {
        let text: String = (0..9).map(|n| format!("{{\"n\": {n}, \"l\": [{n}, 1]}}\n")).collect();
        open_with(&text, "jsonl", &ManifestOptions::new()).unwrap()
    });
}

#[test]
fn files_that_are_not_asked_for_are_not_read() {
    let options = ManifestOptions::new();
    // The manifest names files that do not exist, by paths that lead out of the folder.
    let csv = "n,file_name\n1,/gone.png\n2,../gone.png\n";
    assert_eq!(rows(csv, "csv", &options.clone().columns(["n"])), [json!({"n": 1}), json!({"n": 2})]);
    let names = options.clone().columns(["file_name", "n"]);
    assert_eq!(rows(csv, "csv", &names)[0], json!({"file_name": "/gone.png", "n": 1}));
    // The fields are in the order of `columns`.
    let csv = "n,file_name,m\n1,a.png,3\n";
    let all = options.clone().root(data("csv")).columns(["m", "data", "file_name", "n"]);
    let manifest = open_with(csv, "csv", &all).unwrap();
    let mut cx = Context::default();
    let record = manifest.get(0, &mut cx).unwrap();
    assert_eq!(support::fields(&manifest), ["m: i64", "data: bytes", "file_name: text", "n: i64"]);
    assert_eq!(record.bytes("data").unwrap(), fs::read(data("csv").join("a.png")).unwrap());
    assert_eq!((record.number("m"), record.text("file_name")), (Some(3_i64), Some("a.png")));
    // A column named `data` is not confused with the bytes of the files.
    let csv = "file_name,data,n\na.png,x,1\n";
    fails(open_with(csv, "csv", &options.clone().columns(["data"])), &["the name `data`", "`without_files`"]);
    assert_eq!(rows(csv, "csv", &options.clone().columns(["n"])), [json!({"n": 1})]);
    assert_eq!(rows(csv, "csv", &options.clone().without_files(true).columns(["data"])), [json!({"data": "x"})]);
    for wrong in [options.clone().columns(["n", "n"]), options.clone().columns(["n"]).file_column("gone")] {
        fails(open_with("n,file_name\n1,a.png\n", "csv", &wrong), &["no column "]);
    }
    let error = open_with("file_name\na.png\n", "csv", &options.columns([""; 0])).unwrap_err().to_string();
    assert!(error.contains("no columns"), "{error}");
}

#[test]
fn a_float_is_the_number_in_the_text() {
    // The expected values are those of Python's `float`: halfway cases, subnormal numbers, and more
    // digits than an f64 has.
    let floats = [
        ("117.63331139400017", 0x405d_6888_2c83_5a8e_u64),
        ("9007199254740993.0", 0x4340_0000_0000_0000),
        ("9007199254740993.00000000000000000000000000000000000000001", 0x4340_0000_0000_0001),
        ("8.41e-2", 0x3fb5_8793_dd97_f62b),
        ("2.2250738585072011e-308", 0x000f_ffff_ffff_ffff),
        ("5e-324", 1),
        ("1e-999", 0),
        ("-0.0", 0x8000_0000_0000_0000),
        ("1.7976931348623157E+308", 0x7fef_ffff_ffff_ffff),
    ];
    for (text, bits) in floats {
        for (extension, file) in
            [("jsonl", format!("{{\"x\": {text}, \"l\": [0.5,{text}]}}")), ("csv", format!("x\n{text}\n"))]
        {
            let manifest = open_with(&file, extension, &ManifestOptions::new()).unwrap();
            let mut cx = Context::default();
            let record = manifest.get(0, &mut cx).unwrap();
            assert_eq!(record.number::<f64>("x").map(f64::to_bits), Some(bits), "{file}");
            if extension == "jsonl" {
                assert_eq!(record.elements::<f64>("l").unwrap()[1].to_bits(), bits, "{file}");
            }
        }
    }
    // A number that does not fit is kept as text.
    assert_eq!(rows("x\n1e999\n", "csv", &ManifestOptions::new()), [json!({"x": "1e999"})]);
}

#[test]
fn numbers_that_are_none_are_read_as_python_reads_them() {
    let text =
        r#"{"NaN \\": NaN,"i": Infinity , "m":-Infinity, "l": [1, NaN,-Infinity], "t": "\"NaN", "o": {"a": [NaN]}}"#;
    let manifest = open_with(text, "jsonl", &ManifestOptions::new()).unwrap();
    let mut cx = Context::default();
    let record = manifest.get(0, &mut cx).unwrap();
    assert!(record.number::<f64>("NaN \\").unwrap().is_nan());
    assert_eq!((record.number("i"), record.number("m")), (Some(f64::INFINITY), Some(f64::NEG_INFINITY)));
    let list = record.elements::<f64>("l").unwrap();
    assert!(list[0] == 1.0 && list[1].is_nan() && list[2] == f64::NEG_INFINITY && list.len() == 3, "{list:?}");
    assert_eq!((record.text("t"), record.text("o")), (Some("\"NaN"), Some("{\"a\": [NaN]}")));
}

#[test]
fn lists_and_objects_keep_their_text() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for text in [
        "[117.63331139400017,123456789012345678901]",
        "[9007199254740993, 0.5]",
        "{\"b\": 1.50,\t\"a\": 1e2 , \"b\": 0.1e1}",
        "[ 1, null ]",
        "[true]",
        "[[1], [2, 3]]",
        "[]",
        r#"["ü", "\u00fc", "a\/b"]"#,
        &deep,
    ] {
        assert_eq!(rows(&format!("{{\"n\": {text} }}"), "jsonl", &ManifestOptions::new()), [json!({"n": text})]);
    }
}

#[test]
fn lists_of_numbers_are_lists() {
    let text = "{\"i\": [3, -9223372036854775808], \"f\": [1, 2.5]}\n{\"i\": [], \"f\": []}\n{\"f\": [7], \"i\": null}";
    let options = ManifestOptions::new().missing_as_zero(true);
    assert_eq!(support::fields(&open_with(text, "jsonl", &options).unwrap()), ["i: i64 list", "f: f64 list"]);
    let expected =
        [json!({"i": [3, i64::MIN], "f": [1.0, 2.5]}), json!({"i": [], "f": []}), json!({"i": [], "f": [7.0]})];
    assert_eq!(rows(text, "jsonl", &options), expected);
}

#[test]
fn missing_numbers_are_errors_or_the_default() {
    let csv = "image,n,w,g\na.png,1,,true\na.png,,2.5,\n";
    let open = |options: &ManifestOptions| open_with(csv, "csv", &options.clone().root(data("csv")));
    fails(open(&ManifestOptions::new()), &["line 3, column n: no value"]);
    let options = ManifestOptions::new().default_number("n", -1.0).default_number("w", 0.5).default_number("g", 1.0);
    let manifest = open(&options).unwrap();
    let without_data = |mut row: Json| row.as_object_mut().unwrap().remove("data").map(|_| row).unwrap();
    let found: Vec<Json> = rows_of(&manifest).into_iter().map(without_data).collect();
    let mut cx = Context::default();
    assert_eq!(found, [json!({"n": 1, "w": 0.5, "g": true}), json!({"n": -1, "w": 2.5, "g": true})]);
    let manifest = open(&ManifestOptions::new().missing_as_zero(true)).unwrap();
    let zeros = manifest.get(1, &mut cx).unwrap();
    assert_eq!((zeros.number("n"), zeros.number("g")), (Some(0_i64), Some(false)));
    open(&options.clone().default_number("n", 0.5)).expect_err("not an integer");
    open(&options.default_number("x", 0.0)).expect_err("no such column");
}

#[test]
fn a_default_number_is_exactly_that() {
    let default = |value: &str| ManifestOptions::new().default_number("n", value.parse::<DefaultNumber>().unwrap());
    let numbers = |rest: &str, value: &str| rows(&format!("n,m\n{rest},0\n,0\n"), "csv", &default(value));
    for integer in ["9007199254740993", "-9223372036854775808", "9223372036854775807", "+5", "7.0"] {
        let expected = integer.strip_suffix(".0").unwrap_or(integer).parse::<i64>().unwrap();
        assert_eq!(numbers("1", integer)[1], json!({"n": expected, "m": 0}));
    }
    assert_eq!(numbers("0.5", "9007199254740992")[1], json!({"n": 9_007_199_254_740_992.0, "m": 0}));
    assert_eq!(numbers("0.5", "1e23")[1], json!({"n": 1e23, "m": 0}));
    assert_eq!(numbers("true", "2")[1], json!({"n": true, "m": 0}));
    for (rest, value) in [("1", "0.5"), ("1", "9007199254740993.0"), ("0.5", "9007199254740993")] {
        fails(
            open_with(format!("n,m\n{rest},0\n,0\n"), "csv", &default(value)),
            &["column n: a column of", "its default is not"],
        );
    }
    for wrong in ["9223372036854775808", "1e999", "seven", ""] {
        fails(wrong.parse::<DefaultNumber>(), &["is no number"]);
    }
}

#[test]
fn bad_manifests_are_errors_that_name_the_place() {
    let cases = [
        ("csv", "", "no rows"),
        ("csv", "file_name,n\n", "no rows"),
        ("csv", "file_name,n\nb\nc\na,1\n", "line: 2"),
        ("csv", "file_name,n\na,1\n\"b,2\nc,3\n", "byte 16: a quote that is not closed"),
        ("csv", "file_name,n,n\na,1,2\n", "two columns have the name `n`"),
        ("csv", "file_name,data\na,1\n", "the name `data`"),
        ("csv", "file_name\n../a\n", "line 2: expected a path in the folder"),
        ("csv", "file_name\na/../../b\n", "line 2"),
        ("csv", "file_name\n/etc/passwd\n", "line 2"),
        ("csv", "file_name,n\na,1\n,2\n", "line 3, column file_name"),
        ("jsonl", "", "no rows"),
        ("jsonl", "[\n{\"n\": 1},\n{\"n\": 2},\n{\"n\": 3}\n]", "line 1: not valid"),
        ("jsonl", "{\"n\": -NaN}", "line 1, column n: -NaN is no i64 and no f64"),
        ("jsonl", "{\"n\": NaN0}", "line 1, column n: NaN0 is no i64"),
        ("jsonl", "{NaN: 0}", "line 1: not valid: key must be a string at column 2; write"),
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
        ("jsonl", "{\"n\": 1}\n{\"n\": 18446744073709551615}", "line 2, column n: 18446744073709551615 is no i64"),
        ("jsonl", "{\"n\": -1e999}", "line 1, column n: -1e999 is no i64 and no f64"),
        ("jsonl", "{\"n\": 0.5}\n{\"n\": 9007199254740993}", "line 2, column n: an integer that f64 does not hold"),
        ("jsonl", "{\"n\": \"\\ud800\"}", "line 1: the value of n: unexpected end of hex escape; write"),
        ("jsonl", "{\"n\": \"a\"}\n{}", "line 2, column n: no value"),
        ("jsonl", "{\"n\": [1]}\n{\"n\": null}", "line 2, column n: no value"),
        ("txt", "file_name\na\n", "expected a name that ends"),
    ];
    for (extension, text, message) in cases {
        fails(open_with(text, extension, &ManifestOptions::new()), &[message, "list."]);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metadata.csv");
    fs::write(&path, "file,n\na,1\n").unwrap();
    fails(Manifest::open(&path), &["no column file_name; there are file, n"]);
    let keys: String = (0..2000).map(|n| format!("{{\"file_name\": \"a\", \"{n}\": 1}}\n")).collect();
    fails(open_with(keys, "jsonl", &ManifestOptions::new()), &["different keys"]);
    let gone = open_with("file_name\nb.png\n", "csv", &ManifestOptions::new()).unwrap();
    fails(gone.get(0, &mut Context::default()), &["b.png"]);
}

#[test]
fn a_damaged_row_is_an_error_of_its_sample() {
    let cases: [(&str, &[u8], &str); 9] = [
        ("csv", b"2", "(line: 3, byte: 8): found record with 1 fields"),
        ("csv", b"2,b,c", "(line: 3, byte: 8): found record with 3 fields"),
        ("csv", b"2,\xff", "(line 3, field: 1, byte: 8): invalid utf-8"),
        ("jsonl", b"{\"n\": 2, \"t\": \"b\"", "byte 19: line 2: not valid: EOF"),
        ("jsonl", b"{\"n\": .5}", "line 2: not valid: expected value at column 7; write"),
        ("jsonl", b"{\"n\": nan}", "line 2: not valid: expected ident at column 8; write"),
        ("jsonl", b"{\"new\": 1, \"n\": 2, \"n\": 3}", "line 2: the key n is there twice"),
        ("jsonl", b"{\"n\": \"\\ud800\"}", "line 2: the value of n: unexpected end of hex escape"),
        ("jsonl", b"{\"n\": 2, \"t\": \"\xff\"}", "line 2: "),
    ];
    for (extension, damaged, message) in cases {
        let (before, after) = match extension {
            "csv" => (&b"n,t\n1,a\n"[..], &b"\n3,c\n"[..]),
            _ => (&b"{\"n\": 1, \"t\": \"a\"}\n"[..], &b"\n{\"n\": 3, \"t\": \"c\"}\n"[..]),
        };
        let manifest = open_with([before, damaged, after].concat(), extension, &ManifestOptions::new()).unwrap();
        assert_eq!(support::fields(&manifest), ["n: i64", "t: text"]);
        let mut cx = Context::default();
        assert_eq!(manifest.len(), 3);
        assert_eq!(json_of(&manifest.get(0, &mut cx).unwrap()), json!({"n": 1, "t": "a"}));
        assert_eq!(json_of(&manifest.get(2, &mut cx).unwrap()), json!({"n": 3, "t": "c"}));
        fails(manifest.get(1, &mut cx), &["list.", message]);
    }
    // Rows that name files, and lists and defaults next to a damaged row.
    let text =
        "{\"file_name\n{\"file_name\": \"a.png\", \"l\": [1]}\n{\"file_name\": \"b.png\", \"l\": [], \"n\": 2.5}\n";
    let options = ManifestOptions::new().root(data("csv")).default_number("n", -1.0);
    let manifest = open_with(text, "jsonl", &options).unwrap();
    let mut cx = Context::default();
    fails(manifest.get(0, &mut cx), &["line 1: not valid"]);
    let record = manifest.get(1, &mut cx).unwrap();
    assert_eq!(record.bytes("data").unwrap(), fs::read(data("csv").join("a.png")).unwrap());
    assert_eq!((record.elements("l"), record.number("n")), (Some(vec![1_i64]), Some(-1.0)));
    assert_eq!((manifest.format().file_of(0), manifest.format().file_of(2)), (None, Some(2)));
    // One file for each of several folders, of which only the second has the column `m`.
    let folder = tempfile::tempdir().unwrap();
    for (split, rows) in [("a", "file_name\nx\ny\n1,2\n"), ("b", "m,file_name\n1,x\n2\n")] {
        fs::create_dir(folder.path().join(split)).unwrap();
        fs::write(folder.path().join(split).join("metadata.csv"), rows).unwrap();
    }
    let splits = slotline_sources::OpenOptions::new().missing_as_zero(true).columns(["m", "split"]).open(folder.path());
    let (splits, mut cx) = (splits.unwrap(), Context::default());
    let found: Vec<_> =
        (0..splits.len()).map(|row| splits.get(row, &mut cx).map(|record| json_of(&record)).ok()).collect();
    let row = |m: i64, split| Some(json!({"m": m, "split": split}));
    assert_eq!(found, [row(0, "a"), row(0, "a"), None, row(1, "b"), None]);
    fails(splits.get(4, &mut cx), &["b/metadata.csv", "line: 3"]);
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
        let ways = |_, byte| [1, 0x20, 0x80, 0xff].map(|flip| byte ^ flip);
        support::changed(&good, 0..good.len(), ways, |bytes| _ = open(bytes));
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
