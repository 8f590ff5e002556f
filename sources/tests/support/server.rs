//! A server of one object with known bytes, which can answer incorrectly.
#![allow(dead_code)] // Each test program uses only a part of them.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

/// The way in which the server answers a request for a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Right,
    /// Answers correctly, but after this many milliseconds.
    Late(u64),
    Status(u16),
    /// Closes the connection in the middle of the bytes.
    Cut,
    /// Returns status 206, but other bytes than those requested.
    Shifted,
    /// Returns status 200 and all bytes.
    Whole,
    /// Returns another version of the object.
    Replaced,
    /// Returns no version (ETag), and a later modification time.
    Modified,
    /// Returns no version, and a longer object.
    Longer,
    /// Returns a weak version, which does not satisfy a request for that version.
    Weak,
    /// Returns bytes that never end.
    Endless,
    /// Returns this error status, and a text that never ends.
    Talks(u16),
    /// Returns status 206, and the largest possible numbers in the headers.
    Huge,
    /// Redirects to this location.
    To(&'static str),
}

impl Answer {
    /// Returns the tag of the object.
    fn tag(self) -> Option<&'static str> {
        match self {
            Self::Replaced => Some("\"two\""),
            Self::Weak => Some("W/\"one\""),
            Self::Modified | Self::Longer => None,
            _ => Some("\"one\""),
        }
    }
}

/// A server that returns one object for every path.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) script: Arc<Mutex<VecDeque<Answer>>>,
    pub(crate) requests: Arc<AtomicUsize>,
    pub(crate) most_at_a_time: Arc<AtomicUsize>,
    /// The first lines of all requests so far.
    pub(crate) lines: Arc<Mutex<Vec<String>>>,
}

/// The number of numbers that are read.
pub(crate) const COUNT: usize = 500;

/// The distance in bytes between two numbers, so large that each is fetched by a separate request.
pub(crate) const APART: usize = 34 << 10;

pub(crate) const LEN: usize = APART * COUNT;

/// The bytes of the object: numbers that can be computed from their positions.
static CONTENTS: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..LEN).step_by(8).flat_map(|at| number(at).to_ne_bytes()).collect());

pub(crate) fn number(at: usize) -> i64 {
    at as i64 * 1_000_003
}

impl Server {
    /// Starts a server that gives these answers in turn, and `always` afterwards.
    pub(crate) fn start(script: &[Answer], always: Answer) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap(), script, always, None, &CONTENTS)
    }

    /// Starts a server of an object with these bytes.
    pub(crate) fn of(bytes: Vec<u8>, always: Answer) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap(), &[], always, None, bytes.leak())
    }

    /// Starts a server that is as slow as a small one written in Python. Five connections can wait
    /// in its queue. It accepts one connection in each period of `pause`, and closes it after one
    /// answer. If there are more than `most` connections, it resets them.
    pub(crate) fn small(pause: Duration, most: usize, always: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: the descriptor is that of a listening socket, whose queue becomes shorter.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 5) }, 0);
        Self::listen(listener, &[], always, Some((pause, most)), &CONTENTS)
    }

    fn listen(
        listener: TcpListener,
        script: &[Answer],
        always: Answer,
        small: Option<(Duration, usize)>,
        data: &'static [u8],
    ) -> Self {
        let url = format!("http://{}/data/numbers.bin", listener.local_addr().unwrap());
        let script = Arc::new(Mutex::new(script.iter().copied().collect::<VecDeque<_>>()));
        let (requests, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let server = Self {
            url,
            script: script.clone(),
            requests: requests.clone(),
            most_at_a_time: most.clone(),
            lines: lines.clone(),
        };
        let (now, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some((pause, most)) = small {
                    thread::sleep(pause);
                    if connections.load(Ordering::SeqCst) >= most {
                        // Closing a connection with unread data resets it.
                        continue;
                    }
                }
                let (script, requests, most, now) = (script.clone(), requests.clone(), most.clone(), now.clone());
                let (lines, connections) = (lines.clone(), connections.clone());
                connections.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    while let Some((head, range, demands)) = request(&mut reader) {
                        lines.lock().unwrap().push(head.clone());
                        let mut answer = match range {
                            Some(_) => {
                                requests.fetch_add(1, Ordering::SeqCst);
                                script.lock().unwrap().pop_front().unwrap_or(always)
                            }
                            // The request without a range, which opens the object, decides whether
                            // the client knows a version, so it gets the usual answer.
                            None if matches!(always, Answer::Weak | Answer::To(_)) => always,
                            // A signature is valid for one method only.
                            None if head.contains('?') => Answer::Status(403),
                            None => Answer::Right,
                        };
                        if demands.is_some_and(|tag| tag.starts_with("W/")) {
                            answer = Answer::Status(412);
                        }
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        if let Answer::Late(millis) = answer {
                            thread::sleep(Duration::from_millis(millis));
                        }
                        // As soon as the client has its answer, it may make another request.
                        now.fetch_sub(1, Ordering::SeqCst);
                        let goes_on = respond(&stream, data, &head, range, answer, small.is_some());
                        if !goes_on {
                            let _ = stream.shutdown(Shutdown::Both);
                            break;
                        }
                    }
                    connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }
}

/// The first line of a request, the range that it asks for, and the version that it demands.
type Request = (String, Option<(usize, usize)>, Option<String>);

/// Reads the head of a request.
fn request(reader: &mut impl BufRead) -> Option<Request> {
    let (mut first, mut range, mut demands) = (String::new(), None, None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Some((first, range, demands));
        }
        if first.is_empty() {
            first = line.to_owned();
        }
        if line.to_ascii_lowercase().starts_with("if-match: ") {
            demands = line.split_once(": ").map(|(_, tag)| tag.to_owned());
        }
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            let (start, end) = bytes.split_once('-').unwrap();
            range = Some((start.parse().unwrap(), end.parse::<usize>().unwrap() + 1));
        }
    }
}

/// Answers a request. Returns whether the connection stays open.
fn respond(
    mut stream: &TcpStream,
    data: &[u8],
    head: &str,
    range: Option<(usize, usize)>,
    answer: Answer,
    ends: bool,
) -> bool {
    let (mut start, mut end) = range.unwrap_or((0, data.len()));
    let mut status = if range.is_some() { 206 } else { 200 };
    let (mut len, mut modified) = (data.len(), "10:00:00");
    match answer {
        Answer::Status(code) | Answer::Talks(code) => status = code,
        Answer::To(_) => status = 302,
        Answer::Shifted => (start, end) = (start + 8, end + 8),
        Answer::Whole => (start, end, status) = (0, data.len(), 200),
        Answer::Modified => (start, end, modified) = (start + 8, end + 8, "10:00:01"),
        Answer::Longer => (start, end, len) = (start + 8, end + 8, data.len() + 8),
        Answer::Right | Answer::Late(_) | Answer::Cut | Answer::Replaced | Answer::Weak => {}
        Answer::Endless | Answer::Huge => {}
    }
    let body = if status >= 300 { &b"no"[..] } else { &data[start..end] };
    let mut text = match answer {
        Answer::Endless | Answer::Talks(_) => format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", 1_u64 << 50),
        _ => format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len()),
    };
    if ends {
        text += "Connection: close\r\n";
    }
    if let Answer::To(url) = answer {
        text += &format!("Location: {url}\r\n");
    }
    if let Some(tag) = answer.tag() {
        text += &format!("ETag: {tag}\r\n");
    }
    text += &format!("Last-Modified: Mon, 02 Nov 2026 {modified} GMT\r\nAccept-Ranges: bytes\r\n");
    if answer == Answer::Huge {
        text += &format!("Content-Range: bytes 0-{0}/{0}\r\n", u64::MAX);
    } else if status == 206 {
        // Sends other bytes in place of those that were requested.
        let shift = if matches!(answer, Answer::Modified | Answer::Longer) { 8 } else { 0 };
        text += &format!("Content-Range: bytes {}-{}/{len}\r\n", start - shift, end - 1 - shift);
    }
    let text = text + "\r\n";
    let body = if head.starts_with("HEAD") { &[][..] } else { body };
    if matches!(answer, Answer::Endless | Answer::Talks(_)) {
        let mut goes_on = stream.write_all(text.as_bytes()).is_ok();
        while goes_on {
            goes_on = stream.write_all(&[b'\x1b'; 1 << 16]).is_ok();
        }
        return false;
    }
    let sent = if answer == Answer::Cut { &body[..body.len() / 2] } else { body };
    // The answer is sent in one piece, since the system would delay a second piece until the client
    // has acknowledged the first.
    stream.write_all(&[text.as_bytes(), sent].concat()).is_ok() && answer != Answer::Cut && !ends
}
