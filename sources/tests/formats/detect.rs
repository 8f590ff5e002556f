//! What a path is, found out from what foreign programs wrote.

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

/// A feature: its name, the number of its kind of list, and the values.
type Feature<'a> = (&'a str, u8, &'a [&'a [u8]]);

/// Makes a TFRecord file, with the features of each record: a name, and a list of bytes (1) or integers (3), or none (0).
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

/// Returns a path in the test data. Files are copied whose indexes are saved beside them.
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
        let found: Vec<_> = records.format().fields().as_slice().iter().map(ToString::to_string).collect();
        assert!(found.join(", ").contains(fields), "{path}: {found:?}");
        let mut cx = Context::default();
        assert!(!records.is_empty());
        for index in 0..records.len() {
            records.get(index, &mut cx).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
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
        for index in 0..all.len() {
            let whole = all.get(index, &mut cx).unwrap();
            for chosen in [&by_options, &by_records] {
                let some = chosen.get(index, &mut other).unwrap();
                let names: Vec<_> = some.fields().as_slice().iter().map(|field| &field.name).collect();
                assert_eq!(names, columns, "{path:?}");
                for column in columns {
                    assert_eq!(some.bytes(column).unwrap(), whole.bytes(column).unwrap(), "{path:?}");
                }
            }
        }
        let error = all.clone().columns(["nothing"]).unwrap_err().to_string();
        assert!(error.contains("no column nothing, but"), "{error}");
        let error = all.columns([columns[0]; 2]).unwrap_err().to_string();
        assert!(error.contains(&format!("two columns {}", columns[0])), "{error}");
    }
}

#[test]
fn columns_are_chosen_before_others_are_rejected() {
    let copies = tempfile::tempdir().unwrap();
    let pickles = copies.path().join("pickles.tar");
    std::fs::write(&pickles, support::tar(&[("0.pkl", b"x"), ("0.txt", b"a")])).unwrap();
    let optional = copies.path().join("optional.tfrecord");
    let all: &[Feature<'_>] = &[("i", 3, &[&[1]]), ("opt", 3, &[&[9]]), ("texts", 1, &[b"a", b"b"])];
    std::fs::write(&optional, tfrecord(&[all, &[("i", 3, &[&[2]])]])).unwrap();
    for (path, column) in [
        (data("arrays/mixed.npz", copies.path()), "b"),
        (data("arrays/mixed.safetensors", copies.path()), "b"),
        (data("mds/pkl", copies.path()), "a"),
        (data("litdata/pickle", copies.path()), "a"),
        (pickles.clone(), "txt"),
        (optional, "i"),
    ] {
        slotline_sources::open(&path).expect_err("some fields are not read");
        let chosen = OpenOptions::new().columns([column]).open(&path).unwrap();
        let names: Vec<_> = chosen.format().fields().as_slice().iter().map(|field| &field.name).collect();
        assert_eq!(names, [column]);
        let error = OpenOptions::new().columns(["zz"]).open(&path).unwrap_err().to_string();
        assert!(error.contains("zz"), "{error}");
    }
    let bytes = OpenOptions::new().decode("pkl", FieldKind::Bytes(CapacityHint::of([1]))).open(&pickles).unwrap();
    assert_eq!(bytes.get(0, &mut Context::default()).unwrap().bytes("pkl"), Some(&b"x"[..]));
}

#[test]
fn files_whose_bytes_are_no_column_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let classes = folder.path().join("classes");
    for (class, name) in [("cat", "1.png"), ("dog", "1.png")] {
        std::fs::create_dir_all(classes.join(class)).unwrap();
        std::fs::write(classes.join(class).join(name), class).unwrap();
    }
    let open = |columns: &[&str]| OpenOptions::new().columns(columns.iter().copied()).open(&classes).unwrap();
    let (labels, both) = (open(&["label"]), open(&["label", "data"]));
    let mut cx = Context::default();
    assert_eq!(both.get(1, &mut cx).unwrap().bytes("data"), Some(&b"dog"[..]));
    std::fs::remove_file(classes.join("dog/1.png")).unwrap();
    assert_eq!(labels.get(1, &mut cx).unwrap().number::<i64>("label"), Some(1));
    assert_eq!(labels.format().files().path(labels.format().file_of(1).unwrap()), classes.join("dog/1.png"));
    labels.format().spans(1, &mut |span| panic!("{span:?} is fetched"));

    for (split, label) in [("test", 1), ("train", 2)] {
        std::fs::create_dir_all(folder.path().join("splits").join(split)).unwrap();
        let rows = format!("{{\"file_name\": \"gone.png\", \"label\": {label}}}\n");
        std::fs::write(folder.path().join("splits").join(split).join("metadata.jsonl"), rows).unwrap();
    }
    let path = folder.path().join("splits");
    let splits = OpenOptions::new().columns(["split", "label"]).open(&path).unwrap();
    let record = splits.get(1, &mut cx).unwrap();
    assert_eq!((record.text("split"), record.number::<i64>("label")), (Some("train"), Some(2)));
    for options in ["without_files", "without_files\ncolumns=file_name", "columns=file_name,label"] {
        let splits = options.parse::<OpenOptions>().unwrap().open(&path).unwrap();
        // As it is written.
        assert_eq!(splits.get(1, &mut Context::default()).unwrap().text("file_name"), Some("gone.png"));
    }
}

#[test]
fn a_field_of_a_tar_may_have_one_of_several_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("photos.tar");
    let files: support::Members<'_> =
        &[("0.jpg", b"j"), ("0.cls", b"0"), ("1.png", b"p"), ("1.jpg", b"J"), ("1.cls", b"1"), ("2.png", b"q")];
    std::fs::write(&path, support::tar(files)).unwrap();
    let error = slotline_sources::open(&path).unwrap_err().to_string();
    assert!(error.contains("has no file `png`") && error.contains("`jpg;png`"), "{error}");
    let options = OpenOptions::new().columns(["png;jpg", "__key__", "cls"]);
    let error = options.open(&path).unwrap_err().to_string();
    assert!(error.contains("the sample 2 has no file `cls`") && error.contains("`skip_incomplete`"), "{error}");
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
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "something").unwrap();
    let packed = folder.path().join("photos-0.tar.gz");
    std::fs::write(&packed, [0x1f, 0x8b, 8, 0]).unwrap();
    std::fs::write(folder.path().join("photos-1.tar.gz"), [0x1f, 0x8b, 8, 0]).unwrap();
    let odd = folder.path().join("odd");
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("index.json"), "{}").unwrap();
    let both = folder.path().join("both");
    std::fs::create_dir(&both).unwrap();
    for name in ["a.tar", "a.parquet"] {
        std::fs::write(both.join(name), "").unwrap();
    }
    let mixed = folder.path().join("mixed");
    std::fs::create_dir(&mixed).unwrap();
    for name in ["a.tar", "b.tar.gz"] {
        std::fs::write(mixed.join(name), "").unwrap();
    }
    let error = OpenOptions::new().open_stream(&mixed).unwrap_err().to_string();
    assert!(error.contains("both") && error.contains("b.tar.gz") && error.contains("a.tar"), "{error}");
    for (path, words) in [
        (both, "both Parquet files (a.parquet) and tars (a.tar)"),
        (text, "not a format that this build reads"),
        (odd, "not a dataset"),
        (packed, "it is packed"),
        (folder.path().join("*.gz"), "only tars are read packed, as streams"),
        (folder.path().join("none"), "check the path"),
        (folder.path().join("*.tar"), "no file"),
    ] {
        let error = slotline_sources::open(&path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn missing_values_are_zeros_if_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (records, rows) = (folder.path().join("optional.tfrecord"), folder.path().join("rows.jsonl"));
    let first: &[Feature<'_>] = &[("i", 3, &[&[1]]), ("x", 3, &[&[9]]), ("ys", 3, &[&[1, 2]]), ("z", 1, &[b"z"])];
    let other: &[Feature<'_>] = &[("i", 3, &[&[2]]), ("x", 0, &[]), ("ys", 3, &[&[3, 4]])];
    std::fs::write(&records, tfrecord(&[first, other, &[("i", 3, &[&[3]])]])).unwrap();
    let ys = r#""ys": [1, 2]"#;
    std::fs::write(&rows, format!("{{\"i\": 1, \"x\": 9, {ys}, \"z\": \"z\"}}\n{{\"i\": 2, {ys}}}\n{{\"i\": 3}}\n"))
        .unwrap();
    // Two in every record make a tensor, and a list may be empty.
    for (path, missing) in [(records, 2), (rows, 0)] {
        let error = slotline_sources::open(&path).unwrap_err().to_string();
        assert!(error.contains("`missing_as_zero`"), "{error}");
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
    let folder = tempfile::tempdir().unwrap();
    let record = tfrecord(&[&[("i", 3, &[&[1]])]]);
    let names = ["train.tfrecord-00000-of-00002", "train.tfrecord-00001-of-00002"];
    names.iter().for_each(|name| std::fs::write(folder.path().join(name), &record).unwrap());
    let len = |path: &Path| slotline_sources::open(path).unwrap_or_else(|error| panic!("{error}")).len();
    assert_eq!(len(&folder.path().join(names[0])), 1);
    assert_eq!(len(&folder.path().join("train.tfrecord-*-of-00002")), 2);
    assert_eq!(len(folder.path()), 2);

    // By their contents.
    let spark = folder.path().join("spark");
    std::fs::create_dir(&spark).unwrap();
    for (name, bytes) in [("_SUCCESS", &b""[..]), ("part-r-00000", &record), ("part-r-00001", &record)] {
        std::fs::write(spark.join(name), bytes).unwrap();
    }
    assert_eq!(len(&spark.join("part-r-00000")), 1);
    assert_eq!(len(&spark.join("part-r-0000*")), 2);
    assert_eq!(len(&spark), 2);
    for (name, rows) in [("rows.tsv", "a\tb\n1\t2\n"), ("rows.ndjson", "{\"a\": 1, \"b\": 2}\n")] {
        std::fs::write(folder.path().join(name), rows).unwrap();
        let rows = slotline_sources::open(folder.path().join(name)).unwrap();
        assert_eq!(rows.get(0, &mut Context::default()).unwrap().number::<i64>("b"), Some(2), "{name}");
    }
}

#[test]
fn an_option_that_the_format_does_not_have_is_an_error() {
    let copies = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(copies.path().join(name).parent().unwrap()).unwrap();
        std::fs::write(copies.path().join(name), bytes).unwrap();
        copies.path().join(name)
    };
    let csv = write("rows.csv", b"a,b\n1,2\n");
    let tar = write("photos.tar", &support::tar(&[("0.txt", b"a")]));
    let records = write("x.tfrecord", &tfrecord(&[&[("i", 3, &[&[1]])]]));
    write("classes/cat/1.png", b"cat");
    write("parts/year=2024/photos.tar", &support::tar(&[("0.txt", b"a")]));
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
        (&copies.path().join("classes"), "missing_as_zero", "not of folders of classes"),
        (&data("arrow/saved", copies.path()), "extensions=.png", "not of Arrow"),
        (&data("mds/raw", copies.path()), "decode=str=text", "not of MDS"),
        (&data("litdata/pickle", copies.path()), "columns=a\nmissing_as_zero", "not of LitData"),
        (&data("arrays/mixed.npz", copies.path()), "columns=b\nskip_incomplete", "not of npz"),
        (&data("arrays/mixed.safetensors", copies.path()), "columns=b\nskip_incomplete", "not of safetensors"),
        (&copies.path().join("parts"), "block_size=8", "not of tars"),
    ];
    for (path, options, message) in cases {
        let error = options.parse::<OpenOptions>().unwrap().open(path).expect_err(options).to_string();
        assert!(error.contains(message) && error.contains("leave it out"), "{error}");
    }
    // The names of folders may have missing values, and what memory is used is no matter of formats.
    let any = "memory_limit=1000000\nroom=2\nindex_files=none";
    for (path, options) in [(&copies.path().join("parts"), "missing_as_zero"), (&csv, any), (&parquet, any)] {
        let options: OpenOptions = options.parse().unwrap();
        // Options may be used for several.
        assert!([&csv, path].into_iter().all(|path| options.open(path).is_ok()), "{path:?}");
    }
    let stream = write("photos.tar.gz", b"");
    let error = OpenOptions::new().file_column("a").open_stream(stream).unwrap_err().to_string();
    assert!(error.contains("`file_column` is an option of CSV and JSONL, and not of tars"), "{error}");
}

#[test]
fn an_index_that_is_not_saved_says_why() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.tar", "b.tar"] {
        std::fs::write(folder.path().join(name), support::tar(&[("0.txt", b"a")])).unwrap();
    }
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
    let names: Vec<_> = chosen.format().fields().as_slice().iter().map(|field| &field.name).collect();
    assert_eq!(names, ["city", "i8"]);
    let missing = folder.path().join("year=__HIVE_DEFAULT_PARTITION__/city=Bern");
    std::fs::create_dir_all(&missing).unwrap();
    std::fs::copy(&from, missing.join("d.parquet")).unwrap();
    let error = slotline_sources::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("year has no value") && error.contains("`missing_as_zero`"), "{error}");
    let zeros = OpenOptions::new().missing_as_zero(true).open(folder.path()).unwrap();
    assert_eq!(zeros.get(3 * one, &mut cx).unwrap().number::<i64>("year"), Some(0));
    std::fs::create_dir(folder.path().join("year=2025")).unwrap();
    std::fs::copy(&from, folder.path().join("year=2025/e.parquet")).unwrap();
    let error = slotline_sources::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("folders for year, not year, city"), "{error}");
}

#[test]
fn a_folder_of_two_kinds_is_an_error_that_names_both() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cat", "dog"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join("1.png"), "").unwrap();
    }
    assert_eq!(slotline_sources::open(folder.path()).unwrap().len(), 2);
    for stray in ["stray.tar", "stray.parquet", "stray.tar.gz"] {
        std::fs::write(folder.path().join(stray), "").unwrap();
        let error = slotline_sources::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(stray) && error.contains("folders (cat, dog)"), "{error}");
        std::fs::remove_file(folder.path().join(stray)).unwrap();
    }
    std::fs::write(folder.path().join("cat/metadata.jsonl"), "{\"file_name\": \"1.png\"}\n").unwrap();
    let error = slotline_sources::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("datasets: cat") && error.contains("open the folder of one"), "{error}");
    std::fs::remove_dir_all(folder.path().join("dog")).unwrap();
    assert_eq!(slotline_sources::open(folder.path()).unwrap().len(), 1);
}

#[test]
fn metadata_of_each_split_is_read_from_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let splits = [
        ("test", "{\"file_name\": \"1.png\", \"label\": 3}\n"),
        (
            "train",
            "{\"file_name\": \"1.png\", \"label\": 1, \"text\": \"a\"}\n\n{\"file_name\": \"2.png\", \"label\": 2}\n",
        ),
    ];
    for (split, rows) in splits {
        std::fs::create_dir(folder.path().join(split)).unwrap();
        std::fs::write(folder.path().join(split).join("metadata.jsonl"), rows).unwrap();
        std::fs::write(folder.path().join(split).join("1.png"), split).unwrap();
    }
    std::fs::write(folder.path().join("train/2.png"), "two").unwrap();
    let error = slotline_sources::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("{test,train}/metadata.jsonl: line 1, column text"), "{error}");
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
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("photos.tar");
    std::fs::write(&path, support::tar(&[("0.jpg", b"j"), ("1.png", b"p"), ("1.cls", b"1")])).unwrap();
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
