//! Objects on a server that answers rightly, late, wrongly, or not at all.

#![cfg(feature = "http")]

use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use slotline::Loader;
use slotline::dtype::DType;
use slotline_sources::files::{Files, Span};
use slotline_sources::{Error, FieldKind, Format, Input, Record, RecordFields, Records, Value};

use server::{APART, Answer, COUNT, Server, number};

mod support;

#[path = "support/server.rs"]
mod server;

/// Numbers of eight bytes.
#[derive(Debug)]
struct Numbers {
    files: Files,
    fields: RecordFields,
    /// How far they are from each other, in bytes.
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

/// Returns the numbers of a pass, or its first error with all causes.
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

fn with_causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(|error| error.to_string())
        .collect::<Vec<_>>()
        .join(": ")
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
    let server = Server::start(&[], Answer::Late(20));
    let begun = Instant::now();
    assert_eq!(pass(numbers(&server), 0, false), Ok(expected()));
    // The first one may be read before it was asked for.
    let requests = server.requests.load(Ordering::SeqCst);
    assert!((COUNT..COUNT + 4).contains(&requests), "each range is fetched once, and not {requests} in all");
    let most = server.most_at_a_time.load(Ordering::SeqCst);
    assert!(most > 32 && begun.elapsed() < Duration::from_secs(8), "{most} at a time, {:?}", begun.elapsed());
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
    ] {
        let server = Server::start(&[Answer::Right, Answer::Right], answer);
        let error = pass(numbers(&server), 0, false).unwrap_err();
        assert!(error.contains(words) && error.contains(&server.url), "{answer:?}: {error}");
    }
}

#[test]
fn objects_with_weak_tags_are_read() {
    let server = Server::start(&[], Answer::Weak);
    assert_eq!(pass(numbers(&server), 2, false), Ok(expected()));
}

#[test]
fn what_was_read_before_it_was_asked_for_is_fetched_once() {
    let server = Server::start(&[], Answer::Late(5));
    // Eight workers read far beyond the 40 numbers that may be asked for ahead.
    let numbers = numbers(&server).read_ahead(320);
    assert_eq!(pass(numbers, 8, false), Ok(expected()));
    let requests = server.requests.load(Ordering::SeqCst);
    assert!(requests < COUNT + COUNT / 20, "{requests} requests");
}

#[test]
fn ranges_that_nobody_reads_are_let_go() {
    /// Numbers whose next bytes are asked for, too.
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
    let server = Server::small(Duration::from_millis(2), usize::MAX, Answer::Right);
    let begun = Instant::now();
    assert_eq!(pass(numbers(&server), 0, false), Ok(expected()));
    // With 128 requests from the beginning it takes half a minute.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
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
    let numbers = slotline_sources::with_max_connections(3, || numbers(&server));
    assert_eq!(pass(numbers, 8, false), Ok(expected()));
    assert_eq!(server.most_at_a_time.load(Ordering::SeqCst), 3);
    let error = slotline_sources::with_max_connections(0, || Numbers::open(&server.url, 8)).unwrap_err().to_string();
    assert!(error.contains("allow at least one"), "{error}");
}

#[cfg(feature = "tar")]
#[test]
fn the_workers_of_a_stream_share_the_allowed_requests() {
    // So that several parts of each tar are asked for ahead.
    let noise: Vec<u8> = (0..9 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let server = Server::of(support::tar(&[("1.bin", &noise), ("2.bin", &noise)]), Answer::Late(20));
    let url = server.url.replace("numbers.bin", "{0..3}.tar.gz");
    let stream = |most| slotline_sources::OpenOptions::new().max_connections(most).open_stream(&url);
    let mut loader = Loader::iterable(stream(2).unwrap().unwrap()).num_workers(4).build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 8);
    assert_eq!(server.most_at_a_time.load(Ordering::SeqCst), 2);
    let error = stream(0).unwrap_err().to_string();
    assert!(error.contains("`max_connections` is 0"), "{error}");
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
