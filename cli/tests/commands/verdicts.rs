//! Verdicts of the program on loops with a known bottleneck.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::program::stdout;

/// Runs the tests of this file one at a time, since each of them needs free cores.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether a report contains these words, or says that other programs occupied the cores.
fn says(text: &str, words: &str) -> bool {
    text.contains(words) || text.contains("starved of cores")
}

/// Runs `slotline` on the first core that this process may use, together with threads that spin on
/// the same core.
fn beside(threads: usize, arguments: &str) -> Output {
    // SAFETY: an empty set is a valid value.
    let (mut own, mut one): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { std::mem::zeroed() };
    let size = size_of_val(&own);
    // SAFETY: the system writes no more than the size of the set.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size, &raw mut own) }, 0);
    // SAFETY: the number is below the size of the set.
    let is_own = |core: &usize| unsafe { libc::CPU_ISSET(*core, &own) };
    let core = (0..libc::CPU_SETSIZE as usize).find(is_own).expect("a core");
    // SAFETY: the number is below the size of the set.
    unsafe { libc::CPU_SET(core, &mut one) };
    // SAFETY: the system reads no more than the size of the set.
    let pin = move || match unsafe { libc::sched_setaffinity(0, size, &raw const one) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_slotline"));
    // SAFETY: between fork and exec, `pin` makes only one system call.
    unsafe { command.args(arguments.split_whitespace()).pre_exec(pin) };
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                pin().expect("it may use this core");
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let output = command.output().expect("the program starts");
        ended.store(true, Ordering::Relaxed);
        output
    })
}

#[test]
fn busy_threads_on_its_core_starve_a_loop() {
    let _alone = alone();
    for workers in [0, 1] {
        let output = beside(3, &format!("feed digits --epochs 100 --batch-size 1797 --num-workers {workers}"));
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.contains("starved of cores") && text.contains("one of 1 cores"), "{text}");
    }
}

#[test]
fn batches_of_one_digit_are_small() {
    let _alone = alone();
    // The time to hand over a batch depends on the cores that the system chooses for the two
    // threads, so try several times.
    let mut text = String::new();
    let is_found = (0..5).any(|_| {
        text = stdout("feed digits --batch-size 1 --num-workers 1 --no-helping --epochs 20");
        says(&text, "handing over small batches")
    });
    assert!(is_found, "{text}");
}

#[cfg(feature = "remote")]
mod server {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    use super::{alone, says};
    use crate::program::{slotline, stdout};

    const ROWS: usize = 24;
    const ROW: usize = 1 << 10;

    /// Starts a server of rows, which answers requests for row `index` after `pause(index)`.
    fn rows(pause: fn(usize) -> Duration) -> String {
        let header = format!(r#"{{"a":{{"dtype":"U8","shape":[{ROWS},{ROW}],"data_offsets":[0,{}]}}}}"#, ROWS * ROW);
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        let start = file.len();
        file.resize(start + ROWS * ROW, 7);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/a.safetensors", listener.local_addr().expect("an address"));
        let file: &[u8] = file.leak();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || serve(&stream, file, |at| pause(at.saturating_sub(start) / ROW)));
            }
        });
        url
    }

    fn serve(stream: &TcpStream, file: &[u8], pause: impl Fn(usize) -> Duration) {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        while let Some(first) = lines.next() {
            let fields: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
            let range = fields.iter().find_map(|line| {
                let line = line.to_ascii_lowercase();
                let (start, last) = line.strip_prefix("range: bytes=")?.split_once('-')?;
                Some(start.parse::<usize>().ok()?..last.parse::<usize>().ok()? + 1)
            });
            let (status, range) = range.map_or((200, 0..file.len()), |range| (206, range));
            // Only requests for a row are delayed, not those for the file's header.
            if range.len() == ROW {
                thread::sleep(pause(range.start));
            }
            let (start, last) = (range.start, range.end - 1);
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{last}/{}\r\nETag: \"a\"\r\n\
                 Last-Modified: Mon, 02 Nov 2026 10:00:00 GMT\r\n\r\n",
                range.len(),
                file.len()
            );
            let body = if first.starts_with("HEAD") { &[][..] } else { &file[range] };
            let mut stream = stream;
            if stream.write_all(&[head.as_bytes(), body].concat()).is_err() {
                return;
            }
        }
    }

    /// The options for one request for each sample: worker processes read nothing ahead.
    const APART: &str = "--batch-size 4 --num-workers 2 --worker-kind process";

    #[test]
    fn a_slow_server_is_the_network() {
        let (_alone, url) = (alone(), rows(|_| Duration::from_millis(50)));
        let text = stdout(&format!("feed {url} {APART}"));
        assert!(says(&text, "bound by the network: 2 of 2 workers busy"), "{text}");
    }

    #[test]
    fn one_slow_sample_of_a_server_is_named() {
        let (_alone, url) = (alone(), rows(|index| Duration::from_millis(if index == 9 { 2000 } else { 0 })));
        let text = stdout(&format!("feed {url} {APART}"));
        assert!(says(&text, "held up by one sample: sample 9"), "{text}");
    }

    #[test]
    fn a_sample_that_a_server_never_sends_is_named() {
        let (_alone, url) = (alone(), rows(|index| Duration::from_secs(if index == 9 { 3600 } else { 0 })));
        let output = slotline(&format!("feed {url} {APART} --timeout 2"));
        let [text, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
        assert!(error.contains("timed out after 2 seconds") && error.contains("is reading sample 9"), "{error}");
        assert!(text.contains("held up by a sample that has not ended") && text.contains("at sample 9"), "{text}");
    }
}
