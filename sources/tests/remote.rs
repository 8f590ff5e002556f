//! Objects on a server that answers rightly, late, wrongly, or not at all.

#![cfg(feature = "http")]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use slotline::Loader;
use slotline::dtype::DType;
use slotline_sources::files::{Files, Span};
use slotline_sources::{Error, FieldKind, Format, Input, Record, RecordFields, Records, Value};

/// What the server does with a request for bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Right,
    /// After this many milliseconds.
    Late(u64),
    Status(u16),
    /// The connection ends in the middle of the bytes.
    Cut,
    /// 206 with other bytes than those that were asked for.
    Shifted,
    /// 200 with all bytes.
    Whole,
    /// With another version.
    Replaced,
}

/// A server of one object.
struct Server {
    url: String,
    script: Arc<Mutex<VecDeque<Answer>>>,
    requests: Arc<AtomicUsize>,
    most_at_a_time: Arc<AtomicUsize>,
}

/// How many numbers are read.
const COUNT: usize = 500;

/// How many bytes lie between numbers that are fetched by requests of their own.
const APART: usize = 34 << 10;

const LEN: usize = APART * COUNT;

/// Numbers that follow from their positions.
static CONTENTS: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..LEN).step_by(8).flat_map(|at| number(at).to_ne_bytes()).collect());

fn number(at: usize) -> i64 {
    at as i64 * 1_000_003
}

impl Server {
    /// Starts a server whose answers are these, and then `always`.
    fn start(script: &[Answer], always: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/data/numbers.bin", listener.local_addr().unwrap());
        let script = Arc::new(Mutex::new(script.iter().copied().collect::<VecDeque<_>>()));
        let (requests, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let server = Self { url, script: script.clone(), requests: requests.clone(), most_at_a_time: most.clone() };
        let now = Arc::new(AtomicUsize::new(0));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, requests, most, now) = (script.clone(), requests.clone(), most.clone(), now.clone());
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    while let Some((head, range)) = request(&mut reader) {
                        let answer = match range {
                            Some(_) => {
                                requests.fetch_add(1, Ordering::SeqCst);
                                script.lock().unwrap().pop_front().unwrap_or(always)
                            }
                            None => Answer::Right,
                        };
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        let goes_on = respond(&stream, &head, range, answer);
                        now.fetch_sub(1, Ordering::SeqCst);
                        if !goes_on {
                            let _ = stream.shutdown(Shutdown::Both);
                            return;
                        }
                    }
                });
            }
        });
        server
    }

    fn numbers(&self) -> Records<Numbers> {
        Records::new(Numbers::open(&self.url, APART).unwrap())
    }
}

/// Reads the head of a request: its first line, and the range that it asks for.
fn request(reader: &mut impl BufRead) -> Option<(String, Option<(usize, usize)>)> {
    let (mut first, mut range) = (String::new(), None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Some((first, range));
        }
        if first.is_empty() {
            first = line.to_owned();
        }
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            let (start, end) = bytes.split_once('-').unwrap();
            range = Some((start.parse().unwrap(), end.parse::<usize>().unwrap() + 1));
        }
    }
}

/// Answers a request. Returns whether the connection goes on.
fn respond(mut stream: &TcpStream, head: &str, range: Option<(usize, usize)>, answer: Answer) -> bool {
    let data = &*CONTENTS;
    let (mut start, mut end) = range.unwrap_or((0, LEN));
    let mut status = if range.is_some() { 206 } else { 200 };
    let mut version = "one";
    match answer {
        Answer::Late(millis) => thread::sleep(Duration::from_millis(millis)),
        Answer::Status(code) => status = code,
        Answer::Shifted => (start, end) = (start + 8, end + 8),
        Answer::Whole => (start, end, status) = (0, LEN, 200),
        Answer::Replaced => version = "two",
        Answer::Right | Answer::Cut => {}
    }
    let body = if status >= 400 { &b"no"[..] } else { &data[start..end] };
    let mut text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nETag: \"{version}\"\r\n", body.len());
    text += "Last-Modified: Mon, 02 Nov 2026 10:00:00 GMT\r\nAccept-Ranges: bytes\r\n";
    if status == 206 {
        text += &format!("Content-Range: bytes {start}-{}/{LEN}\r\n", end - 1);
    }
    text += "\r\n";
    let body = if head.starts_with("HEAD") { &[][..] } else { body };
    let sent = if answer == Answer::Cut { &body[..body.len() / 2] } else { body };
    // In one piece, which is not delayed until the first part is acknowledged.
    stream.write_all(&[text.as_bytes(), sent].concat()).is_ok() && answer != Answer::Cut
}

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
        let numbers = server.numbers().read_ahead(ahead);
        assert_eq!(pass(numbers, workers, processes), Ok(expected()), "{workers} {processes} {ahead}");
    }
}

#[test]
fn many_requests_are_under_way_at_a_time() {
    let server = Server::start(&[], Answer::Late(20));
    let begun = Instant::now();
    assert_eq!(pass(server.numbers(), 0, false), Ok(expected()));
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
        assert_eq!(pass(server.numbers(), workers, false), Ok(expected()), "{workers}");
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
    ] {
        let server = Server::start(&[Answer::Right, Answer::Right], answer);
        let error = pass(server.numbers(), 0, false).unwrap_err();
        assert!(error.contains(words) && error.contains(&server.url), "{answer:?}: {error}");
    }
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
    let numbers = server.numbers();
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
