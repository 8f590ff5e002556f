//! Processes that faults are made in.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::support::LONG;

/// Set in the process, to what it is asked to do.
pub(crate) const ASKED: &str = "SLOTLINE_TEST_FAULT";

/// A process that does what it was asked to.
pub(crate) struct Process {
    asked: String,
    child: Child,
    output: File,
}

/// One that has come to its end.
pub(crate) struct Ended {
    asked: String,
    status: ExitStatus,
    pub(crate) text: String,
}

impl Process {
    /// Starts one of `CASES`, with words behind it.
    pub(crate) fn start(asked: impl Into<String>) -> Self {
        let (asked, output) = (asked.into(), tempfile::tempfile().unwrap());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--ignored", "--nocapture"]).env(ASKED, &asked);
        command.stdout(output.try_clone().unwrap()).stderr(output.try_clone().unwrap());
        Self { asked, child: command.spawn().unwrap(), output }
    }

    pub(crate) fn id(&self) -> libc::pid_t {
        self.child.id() as _
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end; one that hangs fails the test.
    pub(crate) fn end(mut self) -> Ended {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if begun.elapsed() > LONG => break None,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        if status.is_none() {
            drop((self.child.kill(), self.child.wait()));
        }
        let mut text = String::new();
        self.output.rewind().unwrap();
        self.output.read_to_string(&mut text).unwrap();
        text.lines().filter(|line| line.contains(NOT_PROVOKED)).for_each(aloud);
        let status = status.unwrap_or_else(|| panic!("{} hangs: {text}", self.asked));
        Ended { asked: self.asked, status, text }
    }
}

impl Ended {
    /// It did all that it was asked to.
    #[track_caller]
    pub(crate) fn well(self) {
        let done = format!("{} is done", self.asked);
        assert!(self.status.success() && self.text.contains(&done), "{}: {}\n{}", self.asked, self.status, self.text);
    }

    /// The signal that ended it.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// Runs one of `CASES`, with words behind it, which must do all that it is asked to.
#[track_caller]
pub(crate) fn run(asked: impl Into<String>) {
    Process::start(asked).end().well();
}

pub(crate) const NOT_PROVOKED: &str = "NOT PROVOKED: ";

/// Says that a fault could not be made here.
pub(crate) fn not_provoked(what: &str) {
    aloud(&format!("{NOT_PROVOKED}{what}"));
}

/// Says something even if the test goes well, when what is printed is not shown.
fn aloud(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}
