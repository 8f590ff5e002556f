//! Lists of a bucket in which some keys are no paths.

#![cfg(feature = "s3")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;

use slotline_sources::folder::FolderOptions;

const KEYS: [&str; 7] =
    ["data/a.txt", "data/b.txt", "data//b.txt", "data/c/", "data/c//d.csv", "data/./e.csv", "data/c/f.txt"];

/// Answers requests for lists.
fn answer(stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        assert!(head.starts_with("GET /bucket?") && head.contains("list-type=2"), "{head}");
        let (mut keys, mut prefixes) = (String::new(), String::new());
        for key in KEYS {
            match key["data/".len()..].split_once('/') {
                Some((folder, _)) if head.contains("delimiter=") => {
                    prefixes += &format!("<CommonPrefixes><Prefix>data/{folder}/</Prefix></CommonPrefixes>");
                }
                _ => {
                    let rest = "<LastModified>2026-11-02T10:00:00Z</LastModified><Size>3</Size>";
                    keys += &format!("<Contents><Key>{key}</Key>{rest}</Contents>");
                }
            }
        }
        let xmlns = "http://s3.amazonaws.com/doc/2006-03-01/";
        let body =
            format!("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"{xmlns}\">{keys}{prefixes}</ListBucketResult>");
        write!(&mut &*stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    }
}

#[test]
fn keys_that_are_no_paths_do_not_fail_a_list() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    for (name, value) in [("ENDPOINT", &*endpoint), ("ALLOW_HTTP", "true"), ("SKIP_SIGNATURE", "true")] {
        // SAFETY: this is the only test of its program, and there are no other threads that look at the environment yet.
        unsafe { std::env::set_var(format!("AWS_{name}"), value) };
    }
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(&stream));
        }
    });
    let expand = |pattern: &str| slotline_sources::paths::expand([format!("s3://bucket/data/{pattern}")]);
    assert_eq!(expand("?.txt").unwrap(), expand("*.txt").unwrap());
    assert_eq!(expand("*.txt").unwrap(), ["s3://bucket/data/a.txt", "s3://bucket/data/b.txt"].map(PathBuf::from));
    let class = |extension: &str| FolderOptions::new().extensions([extension]).open("s3://bucket/data");
    // What is meant is not left out silently.
    let error = expand("**/d.csv").unwrap_err().to_string();
    assert!(error.contains("is no path: c//d.csv; rename the object"), "{error}");
    let error = class(".csv").unwrap_err().to_string();
    assert!(error.contains("is no path"), "{error}");
    assert_eq!(class("f.txt").unwrap().format().classes(), ["c"]);
}
