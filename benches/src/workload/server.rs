//! A server with S3's protocol for tests on one machine. It returns objects and ranges of objects,
//! and waits before each answer.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

/// A server with one bucket, named `bucket`. It runs until the program ends.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
}

impl Server {
    /// Serves the files below a folder. Each answer begins after `delay`.
    pub(super) fn start(folder: &Path, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let folder: Arc<Path> = folder.into();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let folder = Arc::clone(&folder);
                // A connection ends when its client closes it.
                std::thread::spawn(move || serve(&stream, &folder, delay));
            }
        });
        Ok(Self { address })
    }

    /// Returns the address of the server.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Answers the requests of a connection.
fn serve(mut stream: &TcpStream, folder: &Path, delay: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut requests = BufReader::new(stream);
    while let Some(request) = Request::read(&mut requests)? {
        let answer = request.answer(folder);
        std::thread::sleep(delay);
        match answer {
            Ok((head, body)) => {
                stream.write_all(head.as_bytes())?;
                if let Some(mut body) = body {
                    io::copy(&mut body, &mut stream)?;
                }
            }
            Err(_) => stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?,
        }
    }
    Ok(())
}

/// A request for an object.
struct Request {
    method: String,
    path: String,
    range: Option<(u64, Option<u64>)>,
}

impl Request {
    /// Reads a request. Returns `None` at the end of the connection.
    fn read(lines: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut request = Self { method, path, range: None };
        loop {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let Some((name, value)) = line.trim_end().split_once(':') else { return Ok(Some(request)) };
            if name.eq_ignore_ascii_case("range")
                && let Some((from, to)) = value.trim().strip_prefix("bytes=").and_then(|range| range.split_once('-'))
            {
                request.range = from.parse().ok().map(|from| (from, to.parse().ok()));
            }
        }
    }

    /// Returns the head of the answer, and its body unless only the head was requested.
    fn answer(&self, folder: &Path) -> io::Result<(String, Option<io::Take<File>>)> {
        let name = self.path.split('?').next().and_then(|path| path.strip_prefix("/bucket/"));
        let name = name.filter(|name| !name.contains("..")).ok_or(io::ErrorKind::NotFound)?;
        let path: PathBuf = folder.join(name);
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        let (first, last) = self.range.map_or((0, None), |(first, last)| (first.min(len), last));
        let end = last.map_or(len, |last| len.min(last + 1));
        file.seek(SeekFrom::Start(first))?;
        let status = match self.range {
            None => "200 OK".to_owned(),
            Some(_) => format!("206 Partial Content\r\nContent-Range: bytes {first}-{}/{len}", end.saturating_sub(1)),
        };
        let size = end.saturating_sub(first);
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {size}\r\nAccept-Ranges: bytes\r\nETag: \"{len}\"\r\n\
             Last-Modified: Sun, 01 Nov 2026 00:00:00 GMT\r\n\r\n"
        );
        Ok((head, (self.method == "GET").then(|| file.take(size))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn objects_and_ranges_are_served() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("letters"), "abcdefgh").unwrap();
        let server = Server::start(folder.path(), Duration::ZERO).unwrap();
        let whole = ask(&server, "GET /bucket/letters HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n") && whole.ends_with("\r\n\r\nabcdefgh"));
        let part = ask(&server, "GET /bucket/letters HTTP/1.1\r\nRange: bytes=2-4\r\n\r\n");
        assert!(part.contains("Content-Range: bytes 2-4/8\r\nContent-Length: 3\r\n") && part.ends_with("\r\n\r\ncde"));
        let head = ask(&server, "HEAD /bucket/letters HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 8\r\n") && head.ends_with("\r\n\r\n"));
        assert!(ask(&server, "GET /bucket/none HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    }
}
