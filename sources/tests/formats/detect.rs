//! Detection of formats: files that other programs wrote, folders with files of several kinds,
//! folders with notes beside the data, and folders of classes with unusual names.

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
use slotline_sources::{CapacityHint, FieldKind, IndexFiles, OpenOptions};

use crate::support;

use crate::support::{fails, folder, tar};

/// A feature of a record: its name, the field number of its kind of list, and the values.
type Feature<'a> = (&'a str, u8, &'a [&'a [u8]]);

/// Creates a TFRecord file from the features of each record. A feature has a name and a list of
/// bytes (1) or of integers (3), or no list (0).
fn tfrecord(records: &[&[Feature<'_>]]) -> Vec<u8> {
    let message = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let feature = |(name, list, values): &Feature<'_>| {
        let values: Vec<_> = values.iter().flat_map(|value| message(1, value)).collect();
        let list = if *list == 0 { Vec::new() } else { message(*list, &values) };
        message(1, &[message(1, name.as_bytes()), message(2, &list)].concat())
    };
    let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let record = |features: &&[_]| {
        let data = message(1, &features.iter().flat_map(feature).collect::<Vec<_>>());
        let len = (data.len() as u64).to_le_bytes();
        [&len[..], &masked(&len), &data, &masked(&data)].concat()
    };
    records.iter().flat_map(record).collect()
}

/// Returns a path in the test data. Data whose indexes would be saved beside it is copied first.
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
        let found = support::fields(&records).join(", ");
        assert!(found.contains(fields), "{path}: {found:?}");
        assert!(!records.is_empty());
        support::read_all(&records).unwrap_or_else(|error| panic!("{path}: {error}"));
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
        for chosen in [&by_options, &by_records] {
            assert_eq!(support::names(chosen), columns, "{path:?}");
            for index in 0..all.len() {
                let (whole, some) = (all.get(index, &mut cx).unwrap(), chosen.get(index, &mut other).unwrap());
                for column in columns {
                    assert_eq!(some.bytes(column).unwrap(), whole.bytes(column).unwrap(), "{path:?}");
                }
            }
        }
        fails(all.clone().columns(["nothing"]), &["no column nothing, but"]);
        let error = all.columns([columns[0]; 2]).unwrap_err().to_string();
        assert!(error.contains(&format!("two columns {}", columns[0])), "{error}");
    }
}

#[test]
fn columns_are_chosen_before_others_are_rejected() {
    let all: &[Feature<'_>] = &[("i", 3, &[&[1]]), ("opt", 3, &[&[9]]), ("texts", 1, &[b"a", b"b"])];
    let optional = tfrecord(&[all, &[("i", 3, &[&[2]])]]);
    let copies =
        folder(&[("pickles.tar", &tar(&[("0.pkl", b"x"), ("0.txt", b"a")])), ("optional.tfrecord", &optional)]);
    let pickles = copies.path().join("pickles.tar");
    for (path, column) in [
        (data("arrays/mixed.npz", copies.path()), "b"),
        (data("arrays/mixed.safetensors", copies.path()), "b"),
        (data("mds/pkl", copies.path()), "a"),
        (data("litdata/pickle", copies.path()), "a"),
        (pickles.clone(), "txt"),
        (copies.path().join("optional.tfrecord"), "i"),
    ] {
        slotline_sources::open(&path).expect_err("some fields are not read");
        let chosen = OpenOptions::new().columns([column]).open(&path).unwrap();
        assert_eq!(support::names(&chosen), [column]);
        fails(OpenOptions::new().columns(["zz"]).open(&path), &["zz"]);
    }
    let bytes = OpenOptions::new().decode("pkl", FieldKind::Bytes(CapacityHint::of([1]))).open(&pickles).unwrap();
    assert_eq!(bytes.get(0, &mut Context::default()).unwrap().bytes("pkl"), Some(&b"x"[..]));
}

#[test]
fn files_whose_bytes_are_no_column_are_not_read() {
    let row = |label: u8| format!("{{\"file_name\": \"gone.png\", \"label\": {label}}}\n").into_bytes();
    let folder = folder(&[
        ("classes/cat/1.png", b"cat"),
        ("classes/dog/1.png", b"dog"),
        ("splits/test/metadata.jsonl", &row(1)),
        ("splits/train/metadata.jsonl", &row(2)),
    ]);
    let classes = folder.path().join("classes");
    let open = |columns: &[&str]| OpenOptions::new().columns(columns.iter().copied()).open(&classes).unwrap();
    let (labels, both) = (open(&["label"]), open(&["label", "data"]));
    let mut cx = Context::default();
    assert_eq!(both.get(1, &mut cx).unwrap().bytes("data"), Some(&b"dog"[..]));
    std::fs::remove_file(classes.join("dog/1.png")).unwrap();
    assert_eq!(labels.get(1, &mut cx).unwrap().number::<i64>("label"), Some(1));
    assert_eq!(labels.format().files().path(labels.format().file_of(1).unwrap()), classes.join("dog/1.png"));
    labels.format().spans(1, &mut |span| panic!("{span:?} is fetched"));
    let path = folder.path().join("splits");
    let splits = OpenOptions::new().columns(["split", "label"]).open(&path).unwrap();
    let record = splits.get(1, &mut cx).unwrap();
    assert_eq!((record.text("split"), record.number::<i64>("label")), (Some("train"), Some(2)));
    for options in ["without_files", "without_files\ncolumns=file_name", "columns=file_name,label"] {
        let splits = options.parse::<OpenOptions>().unwrap().open(&path).unwrap();
        // The sample keeps the text that is in the manifest.
        assert_eq!(splits.get(1, &mut Context::default()).unwrap().text("file_name"), Some("gone.png"));
    }
}

#[test]
fn a_field_of_a_tar_may_have_one_of_several_names() {
    let files: support::Members<'_> =
        &[("0.jpg", b"j"), ("0.cls", b"0"), ("1.png", b"p"), ("1.jpg", b"J"), ("1.cls", b"1"), ("2.png", b"q")];
    let folder = folder(&[("photos.tar", &tar(files))]);
    let path = folder.path().join("photos.tar");
    fails(slotline_sources::open(&path), &["has no file `png`", "`jpg;png`"]);
    let options = OpenOptions::new().columns(["png;jpg", "__key__", "cls"]);
    fails(options.open(&path), &["the sample 2 has no file `cls`", "`skip_incomplete`"]);
    let records = options.skip_incomplete(true).open(&path).unwrap();
    let mut cx = Context::default();
    for (index, picture) in ["j", "p"].into_iter().enumerate() {
        let record = records.get(index, &mut cx).unwrap();
        assert_eq!(record.bytes("png;jpg"), Some(picture.as_bytes()));
        assert_eq!(record.text("__key__"), Some(&*index.to_string()));
        assert_eq!(record.number::<i64>("cls"), Some(index as i64));
    }
    let error = OpenOptions::new().columns(["jpg;cls"]).open(&path).unwrap_err().to_string();
    assert!(error.contains("different kinds"), "{error}");
}

#[test]
fn what_is_nothing_of_these_is_an_error() {
    let folder = folder(&[
        ("notes.txt", b"something"),
        ("photos-0.tar.gz", b"\x1f\x8b\x08\0"),
        ("photos-1.tar.gz", b"\x1f\x8b\x08\0"),
        ("odd/index.json", b"{}"),
        ("both/a.tar", b""),
        ("both/a.parquet", b""),
        ("mixed/a.tar", b""),
        ("mixed/b.tar.gz", b""),
    ]);
    fails(OpenOptions::new().open_stream(folder.path().join("mixed")), &["both", "b.tar.gz", "a.tar"]);
    for (name, words) in [
        ("both", "both Parquet files (a.parquet) and tars (a.tar)"),
        ("notes.txt", "not a format that this build reads"),
        ("odd", "not a dataset"),
        ("photos-0.tar.gz", "it is packed"),
        ("*.gz", "only tars are read packed, as streams"),
        ("none", "check the path"),
        ("*.tar", "no file"),
    ] {
        fails(slotline_sources::open(folder.path().join(name)), &[words]);
    }
}

#[test]
fn missing_values_are_zeros_if_that_is_asked_for() {
    let first: &[Feature<'_>] = &[("i", 3, &[&[1]]), ("x", 3, &[&[9]]), ("ys", 3, &[&[1, 2]]), ("z", 1, &[b"z"])];
    let other: &[Feature<'_>] = &[("i", 3, &[&[2]]), ("x", 0, &[]), ("ys", 3, &[&[3, 4]])];
    let records = tfrecord(&[first, other, &[("i", 3, &[&[3]])]]);
    let rows = b"{\"i\": 1, \"x\": 9, \"ys\": [1, 2], \"z\": \"z\"}\n{\"i\": 2, \"ys\": [1, 2]}\n{\"i\": 3}\n";
    let folder = folder(&[("optional.tfrecord", &records), ("rows.jsonl", rows)]);
    // A feature with two values in every record is a tensor, and a list may be empty.
    for (name, missing) in [("optional.tfrecord", 2), ("rows.jsonl", 0)] {
        let path = folder.path().join(name);
        fails(slotline_sources::open(&path), &["`missing_as_zero`"]);
        let records = OpenOptions::new().missing_as_zero(true).open(&path).unwrap();
        let mut cx = Context::default();
        let found: Vec<_> = (0..3)
            .map(|index| {
                let record = records.get(index, &mut cx).unwrap();
                let ys = record.elements::<i64>("ys").unwrap().len();
                (record.number::<i64>("i"), record.number::<i64>("x"), ys, record.bytes("z").unwrap().len())
            })
            .collect();
        assert_eq!(found, [(Some(1), Some(9), 2, 1), (Some(2), Some(0), 2, 0), (Some(3), Some(0), missing, 0)]);
    }
}

#[test]
fn files_are_found_by_the_names_that_others_give_them() {
    let record = tfrecord(&[&[("i", 3, &[&[1]])]]);
    let names = ["train.tfrecord-00000-of-00002", "train.tfrecord-00001-of-00002"];
    let folder = folder(&names.map(|name| (name, &record[..])));
    let len = |path: &Path| slotline_sources::open(path).unwrap_or_else(|error| panic!("{error}")).len();
    assert_eq!(len(&folder.path().join(names[0])), 1);
    assert_eq!(len(&folder.path().join("train.tfrecord-*-of-00002")), 2);
    assert_eq!(len(folder.path()), 2);

    // The files are recognised by their contents.
    let spark = support::folder(&[("_SUCCESS", b""), ("part-r-00000", &record), ("part-r-00001", &record)]);
    assert_eq!(len(&spark.path().join("part-r-00000")), 1);
    assert_eq!(len(&spark.path().join("part-r-0000*")), 2);
    assert_eq!(len(spark.path()), 2);
    for (name, rows) in [("rows.tsv", "a\tb\n1\t2\n"), ("rows.ndjson", "{\"a\": 1, \"b\": 2}\n")] {
        std::fs::write(folder.path().join(name), rows).unwrap();
        let rows = slotline_sources::open(folder.path().join(name)).unwrap();
        assert_eq!(rows.get(0, &mut Context::default()).unwrap().number::<i64>("b"), Some(2), "{name}");
    }
}

#[test]
fn an_option_that_the_format_does_not_have_is_an_error() {
    let text = tar(&[("0.txt", b"a")]);
    let copies = folder(&[
        ("rows.csv", b"a,b\n1,2\n"),
        ("photos.tar", &text),
        ("x.tfrecord", &tfrecord(&[&[("i", 3, &[&[1]])]])),
        ("classes/cat/1.png", b"cat"),
        ("parts/year=2024/photos.tar", &text),
        ("photos.tar.gz", b""),
    ]);
    let [csv, tar, records] = ["rows.csv", "photos.tar", "x.tfrecord"].map(|name| copies.path().join(name));
    let parquet = data("parquet/snappy.parquet", copies.path());
    let cases = [
        (&csv, "decode=a=text", "`decode` is an option of tars, TFRecord, and not of CSV and JSONL"),
        (&csv, "skip_incomplete", "`skip_incomplete` is an option of tars, and not of CSV and JSONL"),
        (&csv, "block_size=8", "`block_size` is an option of files of tokens, LitData, and not of CSV"),
        (&csv, "decimals_as_f64", "of Arrow, Parquet, and not of CSV"),
        (
            &tar,
            "default_number=txt=1",
            "`default_number` is an option of Arrow, Parquet, CSV and JSONL, and not of tars",
        ),
        (&parquet, "file_column=a", "`file_column`"),
        (&parquet, "dtype=u16", "`dtype`"),
        (&tar, "missing_as_zero", "of Arrow, Parquet, TFRecord, CSV and JSONL, and not of tars"),
        (&tar, "without_files", "`without_files`"),
        (&records, "missing_end", "not of TFRecord"),
        (&records, "allow_empty", "`allow_empty`"),
        (&tar, "mask_folder=masks", "`mask_folder` is an option of folders of classes, and not of tars"),
        (&copies.path().join("classes"), "missing_as_zero", "not of folders of classes"),
        (&data("arrow/saved", copies.path()), "extensions=.png", "not of Arrow"),
        (&data("mds/raw", copies.path()), "decode=str=text", "not of MDS"),
        (&data("litdata/pickle", copies.path()), "columns=a\nmissing_as_zero", "not of LitData"),
        (&data("arrays/mixed.npz", copies.path()), "columns=b\nskip_incomplete", "not of npz"),
        (&data("arrays/mixed.safetensors", copies.path()), "columns=b\nskip_incomplete", "not of safetensors"),
        (&copies.path().join("parts"), "block_size=8", "not of tars"),
    ];
    for (path, options, message) in cases {
        fails(options.parse::<OpenOptions>().unwrap().open(path), &[message, "leave it out"]);
    }
    // Every format accepts these options, also if they have no effect on it: missing values can
    // occur in folder names, and each format takes options about memory.
    let any = "memory_limit=1000000\nroom=2\nindex_files=none";
    for (path, options) in [(&copies.path().join("parts"), "missing_as_zero"), (&csv, any), (&parquet, any)] {
        let options: OpenOptions = options.parse().unwrap();
        // The same options may be used several times.
        assert!([&csv, path].into_iter().all(|path| options.open(path).is_ok()), "{path:?}");
    }
    fails(
        OpenOptions::new().file_column("a").open_stream(copies.path().join("photos.tar.gz")),
        &["`file_column` is an option of CSV and JSONL, and not of tars"],
    );
}

#[test]
fn an_index_that_is_not_saved_says_why() {
    let text = tar(&[("0.txt", b"a")]);
    let folder = folder(&[("a.tar", &text), ("b.tar", &text)]);
    let open = |files| OpenOptions::new().index_files(files).open(folder.path()).unwrap().warnings();
    assert_eq!(open(IndexFiles::None), Vec::<String>::new());
    let [warning] = &open(IndexFiles::In(folder.path().join("none")))[..] else { panic!("one warning") };
    let parts = ["of 1 more files", "No such file", "none writable", "`index_files`", "walked over again"];
    assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
    assert_eq!(open(IndexFiles::Beside), Vec::<String>::new());
}

#[test]
fn folders_named_after_values_add_them_as_fields() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parquet/snappy.parquet");
    let one = slotline_sources::open(&from).unwrap().len();
    let folder = tempfile::tempdir().unwrap();
    for (part, name) in
        [("year=2023/city=Z%C3%BCrich", "a"), ("year=2024/city=Bern", "b"), ("year=2024/city=Bern", "c")]
    {
        std::fs::create_dir_all(folder.path().join(part)).unwrap();
        std::fs::copy(&from, folder.path().join(part).join(name).with_extension("parquet")).unwrap();
        std::fs::write(folder.path().join(part).join("_SUCCESS"), "").unwrap();
    }
    let records = slotline_sources::open(folder.path()).unwrap();
    assert_eq!(records.len(), 3 * one);
    let mut cx = Context::default();
    for (index, year, city) in
        [(0, 2023, "Zürich"), (one - 1, 2023, "Zürich"), (one, 2024, "Bern"), (3 * one - 1, 2024, "Bern")]
    {
        let record = records.get(index, &mut cx).unwrap();
        assert_eq!((record.number::<i64>("year"), record.text("city")), (Some(year), Some(city)));
    }
    let chosen = OpenOptions::new().columns(["city", "i8"]).open(folder.path()).unwrap();
    assert_eq!(support::names(&chosen), ["city", "i8"]);
    let missing = folder.path().join("year=__HIVE_DEFAULT_PARTITION__/city=Bern");
    std::fs::create_dir_all(&missing).unwrap();
    std::fs::copy(&from, missing.join("d.parquet")).unwrap();
    fails(slotline_sources::open(folder.path()), &["year has no value", "`missing_as_zero`"]);
    let zeros = OpenOptions::new().missing_as_zero(true).open(folder.path()).unwrap();
    assert_eq!(zeros.get(3 * one, &mut cx).unwrap().number::<i64>("year"), Some(0));
    std::fs::create_dir(folder.path().join("year=2025")).unwrap();
    std::fs::copy(&from, folder.path().join("year=2025/e.parquet")).unwrap();
    fails(slotline_sources::open(folder.path()), &["folders for year, not year, city"]);
}

#[test]
fn a_folder_of_two_kinds_is_an_error_that_names_both() {
    let folder = folder(&[("cat/1.png", b""), ("dog/1.png", b"")]);
    assert_eq!(slotline_sources::open(folder.path()).unwrap().len(), 2);
    for stray in ["stray.tar", "stray.parquet", "stray.tar.gz"] {
        std::fs::write(folder.path().join(stray), "").unwrap();
        fails(slotline_sources::open(folder.path()), &[stray, "folders (cat, dog)"]);
        std::fs::remove_file(folder.path().join(stray)).unwrap();
    }
    std::fs::write(folder.path().join("cat/metadata.jsonl"), "{\"file_name\": \"1.png\"}\n").unwrap();
    fails(slotline_sources::open(folder.path()), &["datasets: cat", "open the folder of one"]);
    std::fs::remove_dir_all(folder.path().join("dog")).unwrap();
    assert_eq!(slotline_sources::open(folder.path()).unwrap().len(), 1);
}

#[test]
fn metadata_of_each_split_is_read_from_their_folder() {
    let test = b"{\"file_name\": \"1.png\", \"label\": 3}\n";
    let train =
        b"{\"file_name\": \"1.png\", \"label\": 1, \"text\": \"a\"}\n\n{\"file_name\": \"2.png\", \"label\": 2}\n";
    let folder = folder(&[
        ("test/metadata.jsonl", test),
        ("test/1.png", b"test"),
        ("train/metadata.jsonl", train),
        ("train/1.png", b"train"),
        ("train/2.png", b"two"),
    ]);
    fails(slotline_sources::open(folder.path()), &["{test,train}/metadata.jsonl: line 1, column text"]);
    let records = OpenOptions::new().missing_as_zero(true).open(folder.path()).unwrap();
    let mut cx = Context::default();
    let rows = [("test", 3, "test", ""), ("train", 1, "train", "a"), ("two", 2, "train", "")];
    for (index, (data, label, split, text)) in rows.into_iter().enumerate() {
        let record = records.get(index, &mut cx).unwrap();
        assert_eq!(record.bytes("data"), Some(data.as_bytes()));
        assert_eq!((record.number::<i64>("label"), record.text("split")), (Some(label), Some(split)));
        assert_eq!(record.text("text"), Some(text));
    }
    assert_eq!(records.len(), 3);
}

#[test]
fn options_are_parsed_as_they_are_written() {
    let folder = folder(&[("photos.tar", &tar(&[("0.jpg", b"j"), ("1.png", b"p"), ("1.cls", b"1")]))]);
    let path = folder.path().join("photos.tar");
    let open = |options: &str| options.parse::<OpenOptions>().unwrap().open(&path).unwrap();
    assert_eq!(open("columns=jpg;png").len(), 2);
    let records = open("columns=png,cls\n\nskip_incomplete\ndecode=cls=text\nroom=4");
    assert_eq!(records.get(0, &mut Context::default()).unwrap().text("cls"), Some("1"));
    for wrong in
        ["column=a", "columns", "skip_incomplete=yes", "room=many", "decode=cls", "decode=cls=number", "dtype=u"]
    {
        wrong.parse::<OpenOptions>().expect_err(wrong);
    }
}

/// Returns the bytes of a file of the test data.
fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

fn error(folder: &Path) -> String {
    slotline_sources::open(folder).unwrap_err().to_string()
}

#[test]
fn files_of_two_kinds_are_an_error_that_names_both() {
    let (parquet, tfrecord) = (bytes_of("parquet/snappy.parquet"), bytes_of("tfrecord/0.tfrecord"));
    let tar = tar(&[("0.txt", b"a")]);
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
        [("index.json", &bytes_of("mds/raw/index.json")), ("a.parquet", &parquet)],
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
    let parquet = bytes_of("parquet/snappy.parquet");
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
    let shard = bytes_of("tfrecord/0.tfrecord");
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
    // A shard whose start is damaged is not taken for text.
    std::fs::write(flat.path().join("train-00001-of-00002"), [0xff; 100]).unwrap();
    assert!(error(flat.path()).contains("train-00001-of-00002"));
    assert!(error(folder(&notes).path()).contains("not a dataset"));
}

#[test]
fn folders_of_classes_are_those_of_torchvision() {
    // The expected classes are those that torchvision's `find_classes` returns.
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
    // Folders that are datasets by themselves are not read as classes.
    let index = bytes_of("mds/raw/index.json");
    let error = error(folder(&[("cat/index.json", &index[..]), ("dog/1.png", b"w")]).path());
    assert!(error.contains("datasets: cat"), "{error}");
}
