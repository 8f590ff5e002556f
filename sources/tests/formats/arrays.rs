//! Rows of .safetensors and .npz files, compared with the results of their own libraries
//! (`data/arrays.py`), and damaged files.
#![cfg(all(feature = "npz", feature = "safetensors"))]

use crate::support;

use std::path::{Path, PathBuf};

use crate::support::fails;
use proptest::prelude::*;
use serde_json::Value;
use slotline::Dataset;
use slotline::dataset::Context;
use slotline_sources::npz::NpzOptions;
use slotline_sources::rows::Rows;
use slotline_sources::safetensors::SafetensorsOptions;
use slotline_sources::{Error, Records};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arrays").join(name)
}

/// Opens a file by its extension.
fn open(path: &Path, names: &[&str]) -> Result<Records<Rows>, Error> {
    let chosen = (!names.is_empty()).then_some(names);
    if path.extension().is_some_and(|extension| extension == "npz") {
        chosen.map_or(NpzOptions::new(), |names| NpzOptions::new().columns(names.iter().copied())).open(path)
    } else {
        let options = SafetensorsOptions::new();
        chosen.map_or(options.clone(), |names| options.columns(names.iter().copied())).open(path)
    }
}

#[test]
fn rows_are_those_of_the_libraries() {
    let expected: Value = serde_json::from_slice(&std::fs::read(data("expected.json")).unwrap()).unwrap();
    for file in ["stored.npz", "packed.npz", "all.safetensors"] {
        let want = expected[file.split('.').next().unwrap()].as_object().unwrap();
        // SAFETY: nobody writes to the files.
        let mapped = unsafe {
            if file.ends_with("npz") {
                NpzOptions::new().mapped().open(data(file))
            } else {
                SafetensorsOptions::new().mapped().open(data(file))
            }
        };
        for rows in [open(&data(file), &[]).unwrap(), mapped.unwrap()] {
            assert_eq!(rows.len(), 7);
            let mut cx = Context::default();
            for i in 0..7 {
                let record = rows.get(i, &mut cx).unwrap();
                assert_eq!(record.fields().as_slice().len(), want.len());
                for (name, want) in want {
                    let hex = support::hex(record.bytes(name).unwrap());
                    assert_eq!(hex, want[i].as_str().unwrap(), "{file} {name} {i}");
                }
            }
            let fields = support::fields(&rows);
            for field in ["bool: bool", "uint8: u8 [3]", "float16: f16 [2, 2]", "complex64: complex64 [3]"] {
                assert!(fields.iter().any(|found| found == field), "{fields:?}");
            }
        }
    }
}

#[test]
fn tensors_are_chosen_by_name() {
    for file in ["mixed.npz", "mixed.safetensors"] {
        let message = |names: &[&str]| open(&data(file), names).unwrap_err().to_string();
        assert_eq!(open(&data(file), &["a"]).unwrap().len(), 7);
        assert_eq!(open(&data(file), &["b"]).unwrap().len(), 6);
        assert!(message(&["a", "b"]).contains("\"a\" has 7 rows, and \"b\" has 6"));
        // The array without dimensions is the same number in all rows.
        let both = open(&data(file), &["c", "a"]).unwrap();
        let mut cx = Context::default();
        let number = |cx: &mut Context, index| both.get(index, cx).unwrap().number::<f32>("c");
        assert_eq!((both.len(), number(&mut cx, 0), number(&mut cx, 6)), (7, Some(3.0), Some(3.0)));
        assert!(message(&["c"]).contains("no tensor with rows"));
        assert!(message(&["z"]).contains("no column z, but a, b, c"));
        assert!(message(&["a", "a"]).contains("two columns a"));
        open(&data(file), &[]).unwrap_err();
    }
    let message = |file: &str, names: &[&str]| open(&data(file), names).unwrap_err().to_string();
    assert!(message("mixed.safetensors", &["f8"]).contains("F8_E4M3"));
    assert!(message("mixed.npz", &["d"]).contains("Fortran order"));
    assert!(message("mixed.npz", &["e"]).contains("big-endian i32 is not read"));
    assert!(message("mixed.npz", &["f"]).contains("text (`"));
    assert!(message("mixed.npz", &["g"]).contains("empty"));
}

#[test]
fn a_member_that_is_no_array_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let mut bytes = std::fs::read(data("stored.npz")).unwrap();
    // The member's name is in its local header and in the directory.
    let places: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"bool.npy")).collect();
    assert_eq!(places.len(), 2);
    places.iter().for_each(|at| bytes[at + 4..at + 8].copy_from_slice(b".txt"));
    std::fs::write(&path, bytes).unwrap();
    fails(open(&path, &[]), &["\"bool.txt\" is not an array; choose"]);
    open(&path, &["uint8"]).unwrap();
}

#[test]
fn compressed_arrays_beyond_the_limit_are_errors() {
    fails(NpzOptions::new().memory_limit(1000).open(data("packed.npz")), &["left", "raise `memory_limit`"]);
    NpzOptions::new().memory_limit(1000).open(data("stored.npz")).unwrap();
}

#[test]
fn an_option_of_other_formats_is_an_error() {
    fails(
        NpzOptions::new().block_size(4).open(data("stored.npz")),
        &["`block_size` is an option of files of tokens, LitData, and not of npz"],
    );
}

#[test]
fn passes_resume() {
    for file in ["stored.npz", "packed.npz", "all.safetensors"] {
        support::resumes(|| open(&data(file), &[]).unwrap());
    }
}

fn read_all(path: &Path, bytes: &[u8]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    std::fs::write(path, bytes).unwrap();
    support::read_all(&open(path, &[])?)
}

#[test]
fn damaged_files_are_errors_or_read_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["stored.npz", "packed.npz", "all.safetensors"] {
        let (whole, path) = (std::fs::read(data(file)).unwrap(), folder.path().join(file));
        read_all(&path, &whole).unwrap();
        // Only some of the lengths and bytes are tried; the fuzz target `sources` tries others.
        let lens = (0..whole.len()).step_by(5);
        lens.for_each(|len| assert!(read_all(&path, &whole[..len]).is_err(), "{file} {len}"));
        let ways = |at: usize, byte| [byte ^ [1, 0x80, 0xff][at % 3]];
        support::changed(&whole, (0..whole.len()).step_by(5), ways, |bytes| _ = read_all(&path, bytes));
    }
}

#[test]
fn headers_that_lie_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let message = |header: &str, data: usize| {
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat();
        read_all(&path, &bytes).err().map(|error| error.to_string())
    };
    let tensor = |shape: &str, first: u64, end: u64| {
        format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[{first},{end}]}}"#)
    };
    let one = |shape: &str, first, end| format!(r#"{{"a":{}}}"#, tensor(shape, first, end));
    assert_eq!(message(&one("[2]", 0, 8), 8), None);
    for (header, data) in [
        (one("[2]", 0, 8), 7),
        (one("[2]", 0, 8), 9),
        (one("[2]", 4, 12), 12),
        (one("[3]", 0, 8), 8),
        (one("[2]", 8, 0), 8),
        (one("[4611686018427387904,4]", 0, 0), 0),
        (one("[4611686018427387904,4,0]", 0, 0), 0),
        (one("[9223372036854775807,0]", 0, 0), 0),
        (one("[2]", u64::MAX - 3, 4), 8),
        (format!(r#"{{"a":{},"b":{}}}"#, tensor("[2]", 0, 8), tensor("[2]", 4, 12)), 12),
        (format!(r#"{{"a":{}"#, "[".repeat(100_000)), 0),
        ("{}".to_owned(), 0),
    ] {
        let error = message(&header, data);
        assert!(error.is_some_and(|error| error.contains("a.safetensors")), "{}", &header[..header.len().min(99)]);
    }
    let many: Vec<_> = (0..5000).map(|i| format!(r#""{i}":{}"#, tensor("[1]", 4 * i, 4 * i + 4))).collect();
    let error = message(&format!("{{{}}}", many.join(",")), 20_000).unwrap();
    assert!(error.contains("5000 columns; the maximum is 4096"), "{error}");
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), zip in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(if zip { "a.npz" } else { "a.safetensors" });
        prop_assert!(read_all(&path, &bytes).is_err());
        let with_len = [&((bytes.len() / 2) as u64).to_le_bytes()[..], &bytes].concat();
        prop_assert!(read_all(&path, &with_len).is_err());
    }
}
