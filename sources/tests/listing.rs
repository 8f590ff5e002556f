//! Listing a bucket in which some keys are not valid paths.

#![cfg(all(feature = "s3", feature = "folder", feature = "manifest", feature = "tar"))]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Once;
use std::thread;

use slotline::Dataset;
use slotline::dataset::Context;
use slotline_sources::folder::FolderOptions;
use slotline_sources::{IndexFiles, OpenOptions};

mod support;

use support::fails;

/// Returns the keys in the bucket, with the contents of the objects that are read.
fn objects() -> BTreeMap<&'static str, Vec<u8>> {
    let mut objects: BTreeMap<_, _> =
        ["data/a.txt", "data/b.txt", "data//b.txt", "data/c/", "data/c//d.csv", "data/./e.csv", "data/c/f.txt"]
            .map(|key| (key, b"abc".to_vec()))
            .into();
    let tar = |text: &str| support::tar(&[("0.txt", text.as_bytes())]);
    for (key, bytes) in [
        ("hive/README.md", b"notes".to_vec()),
        ("hive/year=2023/a.tar", tar("a")),
        ("hive/year=2024/b.tar", tar("b")),
        ("splits/test/metadata.csv", b"file_name,label\n1.png,7\n".to_vec()),
        ("splits/test/1.png", b"one".to_vec()),
        ("splits/train/metadata.csv", b"file_name,label\n2.png,8\n".to_vec()),
        ("splits/train/2.png", b"two".to_vec()),
        ("half/a/metadata.csv", b"file_name,label\n1.png,7\n".to_vec()),
        ("half/b/1.png", b"one".to_vec()),
        ("classes/a=1/1.png", b"one".to_vec()),
        ("classes/b=2/index.json", b"{}".to_vec()),
        ("classes/b=2/2.png", b"two".to_vec()),
        ("mixed/a.tar", tar("a")),
        ("mixed/b.jsonl", b"{}".to_vec()),
        ("packed/a.tar.gz", tar("a")),
        ("packed/b.tar.gz", tar("b")),
    ] {
        objects.insert(key, bytes);
    }
    objects
}

/// Answers requests for lists and for objects.
fn answer(stream: &TcpStream) -> std::io::Result<()> {
    let (mut reader, objects) = (BufReader::new(stream), objects());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let (method, target) = head.split(' ').next().zip(head.split(' ').nth(1)).unwrap();
        if let Some(key) = target.strip_prefix("/bucket/") {
            let key = key.replace("%3D", "=");
            let Some(bytes) = objects.get(&*key) else {
                write!(&mut &*stream, "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")?;
                continue;
            };
            let range = head.lines().find_map(|line| line.strip_prefix("range: bytes=")?.split_once('-'));
            let range = range.map(|(start, end)| (start.parse().unwrap(), end.parse::<usize>().unwrap() + 1));
            let (start, end) = range.map_or((0, bytes.len()), |(start, end)| (start, end.min(bytes.len())));
            let status = if range.is_some() { 206 } else { 200 };
            let mut text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", end - start);
            text += &format!("Content-Range: bytes {start}-{}/{}\r\n", end.max(1) - 1, bytes.len());
            text += "ETag: \"one\"\r\nLast-Modified: Mon, 02 Nov 2026 10:00:00 GMT\r\n\r\n";
            let body = if method == "HEAD" { &[][..] } else { &bytes[start..end] };
            (&mut &*stream).write_all(&[text.as_bytes(), body].concat())?;
            continue;
        }
        assert!(target.starts_with("/bucket?") && head.contains("list-type=2"), "{head}");
        let prefix = target.split(['?', '&']).find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or("");
        let prefix = prefix.replace("%2F", "/").replace("%3D", "=");
        let (mut keys, mut prefixes) = (String::new(), BTreeSet::new());
        for (key, bytes) in objects.iter().filter_map(|(key, bytes)| Some((key.strip_prefix(&*prefix)?, bytes))) {
            match key.split_once('/') {
                Some((folder, _)) if head.contains("delimiter=") => {
                    prefixes.insert(format!("<CommonPrefixes><Prefix>{prefix}{folder}/</Prefix></CommonPrefixes>"));
                }
                _ => {
                    let (time, len) = ("<LastModified>2026-11-02T10:00:00Z</LastModified>", bytes.len());
                    let rest = format!("{time}<ETag>\"one\"</ETag><Size>{len}</Size>");
                    keys += &format!("<Contents><Key>{prefix}{key}</Key>{rest}</Contents>");
                }
            }
        }
        let prefixes = prefixes.into_iter().collect::<String>();
        let xmlns = "http://s3.amazonaws.com/doc/2006-03-01/";
        let body =
            format!("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"{xmlns}\">{keys}{prefixes}</ListBucketResult>");
        write!(&mut &*stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    }
}

/// Starts a server, only once, and sets the environment variables that make clients use it.
fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        for (name, value) in [("ENDPOINT", &*endpoint), ("ALLOW_HTTP", "true"), ("SKIP_SIGNATURE", "true")] {
            // SAFETY: all tests of this program begin with this call, so no other thread reads the
            // environment yet.
            unsafe { std::env::set_var(format!("AWS_{name}"), value) };
        }
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || answer(&stream));
            }
        });
    });
}

#[test]
fn keys_that_are_no_paths_do_not_fail_a_list() {
    start();
    let expand = |pattern: &str| slotline_sources::paths::expand([format!("s3://bucket/data/{pattern}")]);
    assert_eq!(expand("?.txt").unwrap(), expand("*.txt").unwrap());
    assert_eq!(expand("*.txt").unwrap(), ["s3://bucket/data/a.txt", "s3://bucket/data/b.txt"].map(PathBuf::from));
    let class = |extension: &str| FolderOptions::new().extensions([extension]).open("s3://bucket/data");
    // An object that matches a pattern must not be left out silently.
    fails(expand("**/d.csv"), &["is no path: c//d.csv; rename the object"]);
    fails(class(".csv"), &["is no path"]);
    assert_eq!(class("f.txt").unwrap().format().classes(), ["c"]);
}

#[test]
fn folders_in_buckets_are_those_that_they_are_on_disks() {
    start();
    let open = |folder: &str| OpenOptions::new().index_files(IndexFiles::None).open(format!("s3://bucket/{folder}"));
    let rows = |folder: &str, field: &str, number: &str| {
        let (records, mut cx) = (open(folder).unwrap_or_else(|error| panic!("{error:?}")), Context::default());
        let row = |index| {
            let record = records.get(index, &mut cx).unwrap();
            (String::from_utf8(record.bytes(field).unwrap().to_vec()).unwrap(), record.number::<i64>(number).unwrap())
        };
        (0..records.len()).map(row).collect::<Vec<_>>()
    };
    assert_eq!(rows("hive", "txt", "year"), [("a".to_owned(), 2023), ("b".to_owned(), 2024)]);
    assert_eq!(rows("splits", "data", "label"), [("one".to_owned(), 7), ("two".to_owned(), 8)]);
    assert_eq!(rows("splits", "split", "label"), [("test".to_owned(), 7), ("train".to_owned(), 8)]);
    assert_eq!(rows("classes", "data", "label"), [("one".to_owned(), 0), ("two".to_owned(), 1)]);
    for (folder, words) in [
        ("half", "datasets: a;"),
        ("mixed", "both tars (a.tar) and CSV or JSONL (b.jsonl)"),
        ("packed", "it is packed"),
    ] {
        fails(open(folder), &[words]);
    }
    let packed = OpenOptions::new().open_stream("s3://bucket/packed").unwrap().unwrap();
    let mut loader = slotline::Loader::iterable(packed).build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 2);
    assert!(OpenOptions::new().open_stream("s3://bucket/hive").unwrap().is_none());
}
