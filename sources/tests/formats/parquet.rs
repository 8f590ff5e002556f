//! Parquet files that pyarrow, pandas, polars and Hugging Face Datasets wrote, and damaged ones.

#![cfg(feature = "parquet")]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value as Json;
use slotline::Dataset;
use slotline::dataset::Context;
use slotline_sources::Error;
use slotline_sources::table::{Table, TableOptions};

use crate::support;

use crate::support::{fails, same_rows};

const FILES: [&str; 7] = ["snappy", "plain", "index", "index-dictionary", "gzip-v2", "lz4", "encodings"];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parquet").join(format!("{name}.parquet"))
}

fn expected(name: &str) -> Vec<Json> {
    let all: Json = serde_json::from_slice(&fs::read(data(name).with_file_name("expected.json")).unwrap()).unwrap();
    all[name].as_array().unwrap().clone()
}

#[test]
fn rows_are_those_of_pyarrow() {
    let rows = expected("table");
    for name in FILES {
        same_rows(&Table::open([data(name)]).unwrap(), &rows);
        same_rows(&TableOptions::new().memory_limit(100).open([data(name)]).unwrap(), &rows);
    }
    let both = Table::open([data("{snappy,index}")]).unwrap();
    same_rows(&both, &[rows.clone(), rows].concat());
}

#[test]
fn rows_are_those_of_hugging_face_datasets() {
    same_rows(&Table::open([data("saved")]).unwrap(), &expected("saved"));
    let records = TableOptions::new().columns(["image", "label"]).open([data("saved")]).unwrap();
    assert_eq!(support::names(&records), ["image.bytes", "image.path", "label"]);
    assert_eq!(slotline_sources::open(data("{snappy,lz4}")).unwrap().len(), 20);
}

#[test]
fn rows_of_each_kind_of_column_are_those_of_their_writers() {
    for (name, rows) in [("kinds", "kinds"), ("kinds-integers", "kinds"), ("polars", "polars"), ("pandas", "pandas")] {
        for limit in [1 << 30, 600] {
            let options = TableOptions::new().decimals_as_f64(true).memory_limit(limit);
            same_rows(&options.open([data(name)]).unwrap(), &expected(rows));
        }
    }
}

#[test]
fn timestamps_that_nanoseconds_cannot_hold_are_errors() {
    let records = Table::open([data("late")]).unwrap();
    let error = records.get(0, &mut Context::default()).unwrap_err().to_string();
    let words = "column when: a timestamp before 1677 or after 2262";
    assert!(error.contains("late.parquet") && error.contains(words) && !error.contains("damaged"), "{error}");
}

#[test]
fn pages_that_claim_to_be_huge_are_errors_before_memory_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let bytes = fs::read(data("late")).unwrap();
    // The header of the first page: a dictionary (2) of 24 bytes, which are 22 when compressed,
    // with 2 values. The compressed bytes follow.
    assert_eq!(bytes[4..18], [0x15, 4, 0x15, 48, 0x15, 44, 0x4c, 0x15, 4, 0x15, 0, 0x12, 0, 0]);
    let most = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    // Makes the header longer, and the page shorter by the same number of bytes.
    let of_size = [&[0x15, 4, 0x15][..], &most, &[0x15, 36, 0x4c, 0x15, 4, 0x15, 0, 0x12, 0, 0]].concat();
    let of_values = [&[0x15, 4, 0x15, 48, 0x15, 36, 0x4c, 0x15][..], &most, &[0x15, 0, 0x12, 0, 0]].concat();
    for (header, words) in [
        (of_size, "column when: pages that take 2147483687 bytes or more, decoded; raise `memory_limit`"),
        (of_values, "column when: a dictionary of 2147483647 values in 24 bytes"),
    ] {
        assert_eq!(header.len(), 18);
        fs::write(&path, [&bytes[..4], &header, &bytes[18..36], &bytes[40..]].concat()).unwrap();
        let records = TableOptions::new().memory_limit(1 << 20).open([&path]).unwrap();
        fails(records.get(0, &mut Context::default()), &["x.parquet", words]);
    }
}

#[test]
fn schemas_that_are_too_deep_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    // Nested columns named `a`, each with one member.
    let deep = |columns: u32| {
        let count = [columns as u8 & 0x7f | 0x80, (columns >> 7) as u8 & 0x7f | 0x80, (columns >> 14) as u8];
        let columns = [0x48, 1, b'a', 0x15, 2, 0].repeat(columns as usize);
        [&[0x15, 2, 0x19, 0xfc][..], &count, &columns, &[0x16, 0, 0x19, 0x0c, 0]].concat()
    };
    for columns in [65, 1_000_000] {
        let metadata = deep(columns);
        fs::write(&path, [b"PAR1", &metadata[..], &(metadata.len() as u32).to_le_bytes(), b"PAR1"].concat()).unwrap();
        fails(Table::open([&path]), &["x.parquet", "more than 64 deep"]);
    }
}

#[test]
fn passes_resume() {
    for name in ["saved", "index", "lz4"] {
        support::resumes(|| Table::open([data(name)]).unwrap());
        support::resumes(|| TableOptions::new().memory_limit(100).open([data(name)]).unwrap());
    }
}

#[test]
fn missing_values_are_errors_or_zeros() {
    let mut cx = Context::default();
    let open = |zero: bool, column: &str| {
        TableOptions::new().missing_as_zero(zero).columns([column]).open([data("missing")]).unwrap()
    };
    for (row, column) in [(0, "flag"), (1, "number"), (2, "text"), (1, "list"), (1, "pair.x"), (2, "pair.x")] {
        let error = open(false, column).get(row, &mut cx).unwrap_err().to_string();
        let words = format!("row {row}: column {column} has no value (null); fill it in");
        assert!(error.contains("missing.parquet") && error.contains(&words), "{error}");
        let records = open(true, column);
        let record = records.get(row, &mut cx).unwrap();
        assert!(record.value(0).unwrap().iter().all(|&byte| byte == 0), "{column}");
    }
    fails(open(true, "list").get(2, &mut cx), &["column list has an element without a value"]);
}

#[test]
fn columns_that_are_not_read_are_named() {
    let open = |columns: &[&str]| {
        TableOptions::new().columns(columns.iter().copied()).open([data("others")]).map(|records| records.len())
    };
    assert_eq!(open(&["number"]).unwrap(), 1);
    for (column, words) in [
        ("map", "the column map holds maps, which is not read"),
        ("deep", "the column deep holds lists of other values than numbers, which is not read; write it as JSON text"),
        ("none", "the column none holds nulls only"),
        ("wide", "the column wide holds decimals of more than 128 bits"),
        ("decimal", "the column decimal holds decimals, which is not read; set `decimals_as_f64`"),
        ("strings", "the column strings holds lists of other values than numbers"),
        ("structs", "the column structs holds lists of other values than numbers"),
        ("nothing", "no column nothing, but number"),
    ] {
        fails(open(&[column]), &["others.parquet", words]);
    }
    fails(
        Table::open([data("snappy"), data("missing")]),
        &["missing.parquet: the column i8 is not here as in", "snappy"],
    );
}

#[test]
fn several_frames_of_hadoop_in_a_page_are_read() {
    let records = Table::open([data("frames")]).unwrap();
    let numbers = (0..20).map(|row| records.get(row, &mut Context::default()).unwrap().number::<i64>("a"));
    assert!(numbers.eq((0..20).map(Some)));
}

#[test]
fn encrypted_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    fs::write(&path, b"PARE and then PARE").unwrap();
    fails(slotline_sources::open(&path), &["encrypted footer"]);
}

/// Reads all rows of a file.
fn read(path: &Path) -> Result<(), Error> {
    let records = TableOptions::new().decimals_as_f64(true).memory_limit(1 << 20).open([path])?;
    let mut cx = Context::default();
    for index in 0..records.len().min(50) {
        let _ = records.get(index, &mut cx);
    }
    Ok(())
}

#[test]
fn truncated_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let bytes = fs::read(data("index")).unwrap();
    for len in (0..bytes.len()).step_by(7).chain(bytes.len() - 20..bytes.len()) {
        fs::write(&path, &bytes[..len]).unwrap();
        fails(read(&path), &["x.parquet"]);
    }
}

#[test]
fn flipped_bytes_do_not_panic() {
    // The messages of the decoder's panics, which are caught, are not printed.
    std::panic::set_hook(Box::new(|info| {
        if !info.location().is_some_and(|at| at.file().contains("/parquet-")) {
            eprintln!("{info}");
        }
    }));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    for (number, name) in ["index", "gzip-v2", "kinds", "kinds-integers"].iter().enumerate() {
        let bytes = fs::read(data(name)).unwrap();
        // Only some of the bytes are changed; the fuzz target `sources` starts from these files,
        // too.
        let ways = |at: usize, byte| [byte ^ [0x01, 0x80, 0xff][at % 3]];
        support::changed(&bytes, (number..bytes.len()).step_by(29), ways, |bytes| {
            fs::write(&path, bytes).unwrap();
            let _ = read(&path);
        });
    }
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), tail in 0_u32..250) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.parquet");
        fs::write(&path, [b"PAR1", &bytes[..], &tail.to_le_bytes(), b"PAR1"].concat()).unwrap();
        let _ = read(&path);
    }
}
