//! Compares the results of slotline with those that PyTorch gave for the same calls.
//!
//! ```text
//! cargo run --release --example torch_parity -- runtime/tests/torch/vectors.json
//! ```
//!
//! The file is one JSON object with `torch`, the version of PyTorch that was called, and `cases`, a
//! list of objects. Each case has a `kind`, the arguments of a call, and torch's answers, which are
//! the results of that call. The module `checks` has a type for each kind.
//!
//! Prints each case that fails: its number in the file (from 0), its kind and arguments, and the
//! answers of torch and slotline. The last line is `N passed, M failed`. The exit status is 0 if
//! all cases passed, 1 if one failed, and 2 if the file could not be read.

mod checks;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use self::checks::{Vectors, check, describe};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [path] = arguments.as_slice() else { return unreadable("usage: torch_parity FILE.json") };
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) => return unreadable(&format!("error: {}: {error}", path.display())),
    };
    let vectors: Vectors = match serde_json::from_slice(&text) {
        Ok(vectors) => vectors,
        Err(error) => {
            let wanted = "expected one JSON object with \"torch\", a version, and \"cases\", a list of objects";
            return unreadable(&format!("error: {}: {error}; {wanted}", path.display()));
        }
    };
    match report(&vectors, &mut io::stdout().lock()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => unreadable(&format!("error: the report could not be written: {error}")),
    }
}

/// Checks all cases, writes the report, and returns the number of cases that failed.
fn report(vectors: &Vectors, out: &mut impl Write) -> io::Result<usize> {
    writeln!(out, "{} cases, answered by torch {}", vectors.cases.len(), vectors.torch)?;
    let mut failed = 0;
    for (number, case) in vectors.cases.iter().enumerate() {
        if let Err(failure) = check(case) {
            failed += 1;
            writeln!(out, "FAILED case {number}, {}:\n  {failure}", describe(case))?;
        }
    }
    writeln!(out, "{} passed, {failed} failed", vectors.cases.len() - failed)?;
    Ok(failed)
}

fn unreadable(message: &str) -> ExitCode {
    // If writing this fails, there is nowhere else to report to.
    let _ = writeln!(io::stderr(), "{message}");
    ExitCode::from(2)
}
