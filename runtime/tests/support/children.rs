//! The child processes of a process, and what happens to them if it is killed.
#![allow(dead_code)] // Each test binary uses only a part of it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The environment variable that is set in a program that [`kill_again`] has started.
pub(crate) const TO_BE_KILLED: &str = "SLOTLINE_TO_BE_KILLED";

/// Starts this program again to run one of its tests, waits until the test prints "ready" and has
/// three workers, and sends a signal to it, or to its process group if `to_all`. The workers must
/// end within `limit` after that.
pub(crate) fn kill_again(test: &str, signal: i32, to_all: bool, limit: Duration) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test, "--nocapture"]).env(TO_BE_KILLED, "1").process_group(0).stdout(Stdio::piped());
    // Programs that a shell has started in the background ignore SIGINT, which their children
    // inherit.
    let restore = || {
        // SAFETY: this only changes the action of a signal in the new process.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the function allocates nothing and takes no lock, as is required between fork and
    // exec.
    unsafe { program.pre_exec(restore) };
    let mut program = program.spawn().unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.map(|line| line.unwrap()).any(|line| line == "ready"));
    let workers = children(program.id());
    assert_eq!(workers.len(), 3);
    let id = program.id() as i32;
    // SAFETY: this sends a signal to the program, or to its process group, in which only its own
    // processes are.
    assert_eq!(unsafe { libc::kill(if to_all { -id } else { id }, signal) }, 0);
    assert_eq!(program.wait().unwrap().signal(), Some(signal));
    let killed = Instant::now();
    while workers.iter().any(|&worker| parent_of(worker).is_some()) {
        assert!(killed.elapsed() < limit, "{workers:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the child processes of a process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    numbers.filter(|&child| parent_of(child) == Some(parent)).collect()
}

/// Returns the parent of a process; `None` if the process does not exist or is a zombie.
pub(crate) fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The line contains the program's name in parentheses, which may itself contain parentheses.
    // The state and the parent's id follow the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut rest = rest.split_whitespace();
    (rest.next()? != "Z").then_some(())?;
    rest.next()?.parse().ok()
}
