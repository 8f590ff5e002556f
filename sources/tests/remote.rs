//! Tests with objects on a server that answers correctly, late, incorrectly, or not at all.

#![cfg(feature = "http")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use slotline::dtype::DType;
use slotline::{Dataset, Loader, with_causes};
use slotline_sources::files::{Files, Span};
use slotline_sources::{Error, FieldKind, Format, Input, Record, RecordFields, Records, RequestOptions, Value};

use server::{APART, Answer, COUNT, Server, number};

mod support;

use support::fails;

#[path = "support/server.rs"]
mod server;

/// A format of numbers of eight bytes each.
#[derive(Debug)]
struct Numbers {
    files: Files,
    fields: RecordFields,
    /// The distance from one number to the next, in bytes.
    apart: usize,
}

impl Numbers {
    fn open(url: &str, apart: usize) -> Result<Self, Error> {
        let fields = RecordFields::new([("number", FieldKind::Number(DType::I64))]);
        Ok(Self { files: Files::open([url])?, fields, apart })
    }

    fn span(&self, index: usize) -> Span {
        Span { file: 0, start: (self.apart * index) as u64, len: Some(8) }
    }
}

fn numbers(server: &Server) -> Records<Numbers> {
    Records::new(Numbers::open(&server.url, APART).unwrap())
}

impl Format for Numbers {
    fn len(&self) -> usize {
        COUNT
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        each(self.span(index));
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let [bytes] = input.spans([self.span(index)])?;
        Ok(Record::new(&self.fields, [Value::from(bytes)]))
    }
}

/// Returns the numbers of a pass, or its first error with all of its causes.
fn pass(numbers: Records<Numbers>, workers: usize, processes: bool) -> Result<Vec<i64>, String> {
    let builder = Loader::builder(numbers).batch_size(50).shuffle(true).seed(7).num_workers(workers);
    let mut loader = if processes { builder.processes().build() } else { builder.build() }.unwrap();
    let mut all = Vec::new();
    for batch in loader.epoch().unwrap() {
        let batch = batch.map_err(|error| with_causes(&error))?;
        all.extend_from_slice(batch.tensors().get(0).unwrap().typed::<i64>().unwrap().as_slice());
    }
    Ok(all)
}

/// Returns the numbers in the order of a pass.
fn expected() -> Vec<i64> {
    let whole = slotline::dataset::from_fn(COUNT, |i, _| Ok(number(APART * i)));
    let mut loader = Loader::builder(whole).batch_size(50).shuffle(true).seed(7).build().unwrap();
    loader.epoch().unwrap().flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec()).collect()
}

#[test]
fn bytes_are_the_same_for_any_workers_ahead_or_not() {
    let server = Server::start(&[], Answer::Right);
    for (workers, processes, ahead) in
        [(0, false, 1 << 20), (2, false, 1 << 20), (2, false, 0), (2, true, 1 << 20), (0, false, 100)]
    {
        let numbers = self::numbers(&server).read_ahead(ahead);
        assert_eq!(pass(numbers, workers, processes), Ok(expected()), "{workers} {processes} {ahead}");
    }
}

#[test]
fn the_time_that_reading_takes_is_known() {
    let server = Server::start(&[], Answer::Late(2));
    let numbers = self::numbers(&server).read_ahead(0);
    assert_eq!(numbers.reading_share(), None);
    assert_eq!(pass(numbers.clone(), 2, false), Ok(expected()));
    assert!(numbers.reading_share().is_some_and(|share| share > 0.5), "{numbers:?}");
}

#[test]
fn many_requests_are_under_way_at_a_time() {
    sometimes(|| {
        let server = Server::start(&[], Answer::Late(20));
        assert_eq!(pass(numbers(&server), 0, false), Ok(expected()));
        // The first number may be read before it was requested in advance.
        let requests = server.requests.load(Ordering::SeqCst);
        assert!((COUNT..COUNT + 4).contains(&requests), "each range is fetched once, and not {requests} in all");
        server.most_at_a_time.load(Ordering::SeqCst) > 32
    });
}

/// Checks that `attempt` returns true in at least one of several attempts. It may return false if
/// other programs use the cores.
fn sometimes(attempt: impl FnMut() -> bool) {
    assert!(std::iter::repeat_with(attempt).take(5).any(|fulfilled| fulfilled));
}

#[test]
fn what_lies_together_is_fetched_together() {
    let server = Server::start(&[], Answer::Right);
    let numbers = Records::new(Numbers::open(&server.url, 24).unwrap());
    let mut loader = Loader::builder(numbers).batch_size(50).build().unwrap();
    let mut all = Vec::new();
    for batch in loader.epoch().unwrap() {
        all.extend_from_slice(batch.unwrap().tensors().get(0).unwrap().typed::<i64>().unwrap().as_slice());
    }
    assert_eq!(all, (0..COUNT).map(|i| number(24 * i)).collect::<Vec<_>>());
    let requests = server.requests.load(Ordering::SeqCst);
    assert!(requests <= COUNT / 16, "{requests} requests");
}

#[test]
fn faults_that_pass_are_not_seen() {
    let script =
        [Answer::Status(500), Answer::Status(503), Answer::Status(429), Answer::Cut, Answer::Late(300), Answer::Cut];
    for workers in [0, 2] {
        let server = Server::start(&script, Answer::Right);
        assert_eq!(pass(numbers(&server), workers, false), Ok(expected()), "{workers}");
        assert!(server.script.lock().unwrap().is_empty());
    }
}

#[test]
fn wrong_answers_are_errors_that_name_the_object_and_its_bytes() {
    for (answer, words) in [
        (Answer::Status(403), "check the credentials"),
        (Answer::Status(404), "check the bucket and the path"),
        (Answer::Status(412), "was replaced since it was opened"),
        (Answer::Shifted, "/data/numbers.bin, bytes "),
        (Answer::Whole, "/data/numbers.bin, bytes "),
        (Answer::Replaced, "was replaced since it was opened"),
        (Answer::Modified, "was replaced since it was opened"),
        (Answer::Longer, "was replaced since it was opened"),
        (Answer::Endless, "and more came"),
        (Answer::Talks(400), "\\u{1b}\\u{1b}"),
        (Answer::Huge, "the server says that these are bytes 0-18446744073709551615/"),
        (Answer::To("http://localhost:1/x"), "the server redirects to http://localhost:1"),
        (Answer::To("ftp://127.0.0.1/x"), "the server redirects to ftp://127.0.0.1"),
        (Answer::To("http://["), "redirects to what is no URL"),
        (Answer::To("/data/numbers.bin"), "redirects more than 10 times"),
    ] {
        let server = Server::start(&[Answer::Right, Answer::Right], answer);
        let numbers = Numbers::open(&server.url, APART).map(Records::new).map_err(|error| with_causes(&error));
        let error = numbers.and_then(|numbers| pass(numbers, 0, false)).unwrap_err();
        assert!(error.contains(words) && error.contains(&server.url), "{answer:?}: {error}");
        assert!(error.len() < 2_000 && !error.contains('\x1b'), "{answer:?}: {error}");
    }
}

/// Returns this process's peak memory, in KiB.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn an_announced_length_takes_no_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a.bin", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            while let Some(first) = lines.next() {
                lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
                let status = if first.starts_with("HEAD") { 200 } else { 404 };
                let len = if status == 200 { 4_u64 << 30 } else { 0 };
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {len}\r\nETag: \"one\"\r\n");
                let date = "Last-Modified: Mon, 02 Nov 2026 10:00:00 GMT\r\n\r\n";
                (&stream).write_all((head + date).as_bytes()).unwrap();
            }
        }
    });
    let files = Files::open([&url]).unwrap();
    assert_eq!(files.file_len(0), Some(4 << 30));
    let before = most_memory();
    fails(files.read(Span { file: 0, start: 0, len: None }, &mut Vec::new()), &[&url, "bytes 0 to 4294967296"]);
    // The limit is generous, since other tests allocate memory at the same time.
    assert!(most_memory() < before + (2 << 20), "{} KiB", most_memory());
}

#[test]
fn objects_with_weak_tags_are_read() {
    let server = Server::start(&[], Answer::Weak);
    assert_eq!(pass(numbers(&server), 2, false), Ok(expected()));
}

#[test]
fn what_was_read_before_it_was_asked_for_is_fetched_once() {
    let server = Server::start(&[], Answer::Late(5));
    // Eight workers read more than the 40 numbers that may be requested in advance.
    let numbers = numbers(&server).read_ahead(320);
    assert_eq!(pass(numbers, 8, false), Ok(expected()));
    let requests = server.requests.load(Ordering::SeqCst);
    assert!(requests < COUNT + COUNT / 20, "{requests} requests");
}

#[test]
fn ranges_that_nobody_reads_are_let_go() {
    /// A format of numbers that declares, for each number, that the bytes after it are needed, too.
    #[derive(Debug)]
    struct More(Numbers);

    impl Format for More {
        fn len(&self) -> usize {
            COUNT
        }

        fn fields(&self) -> &RecordFields {
            &self.0.fields
        }

        fn files(&self) -> &Files {
            &self.0.files
        }

        fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
            self.0.spans(index, each);
            each(Span { start: self.0.span(index).start + 8, ..self.0.span(index) });
        }

        fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
            self.0.read(index, input)
        }
    }

    let server = Server::start(&[], Answer::Right);
    let more = Records::new(More(Numbers::open(&server.url, APART).unwrap())).read_ahead(320);
    let mut loader = Loader::builder(more.clone()).batch_size(50).build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), COUNT);
    let text = format!("{:?}", more.format().files());
    let held = text.split_once("held: ").and_then(|(_, rest)| rest.split([',', ' ']).next()?.parse::<u64>().ok());
    assert!(held.is_some_and(|held| held <= 640), "{text}");
}

#[test]
fn what_is_not_there_is_an_error() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (url, words) in [
        (format!("http://{free}/x"), "check the network"),
        ("http://[/x".to_owned(), "not a URL"),
        ("ftp://host/x".to_owned(), "cannot read ftp://host"),
    ] {
        let error = with_causes(&Numbers::open(&url, 8).unwrap_err());
        assert!(error.contains(words), "{error}");
    }
    let error = Files::open(["http://host/x", "/y"]).unwrap_err().to_string();
    assert!(error.starts_with("/y is a file, and others are URLs"), "{error}");
}

#[test]
fn a_pass_that_begins_while_another_one_waits_lets_it_go_on() {
    let server = Server::start(&[], Answer::Late(30));
    let numbers = self::numbers(&server);
    let passes: Vec<_> = (0..3)
        .map(|_| {
            let numbers = numbers.clone();
            thread::spawn(move || pass(numbers, 2, false))
        })
        .collect();
    for pass in passes {
        assert_eq!(pass.join().unwrap(), Ok(expected()));
    }
}

#[test]
fn a_server_with_a_short_queue_is_not_flooded() {
    sometimes(|| {
        let server = Server::small(Duration::from_millis(2), usize::MAX, Answer::Right);
        let begun = Instant::now();
        assert_eq!(pass(numbers(&server), 0, false), Ok(expected()));
        // If the client began with 128 requests at once, the pass would take half a minute.
        begun.elapsed() < Duration::from_secs(15)
    });
}

#[test]
fn a_server_that_resets_gets_fewer_requests_and_it_is_said() {
    let server = Server::small(Duration::ZERO, 10, Answer::Late(20));
    let numbers = numbers(&server);
    assert_eq!(numbers.warnings(), [""; 0]);
    assert_eq!(pass(numbers.clone(), 0, false), Ok(expected()));
    let warnings = numbers.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("failed at first"), "{warnings:?}");
    assert!(server.url.starts_with(warnings[0].split(' ').nth(3).unwrap()), "{warnings:?}");
}

#[test]
fn no_more_requests_than_allowed_are_under_way() {
    let server = Server::start(&[], Answer::Late(5));
    let numbers = RequestOptions::new().max_connections(3).within(|| numbers(&server));
    assert_eq!(pass(numbers, 8, false), Ok(expected()));
    assert_eq!(server.most_at_a_time.load(Ordering::SeqCst), 3);
    let error =
        RequestOptions::new().max_connections(0).within(|| Numbers::open(&server.url, 8)).unwrap_err().to_string();
    assert!(error.contains("allow at least one"), "{error}");
}

#[test]
fn redirects_to_another_host_are_followed_if_allowed() {
    let server = Server::start(&[], Answer::Right);
    let other = Server::start(&[], Answer::To(server.url.clone().leak()));
    let error = with_causes(&Numbers::open(&other.url, APART).unwrap_err());
    assert!(error.contains("set `follow_redirects`") && error.contains("redirects to http://127.0.0.1"), "{error}");
    assert_eq!(*server.lines.lock().unwrap(), [""; 0]);
    let numbers = RequestOptions::new().follow_redirects(true).within(|| self::numbers(&other));
    assert_eq!(pass(numbers.clone(), 2, false), Ok(expected()));
    assert_eq!(pass(numbers, 2, true), Ok(expected()));
    // Redirects to the same host are always followed.
    let same = Server::start(&[Answer::To("/elsewhere")], Answer::Right);
    assert_eq!(pass(self::numbers(&same), 0, false), Ok(expected()));
    assert!(same.lines.lock().unwrap().iter().any(|line| line.starts_with("GET /elsewhere ")));
}

#[test]
fn a_user_in_a_url_is_refused_and_in_no_message() {
    let server = Server::start(&[], Answer::Right);
    for path in ["", "?Sig=s3cret"] {
        let url = server.url.replace("http://", "http://alice:s3cret@") + path;
        let error = with_causes(&slotline_sources::open(&url).unwrap_err());
        assert!(error.contains("a user or a password in a URL is not used") && !error.contains("s3cret"), "{error}");
    }
    assert_eq!(*server.lines.lock().unwrap(), [""; 0]);
}

#[test]
fn a_thread_that_should_stop_waits_for_no_server() {
    let server = Server::start(&[], Answer::Late(60_000));
    let (stop, files) = (Arc::<std::sync::atomic::AtomicBool>::default(), Files::open([&server.url]).unwrap());
    let begun = Instant::now();
    let read = || files.read(Span { file: 0, start: 0, len: Some(8) }, &mut Vec::new()).map(|_| ());
    let error = thread::scope(|scope| {
        let reads = scope.spawn(|| slotline_sources::stoppable(&stop, read));
        thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        with_causes(&reads.join().unwrap().unwrap_err())
    });
    assert!(error.contains("has given up waiting") && begun.elapsed() < Duration::from_secs(20), "{error}");
}

#[test]
fn a_request_takes_no_longer_than_it_may() {
    let server = Server::start(&[], Answer::Late(60_000));
    let options = RequestOptions::new().timeout(Duration::from_millis(300));
    let (begun, numbers) = (Instant::now(), options.within(|| numbers(&server)));
    let error = pass(numbers.read_ahead(0), 0, false).unwrap_err();
    assert!(error.contains("within 300ms") && begun.elapsed() < Duration::from_secs(20), "{error}");
}

#[cfg(feature = "tar")]
#[test]
fn an_index_of_another_url_is_not_used() {
    let open = |server: &Server, query: &str, folder: &std::path::Path| {
        let index_files = slotline_sources::IndexFiles::In(folder.to_owned());
        let url = server.url.replace(".bin", ".tar");
        let options = slotline_sources::OpenOptions::new().index_files(index_files.clone());
        let records = options.open(url.clone() + query).unwrap();
        (records.len(), index_files.of(url.as_ref()).unwrap())
    };
    let folder = tempfile::tempdir().unwrap();
    let one = Server::of(support::tar(&[("0.txt", &[b'a'; 600]), ("1.txt", b"b")]), Answer::Right);
    let other = Server::of(support::tar(&[("0.txt", &[b'c'; 1600])]), Answer::Right);
    let (len, index) = open(&one, "", folder.path());
    let (other_len, other_index) = open(&other, "", folder.path());
    // Both objects have the same length and tag.
    assert_eq!((len, other_len, index == other_index), (2, 1, false));
    std::fs::copy(&other_index, &index).unwrap();
    assert_eq!(open(&one, "", folder.path()).0, 2);
    // The signature is not part of an object's identity, but other parameters are.
    let requests = |query: &str| {
        let before = one.requests.load(Ordering::SeqCst);
        assert_eq!(open(&one, query, folder.path()).0, 2);
        one.requests.load(Ordering::SeqCst) - before
    };
    let [saved, signed, named, named_again] =
        ["", "?X-Amz-Signature=a&Expires=1", "?id=1", "?id=1&sig=b"].map(requests);
    assert!(signed <= saved + 2 && named > signed && named_again <= signed, "{saved} {signed} {named} {named_again}");
}

#[cfg(feature = "tar")]
#[test]
fn the_workers_of_a_stream_share_the_allowed_requests() {
    // The data is incompressible, so that several parts of each tar are fetched in advance.
    let noise: Vec<u8> = (0..9 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let server = Server::of(support::tar(&[("1.bin", &noise), ("2.bin", &noise)]), Answer::Late(20));
    let url = server.url.replace("numbers.bin", "{0..3}.tar.gz");
    let stream = |most| slotline_sources::OpenOptions::new().max_connections(most).open_stream(&url);
    let mut loader = Loader::iterable(stream(2).unwrap().unwrap()).num_workers(4).build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 8);
    assert_eq!(server.most_at_a_time.load(Ordering::SeqCst), 2);
    fails(stream(0), &["`max_connections` is 0"]);
}

#[test]
fn signed_urls_are_read_and_their_queries_are_in_no_message() {
    let server = Server::start(&[], Answer::Right);
    let numbers = Records::new(Numbers::open(&format!("{}?Sig=a%2Fb&n=1", server.url), APART).unwrap());
    assert_eq!(pass(numbers.clone(), 2, false), Ok(expected()));
    assert_eq!(pass(numbers.clone(), 2, true), Ok(expected()));
    assert_eq!(numbers.format().files().path(0), std::path::Path::new(&server.url));
    let lines = server.lines.lock().unwrap();
    let other = lines.iter().find(|line| !line.starts_with("GET /data/numbers.bin?Sig=a%2Fb&n=1 "));
    assert_eq!(other, None);
    let server = Server::start(&[], Answer::Status(403));
    let folder = server.url.trim_end_matches("numbers.bin");
    for name in ["a.tar", "{a,b}.tar", "a.parquet", "a", "a[1].tar"] {
        let error = slotline_sources::open(format!("{folder}{name}?Sig=secret&b=*")).unwrap_err();
        let error = with_causes(&error);
        assert!(error.contains("/data/a") && !error.contains("secret"), "{name}: {error}");
    }
}

#[test]
fn a_pattern_over_a_web_server_is_an_error_at_once() {
    let server = Server::start(&[], Answer::Right);
    for pattern in ["*.tar", "[ab].tar", "**/a.tar"] {
        let pattern = server.url.replace("numbers.bin", pattern);
        let error = slotline_sources::open(&pattern).unwrap_err().to_string();
        assert!(error.starts_with(&pattern) && error.contains("`{000..003}`"), "{error}");
    }
    for folder in ["table/", "table/year=2024/?Sig=secret"] {
        let folder = server.url.replace("numbers.bin", folder);
        let error = slotline_sources::open(&folder).unwrap_err().to_string();
        let starts = error.starts_with(folder.split('?').next().unwrap()) && !error.contains("secret");
        assert!(starts && error.contains("a folder of a web server"), "{error}");
    }
    assert_eq!(*server.lines.lock().unwrap(), [""; 0]);
}

#[test]
fn a_slow_server_gives_the_verdict_network() {
    let server = Server::start(&[], Answer::Late(20));
    let numbers = numbers(&server).read_ahead(0);
    for workers in [0, 1] {
        let some = slotline::dataset::Subset::new(numbers.clone(), 0..20).unwrap();
        let mut loader = Loader::builder(some).batch_size(5).num_workers(workers).build().unwrap();
        loader.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
        let stats = loader.stats();
        let verdict = stats.verdict();
        assert!(matches!(verdict, slotline::loader::Verdict::Network(_)), "{verdict} {stats:?}");
    }
}
