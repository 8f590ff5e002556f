//! Files and folders without a prefix, whose format the program detects.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::program::{failure, slotline, stdout, summary};
use serde_json::json;

/// Makes a folder with two classes, whose three files have 3, 5 and 70 bytes.
fn classes(root: &Path) {
    for (file, len) in [("a/1.png", 3), ("b/1.jpg", 5), ("b/2.jpeg", 70)] {
        let path = root.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
        fs::write(path, vec![7; len]).expect("a file can be written");
    }
    fs::write(root.join("a/readme.txt"), "not a picture").expect("a file can be written");
}

#[test]
fn a_folder_of_classes_is_fed_the_same_by_any_workers() {
    let root = tempfile::tempdir().expect("a folder");
    classes(root.path());
    let feed = format!("feed {} --shuffle --seed 3 --batch-size 2 --epochs 2", root.path().display());
    let alone = summary(&feed);
    assert_eq!((&alone["samples"], &alone["bytes"]), (&json!(6), &json!(2 * (78 + 3 * 8))));
    for workers in ["--num-workers 2", "--num-workers 2 --worker-kind process"] {
        let run = summary(&format!("{feed} {workers}"));
        for key in ["order_digest", "data_digest"] {
            assert_eq!(run[key], alone[key], "{workers}");
        }
    }
    let output = slotline(&feed);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("3 samples of data: bytes, label: i64"), "{text}");
}

#[test]
fn columns_are_chosen_by_name() {
    let root = tempfile::tempdir().expect("a folder");
    classes(root.path());
    let path = root.path().display();
    let labels = summary(&format!("feed {path} --columns label"));
    assert_eq!((&labels["samples"], &labels["bytes"]), (&json!(3), &json!(3 * 8)));
    assert!(stdout(&format!("inspect {path} --columns label")).contains("label: i64"));
    for (arguments, words) in [
        (format!("feed {path} --columns label,none"), "no column none, but data, label"),
        ("feed digits --columns label".to_owned(), "drop --columns"),
    ] {
        let (code, message) = failure(&arguments);
        assert_eq!(code, 1, "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn options_of_files_apply_before_others_are_rejected() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sources/tests/data");
    let mixed = data.join("arrays/mixed.npz");
    let (code, message) = failure(&format!("feed {}", mixed.display()));
    assert_eq!(code, 1, "{message}");
    assert!(message.contains("leave the array out with --columns"), "{message}");
    assert_eq!(summary(&format!("feed {} --columns b", mixed.display()))["samples"], json!(6));
    assert!(stdout(&format!("order {} --columns b", mixed.display())).contains("\"indices\""));

    let folder = tempfile::tempdir().expect("a folder");
    let rows = folder.path().join("rows.jsonl");
    fs::write(&rows, "{\"a\": 1, \"b\": 2}\n{\"a\": 3}\n").expect("a file can be written");
    let (code, message) = failure(&format!("feed {}", rows.display()));
    assert_eq!(code, 1, "{message}");
    assert!(message.contains("--missing-as-zero") && message.contains("--default-number"), "{message}");
    for option in ["--missing-as-zero", "--default-number b=7"] {
        assert_eq!(summary(&format!("feed {} {option}", rows.display()))["samples"], json!(2));
    }
    let (code, message) = failure(&format!("feed {} --missing-as-zero --skip-incomplete", rows.display()));
    assert_eq!(code, 1, "{message}");
    assert!(message.contains("--skip-incomplete is an option of tars, and not of CSV and JSONL"), "{message}");

    fs::write(&rows, "{\"image\": \"none.png\"}\n{\"image\": \"\", \"n\": 1}\n").expect("a file");
    let options = "--without-files --default-number n=9007199254740993";
    let shown = stdout(&format!("inspect {} {options}", rows.display()));
    assert!(shown.contains("image: text") && shown.contains("9007199254740993"), "{shown}");
}

#[test]
fn arrays_need_no_prefix() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("numbers.idx");
    fs::write(&path, [0, 0, 8, 1, 0, 0, 0, 3, 4, 5, 6]).expect("a file can be written");
    let (bare, named) =
        (summary(&format!("feed {}", path.display())), summary(&format!("feed idx:{}", path.display())));
    assert_eq!((&bare["samples"], &bare["data_digest"]), (&json!(3), &named["data_digest"]));
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).expect("a folder can be made");
    let text = folder.path().join("notes");
    fs::write(&text, "something").expect("a file can be written");
    for (path, code, words) in [
        (folder.path().join("none"), 2, "no such file or folder"),
        (empty, 1, "not a dataset"),
        (text, 1, "not a format that this build reads"),
    ] {
        let (found, message) = failure(&format!("feed {}", path.display()));
        assert_eq!(found, code, "{message}");
        assert!(message.contains(words) && message.contains(&*path.to_string_lossy()), "{message}");
    }
}

#[test]
fn a_sample_is_shown_and_its_bytes_are_written_to_files() {
    let root = tempfile::tempdir().expect("a folder");
    classes(root.path());
    fs::write(root.path().join("b/1.jpg"), [0xff, 0xd8, 0xff, 1, 2]).expect("a file can be written");
    let other = tempfile::tempdir().expect("a folder");
    let out = other.path().join("out");
    let folder = root.path().display();
    let text = stdout(&format!("inspect {folder} --index 1 --out {}", out.display()));
    for words in ["3 samples", "data: bytes", "label: i64", "data: 5 bytes, a JPEG picture", "label: 1"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert_eq!(fs::read(out.join("1-data.jpg")).expect("a file"), [0xff, 0xd8, 0xff, 1, 2]);
    let (code, message) = failure(&format!("inspect {folder} --index 3"));
    assert!(code == 1 && message.contains("there is no sample 3: the dataset has 3"), "{message}");
    assert!(stdout("inspect digits --index 5").contains("0: [8, 8] [0, 0, 12, 10, 0, 0, 0, 0, …]"));
}

#[test]
fn names_in_files_do_nothing_to_a_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("\u{1b}]0;title\u{7}\u{9b}1m.csv");
    fs::write(&path, "\u{1b}[2Jred,\u{202e}der\n1,2\n").expect("a file can be written");
    let path = path.display();
    let inspected = stdout(&format!("inspect {path} --without-files"));
    let fed = stdout(&format!("feed {path} --without-files"));
    let (_, missing) = failure(&format!("feed {path}.csv,x"));
    let (_, unknown) = failure(&format!("feed {path} --without-files --columns none"));
    let (_, indexed) = failure(&format!("index {path}"));
    for text in [&inspected, &fed, &unknown, &indexed] {
        assert!(text.contains(r"\u{1b}"), "{text:?}");
    }
    for text in [inspected, fed, missing, unknown, indexed] {
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{text:?}");
    }
}

#[test]
fn indexes_are_saved_beside_tars() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("empty.tar");
    // A member without data, and the end of the tar.
    let mut header = [0; 512];
    header[..5].copy_from_slice(b"1.cls");
    header[124..135].fill(b'0');
    header[148..156].copy_from_slice(b"        ");
    header[156] = b'0';
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    fs::write(&path, [&header[..], &[0; 1024]].concat()).expect("a file can be written");
    let text = stdout(&format!("index {}", path.display()));
    assert!(text.contains("1 samples, 1 files"), "{text}");
    assert!(folder.path().join("empty.tar.slotline-idx").exists());
    classes(folder.path());
    let (code, message) = failure(&format!("index {}", folder.path().join("b").display()));
    assert!(code == 1 && message.contains("error:"), "{message}");
}

#[test]
fn packed_tars_are_fed_as_streams() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sources/tests/data/tar");
    for shard in ["shard-000000.tar", "shard-000001.tar"] {
        let tar = fs::read(data.join(shard)).expect("the data");
        fs::write(folder.path().join(shard), &tar).expect("it can be written");
        let file = fs::File::create(folder.path().join(format!("{shard}.gz"))).expect("a file can be created");
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        encoder.write_all(&tar).expect("it can be written");
        encoder.finish().expect("it can be written");
    }
    let packed = folder.path().join("shard-*.tar.gz").display().to_string();
    let run = |path: &str, options: &str| summary(&format!("feed {path} --columns txt,cls --batch-size 4 {options}"));
    let indexed = run(&folder.path().join("shard-{000000..000001}.tar").display().to_string(), "");
    let stream = run(&packed, "");
    for key in ["samples", "bytes", "data_digest"] {
        assert_eq!(stream[key], indexed[key], "{key}");
    }
    let workers = "--num-workers 2 --shuffle --shuffle-buffer 5 --seed 3 --epochs 2";
    for options in [workers.to_owned(), format!("{workers} --worker-kind process")] {
        let shuffled = run(&packed, &options);
        assert_eq!(shuffled["samples"].as_u64(), indexed["samples"].as_u64().map(|samples| 2 * samples), "{options}");
        assert_ne!(shuffled["data_digest"], indexed["data_digest"]);
    }
    let shares = [0, 1].map(|rank| run(&packed, &format!("--rank {rank} --world-size 2"))["samples"].as_u64());
    assert_eq!(Some(shares.into_iter().flatten().sum()), indexed["samples"].as_u64());
    let text = stdout(&format!("inspect {packed} --index 1 --columns txt"));
    assert!(text.contains("a stream of samples") && text.contains("sample 1:"), "{text}");
    for (arguments, words) in [
        (format!("order {packed}"), "no indices"),
        (format!("inspect {packed} --columns txt --index 999"), "there is no sample 999"),
        (format!("feed {packed} --columns none"), "no file `none`"),
    ] {
        let (code, message) = failure(&arguments);
        assert!(code == 1 && message.contains(words), "{message}");
    }
}
