//! Checks that TFRecord files are read as by the Python package tfrecord.
#![cfg(feature = "tfrecord")]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use slotline::Dataset;
use slotline::dataset::Context;
use slotline::dtype::DType;
use slotline_sources::tfrecord::{TfRecord, TfRecordOptions};
use slotline_sources::{CapacityHint, FieldKind, IndexFiles, Records};

use crate::support;

use crate::support::{fails, fields};

/// Returns options with which no index is saved beside the data.
fn options() -> TfRecordOptions {
    TfRecordOptions::new().index_files(IndexFiles::None)
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tfrecord").join(name)
}

fn same(records: &Records<TfRecord>) {
    // JSON has no infinity, so it is `null`, as serde_json writes it.
    let expected: Json = serde_json::from_slice(&fs::read(data("expected.json")).unwrap()).unwrap();
    let files = ["0.tfrecord", "1.tfrecord"].map(|name| expected[name].as_array().unwrap().clone());
    same_as(records, &files.concat());
}

fn same_as(records: &Records<TfRecord>, expected: &[Json]) {
    assert_eq!(records.len(), expected.len());
    let mut cx = Context::default();
    for (index, expected) in expected.iter().enumerate() {
        let record = records.get(index, &mut cx).unwrap();
        let names: Vec<&String> = record.fields().as_slice().iter().map(|field| &field.name).collect();
        assert_eq!(names, expected.as_object().unwrap().keys().collect::<Vec<_>>());
        for field in record.fields().as_slice() {
            let found = match field.kind.dtype() {
                DType::U8 => support::hashed(record.bytes(&field.name).unwrap()),
                DType::I64 => json!(record.elements::<i64>(&field.name)),
                DType::F32 => {
                    let found = record.elements::<f32>(&field.name).unwrap();
                    json!(found.into_iter().map(f64::from).collect::<Vec<_>>())
                }
                _ => panic!("{field}"),
            };
            assert_eq!(found, expected[&field.name], "{field} of record {index}");
        }
    }
}

#[test]
fn records_are_read_as_by_the_package_tfrecord() {
    let records = options().open([data("{0..1}.tfrecord")]).unwrap();
    same(&records);
    let expected = ["box: f32 [4]", "größe: i64 [2]", "image: bytes", "label: i64", "tokens: i64 list", "weight: f32"];
    let mut sorted = expected.to_vec();
    sorted.sort_unstable();
    assert_eq!(fields(&records), sorted);
    same(&options().indexes([data("*.tfindex")]).open([data("*.tfrecord")]).unwrap());
    same(&options().look_at(2).check_data(false).open([data("*.tfrecord")]).unwrap());
}

#[test]
fn feature_lists_are_read_as_by_the_package_tfrecord() {
    let expected: Vec<Json> = serde_json::from_slice(&fs::read(data("../sequences/expected.json")).unwrap()).unwrap();
    let path = data("../sequences/video.tfrecord");
    let records = options().open([&path]).unwrap();
    same_as(&records, &expected);
    let all = ["id: bytes", "labels: i64 list", "point: f32 list", "rate: f32", "rgb: bytes", "word: i64 list"];
    assert_eq!(fields(&records), all);
    // The first record alone determines the length of the tensor.
    same_as(
        &options()
            .look_at(1)
            .decode("labels", FieldKind::List(DType::I64, CapacityHint::estimate([3])))
            .open([&path])
            .unwrap(),
        &expected,
    );
    support::resumes(|| options().columns(["rgb", "id"]).open([&path]).unwrap());
}

/// Creates a `tf.SequenceExample` with a feature list of these features.
fn sequence(name: &str, steps: &[&[u8]]) -> Vec<u8> {
    let steps: Vec<u8> = steps.iter().flat_map(|step| message(1, step)).collect();
    message(2, &message(1, &[message(1, name.as_bytes()), message(2, &steps)].concat()))
}

#[test]
fn no_part_of_a_record_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tfrecord");
    let (one, two) = (message(3, &[8, 1]), message(3, &[8, 1, 8, 2]));
    let (float, word) = (message(2, &message(1, &[0; 4])), |word: &[u8]| message(1, &message(1, word)));
    let plain = example(3, &[8, 1]);
    let both = [plain.clone(), sequence("x", &[&one])].concat();
    let words = sequence("x", &[&word(b"a"), &word(b"bc")]);
    let several = sequence("x", &[&[word(b"a"), word(b"b")].concat()]);
    let unknown = [plain.clone(), message(3, b"")].concat();
    let inside = message(1, &message(2, b""));
    let later = [plain.clone(), sequence("y", &[&one])].concat();
    let first = || options().look_at(1);
    let room = CapacityHint { items: 4, exceeded: true };
    let listed = || options().decode("x", FieldKind::List(DType::I64, room));
    let cases: [(TfRecordOptions, &[&[u8]], &str); 15] = [
        (options(), &[&sequence("x", &[&one, &two])], "x has steps of different kinds or lengths"),
        (options(), &[&sequence("x", &[&one, &float])], "x has steps of different kinds or lengths"),
        (options(), &[&words], "x has steps of different kinds or lengths"),
        (options(), &[&several], "x has steps with several values of bytes"),
        (options(), &[&sequence("x", &[&[], &one])], "x has steps without values"),
        (options(), &[&both], "x has a feature and a feature list"),
        (
            options(),
            &[&sequence("x", &[&one]), &sequence("x", &[&two])],
            "record 1: the feature x holds steps of 2 i64, in others steps of 1 i64",
        ),
        (options(), &[&plain, &sequence("x", &[&one])], "holds steps of 1 i64, in others i64"),
        (
            first(),
            &[&sequence("x", &[&one]), &sequence("x", &[&two])],
            "record 1: expected x: i64 list, found steps of 2 i64",
        ),
        (
            listed(),
            &[&sequence("x", &[&one]), &sequence("x", &[&two])],
            "record 1: expected x: i64 list, found steps of 2 i64",
        ),
        (
            options().decode("x", FieldKind::Bytes(room)),
            &[&sequence("x", &[&word(b"a")]), &sequence("x", &[&word(b"bc")])],
            "record 1: expected x: bytes, found steps of 2 u8",
        ),
        (listed(), &[&plain, &sequence("x", &[&one])], "record 1: expected x: i64 list, found steps of 1 i64"),
        (first(), &[&plain, &later], "record 1: the feature y, which the first records do not have"),
        (options(), &[&unknown], "found an unknown field"),
        (options(), &[&inside], "found an unknown field"),
    ];
    for (chosen, records, message) in cases {
        let error = read(&path, &file(records), &chosen).expect_err(message);
        assert!(error.contains(message), "{error}");
    }
    // A feature list of the declared kind may first occur in a later record of the first file.
    let late = listed().look_at(1).missing_as_zero(true);
    assert_eq!(read(&path, &file(&[b"", &sequence("x", &[&two, &two])]), &late), Ok(2));
    // Features that are not chosen may have any kind.
    for records in [[plain.clone(), later], [plain.clone(), [plain.clone(), sequence("y", &[&one, &two])].concat()]] {
        assert_eq!(read(&path, &file(&[&records[0], &records[1]]), &first().columns(["x"])), Ok(2));
    }
}

#[test]
fn a_pass_over_records_resumes() {
    support::resumes(|| options().open([data("*.tfrecord")]).unwrap());
    support::resumes(|| options().look_at(2).columns(["tokens", "box"]).open([data("*.tfrecord")]).unwrap());
}

/// Creates a file of records.
fn file(records: &[&[u8]]) -> Vec<u8> {
    let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let record = |data: &&[u8]| {
        let len = (data.len() as u64).to_le_bytes();
        [&len[..], &masked(&len), data, &masked(data)].concat()
    };
    records.iter().flat_map(record).collect()
}

fn message(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

/// Creates a `tf.Example` with one feature `x`, whose list has this field number.
fn example(list: u8, values: &[u8]) -> Vec<u8> {
    message(1, &message(1, &[message(1, b"x"), message(2, &message(list, values))].concat()))
}

/// Writes, opens and reads a file. Returns the number of valid samples, or the message of the first
/// error.
fn read(path: &Path, bytes: &[u8], options: &TfRecordOptions) -> Result<usize, String> {
    fs::write(path, bytes).unwrap();
    let records = options.open([path]).map_err(|error| error.to_string())?;
    support::read_all(&records).map_err(|error| error.to_string())?;
    Ok(records.len())
}

#[test]
fn records_that_contradict_are_errors_that_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tfrecord");
    let one = example(3, &[8, 1]);
    let two = example(3, &[8, 1, 8, 2]);
    let float = example(2, &message(1, &[0; 4]));
    let bytes = example(1, &message(1, b"ab\xff"));
    let several = example(1, &[message(1, b"a"), message(1, b"b")].concat());
    let room = CapacityHint { items: 4, exceeded: true };
    let first = || options().look_at(1);
    let misspelt = || options().decode("X", FieldKind::Number(DType::I64));
    let cases: [(TfRecordOptions, &[&[u8]], &str); 16] = [
        (misspelt(), &[&one], "no record of this file has the feature X, which `decode` names; check its spelling"),
        (misspelt().missing_as_zero(true).look_at(1), &[&one, &two], "no record of this file has the feature X"),
        (options().decode("x", FieldKind::List(DType::U8, room)), &[&one], "is declared as u8 list; declare bytes"),
        (
            first(),
            &[&one, &two],
            "record 1: expected x: i64, found 2 values; `decode` it as it is, or list others in `columns`",
        ),
        (first(), &[&two, &one], "record 1: expected x: i64 [2], found 1 values"),
        (first(), &[&one, &float], "record 1: expected x: i64, found floats"),
        (
            first(),
            &[&one, &[]],
            "record 1: expected x: i64, found no such feature; `decode` it as it is, list others in `columns`, or set `missing_as_zero`",
        ),
        (first(), &[&bytes, &one], "record 1: expected x: bytes, found integers"),
        (options(), &[&one, &float], "record 1: the feature x holds f32, in others i64"),
        (options(), &[&one, &[]], "the feature x has values in 1 of the first 2 records"),
        (options(), &[&several], "byte 0: record 0: the feature x has 2 values of bytes"),
        (options(), &[&one, &[0x0a]], "an unfinished integer"),
        (options(), &[], "no records"),
        (options().decode("x", FieldKind::Text(room)), &[&bytes], "not UTF-8"),
        (options().decode("x", FieldKind::Number(DType::F64)), &[&one], "declare bytes"),
        (options().columns(["y"]), &[&one], "the feature y has values in 0 of the first 1"),
    ];
    for (chosen, records, message) in cases {
        let error = read(&path, &file(records), &chosen).expect_err(message);
        assert!(error.contains(message), "{error}");
    }
    let list = options().decode("x", FieldKind::List(DType::I64, room));
    assert_eq!(read(&path, &file(&[&one, &two, &one]), &list), Ok(3));
    assert_eq!(read(&path, &file(&[&one, &two, &one]), &options()), Ok(3));
    let tensor = options().decode("x", FieldKind::Tensor(DType::I64, vec![1, 2]));
    assert_eq!(read(&path, &file(&[&two]), &tensor), Ok(1));
}

#[test]
fn truncated_and_damaged_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tfrecord");
    let good = fs::read(data("0.tfrecord")).unwrap();
    let ends: Vec<usize> = fs::read_to_string(data("0.tfindex"))
        .unwrap()
        .lines()
        .map(|line| line.split(' ').map(|number| number.parse::<usize>().unwrap()).sum())
        .collect();
    assert_eq!(read(&path, &good, &options()), Ok(5));
    for len in 0..good.len() {
        // A file that is truncated after a record is valid.
        let whole = ends.iter().position(|&end| end == len).map(|last| last + 1);
        assert_eq!(read(&path, &good[..len], &options()).ok(), whole, "{len} bytes");
    }
    support::changed(
        &good,
        0..good.len(),
        |_, byte| [1, 0x80, 0xff].map(|flip| byte ^ flip),
        |bytes| {
            read(&path, bytes, &options()).expect_err("every byte has a checksum");
            let _ = read(&path, bytes, &options().check_data(false));
        },
    );
    // The length has a correct checksum, but exceeds the file.
    let mut long = u64::MAX.to_le_bytes().to_vec();
    long.extend(crc32c::crc32c(&long).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes());
    let error = read(&path, &long, &options()).unwrap_err();
    assert!(error.contains("byte 0: a record of 18446744073709551615 bytes"), "{error}");
    let error = read(&path, b"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0\0\0\0\0", &options()).unwrap_err();
    assert!(error.contains("gunzip"), "{error}");
}

#[test]
fn damage_among_the_first_records_is_an_error_of_its_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tfrecord");
    let [one, two] = [example(3, &[8, 1]), example(3, &[8, 2])];
    let mut bytes = file(&[&one, &two, &two]);
    let open = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        options().open([&path])
    };
    let mut cx = Context::default();
    bytes[20] ^= 1;
    let records = open(&bytes).unwrap();
    assert_eq!((fields(&records), records.len()), (vec!["x: i64".to_owned()], 3));
    fails(records.get(0, &mut cx), &["byte 0: record 0: data with a wrong checksum"]);
    assert_eq!(records.get(1, &mut cx).unwrap().number("x"), Some(2_i64));
    bytes[50] ^= 1;
    fails(open(&bytes), &["byte 0: record 0: data with a wrong checksum"]);
}

#[test]
fn an_index_that_lies_is_an_error() {
    let text = fs::read_to_string(data("0.tfindex")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("lies");
    let open = |text: &str| {
        fs::write(&index, text).unwrap();
        options().indexes([&index]).open([data("0.tfrecord")])
    };
    assert_eq!(open(&text).unwrap().len(), 5);
    let lines: Vec<&str> = text.lines().collect();
    let swapped = [lines[1], lines[0]].join("\n");
    for lie in [
        "",
        "0 5",
        "0 99999999",
        "x y",
        "0",
        "0 18446744073709551615",
        lines[0],
        &swapped,
        &text.replacen("0 ", "1 ", 1),
    ] {
        fails(open(lie), &["lies"]);
    }
    let whole = format!("0 {}", fs::metadata(data("0.tfrecord")).unwrap().len());
    fails(open(&whole), &["another one than in the index"]);
}

proptest! {
    #[test]
    fn random_records_do_not_panic(records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..4), raw: bool) {
        let folder = tempfile::tempdir().unwrap();
        let inner: Vec<Vec<u8>> = records.iter().map(|bytes| message(1, &message(1, bytes))).collect();
        let records = if raw { &records } else { &inner };
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let _ = read(&folder.path().join("x"), &file(&records), &options());
        let _ = read(&folder.path().join("x"), &records.concat(), &options());
    }
}
