//! Tests of the cache of objects on a local disk.

#![cfg(feature = "http")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use slotline::Loader;
use slotline::dtype::DType;
use slotline_sources::files::{Files, Span};
use slotline_sources::{Cache, Error, FieldKind, Format, Input, Record, RecordFields, Records, Value};

use server::{APART, Answer, COUNT, LEN, Server, number};

#[path = "support/server.rs"]
mod server;

/// The number of objects.
const OBJECTS: usize = 6;

/// A format of numbers that are stored in several objects.
#[derive(Debug)]
struct Shards(Files, RecordFields);

fn shards(server: &Server) -> Records<Shards> {
    let urls = (0..OBJECTS).map(|object| server.url.replace("numbers", &format!("numbers-{object}")));
    let fields = RecordFields::new(["index", "number"].map(|name| (name, FieldKind::Number(DType::I64))));
    Records::new(Shards(Files::open(urls).unwrap(), fields))
}

impl Shards {
    fn span(index: usize) -> Span {
        Span { file: index / COUNT, start: (index % COUNT * APART) as u64, len: Some(8) }
    }
}

impl Format for Shards {
    fn len(&self) -> usize {
        OBJECTS * COUNT
    }

    fn fields(&self) -> &RecordFields {
        &self.1
    }

    fn files(&self) -> &Files {
        &self.0
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        // Declares that a whole block is read for each sample, so that fetching an object is
        // worthwhile.
        each(Span { len: Some(APART as u64), ..Self::span(index) });
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let [bytes] = input.spans([Span { len: Some(APART as u64), ..Self::span(index) }])?;
        Ok(Record::new(&self.1, [Value::number(index as i64), Value::from(&bytes[..8])]))
    }
}

/// Reads a pass and checks every number. Returns how many requests it took.
fn pass(server: &Server, shards: &Records<Shards>, shuffle: bool, workers: usize, processes: bool) -> usize {
    let before = server.requests.load(Ordering::SeqCst);
    let builder = Loader::builder(shards.clone()).batch_size(50).shuffle(shuffle).seed(7).num_workers(workers);
    let mut loader = if processes { builder.processes().build() } else { builder.build() }.unwrap();
    let mut seen = 0;
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        let columns = batch.tensors();
        let column = |i| columns.get(i).unwrap().typed::<i64>().unwrap();
        for (index, found) in column(0).as_slice().iter().zip(column(1).as_slice()) {
            assert_eq!(*found, number(*index as usize % COUNT * APART));
            seen += 1;
        }
    }
    assert_eq!(seen, OBJECTS * COUNT);
    server.requests.load(Ordering::SeqCst) - before
}

/// Returns the files in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Counts the bytes in a folder. A file that is renamed meanwhile, since objects are fetched in the
/// background, is not counted.
fn bytes(folder: &Path) -> u64 {
    files(folder).iter().filter_map(|path| path.metadata().ok()).map(|found| found.len()).sum()
}

/// The number of requests that fetch a whole object.
const WHOLE: usize = LEN.div_ceil(8 << 20);

#[test]
fn a_cache_of_the_size_of_the_data_makes_later_passes_local() {
    let (server, folder) = (Server::start(&[], Answer::Right), tempfile::tempdir().unwrap());
    let cache = Cache::new(folder.path().join("new"), (OBJECTS * LEN) as u64).unwrap();
    let shards = self::shards(&server).cache(&cache);
    let first = pass(&server, &shards, false, 2, false);
    assert!((OBJECTS * WHOLE..OBJECTS * WHOLE * 2).contains(&first), "{first} requests");
    // Objects are fetched in the background, so the pass may have ended before the last one was
    // fetched. The next pass then fetches it.
    if bytes(&folder.path().join("new")) < (OBJECTS * LEN) as u64 {
        let rest = pass(&server, &shards, false, 2, false);
        assert!(rest <= WHOLE * 2, "{rest} requests");
    }
    for (workers, processes) in [(0, false), (2, false), (2, true)] {
        assert_eq!(pass(&server, &shards, true, workers, processes), 0, "{workers} {processes}");
    }
    // Another dataset of the same objects finds them in the cache.
    assert_eq!(pass(&server, &self::shards(&server).cache(&cache), true, 2, false), 0);
    assert_eq!(bytes(&folder.path().join("new")), (OBJECTS * LEN) as u64);
}

#[test]
fn a_small_cache_is_not_exceeded_and_changes_no_results() {
    let (server, folder) = (Server::start(&[], Answer::Right), tempfile::tempdir().unwrap());
    let limit = (2 * LEN + LEN / 2) as u64;
    let shards = self::shards(&server).cache(&Cache::new(folder.path(), limit).unwrap());
    for (shuffle, workers, processes) in
        [(false, 0, false), (false, 2, false), (true, 2, false), (false, 2, true), (true, 2, true)]
    {
        let requests = pass(&server, &shards, shuffle, workers, processes);
        if !shuffle && !processes {
            assert!(requests < OBJECTS * COUNT / 4, "{requests} requests");
        }
        // Two processes may fetch an object each at the same time. Neither counts the other's
        // object, so the cache may exceed its limit by one object.
        let most = if processes { limit + LEN as u64 } else { limit };
        assert!(bytes(folder.path()) <= most);
    }
}

#[test]
fn a_folder_with_more_than_the_limit_is_brought_below_it() {
    let (server, folder) = (Server::start(&[], Answer::Right), tempfile::tempdir().unwrap());
    let of_limit = |limit: usize| self::shards(&server).cache(&Cache::new(folder.path(), limit as u64).unwrap());
    pass(&server, &of_limit(OBJECTS * LEN), false, 2, false);
    assert_eq!(bytes(folder.path()), (OBJECTS * LEN) as u64);
    // The folder now exceeds a lower limit, as it may after two processes fetched at the same time.
    pass(&server, &of_limit(2 * LEN), false, 2, false);
    assert!(bytes(folder.path()) <= 2 * LEN as u64);
}

#[test]
fn what_is_wrong_in_the_folder_only_costs_requests() {
    let (server, folder) = (Server::start(&[], Answer::Right), tempfile::tempdir().unwrap());
    let path = folder.path().join("cache");
    let cache = Cache::new(&path, (10 * LEN) as u64).unwrap();
    let shards = self::shards(&server).cache(&cache);
    // A partial file that a killed process left, a file of another dataset, and a file that is not
    // of a cache.
    let (left, other) = ("a.tar-100-tag-0123456789abcdef.part", "b.tar-100-tag-0123456789abcdef");
    for name in [left, other, "mine.part"] {
        fs::write(path.join(name), [0; 100]).unwrap();
    }
    pass(&server, &shards, false, 2, false);
    assert!(!path.join(left).exists() && path.join(other).exists() && path.join("mine.part").exists());
    // Some files were truncated, and others removed. Files that are still being written in the
    // background are left as they are.
    let complete = files(&path).into_iter().filter(|file| file.extension().is_none_or(|found| found != "part"));
    for (i, file) in complete.enumerate() {
        match i % 2 {
            0 => fs::File::options().write(true).open(file).unwrap().set_len(1000).unwrap(),
            _ => fs::remove_file(file).unwrap(),
        }
    }
    pass(&server, &shards, true, 2, false);
    // The folder was replaced by a file. It is moved and not removed, since a file may still be
    // written to it.
    fs::rename(&path, folder.path().join("moved")).unwrap();
    fs::write(&path, "no folder").unwrap();
    pass(&server, &shards, true, 2, false);
    assert!(Cache::new(&path, 1).is_err());
}

#[test]
fn an_object_that_cannot_be_fetched_as_a_whole_is_read_by_ranges() {
    // The first requests fail more often than they are retried.
    let script = vec![Answer::Status(404); 8];
    let (server, folder) = (Server::start(&script, Answer::Right), tempfile::tempdir().unwrap());
    let shards = self::shards(&server).cache(&Cache::new(folder.path(), (10 * LEN) as u64).unwrap());
    pass(&server, &shards, false, 0, false);
    assert_eq!(pass(&server, &shards, false, 0, false) % WHOLE, 0);
    assert_eq!(pass(&server, &shards, false, 0, false), 0);
}
