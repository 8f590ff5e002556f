//! Running a command as a program: its arguments, errors and exit codes.

use std::ffi::OsString;
use std::io::{self, Write};

use anyhow::Result;
use clap::Parser;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::{Layer, Registry};

use crate::output::{plain, print_error_line};

/// Parses the arguments, which begin with the program's name, and runs the command. Errors are
/// printed on stderr, after `reworded` has been applied to them. Returns the exit code: 2 for wrong
/// arguments and 1 for an error of the command.
pub fn run<P: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
    command: impl FnOnce(P) -> Result<()>,
    reworded: impl FnOnce(String) -> String,
) -> u8 {
    let parsed = match P::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        // The message quotes arguments, which may be file names with control characters.
        Err(error) if error.use_stderr() => {
            let _ = write!(io::stderr(), "{}", plain(&error));
            return 2;
        }
        // If the help or the version cannot be printed, the failure cannot be reported either.
        Err(help) => {
            let _ = help.print();
            return 0;
        }
    };
    match command(parsed) {
        Ok(()) => 0,
        // The reader of the output has closed the pipe (`| head`), which is not an error.
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) => {
            print_error_line(format_args!("error: {}", reworded(with_causes(&error))));
            1
        }
    }
}

/// Returns a layer for a subscriber that prints the loader's warnings on stderr.
pub fn warnings() -> impl Layer<Registry> {
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).without_time().with_target(false);
    lines.with_filter(LevelFilter::WARN)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Returns the message and its causes, one per line.
fn with_causes(error: &anyhow::Error) -> String {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    causes.join("\n  because: ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn causes_follow_the_message_line_by_line() {
        let error = anyhow!("no such file").context("cannot open a.npy").context("cannot load npy:a.npy");
        assert_eq!(with_causes(&error), "cannot load npy:a.npy\n  because: cannot open a.npy\n  because: no such file");
    }
}
