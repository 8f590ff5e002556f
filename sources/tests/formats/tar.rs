//! Checks that tars are read as by webdataset.
#![cfg(feature = "tar")]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value as Json;
use slotline::Dataset;
use slotline::dataset::Context;
use slotline_sources::tar::{Decode, Tar, TarOptions};
use slotline_sources::{Error, IndexFiles, Records};

use crate::support;

use crate::support::{Members, read_all, seal, tar};

const SHARDS: [&str; 2] = ["shard-000000.tar", "shard-000001.tar"];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tar").join(name)
}

fn expected() -> Json {
    serde_json::from_slice(&fs::read(data("expected.json")).unwrap()).unwrap()
}

/// Returns options with which no index is saved beside the test's files.
fn unsaved() -> TarOptions {
    TarOptions::new().index_files(IndexFiles::None)
}

/// Compares keys, fields, lengths and hashes with what webdataset found.
fn same(tar: &Records<Tar>, samples: &Json, fields: &[&str]) {
    let samples = samples.as_array().unwrap();
    assert_eq!(tar.len(), samples.len());
    let mut cx = Context::default();
    for (index, expected) in samples.iter().enumerate() {
        let record = tar.get(index, &mut cx).unwrap();
        assert_eq!(tar.format().key(index), expected["__key__"].as_str().unwrap().as_bytes());
        assert_eq!(record.text("__key__").unwrap(), expected["__key__"]);
        assert_eq!(expected["fields"].as_object().unwrap().len(), fields.len());
        for name in fields {
            assert_eq!(expected["fields"][name], support::hashed(record.bytes(name).unwrap()), "{name} of {index}");
        }
    }
}

#[test]
fn shards_of_webdataset_are_read_as_webdataset_does() {
    let fields = ["jpg", "cls", "txt", "npy", "extra.bin"];
    let raw = || fields.iter().fold(unsaved().key(true).columns(fields), |all, name| all.decode(*name, Decode::Bytes));
    let tar = raw().open([data("shard-{000000..000001}.tar")]).unwrap();
    same(&tar, &expected()["shards"], &fields);
    // SAFETY: nobody writes to the files of this test.
    let tar = unsafe { raw().mapped() }.open(SHARDS.map(data)).unwrap();
    same(&tar, &expected()["shards"], &fields);
    let tar = raw().dali_indexes([data("shard-*.idx")]).open([data("shard-*.tar")]).unwrap();
    same(&tar, &expected()["shards"], &fields);
}

#[test]
fn names_of_all_formats_are_read_as_webdataset_does() {
    for name in ["pax", "gnu", "ustar"] {
        let fields = ["txt", "seg.png"];
        let tar = unsaved().key(true).open([data(&format!("{name}.tar"))]).unwrap();
        assert_eq!(support::names(&tar)[1..], fields);
        same(&tar, &expected()[name], &fields);
    }
}

#[test]
fn fields_are_decoded_as_by_webdataset() {
    let tar = unsaved().open(SHARDS.map(data)).unwrap();
    let fields = support::fields(&tar);
    assert!(
        ["npy: f32 [2, 3]", "cls: i64"].iter().all(|field| fields.iter().any(|found| found == field)),
        "{fields:?}"
    );
    let mut cx = Context::default();
    for (index, expected) in expected()["decoded"].as_array().unwrap().iter().enumerate() {
        let record = tar.get(index, &mut cx).unwrap();
        assert_eq!(record.number::<i64>("cls"), expected["cls"].as_i64());
        assert_eq!(record.text("txt"), expected["txt"].as_str());
        let npy: Vec<f32> = serde_json::from_value(expected["npy"].clone()).unwrap();
        assert_eq!(record.elements::<f32>("npy"), Some(npy));
    }
}

#[test]
fn a_pass_over_shards_resumes() {
    let shards: Vec<_> = SHARDS.iter().cycle().take(8).map(|name| data(name)).collect();
    support::resumes(|| unsaved().key(true).open(&shards).unwrap());
    // SAFETY: nobody writes to the files of this test.
    support::resumes(|| unsafe { unsaved().columns(["cls", "jpg"]).mapped() }.open(&shards).unwrap());
}

/// Opens bytes as a tar and reads all samples. Returns the message of the error.
fn failure(bytes: &[u8], options: &TarOptions) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let error = match options.open([file.path()]) {
        Err(error) => error.into(),
        Ok(tar) => read_all(&tar).expect_err("the tar is bad"),
    };
    assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
    error.to_string()
}

#[test]
fn bad_samples_are_errors_that_name_the_sample() {
    let cases: [(Members<'_>, &str); 9] = [
        (&[("a.x", b"1"), ("a.X", b"2")], "two files `x` in the sample a"),
        (&[("a.__key__", b"1")], "reserved"),
        (&[("a.x", b"1"), ("a.y", b"2"), ("b.x", b"3")], "the sample b has no file `y`"),
        (&[("a.x", b"1"), ("a.pkl", b"2")], "pickles"),
        (&[("a.cls", b"1.5")], "expected an integer, found `1.5`"),
        (&[("a.cls", b"99999999999999999999")], "expected an integer"),
        (&[("a.txt", b"ab\xff")], "after 2 bytes"),
        (&[("a.npy", b"\x93NUMPY")], ".npy header"),
        (&[("a", b"1"), (".b.txt", b"2")], "no samples"),
    ];
    for (members, message) in cases {
        let found = failure(&tar(members), &unsaved());
        assert!(found.contains(message), "{found}");
    }
    let two: Members<'_> = &[("a.x", b"1"), ("a.pkl", b"2"), ("b.x", b"3")];
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), tar(two)).unwrap();
    let open = |options: TarOptions| options.open([file.path()]).unwrap();
    assert_eq!(open(unsaved().columns(["x"])).len(), 2);
    let both = open(unsaved().decode("pkl", Decode::Bytes).skip_incomplete(true));
    assert_eq!((both.len(), both.format().skipped()), (1, 1));
    unsaved().columns(["x", "x"]).open([file.path()]).expect_err("twice");
    unsaved().columns(["z"]).open([file.path()]).expect_err("no such field");
    unsaved().columns(["x"]).decode("y", Decode::Text).open([file.path()]).expect_err("no such field");
}

#[test]
fn bad_headers_are_errors_that_name_the_place() {
    let good = tar(&[("a.x", b"12345"), ("b.x", b"6")]);
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        let header = at / 512 * 512;
        seal(&mut bad[header..header + 512]);
        bad
    };
    let cases: [(Vec<u8>, &str); 12] = [
        (Vec::new(), "byte 0: the file ends"),
        (good[..good.len() - 1024].to_vec(), "byte 2048: the file ends without the block of zeros"),
        (good[..700].to_vec(), "byte 512: a member of 5 bytes"),
        ([&good[..1024], &[1; 512]].concat(), "byte 1024: expected a tar header"),
        (with(124, b"00000009999\0"), "byte 124: expected a size"),
        (with(124, b"77777777777\0"), "byte 512: a member of 8589934591 bytes"),
        (with(124, b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"), "a member of 9223372036854775807 bytes"),
        (with(124, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "byte 124: expected a size"),
        (with(156, b"S"), "byte 0: a sparse file"),
        (with(156, b"x"), "byte 512: expected a PAX record"),
        (with(156, b"g"), "byte 512: expected a PAX record"),
        (b"\x1f\x8b\x08\0\0\0\0".repeat(200), "gunzip"),
    ];
    for (bytes, message) in cases {
        let found = failure(&bytes, &unsaved());
        assert!(found.contains(message), "{found}");
    }
    let unfinished = tempfile::NamedTempFile::new().unwrap();
    fs::write(unfinished.path(), &good[..good.len() - 1024 - 511]).unwrap();
    let open = unsaved().missing_end(true).open([unfinished.path()]);
    assert_eq!(open.unwrap().len(), 2);
}

/// Opens a damaged tar. It must not panic, and the members of samples that can be read must be
/// inside of the file. Returns whether it could be opened.
fn survives(path: &Path, bytes: &[u8]) -> bool {
    fs::write(path, bytes).unwrap();
    let options = unsaved().key(true).skip_incomplete(true).decode("npy", Decode::Npy);
    let open = options.open([path]).or_else(|_| unsaved().open([path]));
    open.is_ok_and(|tar| read_all(&tar).is_ok())
}

#[test]
fn truncated_and_damaged_tars_are_errors_or_valid() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.tar");
    let good = fs::read(data("gnu.tar")).unwrap();
    assert!(survives(&path, &good));
    let end = good.iter().rposition(|&byte| byte != 0).unwrap();
    for len in 0..=end {
        assert!(!survives(&path, &good[..len]), "{len} of {} bytes", good.len());
    }
    let ways = |_, byte| [1, 0x80, 0xff].map(|flip| byte ^ flip);
    support::changed(&good, 0..good.len(), ways, |bytes| _ = survives(&path, bytes));
}

proptest! {
    #[test]
    fn random_bytes_are_no_tar(start in prop::collection::vec(any::<u8>(), 0..2048), seal_it: bool) {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = start;
        if seal_it && bytes.len() >= 512 {
            seal(&mut bytes[..512]);
        }
        survives(&folder.path().join("random.tar"), &bytes);
    }
}

#[test]
fn an_index_is_saved_checked_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, index) = (folder.path().join("a.tar"), folder.path().join("a.tar.slotline-idx"));
    fs::write(&path, tar(&[("a.x", b"1"), ("b.x", b"2")])).unwrap();
    let open = |options: TarOptions| options.open([&path]).unwrap();
    let key = |tar: &Records<Tar>| String::from_utf8(tar.format().key(0).to_vec()).unwrap();
    assert_eq!(key(&open(TarOptions::new())), "a");
    let saved = fs::read(&index).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");

    // The saved index is used, since the shard is replaced by another one with the same length and
    // modification time.
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let write = |members: Members<'_>| fs::write(&path, tar(members)).unwrap();
    write(&[("c.x", b"1"), ("d.x", b"2")]);
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    assert_eq!(key(&open(TarOptions::new())), "a");
    // With another modification time, the index is out of date.
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(time + std::time::Duration::from_nanos(1))
        .unwrap();
    assert_eq!(key(&open(TarOptions::new())), "c");
    assert_ne!(fs::read(&index).unwrap(), saved);
    // A damaged index is rebuilt.
    let saved = fs::read(&index).unwrap();
    fs::write(&index, &saved[..saved.len() / 2]).unwrap();
    assert_eq!(key(&open(TarOptions::new())), "c");
    assert_eq!(fs::read(&index).unwrap(), saved);

    fs::remove_file(&index).unwrap();
    fs::create_dir(&index).unwrap();
    assert_eq!(key(&open(TarOptions::new())), "c", "an index that can't be written is none");
    let elsewhere = tempfile::tempdir().unwrap();
    assert_eq!(key(&open(TarOptions::new().index_files(IndexFiles::In(elsewhere.path().to_owned())))), "c");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}

#[test]
fn an_index_of_dali_that_lies_is_an_error() {
    let text = fs::read_to_string(data("shard-000001.idx")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("lies.idx");
    let open = |text: &str| -> Result<Records<Tar>, Error> {
        fs::write(&index, text).unwrap();
        unsaved().dali_indexes([&index]).open([data(SHARDS[1])])
    };
    assert_eq!(open(&text).unwrap().len(), 1);
    let lies = [
        text.replacen("v1.2", "v1.1", 1),
        text.replacen("v1.2 1", "v1.2 2", 1),
        text.replacen("v1.2 1", "v1.2 x", 1),
        text.replacen("jpg ", "jpg 1", 1),
        text.replacen("jpg ", "jpg 99999999999999999999", 1),
        text.replacen("jpg ", "jpg -", 1),
        text.replacen("jpg ", "png ", 1),
        text.replacen("sample002.jpg", "sample005.jpg", 1),
        text.replacen("sample002.jpg", "", 1),
        text.replacen(' ', " -", 2),
        String::new(),
    ];
    for lie in lies {
        let error = open(&lie).expect_err(&lie);
        assert!(error.to_string().contains("lies.idx"), "{error}");
    }
    unsaved().dali_indexes([&index]).open(SHARDS.map(data)).expect_err("one index for two shards");
}
