//! Runs the program, for the test files in this folder.

#![allow(dead_code)] // Each test file is a separate program and uses a part of this module.

use std::process::{Command, Output};

use serde_json::Value;

/// Runs `slotline` with these arguments, which are separated by spaces.
pub(crate) fn slotline(arguments: &str) -> Output {
    let run = Command::new(env!("CARGO_BIN_EXE_slotline")).args(arguments.split_whitespace()).output();
    run.expect("the program starts")
}

/// Runs `slotline`, checks that it succeeds, and returns its stdout.
pub(crate) fn stdout(arguments: &str) -> String {
    let output = slotline(arguments);
    assert!(output.status.success(), "slotline {arguments}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs `slotline` with `--json` and returns the last line of its stdout as JSON.
pub(crate) fn summary(arguments: &str) -> Value {
    let text = stdout(&format!("{arguments} --json"));
    let last = text.lines().last().expect("a last line");
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {last:?}"))
}

/// Runs `slotline`, checks that it does not panic, and returns its exit code and its stderr.
pub(crate) fn failure(arguments: &str) -> (i32, String) {
    let output = slotline(arguments);
    let message = String::from_utf8(output.stderr).expect("text");
    assert!(!message.contains("panicked"), "slotline {arguments}: {message}");
    (output.status.code().expect("a code, not a signal"), message)
}
