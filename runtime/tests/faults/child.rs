//! Child processes, in which faults are provoked.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::support::LONG;

/// The environment variable that contains the case that a child process runs.
pub(crate) const ASKED: &str = "SLOTLINE_TEST_FAULT";

/// A child process that runs a case.
pub(crate) struct Process {
    asked: String,
    child: Child,
    output: File,
}

/// A child process that has ended.
pub(crate) struct Ended {
    asked: String,
    status: ExitStatus,
    pub(crate) text: String,
}

impl Process {
    /// Starts a process for one of `CASES`. `asked` is the name of the case, followed by arguments.
    pub(crate) fn start(asked: impl Into<String>) -> Self {
        let (asked, output) = (asked.into(), tempfile::tempfile().unwrap());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--ignored", "--nocapture"]).env(ASKED, &asked);
        // The cases expect that stacks have the default size.
        command.env_remove("RUST_MIN_STACK");
        command.stdout(output.try_clone().unwrap()).stderr(output.try_clone().unwrap());
        Self { asked, child: command.spawn().unwrap(), output }
    }

    pub(crate) fn id(&self) -> libc::pid_t {
        self.child.id() as _
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the process to end. If it hangs, it is killed and the test fails.
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
        text.lines().filter(|line| line.contains(NOT_PROVOKED)).for_each(print_always);
        let status = status.unwrap_or_else(|| panic!("{} hangs: {text}", self.asked));
        Ended { asked: self.asked, status, text }
    }
}

impl Ended {
    /// Asserts that the process completed its case.
    #[track_caller]
    pub(crate) fn assert_success(self) {
        let done = format!("{} is done", self.asked);
        assert!(self.status.success() && self.text.contains(&done), "{}: {}\n{}", self.asked, self.status, self.text);
    }

    /// Returns the signal that ended the process; `None` if it ended in another way.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// Runs one of `CASES` in a child process, and asserts that it completes. `asked` is the name of
/// the case, followed by arguments.
#[track_caller]
pub(crate) fn run(asked: impl Into<String>) {
    Process::start(asked).end().assert_success();
}

pub(crate) const NOT_PROVOKED: &str = "NOT PROVOKED: ";

/// Reports that a fault could not be provoked on this machine.
pub(crate) fn not_provoked(what: &str) {
    print_always(&format!("{NOT_PROVOKED}{what}"));
}

/// Prints a line even if the test succeeds, when captured output is not shown.
fn print_always(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}
