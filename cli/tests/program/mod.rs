//! Running the program, for the tests beside.

#![allow(dead_code)] // Each test file is a program of its own and uses a part of this.

use std::process::{Command, Output};

use serde_json::Value;

/// Runs `slotline` with these arguments, divided by blanks.
pub(crate) fn slotline(arguments: &str) -> Output {
    let run = Command::new(env!("CARGO_BIN_EXE_slotline")).args(arguments.split_whitespace()).output();
    run.expect("the program starts")
}

/// What it writes to stdout, having ended well.
pub(crate) fn stdout(arguments: &str) -> String {
    let output = slotline(arguments);
    assert!(output.status.success(), "slotline {arguments}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The last line of stdout, as JSON.
pub(crate) fn summary(arguments: &str) -> Value {
    let text = stdout(&format!("{arguments} --json"));
    let last = text.lines().last().expect("a last line");
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {last:?}"))
}

/// The code and the message with which it ends, badly but in good order.
pub(crate) fn failure(arguments: &str) -> (i32, String) {
    let output = slotline(arguments);
    let message = String::from_utf8(output.stderr).expect("text");
    assert!(!message.contains("panicked"), "slotline {arguments}: {message}");
    (output.status.code().expect("a code, not a signal"), message)
}
