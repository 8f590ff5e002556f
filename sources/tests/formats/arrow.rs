//! Arrow files that pyarrow, pandas, polars and Hugging Face Datasets wrote, and damaged ones.

#![cfg(feature = "arrow")]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value as Json;
use slotline::Dataset;
use slotline::dataset::Context;
use slotline_sources::table::{Table, TableOptions};
use slotline_sources::{DefaultNumber, Error, Records};

use crate::support;

use crate::support::{fails, same_rows};

const FILES: [&str; 5] = ["stream.arrow", "file.arrow", "lz4.feather", "zstd.feather", "uncompressed.feather"];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arrow").join(name)
}

fn expected(name: &str) -> Vec<Json> {
    let all: Json = serde_json::from_slice(&fs::read(data("expected.json")).unwrap()).unwrap();
    all[name].as_array().unwrap().clone()
}

/// Opens a file in each of the three ways in which its contents are read.
fn each_way(path: &Path) -> [Records<Table>; 3] {
    let options = TableOptions::new().decimals_as_f64(true);
    // SAFETY: nobody writes to the files.
    let mapped = unsafe { options.clone().mapped() }.open([path]);
    [options.open([path]), options.clone().memory_limit(4000).open([path]), mapped].map(Result::unwrap)
}

#[test]
fn rows_are_those_of_pyarrow() {
    let rows = expected("table");
    for name in FILES {
        for records in each_way(&data(name)) {
            same_rows(&records, &rows);
        }
    }
    // The rows of several files follow one another.
    let both = Table::open([data("{stream,file}.arrow")]).unwrap();
    same_rows(&both, &[rows.clone(), rows].concat());
}

#[test]
fn rows_are_those_of_hugging_face_datasets() {
    for name in ["saved", "selected"] {
        for records in each_way(&data(name)) {
            same_rows(&records, &expected(name));
        }
    }
    let records = TableOptions::new().columns(["image", "label"]).open([data("saved")]).unwrap();
    assert_eq!(support::names(&records), ["image.bytes", "image.path", "label"]);
    assert_eq!(slotline_sources::open(data("saved")).unwrap().len(), 10);
}

#[test]
fn rows_of_each_kind_of_column_are_those_of_pyarrow() {
    for name in ["kinds.arrow", "kinds-zstd.arrow"] {
        for records in each_way(&data(name)) {
            same_rows(&records, &expected("kinds"));
        }
    }
}

#[test]
fn rows_are_those_of_polars_and_pandas() {
    for name in ["polars.feather", "polars-zstd.feather", "polars-lz4.feather", "polars.arrow", "pandas.feather"] {
        for records in each_way(&data(name)) {
            same_rows(&records, &expected(name.split(['.', '-']).next().unwrap()));
        }
    }
    // Each file of a dataset has its own dictionaries.
    let both = TableOptions::new().columns(["text"]).open([data("delta.arrow"), data("replaced.arrow")]).unwrap();
    same_rows(&both, &[expected("delta"), expected("replaced")].concat());
}

#[test]
fn dictionaries_grow_and_are_replaced() {
    for name in ["delta.arrow", "delta.feather", "replaced.arrow"] {
        for records in each_way(&data(name)) {
            same_rows(&records, &expected(name.split('.').next().unwrap()));
        }
    }
}

#[test]
fn dictionaries_beyond_the_memory_limit_are_errors() {
    let open = |limit| TableOptions::new().memory_limit(limit).columns(["category"]).open([data("polars.feather")]);
    assert!(open(1000).is_ok());
    let error = open(20).unwrap_err().to_string();
    let words = "a dictionary, with the others, of more than 20 bytes; raise `memory_limit`";
    assert!(error.contains("polars.feather, byte ") && error.contains(words), "{error}");
}

#[test]
fn passes_resume() {
    for name in ["saved", "lz4.feather", "pandas.feather"] {
        support::resumes(|| Table::open([data(name)]).unwrap());
        support::resumes(|| TableOptions::new().memory_limit(4000).open([data(name)]).unwrap());
    }
}

#[test]
fn missing_values_are_errors_or_zeros() {
    let mut cx = Context::default();
    for records in each_way(&data("missing.feather")) {
        for (row, column) in [(0, "flag"), (1, "number"), (2, "text"), (1, "index"), (1, "value"), (2, "value")] {
            let one = TableOptions::new().columns([column]).open([data("missing.feather")]).unwrap();
            support::together(&one);
            let error = one.get(row, &mut cx).unwrap_err().to_string();
            let words = format!("row {row}: column {column} has no value (null); fill it in");
            assert!(error.contains("missing.feather") && error.contains(&words), "{error}");
        }
        assert!((0..3).all(|row| records.get(row, &mut cx).is_err()));
    }
    let options =
        TableOptions::new().missing_as_zero(true).columns(["number", "text", "flag", "list", "index", "value"]);
    let records = options.open([data("missing.feather")]).unwrap();
    support::together(&records);
    let record = records.get(1, &mut cx).unwrap();
    assert_eq!((record.number("number"), record.number("flag")), (Some(0_i64), Some(true)));
    assert_eq!(record.elements::<i64>("list"), Some(vec![]));
    assert_eq!((record.text("index"), record.text("value")), (Some(""), Some("")));
    drop(record);
    assert_eq!(records.get(0, &mut cx).unwrap().number("flag"), Some(false));
    // A list with a missing element remains an error, since there is no default for elements.
    let error =
        fails(records.get(2, &mut cx), &["column list has an element without a value (null); fill it in, or leave"]);
    assert!(!error.contains("missing_as_zero"), "{error}");
}

#[test]
fn missing_numbers_have_their_default() {
    let columns = ["number", "flag", "text"];
    let options = TableOptions::new().columns(columns).default_number("number", -7).default_number("flag", 1);
    let records = options.clone().missing_as_zero(true).open([data("missing.feather")]).unwrap();
    support::together(&records);
    let mut cx = Context::default();
    assert_eq!(records.get(1, &mut cx).unwrap().number("number"), Some(-7_i64));
    let record = records.get(0, &mut cx).unwrap();
    assert_eq!((record.number("flag"), record.number::<i64>("number").is_some()), (Some(true), true));
    drop(record);
    // The column of texts has no missing values.
    let records = options.open([data("missing.feather")]).unwrap();
    assert!(records.get(2, &mut cx).unwrap_err().to_string().contains("column text has no value"));
    for (column, number, words) in [
        ("number", DefaultNumber::Float(0.5), "column number: the default 0.5 is no i64"),
        ("flag", 2.into(), "is no bool"),
        ("text", 2.into(), "is no text"),
        ("other", 2.into(), "no column other among those that are read"),
    ] {
        let options = TableOptions::new().columns(columns).default_number(column, number);
        fails(options.open([data("missing.feather")]), &["missing.feather", words]);
    }
}

#[test]
fn columns_that_are_not_read_are_named() {
    let open = |columns: &[&str]| {
        TableOptions::new().columns(columns.iter().copied()).open([data("others.feather")]).map(|records| records.len())
    };
    assert_eq!(open(&["number"]).unwrap(), 1);
    // The chosen column follows columns that are skipped.
    let options = TableOptions::new().columns(["category", "after"]);
    let records = options.open([data("others.feather")]).unwrap();
    let mut cx = Context::default();
    let record = records.get(0, &mut cx).unwrap();
    assert_eq!((record.text("category"), record.text("after")), (Some("a"), Some("after")));
    for (column, words) in [
        ("map", "the column map holds maps, which is not read; list others with `columns`"),
        ("deep", "the column deep holds lists of other values than numbers, which is not read; write it as JSON text"),
        ("pairs", "the column pairs holds Struct("),
        ("none", "the column none holds nulls only"),
        ("decimal", "the column decimal holds decimals, which is not read; set `decimals_as_f64`"),
        ("wide", "the column wide holds decimals of more than 128 bits"),
        ("strings", "the column strings holds lists of other values than numbers"),
        ("views", "the column views holds lists of other values than numbers"),
        ("dense", "the column dense holds unions"),
        ("runs", "the column runs holds RunEndEncoded"),
        ("nothing", "no column nothing, but category, number, after"),
    ] {
        fails(open(&[column]), &["others.feather", words]);
    }
    fails(Table::open([data("others.feather")]), &["which is not read"]);
    fails(
        Table::open([data("stream.arrow"), data("missing.feather")]),
        &["missing.feather: the column i8 is not here as in", "stream.arrow"],
    );
}

#[test]
fn views_that_lie_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.arrow");
    let bytes = fs::read(data("kinds.arrow")).unwrap();
    // The view of a text of 22 bytes: its length and first bytes, the index of its buffer, and its
    // offset in that buffer.
    let start = b"\x16\0\0\0more";
    let views: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(start)).collect();
    assert!(views.len() > 3);
    let row = expected("kinds").iter().position(|row| row["text"] == "more than twelve bytes").unwrap();
    for (at, lie) in
        [(8, 7_u32), (8, u32::MAX), (12, i32::MAX as u32), (12, u32::MAX), (0, i32::MAX as u32), (0, u32::MAX)]
    {
        let mut changed = bytes.clone();
        views.iter().for_each(|view| changed[view + at..view + at + 4].copy_from_slice(&lie.to_le_bytes()));
        fs::write(&path, &changed).unwrap();
        let records = TableOptions::new().columns(["text"]).open([&path]).unwrap();
        fails(records.get(row, &mut Context::default()), &["Invalid argument error: "]);
        // The views of a dictionary are checked when the file is opened.
        fails(TableOptions::new().columns(["views"]).open([&path]), &["a dictionary: Invalid argument error: "]);
    }
}

#[test]
fn files_without_their_footer_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.feather");
    let bytes = fs::read(data("delta.feather")).unwrap();
    for len in 8..bytes.len() {
        fs::write(&path, &bytes[..len]).unwrap();
        fails(Table::open([&path]), &["x.feather, byte "]);
    }
}

/// Two memory limits: with the first one batches are kept in memory, and with the second one values
/// are read separately.
const LIMITS: [u64; 2] = [1 << 30, 4000];

/// Reads all rows of a file, with each limit.
fn read(path: &Path, limits: &[u64]) -> Result<(), Error> {
    for &limit in limits {
        let records = TableOptions::new().decimals_as_f64(true).memory_limit(limit).open([path])?;
        let mut cx = Context::default();
        for index in 0..records.len().min(50) {
            let _ = records.get(index, &mut cx);
        }
    }
    Ok(())
}

#[test]
fn truncated_files_are_errors_or_end_between_batches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.arrow");
    for (number, name) in ["stream.arrow", "zstd.feather", "kinds.arrow", "replaced.arrow"].iter().enumerate() {
        let bytes = fs::read(data(name)).unwrap();
        for len in (0..bytes.len()).step_by(if number < 2 { 3 } else { 11 }) {
            fs::write(&path, &bytes[..len]).unwrap();
            let _ = read(&path, &LIMITS);
        }
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        fails(read(&path, &LIMITS), &["x.arrow, byte "]);
    }
}

#[test]
fn flipped_bytes_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.arrow");
    let files = ["stream.arrow", "lz4.feather", "kinds.arrow", "kinds-zstd.arrow", "delta.arrow", "delta.feather"];
    for (number, name) in files.iter().enumerate() {
        let bytes = fs::read(data(name)).unwrap();
        // Only some of the bytes are changed; the fuzz target `sources` starts from these files,
        // too.
        for at in (number..bytes.len()).step_by(17) {
            let mut flipped = bytes.clone();
            flipped[at] ^= [0x01, 0x80, 0xff][at % 3];
            fs::write(&path, &flipped).unwrap();
            let _ = read(&path, &LIMITS[at / 2 % 2..][..1]);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.arrow");
        let start: &[u8] = if magic { b"ARROW1\0\0\xff\xff\xff\xff" } else { b"\xff\xff\xff\xff\x30\0\0\0" };
        fs::write(&path, [start, &bytes].concat()).unwrap();
        let _ = read(&path, &LIMITS);
    }
}
