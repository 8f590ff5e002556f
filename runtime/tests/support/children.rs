//! The children of processes.
#![allow(dead_code)] // Each test binary uses some of it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Is set where [`kill_again`] has started the program.
pub(crate) const TO_BE_KILLED: &str = "SLOTLINE_TO_BE_KILLED";

/// Starts this program with one of its tests, waits until that prints "ready" and has three workers, and sends a signal to
/// it, or to its whole group. Its workers must end within `limit` after it.
pub(crate) fn kill_again(test: &str, signal: i32, to_all: bool, limit: Duration) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test, "--nocapture"]).env(TO_BE_KILLED, "1").process_group(0).stdout(Stdio::piped());
    // A shell starts programs in the background that ignore SIGINT.
    let restore = || {
        // SAFETY: a plain system call.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: it allocates nothing, and takes no lock.
    unsafe { program.pre_exec(restore) };
    let mut program = program.spawn().unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.map(|line| line.unwrap()).any(|line| line == "ready"));
    let workers = children(program.id());
    assert_eq!(workers.len(), 3);
    let id = program.id() as i32;
    // SAFETY: sends a signal to the program, or to its group, which is its own.
    assert_eq!(unsafe { libc::kill(if to_all { -id } else { id }, signal) }, 0);
    assert_eq!(program.wait().unwrap().signal(), Some(signal));
    let killed = Instant::now();
    while workers.iter().any(|&worker| parent_of(worker).is_some()) {
        assert!(killed.elapsed() < limit, "{workers:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the children of a process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    numbers.filter(|&child| parent_of(child) == Some(parent)).collect()
}

/// Returns the parent of a process that exists and is no zombie.
pub(crate) fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the program's name, which may contain anything: the state and the parent.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut rest = rest.split_whitespace();
    (rest.next()? != "Z").then_some(())?;
    rest.next()?.parse().ok()
}
